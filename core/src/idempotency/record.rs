use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Code, Effect, Error, ErrorKind};
use crate::idempotency::fingerprint::Fingerprint;
use crate::lock::Nonce;

/// What every record begins with. Another layout would have another number, and be refused by who cannot read it.
const LAYOUT: &[u8] = b"idem1 ";
const FAMILY: &[u8] = b"idem";

/// What is stored for one call: who claimed it and for what, and how far it has come.
///
/// A fixed header, the operation, and a body that only its state can read:
///
/// | bytes | what |
/// |---|---|
/// | 6 | the layout, `idem1 ` |
/// | 1 | the state: `p` in progress, `a` answered, `s` answered and sealed, `u` answered and not kept |
/// | 16 | the claim's nonce |
/// | 32 | the payload's fingerprint |
/// | 8 | when it was claimed, in milliseconds since 1970 by the claimant's clock |
/// | 2 and so many | the operation, in UTF-8 |
/// | the rest | in progress: two ttls of 8 bytes in milliseconds, and the owner's label; answered: the answer |
///
/// Numbers are big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) header: Header,
    pub(super) state: State,
}

/// What does not change from claim to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) nonce: Nonce,
    pub(super) fingerprint: Fingerprint,
    pub(super) since: SystemTime,
    /// Valid UTF-8 of at most [`Header::LONGEST_OPERATION`] bytes.
    pub(super) operation: Bytes,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum State {
    InProgress(Progress),
    Answered(Bytes),
    /// Answered, and the answer is encrypted.
    Sealed(Bytes),
    /// Answered, and the answer was not kept.
    Unkept,
}

/// What a marker says of its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// How long a claim lives without a renewal.
    pub(super) ttl: Duration,
    /// How long the marker lives without one: longer, when it is to outlive a claimant that crashed.
    pub(super) marker_ttl: Duration,
    /// The claimant's label.
    pub(super) owner: Bytes,
}

impl Progress {
    /// Whether a marker with so much time left belongs to nobody any more: then nobody knows what became of the call.
    pub(super) fn is_stale(&self, time_left: Duration) -> bool {
        self.marker_ttl > self.ttl && self.claim_left(time_left).is_zero()
    }

    /// How long the claim still lives without a renewal, when its marker has so much time left.
    pub(super) fn claim_left(&self, time_left: Duration) -> Duration {
        time_left.saturating_sub(self.marker_ttl.saturating_sub(self.ttl))
    }
}

impl Header {
    /// The longest name of an operation, in bytes.
    pub(super) const LONGEST_OPERATION: usize = 1024;
    /// How many bytes it takes, without the operation's.
    const FIXED: usize = LAYOUT.len() + 1 + 16 + Fingerprint::LEN + 8 + 2;

    /// How many bytes of a record an answer may not use.
    pub(super) fn len(&self) -> usize {
        Self::FIXED + self.operation.len()
    }

    /// What a sealed answer is bound to, so that it cannot be moved to another record.
    #[cfg(feature = "encryption")]
    pub(super) fn bound_to(&self) -> Bytes {
        self.encode(STATE_SEALED, 0).freeze()
    }

    fn encode(&self, state: u8, body: usize) -> BytesMut {
        let Self { nonce, fingerprint, since, operation } = self;
        let mut record = BytesMut::with_capacity(self.len() + body);
        record.put_slice(LAYOUT);
        record.put_u8(state);
        record.put_slice(nonce.as_bytes());
        record.put_slice(fingerprint.as_bytes());
        record.put_u64(since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis));
        record.put_u16(operation.len() as u16);
        record.put_slice(operation);
        record
    }
}

const STATE_IN_PROGRESS: u8 = b'p';
const STATE_ANSWERED: u8 = b'a';
const STATE_SEALED: u8 = b's';
const STATE_UNKEPT: u8 = b'u';

impl Record {
    pub(super) fn encode(&self) -> Bytes {
        let Self { header, state } = self;
        let record = match state {
            State::InProgress(Progress { ttl, marker_ttl, owner }) => {
                let mut record = header.encode(STATE_IN_PROGRESS, 16 + owner.len());
                record.put_u64(millis(*ttl));
                record.put_u64(millis(*marker_ttl));
                record.put_slice(owner);
                record
            }
            State::Answered(answer) => answered(header, STATE_ANSWERED, answer),
            State::Sealed(answer) => answered(header, STATE_SEALED, answer),
            State::Unkept => header.encode(STATE_UNKEPT, 0),
        };
        record.freeze()
    }

    /// Reads what is stored. The operation and the body share its memory.
    ///
    /// # Errors
    ///
    /// `Corrupt` with [`Code::NotReplayable`], for what is no record and for a record of a layout that this version does
    /// not know.
    pub(super) fn decode(stored: &Bytes, operation: &'static str) -> Result<Self, Error> {
        Self::read(stored.clone()).ok_or_else(|| {
            let newer = stored.starts_with(FAMILY) && !stored.starts_with(LAYOUT);
            let message = match newer {
                true => "the record there has a layout that this version cannot read",
                false => "what is stored there is not a record of a call",
            };
            Error::new(ErrorKind::Corrupt, operation, message).with_code(Code::NotReplayable).with_effect(Effect::None)
        })
    }

    fn read(mut stored: Bytes) -> Option<Self> {
        if stored.len() < Header::FIXED || !stored.starts_with(LAYOUT) {
            return None;
        }
        stored.advance(LAYOUT.len());
        let state = stored.get_u8();
        let (mut nonce, mut fingerprint) = ([0; 16], [0; Fingerprint::LEN]);
        stored.copy_to_slice(&mut nonce);
        stored.copy_to_slice(&mut fingerprint);
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(stored.get_u64()))?;
        let length = usize::from(stored.get_u16());
        if length > stored.len() || length > Header::LONGEST_OPERATION {
            return None;
        }
        let operation = text(stored.split_to(length))?;
        let state = match state {
            STATE_IN_PROGRESS if stored.len() >= 16 => State::InProgress(Progress {
                ttl: Duration::from_millis(stored.get_u64()),
                marker_ttl: Duration::from_millis(stored.get_u64()),
                owner: text(stored)?,
            }),
            STATE_ANSWERED => State::Answered(stored),
            STATE_SEALED => State::Sealed(stored),
            STATE_UNKEPT if stored.is_empty() => State::Unkept,
            _ => return None,
        };
        let header = Header {
            nonce: Nonce::from_bytes(nonce),
            fingerprint: Fingerprint::from_bytes(fingerprint),
            since,
            operation,
        };
        Some(Self { header, state })
    }
}

fn answered(header: &Header, state: u8, answer: &Bytes) -> BytesMut {
    let mut record = header.encode(state, answer.len());
    record.put_slice(answer);
    record
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn text(bytes: Bytes) -> Option<Bytes> {
    std::str::from_utf8(&bytes).is_ok().then_some(bytes)
}

/// Bytes that were text when they came in.
pub(super) fn as_text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

// The answer is not shown.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress(progress) => f.debug_tuple("InProgress").field(progress).finish(),
            Self::Answered(answer) => write!(f, "Answered({} bytes)", answer.len()),
            Self::Sealed(answer) => write!(f, "Sealed({} bytes)", answer.len()),
            Self::Unkept => f.write_str("Unkept"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_written_as_it_was_read(bytes: &[u8]) -> bool {
        Record::read(Bytes::copy_from_slice(bytes)).is_none_or(|record| record.encode() == bytes)
    }

    fn state() -> impl Strategy<Value = State> {
        prop_oneof![
            (0u64..1 << 50, 0u64..1 << 50, "[a-z:ü]{0,20}").prop_map(|(ttl, marker_ttl, owner)| {
                let (ttl, marker_ttl) = (Duration::from_millis(ttl), Duration::from_millis(marker_ttl));
                State::InProgress(Progress { ttl, marker_ttl, owner: owner.into() })
            }),
            any::<Vec<u8>>().prop_map(|answer| State::Answered(answer.into())),
            any::<Vec<u8>>().prop_map(|answer| State::Sealed(answer.into())),
            Just(State::Unkept),
        ]
    }

    fn record() -> impl Strategy<Value = Record> {
        (any::<[u8; 16]>(), any::<[u8; 32]>(), 0u64..1 << 45, "[ -~ü]{0,40}", state()).prop_map(
            |(nonce, fingerprint, since, operation, state)| {
                let header = Header {
                    nonce: Nonce::from_bytes(nonce),
                    fingerprint: Fingerprint::from_bytes(fingerprint),
                    since: SystemTime::UNIX_EPOCH + Duration::from_millis(since),
                    operation: operation.into(),
                };
                Record { header, state }
            },
        )
    }

    fn refused(stored: impl Into<Bytes>) -> String {
        let error = Record::decode(&stored.into(), "begin").unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, Some(Code::NotReplayable)));
        assert_eq!(error.effect(), Effect::None);
        error.to_string()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode(), "begin").unwrap(), record);
        }

        #[test]
        fn no_bytes_panic_and_what_is_read_is_written_the_same(bytes: Vec<u8>) {
            prop_assert!(is_written_as_it_was_read(&bytes));
        }

        // Bytes drawn at random hardly ever get past the first few; these do.
        #[test]
        fn no_change_of_a_record_panics(record in record(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut: usize) {
            let mut bytes = record.encode().to_vec();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            prop_assert!(is_written_as_it_was_read(&bytes));
            prop_assert!(is_written_as_it_was_read(&bytes[..cut % (bytes.len() + 1)]));
        }
    }

    #[test]
    fn another_layout_and_other_data_are_told_apart() {
        assert!(refused("idem2 whatever comes then").contains("a layout that this version cannot read"));
        assert!(refused("lease1 00").contains("not a record of a call"));
        assert!(refused("").contains("not a record of a call"));
    }

    #[test]
    fn a_marker_that_outlives_its_claim_is_stale_from_the_end_of_the_claim_on() {
        let seconds = Duration::from_secs;
        let progress =
            |ttl, marker_ttl| Progress { ttl: seconds(ttl), marker_ttl: seconds(marker_ttl), owner: Bytes::new() };
        let long = progress(60, 3600);
        assert!(!long.is_stale(seconds(3600)) && !long.is_stale(seconds(3540) + Duration::from_millis(1)));
        assert!(long.is_stale(seconds(3540)) && long.is_stale(seconds(1)));
        assert!(!progress(60, 60).is_stale(Duration::ZERO), "such a marker ends with its claim");
    }
}
