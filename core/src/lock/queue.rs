use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

use crate::lock::record::Holder;
use crate::store::{Hints, Key};

/// Those who wait in this process, first in and first out for each key. Only the head of a queue asks the store.
#[derive(Default)]
pub(super) struct Queues {
    by_key: Mutex<HashMap<Key, Waiting>>,
    waiting: AtomicUsize,
}

struct Waiting {
    queue: Arc<Queue>,
    turns: usize,
}

/// The queue of one key. Tokio's mutex is fair: who locks `head` in turn is the head.
pub(super) struct Queue {
    pub(super) head: AsyncMutex<Head>,
    /// A lease of this process on the key was released: known here without a hint of the store's.
    released: watch::Sender<()>,
    /// Who held it when anybody in here was told last.
    holder: Mutex<Option<Holder>>,
}

/// What one head hands on to the next.
pub(super) struct Head {
    /// The listener, armed once for all who come to be head.
    pub(super) hints: Option<Hints>,
    /// Hears of releases of this process.
    pub(super) released: watch::Receiver<()>,
    /// Until when it is not worth while to try to listen again.
    pub(super) deaf_until: Option<Instant>,
    /// Until when a try is known to fail unless something wakes us: the last head holds the lease.
    pub(super) quiet_until: Option<Instant>,
}

/// One who waits for its turn. Dropping it leaves the queue.
pub(super) struct Turn<'q> {
    queues: &'q Queues,
    key: &'q Key,
    pub(super) queue: Arc<Queue>,
}

impl Queues {
    /// How many wait, on all keys.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether somebody waits for the key, so that a newcomer has to queue up behind.
    pub(super) fn is_queued_for(&self, key: &Key) -> bool {
        // Mostly nobody waits for anything, and then this costs one load.
        self.waiting() > 0 && self.by_key().contains_key(key)
    }

    /// Queues up.
    pub(super) fn join<'q>(&'q self, key: &'q Key) -> Turn<'q> {
        let mut by_key = self.by_key();
        let waiting = by_key.entry(key.clone()).or_insert_with(|| Waiting { queue: Arc::new(Queue::new()), turns: 0 });
        waiting.turns += 1;
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Turn { queues: self, key, queue: waiting.queue.clone() }
    }

    /// Tells the head that a lease of this process was released.
    pub(super) fn released(&self, key: &Key) {
        if self.waiting() > 0
            && let Some(waiting) = self.by_key().get(key)
        {
            waiting.queue.released.send_replace(());
        }
    }

    // Nothing panics under this lock.
    fn by_key(&self) -> MutexGuard<'_, HashMap<Key, Waiting>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn new() -> Self {
        let (sender, released) = watch::channel(());
        let head = Head { hints: None, released, deaf_until: None, quiet_until: None };
        Self { head: AsyncMutex::new(head), released: sender, holder: Mutex::default() }
    }

    pub(super) fn holder(&self) -> Option<Holder> {
        self.seen().clone()
    }

    pub(super) fn is_held_by(&self, holder: Holder) {
        *self.seen() = Some(holder);
    }

    // Nothing panics under this lock.
    fn seen(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Head {
    /// Forgets the news that have come so far.
    pub(super) fn forget_news(&mut self) {
        if let Some(hints) = &mut self.hints {
            hints.drain();
        }
        self.released.mark_unchanged();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut by_key = self.queues.by_key();
        self.queues.waiting.fetch_sub(1, Ordering::AcqRel);
        let Entry::Occupied(mut waiting) = by_key.entry(self.key.clone()) else { return };
        waiting.get_mut().turns -= 1;
        if waiting.get().turns == 0 {
            // The listener goes with the last who waits. Dropped after the guard, as it may take a lock of its store.
            let queue = waiting.remove().queue;
            drop(by_key);
            drop(queue);
        }
    }
}
