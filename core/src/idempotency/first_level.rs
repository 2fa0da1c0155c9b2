use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;

use crate::clock::Moment;
use crate::idempotency::record::Record;
use crate::store::Key;

/// Answers that this process has seen, the most recently used of them. An answer never changes, so what is kept here is
/// what the store would say, until its record ends there.
pub(super) struct FirstLevel {
    records: Mutex<LruCache<Key, Kept>>,
    at_most: Duration,
}

struct Kept {
    record: Record,
    until: Moment,
}

impl FirstLevel {
    pub(super) fn new(entries: NonZeroUsize, at_most: Duration) -> Self {
        // `new` would take the memory for all of them at once.
        let mut records = LruCache::unbounded();
        records.resize(entries);
        Self { records: Mutex::new(records), at_most }
    }

    pub(super) fn get(&self, key: &Key, now: Moment) -> Option<Record> {
        let mut records = self.records();
        let kept = records.get(key)?;
        if now.is_past(kept.until) {
            records.pop(key);
            return None;
        }
        Some(kept.record.clone())
    }

    /// Keeps an answered record that had so much time left when the store was asked at `asked`, or later.
    pub(super) fn put(&self, key: &Key, record: &Record, asked: Moment, time_left: Duration) {
        // Less what two clocks may drift apart meanwhile, so that it ends here first.
        let trusted = (time_left - time_left / 100).saturating_sub(Duration::from_millis(2)).min(self.at_most);
        if !trusted.is_zero() {
            let kept = Kept { record: record.clone(), until: asked.after(trusted) };
            self.records().put(key.clone(), kept);
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.records().pop(key);
    }

    // Nothing panics under this lock.
    fn records(&self) -> MutexGuard<'_, LruCache<Key, Kept>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
