use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Error;
use crate::store::{AtomicStore, Entry, Expiry, Hints, Key, KeyPrefix, Outcome, Revision};

/// What a cache needs beyond the primitives. The rules of [`AtomicStore`] hold here too.
///
/// A batch is one round trip, or several where it is a large one. It is not one atomic step: each of its items is, and
/// after an error of unknown effect any of them may have been applied.
#[async_trait]
pub trait CacheStore: AtomicStore {
    /// Writes the value, whatever is there. Nothing of an earlier expiry remains.
    ///
    /// # Errors
    ///
    /// After an unknown effect either value may be there.
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error>;

    /// Removes the entry, whatever its value. What later revisions need stays.
    ///
    /// # Errors
    ///
    /// After an unknown effect it may still be there.
    async fn remove(&self, key: &Key) -> Result<Outcome, Error>;

    /// As [`get`](AtomicStore::get) of each key; the answers come in the order of the keys.
    ///
    /// # Errors
    ///
    /// One for all.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error>;

    /// As [`set`](Self::set) of each item, in their order, so that the last of two with one key remains.
    ///
    /// # Errors
    ///
    /// One for all. A value that is too long fails the batch before anything is sent.
    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error>;

    /// As [`remove`](Self::remove) of each key, in their order.
    ///
    /// # Errors
    ///
    /// One for all.
    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error>;

    /// One page of the live keys that begin with `prefix`, from `cursor` on; `None` starts.
    ///
    /// Over a whole scan, a key that is live all the while comes at least once, and may come twice; one that comes or
    /// goes meanwhile may be missed. A page may be empty though more follow.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor that is not this store's.
    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error>;

    /// As [`watch`](AtomicStore::watch), of all keys that begin with `prefix`.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a store without [`Capabilities::hints`](crate::Capabilities::hints).
    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error>;
}

/// Where a scan goes on: opaque, and good only for the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Bytes);

impl Cursor {
    /// A cursor that a store makes of its own bytes.
    pub fn from_store(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The store's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a scan goes on until `next` is nothing"]
pub struct Page {
    /// The keys of this page, in no order.
    pub keys: Vec<Key>,
    /// Where the next page starts; nothing after the last.
    pub next: Option<Cursor>,
}
