//! A memory store with one mistake.

#![allow(clippy::unwrap_used, reason = "test code outside a test function")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Error, Expiry, Hints, Key, KeyPrefix, Outcome,
    Page, ReplaceOutcome, Revision, Ttl,
};
use leasehold_memory::MemoryStore;
use tokio::task::yield_now;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mistake {
    /// None: only that it promises no revisions.
    NoRevisions,
    /// None: entries end up to 5 ms early and up to 50 ms late, and say so.
    Imprecise,
    /// Entries end so much sooner than they say.
    ExpiresEarly(Duration),
    /// Entries are served so much longer than they say.
    ExpiresLate(Duration),
    /// `try_add` looks, waits, then sets.
    AddsBlindly,
    /// `try_replace` looks, waits, then sets.
    ReplacesBlindly,
    /// `try_remove` removes any value.
    RemovesAny,
    /// `try_expire` says that it did, and did not.
    ExpiresNothing,
    /// `try_expire` brings back what has expired.
    Revives,
    /// `get` answers from memory for a while.
    ReadsStale(Duration),
    /// `set` leaves the end that was there.
    KeepsOldEnd,
    /// Reads move no end.
    NeverSlides,
    /// Reads move the end past the absolute one.
    SlidesPastTheEnd,
    /// The revisions of a key begin anew when it is gone.
    RevisionsBeginAnew,
    /// `get_many` answers in another order.
    MixesUpBatches,
    /// It says that a lease lasts twice as long as it does.
    DoublesTimeLeft,
}

#[derive(Clone)]
pub(crate) struct Planted {
    store: MemoryStore,
    mistake: Mistake,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    writes: AtomicU64,
    last_written: Mutex<HashMap<Key, Bytes>>,
    revisions: Mutex<HashMap<Key, u64>>,
    read: Mutex<HashMap<Key, (Instant, Option<Entry>)>>,
}

impl Planted {
    pub(crate) fn new(mistake: Mistake) -> Self {
        Self { store: MemoryStore::new(), mistake, shared: Arc::default() }
    }

    fn ttl(&self, ttl: Ttl) -> Ttl {
        let asked = ttl.as_duration();
        let given = match self.mistake {
            Mistake::ExpiresEarly(by) => asked.saturating_sub(by),
            Mistake::ExpiresLate(by) => asked + by,
            Mistake::Imprecise => {
                let write = self.shared.writes.fetch_add(1, Ordering::Relaxed);
                asked.saturating_sub(Duration::from_millis(write % 6))
                    + Duration::from_millis(10) * (write / 6 % 6) as u32
            }
            _ => asked,
        };
        Ttl::try_from(given).unwrap_or(Ttl::MIN)
    }

    fn expiry(&self, expiry: Expiry) -> Expiry {
        match expiry {
            Expiry::Never => Expiry::Never,
            Expiry::After(ttl) => Expiry::After(self.ttl(ttl)),
            Expiry::Sliding(idle) if self.mistake == Mistake::NeverSlides => Expiry::After(self.ttl(idle)),
            Expiry::Sliding(idle) => Expiry::Sliding(self.ttl(idle)),
            Expiry::SlidingUntil { idle, .. } if self.mistake == Mistake::SlidesPastTheEnd => {
                Expiry::Sliding(self.ttl(idle))
            }
            Expiry::SlidingUntil { idle, at_most } => {
                Expiry::SlidingUntil { idle: self.ttl(idle), at_most: self.ttl(at_most) }
            }
        }
    }

    fn entry(&self, entry: Entry) -> Entry {
        const LEAST: Duration = Duration::from_millis(1);
        let time_left = entry.time_left.map(|left| match self.mistake {
            Mistake::ExpiresEarly(by) => left + by,
            Mistake::ExpiresLate(by) => left.saturating_sub(by).max(LEAST),
            Mistake::DoublesTimeLeft => left * 2,
            _ => left,
        });
        Entry { time_left, ..entry }
    }

    fn wrote(&self, key: &Key, value: &Bytes) {
        self.shared.last_written.lock().unwrap().insert(key.clone(), value.clone());
    }

    fn revision(&self, key: &Key, revision: Revision) -> Revision {
        if self.mistake != Mistake::RevisionsBeginAnew {
            return revision;
        }
        let mut revisions = self.shared.revisions.lock().unwrap();
        let revision = revisions.entry(key.clone()).or_default();
        *revision += 1;
        Revision::new(*revision).unwrap()
    }

    fn gone(&self, key: &Key) {
        self.shared.revisions.lock().unwrap().remove(key);
    }
}

#[async_trait]
impl AtomicStore for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().with_revisions(self.mistake != Mistake::NoRevisions)
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        let ttl = self.ttl(ttl);
        if self.mistake == Mistake::AddsBlindly {
            if let Some(entry) = self.store.get(key).await? {
                return Ok(AddOutcome::Exists(entry));
            }
            yield_now().await;
            return self.store.set(key, value, Expiry::After(ttl)).await.map(AddOutcome::Added);
        }
        let outcome = self.store.try_add(key, value.clone(), ttl).await?;
        Ok(match outcome {
            AddOutcome::Added(revision) => {
                self.wrote(key, &value);
                AddOutcome::Added(self.revision(key, revision))
            }
            AddOutcome::Exists(entry) => AddOutcome::Exists(self.entry(entry)),
        })
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        let ttl = self.ttl(ttl);
        if self.mistake == Mistake::ReplacesBlindly {
            if self.store.get(key).await?.is_none_or(|entry| entry.value != expected) {
                return Ok(ReplaceOutcome::NotApplied);
            }
            yield_now().await;
            return self.store.set(key, value, Expiry::After(ttl)).await.map(ReplaceOutcome::Applied);
        }
        let outcome = self.store.try_replace(key, expected, value.clone(), ttl).await?;
        Ok(match outcome {
            ReplaceOutcome::Applied(revision) => {
                self.wrote(key, &value);
                ReplaceOutcome::Applied(self.revision(key, revision))
            }
            ReplaceOutcome::NotApplied => ReplaceOutcome::NotApplied,
        })
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let outcome = match self.mistake {
            Mistake::RemovesAny => self.store.remove(key).await?,
            _ => self.store.try_remove(key, expected).await?,
        };
        if outcome.is_applied() {
            self.gone(key);
        }
        Ok(outcome)
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        if self.mistake == Mistake::ExpiresNothing {
            let there = self.store.get(key).await?.is_some_and(|entry| entry.value == expected);
            return Ok(Outcome::from_applied(there));
        }
        let outcome = self.store.try_expire(key, expected, self.ttl(ttl)).await?;
        let was_there = self.shared.last_written.lock().unwrap().get(key).is_some_and(|value| value == expected);
        if self.mistake == Mistake::Revives && !outcome.is_applied() && was_there {
            let revived = self.store.try_add(key, Bytes::copy_from_slice(expected), ttl).await?;
            return Ok(Outcome::from_applied(matches!(revived, AddOutcome::Added(_))));
        }
        Ok(outcome)
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        if let Mistake::ReadsStale(limit) = self.mistake {
            let now = Instant::now();
            let read = self.shared.read.lock().unwrap().get(key).cloned();
            if let Some((_, entry)) = read.filter(|(at, _)| now - *at < limit) {
                return Ok(entry);
            }
            let entry = self.store.get(key).await?;
            self.shared.read.lock().unwrap().insert(key.clone(), (now, entry.clone()));
            return Ok(entry);
        }
        Ok(self.store.get(key).await?.map(|entry| self.entry(entry)))
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.store.watch(key).await
    }
}

#[async_trait]
impl CacheStore for Planted {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        let mut expiry = self.expiry(expiry);
        if self.mistake == Mistake::KeepsOldEnd
            && let Some(left) = self.store.get(key).await?.and_then(|entry| entry.time_left)
        {
            expiry = Expiry::After(left.try_into()?);
        }
        self.wrote(key, &value);
        let revision = self.store.set(key, value, expiry).await?;
        Ok(self.revision(key, revision))
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.gone(key);
        self.store.remove(key).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        let entries = self.store.get_many(keys).await?.into_iter();
        let mut entries: Vec<_> = entries.map(|entry| entry.map(|entry| self.entry(entry))).collect();
        if self.mistake == Mistake::MixesUpBatches {
            entries.reverse();
        }
        Ok(entries)
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        let mut revisions = Vec::new();
        for (key, value, expiry) in items {
            revisions.push(self.set(&key, value, expiry).await?);
        }
        Ok(revisions)
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        keys.iter().for_each(|key| self.gone(key));
        self.store.remove_many(keys).await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.store.scan(prefix, cursor).await
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.store.watch_prefix(prefix).await
    }
}
