use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::fence::FencingToken;
use crate::lock::keeper::Noted;
use crate::lock::locks::Locks;
use crate::lock::reclaim;
use crate::lock::record::Nonce;
use crate::lock::term::{Due, LossReason, Lost, Plan, Term};
use crate::store::Key;

/// One grant of the store, behind every [`Lease`](crate::lock::Lease) that shares it.
pub(super) struct Hold {
    pub(super) locks: Locks,
    pub(super) key: Key,
    pub(super) resource: Key,
    pub(super) nonce: Nonce,
    /// What is stored: it proves that the lease is ours.
    pub(super) value: Bytes,
    pub(super) token: Option<FencingToken>,
    pub(super) plan: Plan,
    /// Whether another sending of what is stored may still land, once it is gone.
    pub(super) may_land_again: bool,
    /// Whether what is stored is left there when the lease is lost.
    outlives_loss: bool,
    /// From when the lease counts: before its request was sent.
    pub(super) granted_at: Moment,
    /// Where it was acquired, so that it can be dropped anywhere.
    pub(super) runtime: Handle,
    pub(super) since: SystemTime,
    term: Mutex<Term>,
    handles: AtomicUsize,
    /// Fires when the lease is lost or released. Made when somebody asks for it first.
    ended: OnceLock<CancellationToken>,
    /// Whether the keeper has ever had it on its agenda.
    is_watched: AtomicBool,
    /// Where the keeper has it on its agenda, which is locked by whoever looks here.
    noted: Mutex<Option<Noted>>,
    /// The renewal under way.
    renewal: Mutex<Option<AbortHandle>>,
}

/// What a hold is made of.
pub(super) struct Grant {
    pub(super) locks: Locks,
    pub(super) key: Key,
    pub(super) resource: Key,
    pub(super) nonce: Nonce,
    pub(super) value: Bytes,
    pub(super) token: Option<FencingToken>,
    pub(super) plan: Plan,
    pub(super) may_land_again: bool,
    pub(super) outlives_loss: bool,
    pub(super) sent: Moment,
    pub(super) since: SystemTime,
    pub(super) runtime: Handle,
    pub(super) term: Term,
    /// When it was known to be granted.
    pub(super) now: Moment,
}

impl Hold {
    /// A hold with one handle.
    pub(super) fn new(grant: Grant) -> Arc<Self> {
        let Grant {
            locks,
            key,
            resource,
            nonce,
            value,
            token,
            plan,
            may_land_again,
            outlives_loss,
            sent,
            since,
            runtime,
            term,
            now,
        } = grant;
        locks.0.held.fetch_add(1, Ordering::AcqRel);
        let hold = Arc::new(Self {
            locks,
            key,
            resource,
            nonce,
            value,
            token,
            plan,
            may_land_again,
            outlives_loss,
            granted_at: sent,
            runtime,
            since,
            term: Mutex::new(term),
            handles: AtomicUsize::new(1),
            ended: OnceLock::new(),
            is_watched: AtomicBool::new(false),
            noted: Mutex::new(None),
            renewal: Mutex::new(None),
        });
        if plan.renew_after.is_some() {
            hold.locks.0.keeper.attend(&hold, &hold.runtime, now);
        }
        hold
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Until when it is held.
    pub(super) fn valid_until(&self) -> Result<Moment, Lost> {
        let now = self.locks.now();
        self.latched(|term| term.valid_until(now))
    }

    /// What there is to do about it now.
    pub(super) fn due(&self, now: Moment) -> Due {
        self.latched(|term| Ok(term.due(now))).unwrap_or(Due::Over)
    }

    /// Whether it is held no more, as far as anybody has found.
    pub(super) fn is_over(&self) -> bool {
        self.term().is_over()
    }

    /// One more handle, unless the last is gone or the lease is lost.
    pub(super) fn share(&self) -> Result<(), Lost> {
        self.valid_until()?;
        let more = |handles| (handles > 0).then_some(handles + 1);
        match self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.lost(LossReason::NotOurs)),
        }
    }

    /// One handle less. Says whether it was the last.
    pub(super) fn unshare(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The signal that fires when the lease ends, by loss or by release.
    pub(super) fn ended(&self) -> &CancellationToken {
        let ended = self.ended.get_or_init(CancellationToken::new);
        // Who ends the lease fires the signal if it is there; if it came to be just after that, this sees the end.
        if self.valid_until().is_err() {
            ended.cancel();
        }
        ended
    }

    /// Ends it by the holder's will: nothing is renewed from here on. Says whether it had been lost before.
    pub(super) fn end(self: &Arc<Self>, now: Moment) -> Result<(), Lost> {
        let ended = self.latched(|term| term.release(now));
        // Who was never watched was never renewed in the background either.
        if self.is_watched.load(Ordering::Acquire) {
            self.locks.0.keeper.forget(self);
            // A released lease has no use for the answer.
            if let Some(renewal) = self.renewal().take() {
                renewal.abort();
            }
        }
        if let Some(signal) = self.ended.get() {
            signal.cancel();
        }
        ended
    }

    /// Sends one renewal and takes note of the answer.
    ///
    /// Dropped midway, the request may still land: it makes the stored lease live longer and this one not.
    pub(super) async fn renew(self: &Arc<Self>) -> Result<(), Error> {
        self.valid_until()?;
        if self.term().renewals_are_used_up() {
            return Err(Error::new(ErrorKind::Unsupported, "renew", "the lease has had its last renewal"));
        }
        let sent = self.locks.now();
        let deadline = sent.instant() + self.plan.renewal_limit();
        let answer = self.locks.store().try_expire(&self.key, &self.value, self.plan.ttl);
        let outcome = self.locks.answered_by(deadline, "renew", answer).await?;
        let now = self.locks.now();
        if !outcome.is_applied() {
            return Err(self.lose(LossReason::NotOurs).into());
        }
        self.latched(|term| term.renewed(sent, now)).map_err(|lost| {
            // The stored lease was just made to live longer, and nobody holds it any more.
            if !self.outlives_loss {
                reclaim::release(self, false);
            }
            lost.into()
        })
    }

    /// When the lease has surely ended in the store, if nothing reaches it from now on.
    pub(super) fn ends_without_us(&self, now: Moment) -> Instant {
        now.instant() + self.plan.ttl.as_duration()
    }

    /// The keeper has it on its agenda from now on.
    pub(super) fn watched(&self) {
        self.is_watched.store(true, Ordering::Release);
    }

    /// Where the keeper has it on its agenda.
    pub(super) fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the handle of the renewal under way, so that a release can end it.
    pub(super) fn renewal_started(&self, renewal: AbortHandle) {
        *self.renewal() = Some(renewal);
    }

    /// When to renew it again, if a renewal that is sent now is dropped without an answer.
    pub(super) fn renew_again_at(&self, now: Moment) -> Moment {
        now.after(self.plan.renewal_limit())
    }

    /// Takes note of a renewal that was dropped without an answer.
    pub(super) fn renewal_dropped(&self, again: Moment) {
        self.term().renewal_dropped(again);
    }

    /// Takes note of a renewal that the store did not answer.
    pub(super) fn renewal_failed(&self, error: &Error) {
        let now = self.locks.now();
        let failures = self.term().renewal_failed(now, rand::random());
        metrics::counter!("leasehold_renewal_failures_total").increment(1);
        tracing::warn!(resource = %self.resource, failures, error = %format_args!("{error:#}"), "a renewal failed");
    }

    fn lose(&self, reason: LossReason) -> Lost {
        match self.latched(|term| Err::<(), _>(term.lose(reason))) {
            Err(lost) => lost,
            Ok(()) => self.lost(reason),
        }
    }

    /// Changes the term, and tells everybody when that found or made it lost.
    fn latched<T>(&self, change: impl FnOnce(&mut Term) -> Result<T, LossReason>) -> Result<T, Lost> {
        let mut term = self.term();
        let was_lost = term.is_lost();
        let answer = change(&mut term);
        let newly_lost = !was_lost && term.is_lost();
        drop(term);
        if newly_lost {
            self.tell_lost();
        }
        answer.map_err(|reason| self.lost(reason))
    }

    fn tell_lost(&self) {
        if let Some(signal) = self.ended.get() {
            signal.cancel();
        }
        let reason = self.term().valid_until(self.granted_at).err().map_or("", LossReason::as_str);
        metrics::counter!("leasehold_leases_lost_total", "reason" => reason).increment(1);
        tracing::warn!(resource = %self.resource, reason, "a lease was lost");
    }

    /// Its release found nothing that was ours, though it counted as held: another may have worked beside us.
    pub(super) fn was_lost_unnoticed(&self) {
        let reason = LossReason::NotOurs.as_str();
        metrics::counter!("leasehold_leases_lost_total", "reason" => reason).increment(1);
        tracing::warn!(resource = %self.resource, reason, "a lease was lost before its release");
    }

    fn lost(&self, reason: LossReason) -> Lost {
        Lost::new(self.resource.clone(), reason)
    }

    // Nothing panics under these locks.
    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewal(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.locks.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("resource", &self.resource).field("token", &self.token).finish_non_exhaustive()
    }
}
