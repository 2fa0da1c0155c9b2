//! What a lease leaves to be done when nobody waits for it any more: the release of one that was dropped, and the
//! reclaim of an acquisition that nobody holds and that the store may have granted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::clock::Moment;
use crate::lock::hold::Hold;
use crate::lock::locks::Locks;
use crate::store::{Key, Outcome, Ttl};

/// Releases a lease in the background, until the store says so or it has ended by its ttl.
pub(super) fn release(hold: &Arc<Hold>) {
    let hold = hold.clone();
    let now = hold.locks.now();
    let ends = now.after(hold.plan.ttl.as_duration());
    let chore = remove(hold.locks.clone(), hold.key.clone(), hold.value.clone(), now, ends);
    let locks = hold.locks.clone();
    let runtime = hold.runtime.clone();
    locks.settle(&runtime, async move {
        chore.await;
        hold.locks.0.queues.released(&hold.key);
    });
}

/// An acquisition between its request and its answer. Dropped before the answer is known, it reclaims what the store
/// may have granted: an error of unknown effect and a future that is dropped midway come to the same.
pub(crate) struct Doubt<'a> {
    locks: &'a Locks,
    key: &'a Key,
    value: Bytes,
    ttl: Ttl,
    /// Where the reclaim runs; nothing once the answer is known.
    runtime: Option<Handle>,
}

impl<'a> Doubt<'a> {
    pub(super) fn about(locks: &'a Locks, key: &'a Key, value: Bytes, ttl: Ttl) -> Self {
        Self { locks, key, value, ttl, runtime: Some(Handle::current()) }
    }

    /// The store has said what became of the request. Gives the runtime that it was made on.
    pub(super) fn resolve(mut self) -> Option<Handle> {
        self.runtime.take()
    }

    /// The store granted it, and nobody will hold it.
    pub(super) fn give_back(mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.remove(&runtime, Duration::ZERO);
        }
    }

    /// Removes it, though it may still be `on_its_way` for so long.
    fn remove(&self, runtime: &Handle, on_its_way: Duration) {
        metrics::counter!("leasehold_reclaims_total").increment(1);
        let landed = self.locks.now().after(on_its_way);
        let ends = landed.after(self.ttl.as_duration());
        let chore = remove(self.locks.clone(), self.key.clone(), self.value.clone(), landed, ends);
        self.locks.settle(runtime, chore);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            tracing::debug!(key = %self.key, "an acquisition of unknown outcome is reclaimed");
            self.remove(&runtime, self.locks.transport_gives_up_after());
        }
    }
}

impl Locks {
    /// A value that was sent more than once and may still land under a key: dropped, it is reclaimed in the background.
    pub(crate) fn doubt<'a>(&'a self, key: &'a Key, value: Bytes, ttl: Ttl) -> Doubt<'a> {
        Doubt::about(self, key, value, ttl)
    }

    /// Removes a value of ours in the background, if it is still there.
    pub(crate) fn give_back(&self, runtime: &Handle, key: &Key, value: &Bytes, ttl: Ttl) {
        let now = self.now();
        let chore = remove(self.clone(), key.clone(), value.clone(), now, now.after(ttl.as_duration()));
        self.settle(runtime, chore);
    }
}

/// Removes our own entry, trying again until that is settled or the entry has surely ended by itself.
///
/// That it is not there settles it from `trusted_from` on: before, a request may still be parked on its way, and land
/// after a removal that found nothing.
async fn remove(locks: Locks, key: Key, value: Bytes, trusted_from: Moment, ends: Moment) {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(5);

    let mut pause = FIRST_PAUSE;
    loop {
        let asked = locks.now();
        match tokio::time::timeout(LIMIT, locks.store().try_remove(&key, &value)).await {
            Ok(Ok(Outcome::Applied)) => return,
            Ok(Ok(Outcome::NotApplied)) if asked.is_past(trusted_from) => return,
            Ok(Ok(Outcome::NotApplied)) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%key, %error, "a removal failed and is tried again"),
        }
        if locks.now().is_past(ends) {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
