use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{AddOutcome, AtomicStore, Capabilities, Entry, Error, Hints, Key, Outcome, ReplaceOutcome, Ttl};
use leasehold_memory::MemoryStore;

/// Says that it is shared and durable, and is neither.
pub(crate) struct Overclaiming(pub(crate) MemoryStore);

#[async_trait]
impl AtomicStore for Overclaiming {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_shared(true).with_durable(true)
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.0.try_add(key, value, ttl).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.0.try_replace(key, expected, value, ttl).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.0.try_remove(key, expected).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.0.try_expire(key, expected, ttl).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.0.get(key).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.0.watch(key).await
    }
}
