use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Effect, Entry, Error, ErrorKind, Expiry, Key, KeyPrefix, Outcome,
    ReplaceOutcome, Revision, Ttl,
};

use tokio::task::yield_now;

use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

/// One handle on the store under test: the store itself, and each operation with the answer that a check wants, so that
/// a check reads as a list of what must be.
#[derive(Clone)]
pub(crate) struct Handle {
    atomic: Arc<dyn AtomicStore>,
    cache: Option<Arc<dyn CacheStore>>,
}

impl Handle {
    pub(crate) fn of_cache(store: Arc<dyn CacheStore>) -> Self {
        Self { atomic: store.clone(), cache: Some(store) }
    }

    pub(crate) fn of_atomic(store: Arc<dyn AtomicStore>) -> Self {
        Self { atomic: store, cache: None }
    }

    /// The primitives, for what is built on them.
    pub(crate) fn atomic(&self) -> Arc<dyn AtomicStore> {
        self.atomic.clone()
    }

    /// The whole contract, where the store has it.
    pub(crate) fn whole(&self) -> Option<Arc<dyn CacheStore>> {
        self.cache.clone()
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The cache operations. Only checks that say in the table that they need them may ask.
    pub(crate) fn cache(&self) -> &dyn CacheStore {
        self.cache.as_deref().expect("the table says that this check needs a CacheStore")
    }

    pub(crate) async fn must_add(&self, key: &Key, value: impl Into<Bytes>, ttl: Ttl) -> Verdict<Revision> {
        match self.try_add(key, value.into(), ttl).await? {
            AddOutcome::Added(revision) => Ok(revision),
            AddOutcome::Exists(entry) => Stop::failed(format!("try_add of {key:?} must add, and found {entry:?}")),
        }
    }

    /// A `try_add` that must lose to what is there.
    pub(crate) async fn must_find(&self, key: &Key, ttl: Ttl) -> Verdict<Entry> {
        match self.try_add(key, "the loser's".into(), ttl).await? {
            AddOutcome::Exists(entry) => Ok(entry),
            AddOutcome::Added(_) => Stop::failed(format!("try_add of {key:?} must find what is there, and added")),
        }
    }

    pub(crate) async fn must_replace(
        &self,
        key: &Key,
        expected: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: Ttl,
    ) -> Verdict<Revision> {
        match self.try_replace(key, expected.as_ref(), value.into(), ttl).await? {
            ReplaceOutcome::Applied(revision) => Ok(revision),
            ReplaceOutcome::NotApplied => {
                Stop::failed(format!("try_replace of {key:?} must apply to the expected value"))
            }
        }
    }

    pub(crate) async fn must_not_replace(&self, key: &Key, expected: impl AsRef<[u8]>, why: &str) -> Verdict {
        let answer = self.try_replace(key, expected.as_ref(), "intruder".into(), crate::subject::long()).await?;
        ensure_matches!(answer, ReplaceOutcome::NotApplied, "try_replace of {key:?} must not apply, as {why}");
        Ok(())
    }

    pub(crate) async fn must_remove(&self, key: &Key, expected: impl AsRef<[u8]>) -> Verdict {
        let answer = self.try_remove(key, expected.as_ref()).await?;
        ensure_matches!(answer, Outcome::Applied, "try_remove of {key:?} must apply to the expected value");
        Ok(())
    }

    pub(crate) async fn must_not_remove(&self, key: &Key, expected: impl AsRef<[u8]>, why: &str) -> Verdict {
        let answer = self.try_remove(key, expected.as_ref()).await?;
        ensure_matches!(answer, Outcome::NotApplied, "try_remove of {key:?} must not apply, as {why}");
        Ok(())
    }

    pub(crate) async fn must_expire(&self, key: &Key, expected: impl AsRef<[u8]>, ttl: Ttl) -> Verdict {
        let answer = self.try_expire(key, expected.as_ref(), ttl).await?;
        ensure_matches!(answer, Outcome::Applied, "try_expire of {key:?} must apply to the expected value");
        Ok(())
    }

    pub(crate) async fn must_not_expire(&self, key: &Key, expected: impl AsRef<[u8]>, why: &str) -> Verdict {
        let answer = self.try_expire(key, expected.as_ref(), crate::subject::long()).await?;
        ensure_matches!(answer, Outcome::NotApplied, "try_expire of {key:?} must not apply, as {why}");
        Ok(())
    }

    /// A `get` that must find this value.
    pub(crate) async fn must_show(&self, key: &Key, value: impl AsRef<[u8]>) -> Verdict<Entry> {
        let value = value.as_ref();
        match self.get(key).await? {
            Some(entry) if entry.value == value => Ok(entry),
            Some(entry) => Stop::failed(format!(
                "get of {key:?} must give the {} of the last write, and gave {}",
                shown(value),
                shown(&entry.value)
            )),
            None => Stop::failed(format!("get of {key:?} must give the {} that was written, and nothing is there", {
                shown(value)
            })),
        }
    }

    /// A `get` that must find nothing.
    pub(crate) async fn must_not_show(&self, key: &Key, why: &str) -> Verdict {
        let found = self.get(key).await?;
        ensure_matches!(found, None, "get of {key:?} must find nothing, as {why}");
        Ok(())
    }

    pub(crate) async fn must_set(&self, key: &Key, value: impl Into<Bytes>, expiry: Expiry) -> Verdict<Revision> {
        Ok(self.cache().set(key, value.into(), expiry).await?)
    }

    /// The whole of a scan, in the order of keys; a key may come more than once.
    ///
    /// However many pages that takes: where a scan walks all that a server has, most of them are empty. One without an end
    /// meets the deadline of its check.
    pub(crate) async fn scan_all(&self, prefix: &str) -> Verdict<Vec<Key>> {
        let prefix = KeyPrefix::new(prefix)?;
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.cache().scan(&prefix, cursor).await?;
            keys.extend(page.keys);
            cursor = page.next;
            if cursor.is_none() {
                keys.sort();
                return Ok(keys);
            }
            yield_now().await;
        }
    }
}

/// What a refusal must be: of this kind, and without effect.
pub(crate) fn ensure_refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind, what: &str) -> Verdict {
    match answer {
        Ok(answer) => Stop::failed(format!("{what} must be refused as {kind}, and was answered with {answer:?}")),
        Err(error) => {
            ensure!(error.kind() == kind, "{what} must be refused as {kind}, and this came: {error:#}");
            ensure!(
                error.effect() == Effect::None,
                "{what} is refused before anything is sent, so its effect must be None: {error:#}"
            );
            Ok(())
        }
    }
}

/// A value of a check in a message: cut, as some are long.
pub(crate) fn shown(value: &[u8]) -> String {
    const LONGEST: usize = 32;
    match value.get(..LONGEST) {
        Some(beginning) => format!("{} bytes \"{}…\"", value.len(), beginning.escape_ascii()),
        None => format!("{} bytes \"{}\"", value.len(), value.escape_ascii()),
    }
}

impl Deref for Handle {
    type Target = dyn AtomicStore;

    fn deref(&self) -> &Self::Target {
        &*self.atomic
    }
}
