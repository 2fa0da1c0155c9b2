use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;

use crate::error::Error;
use crate::store::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Expiry, Hint, Hints, Key, KeyPrefix, Namespace,
    Outcome, Page, ReplaceOutcome, Revision, Ttl,
};

/// Keeps everything below a [`Namespace`], so that several users of one store do not meet.
///
/// Two namespaces are disjoint whatever their names, as no encoded namespace is a beginning of another.
#[derive(Debug, Clone)]
pub struct Prefixed<S> {
    store: S,
    namespace: Namespace,
}

impl<S> Prefixed<S> {
    /// Puts `store` below `namespace`.
    pub fn new(store: S, namespace: Namespace) -> Self {
        Self { store, namespace }
    }

    fn below(&self, key: &Key) -> Key {
        key.below(&self.namespace)
    }

    fn all_below(&self, keys: &[Key]) -> Vec<Key> {
        keys.iter().map(|key| self.below(key)).collect()
    }

    fn hints_above(&self, hints: Hints) -> Hints {
        Hints::new(Stripped { hints, namespace: self.namespace.clone() })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: AtomicStore> AtomicStore for Prefixed<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.store.try_add(&self.below(key), value, ttl).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.store.try_replace(&self.below(key), expected, value, ttl).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.store.try_remove(&self.below(key), expected).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.store.try_expire(&self.below(key), expected, ttl).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.store.get(&self.below(key)).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        Ok(self.hints_above(self.store.watch(&self.below(key)).await?))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: CacheStore> CacheStore for Prefixed<S> {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.store.set(&self.below(key), value, expiry).await
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.store.remove(&self.below(key)).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        self.store.get_many(&self.all_below(keys)).await
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        let items = items.into_iter().map(|(key, value, expiry)| (self.below(&key), value, expiry)).collect();
        self.store.set_many(items).await
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        self.store.remove_many(&self.all_below(keys)).await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        let Page { keys, next } = self.store.scan(&prefix.below(&self.namespace), cursor).await?;
        let keys = keys.iter().filter_map(|key| key.strip(&self.namespace)).collect();
        Ok(Page { keys, next })
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        Ok(self.hints_above(self.store.watch_prefix(&prefix.below(&self.namespace)).await?))
    }
}

/// The hints of the store, with the names that the namespace's user knows.
struct Stripped {
    hints: Hints,
    namespace: Namespace,
}

impl Stream for Stripped {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let hint = std::task::ready!(Pin::new(&mut self.hints).poll_next(cx));
        Poll::Ready(hint.map(|hint| match hint {
            // A key that is not below the namespace was not asked for; what it hints at is anybody's guess.
            Hint::Changed(key) => key.strip(&self.namespace).map_or(Hint::Anything, Hint::Changed),
            Hint::Anything => Hint::Anything,
        }))
    }
}
