use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::fence::FencingToken;
use crate::lock::hold::Hold;
use crate::lock::reclaim;
use crate::lock::record::{Nonce, encode};
use crate::lock::term::Lost;
use crate::store::{Key, Outcome, ReplaceOutcome, Ttl};

/// A lease that is held, until it is released, dropped or lost.
///
/// Its validity is counted from before its request was sent, less a margin for the drift of two clocks (1% and 2 ms),
/// so that it ends here before it ends in the store. The assumption: the store's clock neither steps forward nor runs
/// more than the margin faster than this machine's. Beyond that only the [fencing token](Self::fencing_token) protects.
///
/// Dropping it queues a release in the background; [`release`](Self::release) tells how that went.
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    hold: Arc<Hold>,
    stage: Stage,
}

/// What dropping a handle has to do.
#[derive(PartialEq, Eq)]
enum Stage {
    /// Take it off the lease, and release that if it was the last.
    Holding,
    /// Take it off the lease, and leave what is stored as it is.
    Forgoing,
    /// It was the last, and the store has not yet confirmed the release.
    Releasing,
    /// Nothing.
    Settled,
}

/// What became of a release. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "the lease may have been lost before it was released"]
pub enum Release {
    /// It was ours up to now, and is free.
    Released,
    /// It goes on: somebody else holds a share of it.
    StillShared,
    /// It was lost before. Who holds it now, if anybody, keeps it, and may have worked beside us: the loss is counted and
    /// warned of as any other, also when a lease that is dropped finds it out.
    AlreadyLost,
}

impl Lease {
    pub(super) fn new(hold: Arc<Hold>) -> Self {
        Self { hold, stage: Stage::Holding }
    }

    pub(super) fn sharing(hold: &Arc<Hold>) -> Result<Self, Lost> {
        hold.share()?;
        Ok(Self::new(hold.clone()))
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// What is stored: it proves that the lease is ours.
    pub(crate) fn value(&self) -> &Bytes {
        &self.hold.value
    }

    /// Whether another sending of what is stored may still land, once it is gone.
    pub(crate) fn may_land_again(&self) -> bool {
        self.hold.may_land_again
    }

    /// Where it was acquired.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.hold.runtime
    }

    pub(crate) fn since(&self) -> SystemTime {
        self.hold.since
    }

    /// What the lease is on.
    pub fn resource(&self) -> &Key {
        &self.hold.resource
    }

    /// What makes this acquisition different from every other.
    pub fn nonce(&self) -> Nonce {
        self.hold.nonce
    }

    /// A number larger than that of every earlier lease on this resource, for what is written to under the lease: it
    /// can refuse an older one. It never changes while the lease is held.
    ///
    /// Nothing when the store mints no revisions; [`require_fencing`](crate::lock::LockRequest::require_fencing)
    /// refuses such a store at the start.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.token
    }

    /// How long the lease is still ours without a renewal; zero when it is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.hold.locks.now();
        self.hold.valid_until().map_or(Duration::ZERO, |until| now.until(until))
    }

    /// Whether the lease is still ours, by both clocks, now. It asks nobody.
    ///
    /// The answer is of the past as soon as it is given: what must not be written after the lease has ended needs the
    /// [fencing token](Self::fencing_token).
    ///
    /// # Errors
    ///
    /// [`Lost`]; from then on always.
    pub fn check(&self) -> Result<(), Lost> {
        self.hold.valid_until().map(drop)
    }

    /// Resolves when the lease is lost: no later than its deadline, by a timer of its own, though every call to the
    /// store hangs.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> Lost {
        let ended = self.hold.ended();
        loop {
            let until = match self.hold.valid_until() {
                Ok(until) => until,
                Err(lost) => return lost,
            };
            let nap = self.hold.locks.now().nap(until);
            // A renewal moves the deadline while this sleeps; then the old one is just a time to look again.
            let _ = tokio::time::timeout_at(nap, ended.cancelled()).await;
        }
    }

    /// A token that fires when the lease is lost or released, for code that listens to tokens. Cancelling it does
    /// nothing to the lease.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.hold.ended().child_token();
        // Somebody has to look at the clock, also for a lease that is not renewed.
        self.hold.locks.0.keeper.attend(&self.hold, &self.hold.runtime, self.hold.locks.now());
        token
    }

    /// Works while the lease is held: both clocks are checked before each poll of `work`, and it is dropped at its next
    /// await when the lease is lost.
    ///
    /// # Errors
    ///
    /// [`Lost`]. Work that has ended is never turned into it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|cx| {
            self.check()?;
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            // Polled after the work, so that it is asked for the time as it is then.
            lost.as_mut().poll(cx).map(Err)
        })
        .await
    }

    /// Renews the lease by hand, for its whole ttl.
    ///
    /// # Errors
    ///
    /// `Lost` when it is; `Unsupported` after the last renewal that was allowed; else what the store could not answer,
    /// and the lease goes on until its deadline.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the renewal may still be made, and does not count.
    pub async fn renew(&self) -> Result<(), Error> {
        self.hold.renew().await
    }

    /// A second handle on the same lease. The last one that is released ends it.
    ///
    /// # Errors
    ///
    /// [`Lost`].
    pub fn share(&self) -> Result<Self, Lost> {
        Self::sharing(&self.hold)
    }

    /// Gives the lease back. Nothing is renewed from here on.
    ///
    /// # Errors
    ///
    /// What the store could not answer, and `Timeout` when the lease would have ended by itself meanwhile. The release
    /// then goes on in the background until the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the release goes on in the background.
    pub async fn release(mut self) -> Result<Release, Error> {
        if !self.leave() {
            return Ok(Release::StillShared);
        }
        let now = self.hold.locks.now();
        let held = self.hold.end(now);
        let Hold { locks, key, value, .. } = &*self.hold;
        let removal = locks.store().try_remove(key, value);
        let outcome = locks.answered_by(self.hold.ends_without_us(now), "release", removal).await?;
        self.stage = Stage::Settled;
        if self.hold.may_land_again {
            reclaim::release(&self.hold, false);
        }
        if outcome == Outcome::NotApplied && held.is_ok() {
            self.hold.was_lost_unnoticed();
        }
        Ok(match outcome {
            Outcome::Applied => {
                locks.0.queues.released(key);
                if held.is_ok() { Release::Released } else { Release::AlreadyLost }
            }
            Outcome::NotApplied => Release::AlreadyLost,
        })
    }

    /// Gives the lease back, and keeps it taken until `hold` after it was acquired: a job that is done in a blink is
    /// then not done again by the next who comes a blink later.
    ///
    /// Renewal stops, and the stored lease gets another value, so that no renewal on its way can move its end.
    ///
    /// On a lease that is [shared](Self::share) only the last release counts: of any other the answer is `StillShared`,
    /// and its `hold` is forgotten.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release); after an error of the store the lease is given back at once, or ends by its ttl.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    pub async fn release_no_sooner_than(mut self, hold: Duration) -> Result<Release, Error> {
        let now = self.hold.locks.now();
        let left = now.until(self.hold.granted_at.after(hold));
        if left.is_zero() {
            return self.release().await;
        }
        let ttl = Ttl::try_from(left)?;
        if !self.leave() {
            return Ok(Release::StillShared);
        }
        if self.hold.end(now).is_err() {
            // Whatever is there now, it is not ours to prolong.
            return Ok(Release::AlreadyLost);
        }
        let Hold { locks, key, value, since, .. } = &*self.hold;
        let parked = encode(locks.nonce(), "released, kept for a while", *since);
        let replacement = locks.store().try_replace(key, value, parked, ttl);
        let outcome = locks.answered_by(self.hold.ends_without_us(now), "release", replacement).await?;
        self.stage = Stage::Settled;
        Ok(match outcome {
            ReplaceOutcome::Applied(_) => Release::Released,
            ReplaceOutcome::NotApplied => {
                self.hold.was_lost_unnoticed();
                Release::AlreadyLost
            }
        })
    }

    /// Chooses whether dropping it leaves what is stored as it is, or releases it.
    pub(crate) fn forgo_when_dropped(&mut self, forgo: bool) {
        self.stage = if forgo { Stage::Forgoing } else { Stage::Holding };
    }

    /// Lets go of it here and leaves what is stored as it is: nothing is renewed from here on. Says whether it had been
    /// lost.
    pub(crate) fn forgo(mut self) -> Result<(), Lost> {
        self.leave();
        self.stage = Stage::Settled;
        self.hold.end(self.hold.locks.now())
    }

    /// Takes this handle off the lease. Says whether it was the last.
    fn leave(&mut self) -> bool {
        let last = self.hold.unshare();
        self.stage = if last { Stage::Releasing } else { Stage::Settled };
        last
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.stage {
            Stage::Holding => drop(self.leave()),
            Stage::Forgoing => {
                self.leave();
                self.stage = Stage::Settled;
                let _ = self.hold.end(self.hold.locks.now());
            }
            Stage::Releasing | Stage::Settled => {}
        }
        if self.stage == Stage::Releasing {
            // Lost or not, what may be left of it in the store is of no use to anybody.
            let held = self.hold.end(self.hold.locks.now());
            reclaim::release(&self.hold, held.is_ok());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", self.resource())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
