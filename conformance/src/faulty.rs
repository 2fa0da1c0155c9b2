use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Effect, Entry, Error, ErrorKind, Expiry, Hints, Key,
    KeyPrefix, Outcome, Page, ReplaceOutcome, Revision, Ttl,
};
use tokio::time::sleep;

/// A store that fails as planned: the same plan fails the same calls every time.
///
/// It stands between the code under test and a store that works, and does to an answer what a network does. Without a
/// plan it changes nothing.
#[derive(Debug)]
pub struct Faulty<S> {
    store: Arc<S>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Plan,
    calls: HashMap<Operation, u32>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It is refused and nothing is sent: `Unavailable`, of no effect.
    Refuse,
    /// It is applied, and an error comes instead of the answer: `Timeout`, of unknown effect.
    LoseAnswer,
    /// It reaches the store this much later.
    DelayRequest(Duration),
    /// Its answer comes this much later.
    DelayAnswer(Duration),
    /// It fails at once with `Timeout`, of unknown effect, and reaches the store this much later.
    ApplyLate(Duration),
    /// It reaches nobody, and nothing ever comes back.
    Hang,
    /// It is applied, and nothing ever comes back: who waits for it has to drop it midway.
    ApplyAndHang,
}

/// An operation of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Operation {
    TryAdd,
    TryReplace,
    TryRemove,
    TryExpire,
    Get,
    Watch,
    Set,
    Remove,
    GetMany,
    SetMany,
    RemoveMany,
    Scan,
    WatchPrefix,
}

/// Which calls fail, and how. Calls of each operation are counted from 1.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    operation: Operation,
    calls: Calls,
    fault: Fault,
}

#[derive(Debug, Clone, Copy)]
enum Calls {
    Nth(u32),
    From(u32),
    /// Of 256, by a hash of the seed, the operation and its count.
    Seeded {
        seed: u64,
        of_256: u8,
    },
}

impl Plan {
    /// Nothing fails.
    pub fn none() -> Self {
        Self::default()
    }

    /// The `nth` call of an operation fails.
    #[must_use]
    pub fn nth(self, operation: Operation, nth: u32, fault: Fault) -> Self {
        self.with(operation, Calls::Nth(nth), fault)
    }

    /// Every call of an operation fails from the `nth` on.
    #[must_use]
    pub fn from(self, operation: Operation, nth: u32, fault: Fault) -> Self {
        self.with(operation, Calls::From(nth), fault)
    }

    /// About `of_256` in 256 calls of an operation fail; which, only the seed decides.
    #[must_use]
    pub fn seeded(self, operation: Operation, seed: u64, of_256: u8, fault: Fault) -> Self {
        self.with(operation, Calls::Seeded { seed, of_256 }, fault)
    }

    fn with(mut self, operation: Operation, calls: Calls, fault: Fault) -> Self {
        self.rules.push(Rule { operation, calls, fault });
        self
    }

    /// The fault of a call; the first rule that names it wins.
    fn fault(&self, operation: Operation, nth: u32) -> Option<Fault> {
        let names = |rule: &&Rule| rule.operation == operation && rule.calls.include(operation, nth);
        self.rules.iter().find(names).map(|rule| rule.fault)
    }
}

impl Calls {
    fn include(self, operation: Operation, call: u32) -> bool {
        match self {
            Self::Nth(nth) => call == nth,
            Self::From(first) => call >= first,
            Self::Seeded { seed, of_256 } => {
                let call = (operation as u64) << 32 | u64::from(call);
                (mix(seed ^ mix(call)) & 0xff) < u64::from(of_256)
            }
        }
    }
}

/// The finalizer of SplitMix64: every bit of the answer depends on every bit of the number.
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl<S> Faulty<S> {
    /// A store that fails nothing yet.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), shared: Arc::default() }
    }

    /// Follows this plan from now on, and counts calls anew.
    pub fn follow(&self, plan: Plan) {
        *self.shared() = Shared { plan, calls: HashMap::new() };
    }

    /// How many calls of an operation have come since the plan began.
    pub fn calls(&self, operation: Operation) -> u32 {
        self.shared().calls.get(&operation).copied().unwrap_or(0)
    }

    /// The store that works.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn next_fault(&self, operation: Operation) -> Option<Fault> {
        let mut shared = self.shared();
        let calls = shared.calls.entry(operation).or_default();
        *calls += 1;
        let nth = *calls;
        shared.plan.fault(operation, nth)
    }

    // Nothing panics under this lock.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AtomicStore + 'static> Faulty<S> {
    async fn through<T, F>(&self, operation: Operation, call: impl FnOnce(Arc<S>) -> F + Send) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(fault) = self.next_fault(operation) else { return call(self.store.clone()).await };
        let name = operation.name();
        let error = |kind, effect| Err(Error::new(kind, name, "injected").with_effect(effect));
        let call = call(self.store.clone());
        match fault {
            Fault::Refuse => error(ErrorKind::Unavailable, Effect::None),
            Fault::LoseAnswer => {
                call.await?;
                error(ErrorKind::Timeout, Effect::Unknown)
            }
            Fault::DelayRequest(delay) => {
                sleep(delay).await;
                call.await
            }
            Fault::DelayAnswer(delay) => {
                let answer = call.await;
                sleep(delay).await;
                answer
            }
            Fault::ApplyLate(delay) => {
                // Nobody waits for a request that is parked on its way, and its answer goes nowhere.
                tokio::spawn(async move {
                    sleep(delay).await;
                    drop(call.await);
                });
                error(ErrorKind::Timeout, Effect::Unknown)
            }
            Fault::Hang => pending().await,
            Fault::ApplyAndHang => {
                call.await?;
                pending().await
            }
        }
    }
}

impl Operation {
    /// Every operation of the contract.
    pub const ALL: [Self; 13] = [
        Self::TryAdd,
        Self::TryReplace,
        Self::TryRemove,
        Self::TryExpire,
        Self::Get,
        Self::Watch,
        Self::Set,
        Self::Remove,
        Self::GetMany,
        Self::SetMany,
        Self::RemoveMany,
        Self::Scan,
        Self::WatchPrefix,
    ];

    /// The name of the method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TryAdd => "try_add",
            Self::TryReplace => "try_replace",
            Self::TryRemove => "try_remove",
            Self::TryExpire => "try_expire",
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Set => "set",
            Self::Remove => "remove",
            Self::GetMany => "get_many",
            Self::SetMany => "set_many",
            Self::RemoveMany => "remove_many",
            Self::Scan => "scan",
            Self::WatchPrefix => "watch_prefix",
        }
    }
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), shared: self.shared.clone() }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: AtomicStore + 'static> AtomicStore for Faulty<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        let key = key.clone();
        self.through(Operation::TryAdd, |store| async move { store.try_add(&key, value, ttl).await }).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        let (key, expected) = (key.clone(), expected.to_vec());
        self.through(Operation::TryReplace, |store| async move { store.try_replace(&key, &expected, value, ttl).await })
            .await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let (key, expected) = (key.clone(), expected.to_vec());
        self.through(Operation::TryRemove, |store| async move { store.try_remove(&key, &expected).await }).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let (key, expected) = (key.clone(), expected.to_vec());
        self.through(Operation::TryExpire, |store| async move { store.try_expire(&key, &expected, ttl).await }).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let key = key.clone();
        self.through(Operation::Get, |store| async move { store.get(&key).await }).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        let key = key.clone();
        self.through(Operation::Watch, |store| async move { store.watch(&key).await }).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: CacheStore + 'static> CacheStore for Faulty<S> {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        let key = key.clone();
        self.through(Operation::Set, |store| async move { store.set(&key, value, expiry).await }).await
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        let key = key.clone();
        self.through(Operation::Remove, |store| async move { store.remove(&key).await }).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        let keys = keys.to_vec();
        self.through(Operation::GetMany, |store| async move { store.get_many(&keys).await }).await
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        self.through(Operation::SetMany, |store| async move { store.set_many(items).await }).await
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        let keys = keys.to_vec();
        self.through(Operation::RemoveMany, |store| async move { store.remove_many(&keys).await }).await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        let prefix = prefix.clone();
        self.through(Operation::Scan, |store| async move { store.scan(&prefix, cursor).await }).await
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        let prefix = prefix.clone();
        self.through(Operation::WatchPrefix, |store| async move { store.watch_prefix(&prefix).await }).await
    }
}
