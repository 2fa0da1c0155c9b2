//! What a lease leaves to be done when nobody waits for it any more: the release of one that was dropped, and the
//! reclaim of an acquisition that nobody holds and that the store may have granted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::lock::hold::Hold;
use crate::lock::locks::Locks;
use crate::store::{Key, Outcome, Ttl};

/// Releases a lease in the background, until the store says so or it has ended by its ttl. One that counted as held, and
/// is not there any more, was lost.
pub(super) fn release(hold: &Arc<Hold>, counted_as_held: bool) {
    let hold = hold.clone();
    let landed = if hold.may_land_again { Landed::PerhapsAgain } else { Landed::Surely };
    let chore = remove(hold.locks.clone(), hold.key.clone(), hold.value.clone(), hold.plan.ttl, landed);
    let locks = hold.locks.clone();
    let runtime = hold.runtime.clone();
    locks.settle(&runtime, async move {
        if chore.await == Some(Outcome::NotApplied) && counted_as_held {
            hold.was_lost_unnoticed();
        }
        hold.locks.0.queues.released(&hold.key);
    });
}

/// What is known of an entry of ours that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landed {
    /// It is there, or was.
    Surely,
    /// It was sent once, and may be there, or still on its way.
    Perhaps,
    /// It was sent more than once, and may come to be there more than once.
    PerhapsAgain,
}

/// An acquisition between its request and its answer. Dropped before the answer is known, it reclaims what the store
/// may have granted: an error of unknown effect and a future that is dropped midway come to the same.
pub(super) struct Doubt<'a> {
    locks: &'a Locks,
    key: &'a Key,
    value: Bytes,
    ttl: Ttl,
    was_sent_again: bool,
    /// Where the reclaim runs; nothing once the answer is known.
    runtime: Option<Handle>,
}

impl<'a> Doubt<'a> {
    pub(super) fn about(locks: &'a Locks, key: &'a Key, value: Bytes, ttl: Ttl) -> Self {
        Self { locks, key, value, ttl, was_sent_again: false, runtime: Some(Handle::current()) }
    }

    /// The request is sent once more, and the store may get to see each sending.
    pub(super) fn sent_again(&mut self) {
        self.was_sent_again = true;
    }

    /// The store has said what became of the request. Gives the runtime that it was made on.
    pub(super) fn resolve(mut self) -> Option<Handle> {
        self.runtime.take()
    }

    /// The store granted it, and nobody will hold it.
    pub(super) fn give_back(mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.remove(&runtime, Landed::Surely);
        }
    }

    fn remove(&self, runtime: &Handle, landed: Landed) {
        metrics::counter!("leasehold_reclaims_total").increment(1);
        let landed = if self.was_sent_again { Landed::PerhapsAgain } else { landed };
        self.locks.remove_later(runtime, self.key, &self.value, self.ttl, landed);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            tracing::debug!(key = %self.key, "an acquisition of unknown outcome is reclaimed");
            self.remove(&runtime, Landed::Perhaps);
        }
    }
}

impl Locks {
    /// Removes an entry of ours in the background, if it is there or comes to be.
    pub(crate) fn remove_later(&self, runtime: &Handle, key: &Key, value: &Bytes, ttl: Ttl, landed: Landed) {
        let chore = remove(self.clone(), key.clone(), value.clone(), ttl, landed);
        self.settle(runtime, async { _ = chore.await });
    }
}

/// Removes our own entry, trying again until that is settled or the entry has surely ended by itself.
///
/// That it is not there settles it only when no request for it may be parked on its way any more, and land after a
/// removal that found nothing; nor does a removal settle it while a second sending may land after that.
///
/// A store that has nothing is asked ever less often, as it mostly has nothing to come either: an outage can leave
/// thousands of these. One that does not answer may have it, and that keeps others waiting.
///
/// Gives what was there at the first try, if that was answered.
async fn remove(locks: Locks, key: Key, value: Bytes, ttl: Ttl, landed: Landed) -> Option<Outcome> {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    const PAUSES_IN_DOUBT: u32 = 10;
    const LIMIT: Duration = Duration::from_secs(5);

    let trusted_from = match landed {
        Landed::Surely => locks.now(),
        Landed::Perhaps | Landed::PerhapsAgain => locks.now().after(locks.transport_gives_up_after()),
    };
    let ends = trusted_from.after(ttl.as_duration());
    let mut pause = FIRST_PAUSE;
    let mut first = None;
    loop {
        let asked = locks.now();
        let answer = match tokio::time::timeout(LIMIT, locks.store().try_remove(&key, &value)).await {
            Ok(Ok(outcome)) => Some(outcome),
            Ok(Err(error)) => {
                tracing::debug!(%key, %error, "a removal failed and is tried again");
                None
            }
            Err(_) => None,
        };
        let first = *first.get_or_insert(answer);
        match answer {
            Some(Outcome::Applied) if landed != Landed::PerhapsAgain => return first,
            Some(_) if asked.is_past(trusted_from) => return first,
            Some(_) | None => {}
        }
        if locks.now().is_past(ends) {
            return first;
        }
        let longest = match answer {
            Some(_) => LONGEST_PAUSE.max(locks.transport_gives_up_after() / PAUSES_IN_DOUBT),
            None => LONGEST_PAUSE,
        };
        pause = pause.min(longest);
        let mut nap = pause.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        // The look that settles it comes as soon as it can.
        let doubted = locks.now().until(trusted_from);
        if !doubted.is_zero() {
            nap = nap.min(doubted);
        }
        tokio::time::sleep(nap).await;
        pause *= 2;
    }
}
