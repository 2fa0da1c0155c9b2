use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::error::{Effect, Error, ErrorKind, shown};
use crate::store::Entry;

/// What every stored lease begins with; another layout would have another number.
const LAYOUT: &str = "lease1";

/// What makes one acquisition different from every other: 16 random bytes.
///
/// Renewal and release name it, so nobody can renew or release what is not theirs. Host, process and task are never
/// the identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce of chosen bytes. Each must be used once.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Where nonces come from. The default draws them from the thread's cryptographic generator; replace it to have a test
/// that is the same every time. A source must never give one nonce twice.
pub trait NonceSource: Send + Sync + 'static {
    /// The next nonce.
    fn next_nonce(&self) -> Nonce;
}

impl<F: Fn() -> Nonce + Send + Sync + 'static> NonceSource for F {
    fn next_nonce(&self) -> Nonce {
        self()
    }
}

pub(super) fn random_nonce() -> Nonce {
    Nonce(rand::random())
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

impl Nonce {
    fn hex(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        hex
    }
}

impl FromStr for Nonce {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten();
        match number {
            Some(number) => Ok(Self(number.to_be_bytes())),
            None => Err(Error::new(
                ErrorKind::InvalidInput,
                "nonce",
                format!("a nonce must be 32 hexadecimal digits, and {} is not", shown(text)),
            )),
        }
    }
}

/// Who holds a lease, as written in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's label; `host:pid` unless it chose another.
    pub owner: String,
    /// What makes this acquisition different from every other.
    pub nonce: Nonce,
    /// When it was acquired, by the holder's own wall clock.
    pub since: SystemTime,
    /// How long the lease still lives unless it is renewed, by the store's clock.
    pub time_left: Duration,
}

impl Holder {
    /// Reads a stored lease.
    ///
    /// # Errors
    ///
    /// `Corrupt` when something else is stored there. Who reads it has changed nothing.
    pub(super) fn of(entry: &Entry, operation: &'static str) -> Result<Self, Error> {
        let message = "what is stored there is not a lease";
        let corrupt = || Error::new(ErrorKind::Corrupt, operation, message).with_effect(Effect::None);
        let text = std::str::from_utf8(&entry.value).map_err(|_| corrupt())?;
        let mut fields = text.splitn(4, ' ');
        let mut field = || fields.next().ok_or_else(corrupt);
        if field()? != LAYOUT {
            return Err(corrupt());
        }
        let nonce = field()?.parse().map_err(|_| corrupt())?;
        let millis = field()?.parse().map_err(|_| corrupt())?;
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)).ok_or_else(corrupt)?;
        let owner = field()?.to_owned();
        Ok(Self { owner, nonce, since, time_left: entry.time_left.unwrap_or(Duration::MAX) })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, nonce: _, since: _, time_left } = self;
        write!(f, "{owner} ({time_left:?} left)")
    }
}

/// What an acquisition writes. Text, so that an operator who looks at the store can read it.
pub(super) fn encode(nonce: Nonce, owner: &str, since: SystemTime) -> Bytes {
    let millis = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let mut record = Vec::with_capacity(LAYOUT.len() + 1 + 32 + 1 + 13 + 1 + owner.len());
    record.extend_from_slice(LAYOUT.as_bytes());
    record.push(b' ');
    record.extend_from_slice(&nonce.hex());
    record.push(b' ');
    push_decimal(&mut record, millis);
    record.push(b' ');
    record.extend_from_slice(owner.as_bytes());
    Bytes::from(record)
}

/// Without the formatting machinery, as every acquisition comes here.
fn push_decimal(record: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    record.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(value: impl Into<Bytes>) -> Entry {
        Entry { value: value.into(), time_left: Some(Duration::from_secs(1)) }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(nonce: [u8; 16], owner in "[^\u{0}-\u{1f}]{1,40}", millis in 0u64..4_102_444_800_000) {
            let since = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let nonce = Nonce::from_bytes(nonce);
            let holder = Holder::of(&entry(encode(nonce, &owner, since)), "inspect").unwrap();
            prop_assert_eq!((holder.owner, holder.nonce, holder.since), (owner, nonce, since));
            prop_assert_eq!(nonce.to_string().parse::<Nonce>().unwrap(), nonce);
        }

        #[test]
        fn what_is_not_a_lease_is_corrupt_and_never_a_panic(value: Vec<u8>) {
            let error = Holder::of(&entry(value), "inspect").unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}
