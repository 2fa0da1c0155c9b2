use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lru::LruCache;

use crate::clock::Moment;
use crate::idempotency::record::Record;
use crate::store::Key;

/// Answers that this process has seen, the most recently used of them. An answer never changes, so what is kept here is
/// what the store would say, until its record ends there.
pub(super) struct FirstLevel {
    records: Mutex<Records>,
    limits: Limits,
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) entries: NonZeroUsize,
    pub(super) bytes: usize,
    pub(super) at_most: Duration,
}

struct Records {
    by_key: LruCache<Key, Kept>,
    /// Of all that is kept.
    bytes: usize,
    /// How often something was forgotten on request.
    purges: u64,
}

/// Before the store was asked: what it answers is of then, or later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    asked: Moment,
    purges: u64,
}

struct Kept {
    record: Record,
    /// How many bytes it is stored in, its key included.
    bytes: usize,
    until: Moment,
}

impl FirstLevel {
    pub(super) fn new(limits: Limits) -> Self {
        // `new` would take the memory for all of them at once.
        let mut by_key = LruCache::unbounded();
        by_key.resize(limits.entries);
        Self { records: Mutex::new(Records { by_key, bytes: 0, purges: 0 }), limits }
    }

    pub(super) fn get(&self, key: &Key, now: Moment) -> Option<Record> {
        let mut records = self.records();
        let kept = records.by_key.get(key)?;
        if now.is_past(kept.until) {
            records.forget(key);
            return None;
        }
        Some(kept.record.clone())
    }

    /// To be noted before the store is asked for what is then kept.
    pub(super) fn before(&self, asked: Moment) -> Before {
        Before { asked, purges: self.records().purges }
    }

    /// Keeps an answered record that had so much time left when the store was asked, or later. It is in the memory of what
    /// is stored for it.
    pub(super) fn put(&self, key: &Key, record: &Record, stored: &Bytes, before: Before, time_left: Duration) {
        let Limits { bytes: most, at_most, .. } = self.limits;
        // Less what two clocks may drift apart meanwhile, so that it ends here first.
        let trusted = (time_left - time_left / 100).saturating_sub(Duration::from_millis(2)).min(at_most);
        let bytes = key.as_bytes().len() + stored.len();
        if !trusted.is_zero() && bytes <= most {
            let kept = Kept { record: record.clone(), bytes, until: before.asked.after(trusted) };
            let mut records = self.records();
            // An answer that was purged while it was on its way here must not stay. That of another key just comes again.
            if records.purges == before.purges {
                records.keep(key, kept, most);
            }
        }
    }

    /// Forgets a record that is about to be purged: when this is dropped.
    pub(super) fn forget_when_dropped<'f>(&'f self, key: &'f Key) -> Forget<'f> {
        Forget { first_level: self, key }
    }

    // Nothing panics under this lock.
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What its drop makes forget.
#[must_use = "it forgets when it is dropped"]
pub(super) struct Forget<'f> {
    first_level: &'f FirstLevel,
    key: &'f Key,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut records = self.first_level.records();
        records.purges += 1;
        records.forget(self.key);
    }
}

impl Records {
    fn keep(&mut self, key: &Key, kept: Kept, most: usize) {
        self.bytes += kept.bytes;
        // What was there under this key, or one that is too many.
        if let Some((_, gone)) = self.by_key.push(key.clone(), kept) {
            self.bytes -= gone.bytes;
        }
        while self.bytes > most
            && let Some((_, gone)) = self.by_key.pop_lru()
        {
            self.bytes -= gone.bytes;
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(gone) = self.by_key.pop(key) {
            self.bytes -= gone.bytes;
        }
    }
}
