use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::Key;
use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Who may wait for a lock at the server, which takes a connection all the while.
///
/// There are few places for that. Of those who want one key only one asks for a place: what it waits for is what the
/// others wait for too, and each of them with a place would leave less for those who want another key.
pub(crate) struct Waiting {
    places: Semaphore,
    keys: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

/// The turn to wait for a key, first come first served.
pub(crate) struct Turn {
    // First: fields are dropped in this order, and who leaves the queue looks whether it is still there.
    _turn: OwnedMutexGuard<()>,
    _queued: Queued,
}

/// One of those who want a key.
struct Queued {
    waiting: Arc<Waiting>,
    key: Key,
    queue: Arc<tokio::sync::Mutex<()>>,
}

impl Waiting {
    pub(crate) fn new(places: usize) -> Self {
        Self { places: Semaphore::new(places), keys: Mutex::default() }
    }

    /// Waits for the turn. Cancel safe.
    pub(crate) async fn turn(self: &Arc<Self>, key: &Key) -> Turn {
        let queue = self.keys().entry(key.clone()).or_default().clone();
        let queued = Queued { waiting: self.clone(), key: key.clone(), queue };
        let turn = queued.queue.clone().lock_owned().await;
        Turn { _turn: turn, _queued: queued }
    }

    /// Waits for a place. Cancel safe.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes it.
        self.places.acquire().await.ok()
    }

    // Nothing panics under this lock.
    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<()>>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut keys = self.waiting.keys();
        // The map's and this one: whoever comes takes it from the map, under the same lock.
        if Arc::strong_count(&self.queue) == 2 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_that_nobody_waits_for_takes_no_memory() {
        let waiting = Arc::new(Waiting::new(1));
        let key = Key::new("k").unwrap();
        let first = waiting.turn(&key).await;
        let mut second = Box::pin(waiting.turn(&key));
        assert!(futures_util::poll!(&mut second).is_pending());
        let mut gives_up = Box::pin(waiting.turn(&key));
        assert!(futures_util::poll!(&mut gives_up).is_pending());
        drop(gives_up);
        drop(first);
        let second = second.await;
        assert_eq!(waiting.keys().len(), 1);
        drop(second);
        assert!(waiting.keys().is_empty());
    }
}
