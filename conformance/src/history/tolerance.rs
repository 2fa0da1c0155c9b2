use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How far from its time a store may let an entry expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tolerance {
    /// How much sooner than the ttl after the write, by this process's clock. It takes in the rounding of times and the
    /// drift between clocks.
    #[serde(rename = "early_nanos", with = "nanos")]
    pub early: Duration,
    /// How much later.
    #[serde(rename = "late_nanos", with = "nanos")]
    pub late: Duration,
}

impl Tolerance {
    /// None at all: for a store that counts on the very clock of the recording.
    pub const EXACT: Self = Self { early: Duration::ZERO, late: Duration::ZERO };
}

impl Default for Tolerance {
    /// 5 ms early, 250 ms late.
    fn default() -> Self {
        Self { early: Duration::from_millis(5), late: Duration::from_millis(250) }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { early, late } = self;
        write!(f, "{early:?} early, {late:?} late")
    }
}

mod nanos {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}
