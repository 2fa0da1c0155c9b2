use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::store::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Expiry, Hints, Key, KeyPrefix, Outcome, Page,
    ReplaceOutcome, Revision, Ttl,
};

/// Gives every operation a limit. What is over it is dropped and answered with `Timeout`, of unknown effect.
///
/// The stores of this project bring limits of their own; this one is for a store that does not.
#[derive(Debug, Clone)]
pub struct WithTimeout<S> {
    store: S,
    limit: Duration,
}

impl<S: AtomicStore> WithTimeout<S> {
    /// Gives each operation of `store` at most `limit`, measured on tokio's clock.
    pub fn new(store: S, limit: Duration) -> Self {
        Self { store, limit }
    }

    async fn limited<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.limit, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("no answer within {:?}", self.limit);
                Err(Error::new(ErrorKind::Timeout, operation, message).with_store(self.store.name()))
            }
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: AtomicStore> AtomicStore for WithTimeout<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.limited("try_add", self.store.try_add(key, value, ttl)).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.limited("try_replace", self.store.try_replace(key, expected, value, ttl)).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.limited("try_remove", self.store.try_remove(key, expected)).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.limited("try_expire", self.store.try_expire(key, expected, ttl)).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.limited("get", self.store.get(key)).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.limited("watch", self.store.watch(key)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: CacheStore> CacheStore for WithTimeout<S> {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.limited("set", self.store.set(key, value, expiry)).await
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.limited("remove", self.store.remove(key)).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        self.limited("get_many", self.store.get_many(keys)).await
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        self.limited("set_many", self.store.set_many(items)).await
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        self.limited("remove_many", self.store.remove_many(keys)).await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.limited("scan", self.store.scan(prefix, cursor)).await
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.limited("watch_prefix", self.store.watch_prefix(prefix)).await
    }
}
