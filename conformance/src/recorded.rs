use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Error, Expiry, Hints, Key, KeyPrefix, Outcome,
    Page, ReplaceOutcome, Revision, Ttl,
};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::history::{Answer, Call, Dice, Exchange, History, SetItem, Stamp, Tolerance};

/// Writes down what the clients of a store ask and are told, on one clock: tokio's, so that stepped time works.
///
/// Clones write to the same record.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    origin: Instant,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// The place of the next stamp.
    order: u64,
    exchanges: Vec<Exchange>,
}

/// A store as one client uses it: each operation goes into the record. See [`Recorder::client`].
///
/// Scans and watches are handed through and not recorded: they are promised no order.
///
/// # Cancel safety
///
/// An operation that is dropped midway stays in the record without an answer, as one that may yet be applied.
#[derive(Debug)]
pub struct Recorded<S> {
    store: S,
    client: u32,
    recorder: Recorder,
    journey: Option<Journey>,
}

/// How long requests and answers are on their way.
#[derive(Debug)]
struct Journey {
    dice: Mutex<Dice>,
    longest: Duration,
}

impl Recorder {
    /// An empty record that begins now.
    pub fn new() -> Self {
        Self(Arc::new(Shared { origin: Instant::now(), record: Mutex::default() }))
    }

    /// The store for one client. A client does one thing at a time; one that was left in doubt, by an error of unknown
    /// effect or by dropping an operation, goes on under a new number.
    pub fn client<S>(&self, client: u32, store: S) -> Recorded<S> {
        Recorded { store, client, recorder: self.clone(), journey: None }
    }

    /// What was recorded so far. Operations that are under way have no answer in it.
    pub fn history(&self, tolerance: Tolerance) -> History {
        History::new(tolerance, self.record().exchanges.clone())
    }

    /// Writes a call down before it is sent, so that it is in the record whatever becomes of it.
    fn called(&self, client: u32, call: Call) -> usize {
        let mut record = self.record();
        let called = self.stamp(&mut record);
        record.exchanges.push(Exchange { client, called, returned: None, call, answer: Answer::Missing });
        record.exchanges.len() - 1
    }

    fn returned(&self, exchange: usize, answer: Answer) {
        let mut record = self.record();
        let returned = self.stamp(&mut record);
        let exchange = &mut record.exchanges[exchange];
        exchange.returned = Some(returned);
        exchange.answer = answer;
    }

    // The clock is read under the lock, so that it never runs against the order.
    fn stamp(&self, record: &mut Record) -> Stamp {
        let nanos = u64::try_from(self.0.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let order = record.order;
        record.order += 1;
        Stamp { nanos, order }
    }

    // Nothing panics under this lock, and nothing is awaited.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Recorded<S> {
    /// Makes requests and answers take a while: none, a few turns of other tasks, or up to `longest` each way, as the
    /// seed decides. A store in this process answers at once, and without this its clients would never overlap on one
    /// thread.
    #[must_use]
    pub fn with_journeys(mut self, seed: u64, longest: Duration) -> Self {
        self.journey = Some(Journey { dice: Mutex::new(Dice::new(&[seed])), longest });
        self
    }

    // The operation is not begun before its call is written down, though a store may begin before it is polled: so it
    // comes as a future that makes it.
    async fn record<T>(
        &self,
        call: Call,
        operation: impl Future<Output = Result<T, Error>> + Send,
        answer: impl FnOnce(&T) -> Answer + Send,
    ) -> Result<T, Error> {
        let exchange = self.recorder.called(self.client, call);
        self.travel().await;
        let result = operation.await;
        self.travel().await;
        self.recorder.returned(exchange, result.as_ref().map_or_else(Answer::from, answer));
        result
    }

    async fn travel(&self) {
        let Some(journey) = &self.journey else { return };
        match journey.next() {
            Leg::None => {}
            Leg::Turns(turns) => {
                for _ in 0..turns {
                    yield_now().await;
                }
            }
            Leg::Takes(time) => sleep(time).await,
        }
    }
}

enum Leg {
    None,
    Turns(u64),
    Takes(Duration),
}

impl Journey {
    fn next(&self) -> Leg {
        // Nothing panics under this lock.
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        match dice.below(6) {
            0..=2 => Leg::None,
            3 if longest > 0 => Leg::Takes(Duration::from_micros(1 + dice.below(longest))),
            _ => Leg::Turns(1 + dice.below(3)),
        }
    }
}

impl<S: AtomicStore> Recorded<S> {
    /// A revision that is not promised is not held against the store.
    fn promised(&self, revision: Revision) -> Option<u64> {
        self.store.capabilities().revisions.then(|| revision.get())
    }
}

fn text(key: &Key) -> String {
    key.as_str().to_owned()
}

fn texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(text).collect()
}

fn done(outcome: Outcome) -> Answer {
    if outcome.is_applied() { Answer::Applied } else { Answer::NotApplied }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: AtomicStore> AtomicStore for Recorded<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        let call = Call::TryAdd { key: text(key), value: value.clone().into(), ttl };
        self.record(call, async move { self.store.try_add(key, value, ttl).await }, |outcome| match outcome {
            AddOutcome::Added(revision) => Answer::Added { revision: self.promised(*revision) },
            AddOutcome::Exists(entry) => Answer::Exists(entry.into()),
        })
        .await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        let call = Call::TryReplace { key: text(key), expected: expected.into(), value: value.clone().into(), ttl };
        self.record(call, async move { self.store.try_replace(key, expected, value, ttl).await }, |outcome| {
            match outcome {
                ReplaceOutcome::Applied(revision) => Answer::Replaced { revision: self.promised(*revision) },
                ReplaceOutcome::NotApplied => Answer::NotApplied,
            }
        })
        .await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let call = Call::TryRemove { key: text(key), expected: expected.into() };
        self.record(call, async move { self.store.try_remove(key, expected).await }, |outcome| done(*outcome)).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let call = Call::TryExpire { key: text(key), expected: expected.into(), ttl };
        self.record(call, async move { self.store.try_expire(key, expected, ttl).await }, |outcome| done(*outcome))
            .await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let call = Call::Get { key: text(key) };
        self.record(call, async move { self.store.get(key).await }, |entry| match entry {
            Some(entry) => Answer::Found(entry.into()),
            None => Answer::Absent,
        })
        .await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.store.watch(key).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: CacheStore> CacheStore for Recorded<S> {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        let call = Call::Set(SetItem { key: text(key), value: value.clone().into(), expiry });
        let written = |revision: &Revision| Answer::Written { revision: self.promised(*revision) };
        self.record(call, async move { self.store.set(key, value, expiry).await }, written).await
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.record(Call::Remove { key: text(key) }, async move { self.store.remove(key).await }, |outcome| {
            done(*outcome)
        })
        .await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        let found = |entries: &Vec<Option<Entry>>| {
            Answer::ManyFound(entries.iter().map(|entry| entry.as_ref().map(Into::into)).collect())
        };
        self.record(Call::GetMany { keys: texts(keys) }, async move { self.store.get_many(keys).await }, found).await
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        let item = |(key, value, expiry): &(Key, Bytes, Expiry)| SetItem {
            key: text(key),
            value: value.clone().into(),
            expiry: *expiry,
        };
        let call = Call::SetMany { items: items.iter().map(item).collect() };
        let written = |revisions: &Vec<Revision>| {
            Answer::ManyWritten(revisions.iter().map(|revision| self.promised(*revision)).collect())
        };
        self.record(call, async move { self.store.set_many(items).await }, written).await
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        let removed = |outcomes: &Vec<Outcome>| {
            Answer::ManyRemoved(outcomes.iter().map(|outcome| outcome.is_applied()).collect())
        };
        self.record(Call::RemoveMany { keys: texts(keys) }, async move { self.store.remove_many(keys).await }, removed)
            .await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.store.scan(prefix, cursor).await
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.store.watch_prefix(prefix).await
    }
}
