use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};

/// The number that a store gives to a write, in the same atomic step as the write.
///
/// For one key it strictly increases, across release and expiry too. It is below 2^53, so that every language and
/// every script holds it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(NonZeroU64);

impl Revision {
    /// One more than the largest.
    pub const LIMIT: u64 = 1 << 53;

    /// Takes the number that a store minted.
    ///
    /// # Errors
    ///
    /// `Corrupt` for zero and from 2^53 on. Its effect is unknown, as the write that has the number was made.
    pub fn new(number: u64) -> Result<Self, Error> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() < Self::LIMIT => Ok(Self(number)),
            _ => Err(Error::new(
                ErrorKind::Corrupt,
                "revision",
                format!("a revision must be from 1 to 2^53 - 1, and {number} is not"),
            )),
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A live entry, as a store hands it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value as it was written.
    pub value: Bytes,
    /// How long it still lives by the store's clock, above zero; `None` when it never expires.
    pub time_left: Option<Duration>,
}

// The value may be anything, so it is not shown.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, time_left } = self;
        f.debug_struct("Entry")
            .field("value", &format_args!("{} bytes", value.len()))
            .field("time_left", time_left)
            .finish()
    }
}

/// What [`try_add`](crate::AtomicStore::try_add) answers. This enum is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the value may not have been added"]
pub enum AddOutcome {
    /// The key was free, and now has the value.
    Added(Revision),
    /// Something live was there, and this is it.
    Exists(Entry),
}

/// What [`try_replace`](crate::AtomicStore::try_replace) answers. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the value may not have been replaced"]
pub enum ReplaceOutcome {
    /// The expected value was there, and the new one now is.
    Applied(Revision),
    /// Nothing live was there, or another value; nothing changed.
    NotApplied,
}

/// What [`try_remove`](crate::AtomicStore::try_remove) and [`try_expire`](crate::AtomicStore::try_expire) answer. This
/// enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "it may not have been applied"]
pub enum Outcome {
    /// It was done.
    Applied,
    /// Nothing live was there, or another value; nothing changed.
    NotApplied,
}

impl Outcome {
    /// Reads "was it done?".
    pub fn from_applied(applied: bool) -> Self {
        if applied { Self::Applied } else { Self::NotApplied }
    }

    /// Whether it was done.
    pub fn is_applied(self) -> bool {
        self == Self::Applied
    }
}
