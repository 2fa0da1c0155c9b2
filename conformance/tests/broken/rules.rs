//! What a mistake does to keys, values, ends and revisions on their way in and out.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{
    AtomicStore, CacheStore, Capabilities, Effect, Entry, Error, ErrorKind, Expiry, Key, Revision, Ttl,
};
use tokio::time::Instant;

use super::universe::MAX_VALUE_LEN;
use super::{Broken, Mistake};

impl Broken {
    pub(super) fn declared(&self) -> Capabilities {
        let hints = !matches!(
            self.mistake,
            Mistake::UnsupportedHintsNeverCome | Mistake::UnsupportedHintsHang | Mistake::UnsupportedHintsLeaveADoubt
        );
        let max_value_len = match self.mistake {
            Mistake::CapabilitiesDifferByHandle => MAX_VALUE_LEN + self.number,
            _ => MAX_VALUE_LEN,
        };
        Capabilities::minimal().with_hints(hints).with_revisions(true).with_max_value_len(max_value_len)
    }

    /// The check of a value's length, with its mistakes.
    pub(super) fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        let Err(error) = self.declared().check_value(operation, value) else { return Ok(()) };
        let error = error.with_store(self.name());
        match self.mistake {
            Mistake::TooLongIsTaken => Ok(()),
            Mistake::TooLongIsTakenBySet if operation == "set" => Ok(()),
            Mistake::TooLongLeavesADoubt => Err(error.with_effect(Effect::Unknown)),
            Mistake::ErrorsShowTheValue => {
                let message = format!("{} is too long", String::from_utf8_lossy(value));
                Err(Error::new(ErrorKind::InvalidInput, operation, message).with_store(self.name()))
            }
            Mistake::ErrorsNameNoOperation => {
                Err(Error::new(ErrorKind::InvalidInput, "request", "too long").with_store(self.name()))
            }
            Mistake::ErrorsNameNoStore => Err(Error::new(ErrorKind::InvalidInput, operation, "too long")),
            _ => Err(error),
        }
    }

    /// The key as it is stored, with its namespace.
    pub(super) fn key(&self, key: &Key) -> Key {
        self.stored(&self.changed_key(key.as_str()))
    }

    pub(super) fn stored(&self, text: &str) -> Key {
        let generation = self.universe.generation.load(Ordering::Acquire);
        let stored = format!("{generation}{}{text}", self.before_keys());
        Key::from_store(&stored).expect("a key of a check below its namespace")
    }

    /// What comes between the generation and the key.
    pub(super) fn before_keys(&self) -> String {
        let namespace = &self.namespace;
        match self.mistake {
            Mistake::NamespacesAreCut => format!("{}/", &namespace[..28]),
            Mistake::NamespaceAndKeyAreJoinedWithoutASeparator => namespace.clone(),
            _ => format!("{namespace}/"),
        }
    }

    fn changed_key(&self, key: &str) -> String {
        let not_empty = |changed: String| if changed.is_empty() { "empty".to_owned() } else { changed };
        match self.mistake {
            Mistake::KeyCaseIsFolded => key.to_ascii_lowercase(),
            Mistake::KeysAreRightTrimmed => not_empty(key.trim_end_matches('.').to_owned()),
            Mistake::KeysAreNormalized => key.replace("e\u{301}", "\u{e9}"),
            Mistake::KeysLoseUnicode => key.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect(),
            Mistake::LongKeysAreCut => key.chars().take(500).collect(),
            Mistake::WildcardsMatchInKeys => key.replace(['*', '?', '%', '_'], "%"),
            Mistake::OnlyTheHashTagCounts => match key.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
                Some((tag, _)) if !tag.is_empty() => tag.to_owned(),
                _ => key.to_owned(),
            },
            Mistake::QuotesAreTakenOutOfKeys => not_empty(key.replace(['\'', '"', '`', '\\'], "")),
            Mistake::KeysAreReadAsNumbers => key.parse::<f64>().map_or(key.to_owned(), |number| number.to_string()),
            Mistake::KeysAreDecoded => key.replace("%3A", ":"),
            Mistake::OnlyTwoPartsOfAKeyCount => key.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"),
            _ => key.to_owned(),
        }
    }

    /// A value as it is stored.
    pub(super) fn value(&self, value: Bytes) -> Bytes {
        match self.mistake {
            Mistake::ValuesAreMadeText => String::from_utf8_lossy(&value).into_owned().into(),
            Mistake::ValuesAreCutAtNul => match value.iter().position(|&byte| byte == 0) {
                Some(end) => value.slice(..end),
                None => value,
            },
            Mistake::ValuesAreReadAsNumbers => {
                let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse::<f64>().ok());
                number.map_or(value, |number| number.to_string().into())
            }
            Mistake::ValuesAreTrimmed => value.slice(..value.trim_ascii_end().len()),
            Mistake::LongValuesAreCut => value.slice(..value.len().min(2000)),
            _ => value,
        }
    }

    /// The value that an operation compares with.
    pub(super) async fn expected(&self, operation: &str, key: &Key, expected: &[u8]) -> Bytes {
        let Some(there) = self.universe.live(key).await.map(|entry| entry.value) else {
            return self.value(Bytes::copy_from_slice(expected));
        };
        let beginning = |value: &[u8]| value[..value.len().min(64)].to_vec();
        let is_taken_for_it = match (self.mistake, operation) {
            (Mistake::ExpectedMayBeABeginning, _) => there.starts_with(expected),
            (Mistake::ExpectedIsComparedAtTheBeginning, _) => beginning(&there) == beginning(expected),
            (Mistake::ExpectedIsComparedWithoutCase, _) => there.eq_ignore_ascii_case(expected),
            (Mistake::ReplaceIgnoresExpected, "try_replace")
            | (Mistake::RemoveIgnoresExpected, "try_remove")
            | (Mistake::ExpireIgnoresExpected, "try_expire") => true,
            _ => false,
        };
        if is_taken_for_it { there } else { self.value(Bytes::copy_from_slice(expected)) }
    }

    /// How long an entry lives; nothing for ever.
    pub(super) fn ttl(&self, ttl: Ttl) -> Option<Ttl> {
        let millis = ttl.as_millis();
        let changed = match self.mistake {
            Mistake::TtlIsCutToSeconds => (millis / 1000).max(1) * 1000,
            Mistake::EndsEarly => millis - millis / 100,
            Mistake::EndsAtHalf => millis.div_ceil(2),
            Mistake::EndsLate => millis + (millis / 50).max(1),
            Mistake::NeverEnds => return None,
            Mistake::FewMillisecondsAreNoTtl if millis < 10 => return None,
            Mistake::TtlWrapsAround => u64::from(millis as u32).max(1),
            _ => return Some(ttl),
        };
        Some(Ttl::from_millis(changed).unwrap_or(Ttl::MAX))
    }

    pub(super) fn expiry(&self, expiry: Expiry) -> Expiry {
        let after = |ttl| self.ttl(ttl).map_or(Expiry::Never, Expiry::After);
        match (self.mistake, expiry) {
            (Mistake::NeverIsAYear, Expiry::Never) => Expiry::After(Ttl::MAX),
            (Mistake::NothingSlides, Expiry::Sliding(idle)) => Expiry::After(idle),
            (Mistake::NothingSlides, Expiry::SlidingUntil { idle, at_most }) => Expiry::After(idle.min(at_most)),
            (Mistake::SlidingNeverEnds, Expiry::Sliding(_)) => Expiry::Never,
            (Mistake::AbsoluteEndLoses, Expiry::SlidingUntil { idle, .. }) => Expiry::Sliding(idle),
            (Mistake::IdleTimeIsForgotten, Expiry::SlidingUntil { at_most, .. }) => Expiry::After(at_most),
            (_, Expiry::After(ttl)) => after(ttl),
            (Mistake::NeverEnds, Expiry::Sliding(_) | Expiry::SlidingUntil { .. }) => Expiry::Never,
            (_, expiry) => expiry,
        }
    }

    /// An entry as it is handed out.
    pub(super) fn entry(&self, key: &Key, mut entry: Entry) -> Entry {
        match self.mistake {
            Mistake::TimeLeftIsInSeconds => {
                entry.time_left = entry.time_left.map(|left| Duration::from_secs(left.as_secs() + 1));
            }
            Mistake::TimeLeftIsTheTtl => {
                let ttl = self.universe.record(key).and_then(|record| record.expiry.first_ttl());
                entry.time_left = entry.time_left.map(|left| ttl.map_or(left, Ttl::as_duration));
            }
            Mistake::SetWritesAHeader => {
                if let Some(value) = entry.value.strip_prefix(b"set:") {
                    entry.value = Bytes::copy_from_slice(value);
                }
            }
            _ => {}
        }
        entry
    }

    /// The revision of a write that was just made.
    pub(super) fn revision(&self, key: &Key) -> Revision {
        let universe = &self.universe;
        let number = match self.mistake {
            Mistake::RevisionsRepeat => 7,
            Mistake::RevisionsGoBackAfterRemoval | Mistake::RevisionsGoBackAfterExpiry => {
                let mut revisions = universe.revisions.lock().unwrap_or_else(PoisonError::into_inner);
                let last = revisions.entry(key.clone()).or_default();
                *last += 1;
                *last
            }
            Mistake::RevisionsAreCountedByHandle => self.own_revisions.fetch_add(1, Ordering::AcqRel) + 1,
            Mistake::RevisionsAreMilliseconds => {
                u64::try_from((Instant::now() - universe.began).as_millis()).unwrap_or(u64::MAX) + 1
            }
            Mistake::RevisionsAreNearTheLimit => {
                Revision::LIMIT - 1_000_000 + universe.last_revision.fetch_add(1, Ordering::AcqRel)
            }
            // As a counter, so that they are the same in every run.
            _ => universe.last_revision.fetch_add(1, Ordering::AcqRel) + 1,
        };
        Revision::new(number).expect("a number below 2^53")
    }

    /// Forgets what the next revision of a key should rise from.
    pub(super) fn forget_revision(&self, key: &Key, because: Mistake) {
        if self.mistake == because {
            self.universe.revisions.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
    }

    /// The keys below this one in the memory store, and the key itself.
    pub(super) async fn beginning_so(&self, key: &Key) -> Vec<Key> {
        let Ok(prefix) = leasehold_core::KeyPrefix::new(key.as_str()) else { return vec![key.clone()] };
        let page = self.universe.memory.scan(&prefix, None).await;
        page.map_or_else(|_| vec![key.clone()], |page| page.keys)
    }
}
