use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug_span, field};

use crate::error::{Effect, Error};
use crate::store::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Expiry, Hints, Key, KeyPrefix, Outcome, Page,
    ReplaceOutcome, Revision, Ttl,
};

/// Tells what goes to the store and what comes back: a `tracing` span and two metrics for each operation.
///
/// | name | kind | labels |
/// |---|---|---|
/// | `leasehold_store_operations_total` | counter | `store`, `operation`, `outcome` |
/// | `leasehold_store_operation_seconds` | histogram | `store`, `operation` |
///
/// An operation that is given up before its answer, as by a lease whose renewal hangs, has the outcome `dropped`; how
/// long it was waited for is in the histogram as well.
///
/// The span is `leasehold.store` at debug level. Keys go into it only after [`with_keys`](Self::with_keys), since a key
/// may name a person, and this tells of every operation; values never do. What goes wrong with a lease names its resource
/// all the same, in the error and in the log.
#[derive(Debug, Clone)]
pub struct Traced<S> {
    store: S,
    keys: bool,
}

impl<S: AtomicStore> Traced<S> {
    /// Traces the operations of `store`, without their keys.
    pub fn new(store: S) -> Self {
        Self { store, keys: false }
    }

    /// Puts keys into the spans too.
    #[must_use]
    pub fn with_keys(mut self) -> Self {
        self.keys = true;
        self
    }

    async fn traced<T: Outcomes>(
        &self,
        operation: &'static str,
        key: Option<&str>,
        answer: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let store = self.store.name();
        let span = debug_span!("leasehold.store", store, operation, key = field::Empty, outcome = field::Empty);
        if let Some(key) = key.filter(|_| self.keys) {
            span.record("key", key);
        }
        let mut asked = Asked { store, operation, span: span.clone(), started: Instant::now(), outcome: "dropped" };
        let answer = answer.instrument(span).await;
        asked.outcome = match &answer {
            Ok(answer) => answer.outcome(),
            Err(error) if error.effect() == Effect::None => "error",
            Err(_) => "error_of_unknown_effect",
        };
        if let Err(error) = &answer {
            tracing::debug!(parent: &asked.span, %error, "the store could not answer");
        }
        answer
    }
}

/// An operation under way. It is told of when it is dropped: also of one that was given up, as just those that hang are.
struct Asked {
    store: &'static str,
    operation: &'static str,
    span: Span,
    started: Instant,
    outcome: &'static str,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Self { store, operation, ref span, started, outcome } = *self;
        span.record("outcome", outcome);
        metrics::counter!("leasehold_store_operations_total", "store" => store, "operation" => operation, "outcome" => outcome)
            .increment(1);
        metrics::histogram!("leasehold_store_operation_seconds", "store" => store, "operation" => operation)
            .record(started.elapsed().as_secs_f64());
    }
}

/// How an answer is named in metrics.
trait Outcomes {
    fn outcome(&self) -> &'static str {
        "ok"
    }
}

impl Outcomes for AddOutcome {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Exists(_) => "exists",
        }
    }
}

impl Outcomes for ReplaceOutcome {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::NotApplied => "not_applied",
        }
    }
}

impl Outcomes for Outcome {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not_applied",
        }
    }
}

impl Outcomes for Option<Entry> {
    fn outcome(&self) -> &'static str {
        if self.is_some() { "found" } else { "absent" }
    }
}

impl Outcomes for Hints {}
impl Outcomes for Revision {}
impl Outcomes for Page {}
impl<T> Outcomes for Vec<T> {}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: AtomicStore> AtomicStore for Traced<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.traced("try_add", Some(key.as_str()), self.store.try_add(key, value, ttl)).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.traced("try_replace", Some(key.as_str()), self.store.try_replace(key, expected, value, ttl)).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.traced("try_remove", Some(key.as_str()), self.store.try_remove(key, expected)).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.traced("try_expire", Some(key.as_str()), self.store.try_expire(key, expected, ttl)).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.traced("get", Some(key.as_str()), self.store.get(key)).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.traced("watch", Some(key.as_str()), self.store.watch(key)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: CacheStore> CacheStore for Traced<S> {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.traced("set", Some(key.as_str()), self.store.set(key, value, expiry)).await
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.traced("remove", Some(key.as_str()), self.store.remove(key)).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        self.traced("get_many", None, self.store.get_many(keys)).await
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        self.traced("set_many", None, self.store.set_many(items)).await
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        self.traced("remove_many", None, self.store.remove_many(keys)).await
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.traced("scan", Some(prefix.as_str()), self.store.scan(prefix, cursor)).await
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.traced("watch_prefix", Some(prefix.as_str()), self.store.watch_prefix(prefix)).await
    }
}
