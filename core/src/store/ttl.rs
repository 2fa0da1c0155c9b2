use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// How long an entry lives: whole milliseconds, from 1 ms to 366 days.
///
/// A fraction of a millisecond is rounded up, so that nothing ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The shortest, 1 ms.
    pub const MIN: Self = Self(1);
    /// The longest, 366 days.
    pub const MAX: Self = Self(366 * 24 * 60 * 60 * 1000);

    /// Takes a number of milliseconds.
    ///
    /// # Errors
    ///
    /// `InvalidInput` outside 1 ms to 366 days.
    pub fn from_millis(millis: u64) -> Result<Self, Error> {
        Self::try_from(Duration::from_millis(millis))
    }

    /// The number of milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = Error;

    fn try_from(duration: Duration) -> Result<Self, Error> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        match u64::try_from(millis) {
            Ok(millis) if (Self::MIN.0..=Self::MAX.0).contains(&millis) => Ok(Self(millis)),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "ttl",
                format!("a ttl must be from 1 ms to 366 days, and {duration:?} is not"),
            )),
        }
    }
}

impl From<Ttl> for Duration {
    fn from(ttl: Ttl) -> Self {
        ttl.as_duration()
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_duration(), f)
    }
}

/// When an entry of a cache ends. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Only when it is removed, or when the store loses it.
    Never,
    /// This long after the write, whatever is read.
    After(Ttl),
    /// This long after the last write or read.
    Sliding(Ttl),
    /// `idle` after the last write or read, and `at_most` after the write in any case.
    SlidingUntil {
        /// How long it lives without a read.
        idle: Ttl,
        /// How long it lives in all; this one wins.
        at_most: Ttl,
    },
}

impl Expiry {
    /// How long the entry lives from the write on, if nobody reads it.
    pub fn first_ttl(self) -> Option<Ttl> {
        match self {
            Self::Never => None,
            Self::After(ttl) | Self::Sliding(ttl) => Some(ttl),
            Self::SlidingUntil { idle, at_most } => Some(idle.min(at_most)),
        }
    }

    /// How long a read makes it live again.
    pub fn idle(self) -> Option<Ttl> {
        match self {
            Self::Never | Self::After(_) => None,
            Self::Sliding(idle) | Self::SlidingUntil { idle, .. } => Some(idle),
        }
    }

    /// The end that no read moves, counted from the write.
    pub fn at_most(self) -> Option<Ttl> {
        match self {
            Self::Never | Self::Sliding(_) => None,
            Self::After(ttl) | Self::SlidingUntil { at_most: ttl, .. } => Some(ttl),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bounds_are_1_ms_and_366_days() {
        assert!(Ttl::try_from(Duration::ZERO).is_err());
        assert_eq!(Ttl::try_from(Duration::from_nanos(1)).unwrap(), Ttl::MIN);
        assert_eq!(Ttl::try_from(Duration::from_secs(366 * 24 * 3600)).unwrap(), Ttl::MAX);
        let over = Ttl::try_from(Duration::from_secs(366 * 24 * 3600) + Duration::from_nanos(1)).unwrap_err();
        assert!(over.to_string().contains("366 days"), "{over}");
        assert!(Ttl::try_from(Duration::MAX).is_err());
        assert!(Ttl::from_millis(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn a_ttl_is_never_shorter_and_less_than_a_millisecond_longer(nanos in 1u64..31_622_400_000_000_000) {
            let asked = Duration::from_nanos(nanos);
            let ttl = Ttl::try_from(asked).unwrap().as_duration();
            prop_assert!(ttl >= asked && ttl - asked < Duration::from_millis(1));
        }

        #[test]
        fn the_absolute_end_wins(idle in 1u64..1000, at_most in 1u64..1000) {
            let (idle, at_most) = (Ttl::from_millis(idle).unwrap(), Ttl::from_millis(at_most).unwrap());
            let first = Expiry::SlidingUntil { idle, at_most }.first_ttl().unwrap();
            prop_assert!(first <= idle && first <= at_most);
        }
    }
}
