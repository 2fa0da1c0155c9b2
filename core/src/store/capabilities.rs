use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};

/// What a store guarantees beyond the primitives.
///
/// Each is a guarantee that the conformance suite holds the store to, and the absence of one is checked too: a store
/// without `hints` answers [`watch`](crate::AtomicStore::watch) with `Unsupported`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Other processes can reach the same data. Without it, everything that counts time here counts on this process's
    /// own clock.
    pub shared: bool,
    /// An answered write survives the end of the store's process.
    pub durable: bool,
    /// [`watch`](crate::AtomicStore::watch) works.
    pub hints: bool,
    /// Revisions are minted as the contract says, so that they can serve as fencing tokens.
    pub revisions: bool,
    /// The longest value, in bytes.
    pub max_value_len: usize,
    /// The smallest step of time that the store tells apart.
    pub resolution: Duration,
}

impl Capabilities {
    /// The longest value that a store takes unless it says otherwise: 1 MiB.
    pub const DEFAULT_MAX_VALUE_LEN: usize = 1024 * 1024;

    /// A store that guarantees nothing but the primitives, with values up to 1 MiB and a resolution of 1 ms.
    pub const fn minimal() -> Self {
        Self {
            shared: false,
            durable: false,
            hints: false,
            revisions: false,
            max_value_len: Self::DEFAULT_MAX_VALUE_LEN,
            resolution: Duration::from_millis(1),
        }
    }

    /// Sets [`shared`](Self::shared).
    #[must_use]
    pub const fn with_shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets [`durable`](Self::durable).
    #[must_use]
    pub const fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets [`hints`](Self::hints).
    #[must_use]
    pub const fn with_hints(mut self, hints: bool) -> Self {
        self.hints = hints;
        self
    }

    /// Sets [`revisions`](Self::revisions).
    #[must_use]
    pub const fn with_revisions(mut self, revisions: bool) -> Self {
        self.revisions = revisions;
        self
    }

    /// Sets [`max_value_len`](Self::max_value_len).
    #[must_use]
    pub const fn with_max_value_len(mut self, max_value_len: usize) -> Self {
        self.max_value_len = max_value_len;
        self
    }

    /// Sets [`resolution`](Self::resolution).
    #[must_use]
    pub const fn with_resolution(mut self, resolution: Duration) -> Self {
        self.resolution = resolution;
        self
    }

    /// The check that every store makes before it sends a value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a value longer than [`max_value_len`](Self::max_value_len).
    pub fn check_value(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        if value.len() <= self.max_value_len {
            return Ok(());
        }
        let (len, longest) = (value.len(), self.max_value_len);
        let message = format!("a value must be at most {longest} bytes, and this one has {len}");
        Err(Error::new(ErrorKind::InvalidInput, operation, message))
    }
}
