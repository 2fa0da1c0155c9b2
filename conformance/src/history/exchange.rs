use std::path::Path;
use std::time::Duration;

use leasehold_core::{Effect, Entry, Error, Expiry, Ttl};
use serde::{Deserialize, Serialize};

use crate::history::{Tolerance, Value};

/// What some clients asked of a store and what they were told, on one clock.
///
/// It is complete: whatever was written to its keys while it was recorded is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// [`History::VERSION`] of who wrote it.
    pub version: u32,
    /// The workload that it comes from, if it was one.
    pub origin: Option<Origin>,
    /// What the store is held to.
    pub tolerance: Tolerance,
    /// What was asked and answered, in the order of the calls.
    pub exchanges: Vec<Exchange>,
}

/// Which workload a history comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The seed that decided what was asked.
    pub seed: u64,
    /// The round of that seed, from 0.
    pub round: u32,
}

/// One operation as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The client; what one client does is never concurrent.
    pub client: u32,
    /// When it was about to ask.
    pub called: Stamp,
    /// When it had been told; nothing if it never was.
    pub returned: Option<Stamp>,
    /// What it asked.
    pub call: Call,
    /// What it was told.
    pub answer: Answer,
}

/// A moment of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Nanoseconds since the recording began.
    pub nanos: u64,
    /// Its place among all moments of the recording. It tells apart what a clock that stands still does not.
    pub order: u64,
}

/// What a client asks. The names are those of the methods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are the arguments of the method")]
pub enum Call {
    TryAdd {
        key: String,
        value: Value,
        #[serde(rename = "ttl_millis", with = "ttl_millis")]
        ttl: Ttl,
    },
    TryReplace {
        key: String,
        expected: Value,
        value: Value,
        #[serde(rename = "ttl_millis", with = "ttl_millis")]
        ttl: Ttl,
    },
    TryRemove {
        key: String,
        expected: Value,
    },
    TryExpire {
        key: String,
        expected: Value,
        #[serde(rename = "ttl_millis", with = "ttl_millis")]
        ttl: Ttl,
    },
    Get {
        key: String,
    },
    Set(SetItem),
    Remove {
        key: String,
    },
    GetMany {
        keys: Vec<String>,
    },
    SetMany {
        items: Vec<SetItem>,
    },
    RemoveMany {
        keys: Vec<String>,
    },
}

/// What one set writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are the arguments of the method")]
pub struct SetItem {
    pub key: String,
    pub value: Value,
    #[serde(with = "ExpiryText")]
    pub expiry: Expiry,
}

/// What a client is told. A revision is nothing on a store that promises none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the variants are the answers of the methods")]
pub enum Answer {
    Added {
        revision: Option<u64>,
    },
    Exists(FoundEntry),
    Replaced {
        revision: Option<u64>,
    },
    Applied,
    NotApplied,
    Found(FoundEntry),
    Absent,
    Written {
        revision: Option<u64>,
    },
    /// Of `get_many`, in the order of its keys; nothing for one that was absent.
    ManyFound(Vec<Option<FoundEntry>>),
    /// Of `set_many`: the revisions in the order of its items.
    ManyWritten(Vec<Option<u64>>),
    /// Of `remove_many`: whether each was applied, in the order of its keys.
    ManyRemoved(Vec<bool>),
    /// An error that proves that nothing happened.
    ErrorWithoutEffect {
        error: String,
    },
    /// An error after which it may have happened, may happen yet, or may never.
    ErrorOfUnknownEffect {
        error: String,
    },
    /// None came. The same holds.
    Missing,
}

/// An entry as it was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundEntry {
    /// The value.
    pub value: Value,
    /// How long it should still live, in nanoseconds; nothing if for ever.
    pub time_left_nanos: Option<u64>,
}

impl History {
    /// The version that this crate writes, and the only one that it reads.
    pub const VERSION: u32 = 1;

    /// A history of such exchanges.
    pub fn new(tolerance: Tolerance, mut exchanges: Vec<Exchange>) -> Self {
        exchanges.sort_by_key(|exchange| exchange.called.order);
        Self { version: Self::VERSION, origin: None, tolerance, exchanges }
    }

    /// Says which workload it comes from.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The history as JSON, for [`replay`](crate::history::replay).
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("only maps whose keys are not text fail to serialize, and there is none")
    }

    /// Writes the JSON to a file.
    ///
    /// # Errors
    ///
    /// Those of writing a file.
    pub fn save(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, self.to_json())
    }

    /// What was known at a moment: later answers are missing yet, and later calls not made.
    pub(crate) fn until(&self, order: u64) -> Self {
        let mut exchanges = self.exchanges.clone();
        exchanges.retain(|exchange| exchange.called.order <= order);
        for exchange in &mut exchanges {
            if exchange.returned.is_some_and(|returned| returned.order > order) {
                exchange.returned = None;
                exchange.answer = Answer::Missing;
            }
        }
        Self { exchanges, ..*self }
    }
}

impl Call {
    /// The name of the method.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::TryAdd { .. } => "try_add",
            Self::TryReplace { .. } => "try_replace",
            Self::TryRemove { .. } => "try_remove",
            Self::TryExpire { .. } => "try_expire",
            Self::Get { .. } => "get",
            Self::Set(_) => "set",
            Self::Remove { .. } => "remove",
            Self::GetMany { .. } => "get_many",
            Self::SetMany { .. } => "set_many",
            Self::RemoveMany { .. } => "remove_many",
        }
    }

    /// The keys that it is about, in order.
    pub(crate) fn keys(&self) -> Vec<&str> {
        match self {
            Self::TryAdd { key, .. }
            | Self::TryReplace { key, .. }
            | Self::TryRemove { key, .. }
            | Self::TryExpire { key, .. }
            | Self::Get { key }
            | Self::Set(SetItem { key, .. })
            | Self::Remove { key } => vec![key],
            Self::GetMany { keys } | Self::RemoveMany { keys } => keys.iter().map(String::as_str).collect(),
            Self::SetMany { items } => items.iter().map(|item| item.key.as_str()).collect(),
        }
    }
}

impl Answer {
    /// Whether it is an error, or never came.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::ErrorWithoutEffect { .. } | Self::ErrorOfUnknownEffect { .. } | Self::Missing)
    }
}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        let effect = error.effect();
        let error = format!("{error:#}");
        match effect {
            Effect::None => Self::ErrorWithoutEffect { error },
            Effect::Unknown => Self::ErrorOfUnknownEffect { error },
        }
    }
}

impl From<&Entry> for FoundEntry {
    fn from(entry: &Entry) -> Self {
        let Entry { value, time_left } = entry;
        let nanos = |left: Duration| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Self { value: value.clone().into(), time_left_nanos: time_left.map(nanos) }
    }
}

/// How an [`Expiry`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Expiry", rename_all = "snake_case")]
enum ExpiryText {
    Never,
    #[serde(rename = "after_millis", with = "ttl_millis")]
    After(Ttl),
    #[serde(rename = "sliding_millis", with = "ttl_millis")]
    Sliding(Ttl),
    SlidingUntil {
        #[serde(rename = "idle_millis", with = "ttl_millis")]
        idle: Ttl,
        #[serde(rename = "at_most_millis", with = "ttl_millis")]
        at_most: Ttl,
    },
}

mod ttl_millis {
    use super::*;
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(ttl: &Ttl, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(ttl.as_millis())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ttl, D::Error> {
        Ttl::from_millis(u64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
