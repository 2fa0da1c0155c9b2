use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::clock::Moment;
use crate::error::{Code, Effect, Error, ErrorKind};
use crate::fence::FencingToken;
use crate::lock::hold::{Grant, Hold};
use crate::lock::lease::Lease;
use crate::lock::locks::Locks;
use crate::lock::owner::process_label;
use crate::lock::queue::Head;
use crate::lock::reclaim::Doubt;
use crate::lock::record::{Holder, Nonce, encode};
use crate::lock::request::{LockRequest, Terms};
use crate::lock::term::Term;
use crate::store::{AddOutcome, Entry, Hints, ReplaceOutcome, Revision};

/// What one try answers. This enum is closed.
#[derive(Debug)]
#[must_use = "the lease may not have been acquired"]
pub enum Attempt {
    /// It is ours.
    Acquired(Lease),
    /// Somebody else has it.
    Held(Holder),
}

impl LockRequest {
    /// Acquires the lease, and waits its turn for it.
    ///
    /// Those who wait in this process go first in, first out. Across processes the order is the store's.
    ///
    /// # Errors
    ///
    /// - `Conflict` with the [`Holder`], when somebody else held it all through the wait limit.
    /// - `InvalidInput` for a key or an option that breaks a rule, before anything is sent.
    /// - `Timeout` when the store did not answer before the wait limit, or granted too late.
    /// - What the store could not answer, such as `Unavailable`. A store that fails at the first try fails this at
    ///   once; one that fails later, without effect, is tried again until the wait limit.
    ///
    /// After an error of unknown effect nobody holds the lease through this call: what the store may have granted is
    /// reclaimed in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, and reclaims what the store may have granted.
    pub async fn acquire(self) -> Result<Lease, Error> {
        let (locks, terms) = self.into_terms()?;
        if let Some(lease) = terms.shared_hold(&locks) {
            return Ok(lease);
        }
        let started = locks.now();
        let deadline = started.after(terms.wait).instant();
        if terms.wait.is_zero() || !locks.0.queues.is_queued_for(&terms.key) {
            let limit = if terms.wait.is_zero() { None } else { Some(deadline) };
            match terms.attempt(&locks, started, limit).await? {
                Attempt::Acquired(lease) => return Ok(lease),
                Attempt::Held(holder) if terms.wait.is_zero() => return Err(terms.conflict(Some(holder))),
                Attempt::Held(_) => {}
            }
        }
        Waiter { locks: &locks, terms: &terms, deadline, holder: None }.wait().await
    }

    /// Makes exactly one try. The wait limit plays no part.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but that "somebody else has it" is an answer.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Attempt, Error> {
        let (locks, terms) = self.into_terms()?;
        if let Some(lease) = terms.shared_hold(&locks) {
            return Ok(Attempt::Acquired(lease));
        }
        terms.attempt(&locks, locks.now(), None).await
    }

    /// Acquires the lease, works while it is held, and releases it.
    ///
    /// The work is dropped at its next await when the lease is lost.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and `Lost`. Work that has ended is never turned into an error: a release that
    /// fails then goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and queues a release.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        let lease = self.acquire().await?;
        let done = lease.while_held(work(&lease)).await?;
        if let Err(error) = lease.release().await {
            tracing::warn!(%error, "the work is done, and its lease is released in the background");
        }
        Ok(done)
    }
}

impl Terms {
    /// A lease that the same owner already holds, shared.
    fn shared_hold(&self, locks: &Locks) -> Option<Lease> {
        let owner = self.owner.as_ref()?;
        owner.find(&self.key, |hold| (hold.locks.is(locks)).then(|| Lease::sharing(hold).ok()).flatten())
    }

    fn conflict(&self, holder: Option<Holder>) -> Error {
        let Self { resource, wait, .. } = self;
        let message = match &holder {
            Some(holder) => format!("{resource} was not free within {wait:?}: held by {holder}"),
            None => format!("{resource} was not free within {wait:?}"),
        };
        let error = Error::new(ErrorKind::Conflict, "acquire", message).with_code(Code::LockHeld);
        match holder {
            Some(holder) => error.with_holder(holder),
            None => error,
        }
    }

    /// Asks the store once, and waits for its answer until `limit`, but no longer than a grant would be worth anything.
    async fn attempt(&self, locks: &Locks, sent: Moment, limit: Option<Instant>) -> Result<Attempt, Error> {
        let bid = Bid::new(self, locks);
        let worthless = sent.instant() + self.plan.valid_for;
        let limit = limit.map_or(worthless, |limit| worthless.min(limit));
        let doubt = Doubt::about(locks, &self.key, bid.value.clone(), self.plan.ttl);
        let answer = locks.store().try_add(&self.key, bid.value.clone(), self.plan.ttl);
        match locks.answered_by(limit, "acquire", answer).await {
            Ok(AddOutcome::Added(revision)) => self.granted(locks, bid, sent, revision, doubt),
            Ok(AddOutcome::Exists(entry)) if entry.value == bid.value => self.adopt(locks, bid, doubt).await,
            Ok(AddOutcome::Exists(entry)) => {
                drop(doubt.resolve());
                self.held(locks, &entry)
            }
            Err(error) => {
                if error.effect() == Effect::None {
                    drop(doubt.resolve());
                }
                Err(error)
            }
        }
    }

    fn granted(
        &self,
        locks: &Locks,
        bid: Bid,
        sent: Moment,
        revision: Revision,
        doubt: Doubt<'_>,
    ) -> Result<Attempt, Error> {
        let Some(term) = Term::granted(self.plan, sent, locks.now()) else {
            doubt.give_back();
            return Err(Error::new(
                ErrorKind::Timeout,
                "acquire",
                "the grant came when it was over, and is given back",
            )
            .with_store(locks.store().name()));
        };
        let runtime = doubt.resolve().unwrap_or_else(Handle::current);
        let Bid { nonce, value, since } = bid;
        let hold = Hold::new(Grant {
            locks: locks.clone(),
            key: self.key.clone(),
            resource: self.resource.clone(),
            nonce,
            value,
            token: locks.gives_fencing_tokens().then(|| FencingToken::from(revision)),
            plan: self.plan,
            sent,
            since,
            runtime,
            term,
        });
        if let Some(owner) = &self.owner {
            owner.remember(&hold);
        }
        Ok(Attempt::Acquired(Lease::new(hold)))
    }

    /// Our own value is there already: a layer below sent the request twice. The first sending was the grant, and its
    /// token never reached us, so the lease starts anew under a fresh nonce.
    async fn adopt(&self, locks: &Locks, mine: Bid, doubt: Doubt<'_>) -> Result<Attempt, Error> {
        let bid = Bid::new(self, locks);
        let sent = locks.now();
        let renewed_doubt = Doubt::about(locks, &self.key, bid.value.clone(), self.plan.ttl);
        let answer = locks.store().try_replace(&self.key, &mine.value, bid.value.clone(), self.plan.ttl);
        match locks.answered_by(sent.instant() + self.plan.valid_for, "acquire", answer).await {
            Ok(ReplaceOutcome::Applied(revision)) => {
                drop(doubt.resolve());
                self.granted(locks, bid, sent, revision, renewed_doubt)
            }
            // It has ended meanwhile. Whoever is there now is not known, and neither value is ours to keep.
            Ok(ReplaceOutcome::NotApplied) => {
                drop(renewed_doubt.resolve());
                Err(Error::new(ErrorKind::Timeout, "acquire", "the grant was over before it was known")
                    .with_store(locks.store().name()))
            }
            Err(error) => {
                if error.effect() == Effect::None {
                    drop(renewed_doubt.resolve());
                }
                Err(error)
            }
        }
    }

    fn held(&self, locks: &Locks, entry: &Entry) -> Result<Attempt, Error> {
        match Holder::of(entry, "acquire") {
            Ok(holder) => Ok(Attempt::Held(holder)),
            Err(error) => Err(error.with_store(locks.store().name()).with_effect(Effect::None)),
        }
    }
}

/// What one try writes.
struct Bid {
    nonce: Nonce,
    value: bytes::Bytes,
    since: SystemTime,
}

impl Bid {
    fn new(terms: &Terms, locks: &Locks) -> Self {
        let (nonce, since) = (locks.nonce(), SystemTime::now());
        let label = match &terms.owner {
            Some(owner) => owner.label(),
            None => process_label(),
        };
        Self { nonce, value: encode(nonce, label, since), since }
    }
}

/// One acquisition that found the lease held.
struct Waiter<'a> {
    locks: &'a Locks,
    terms: &'a Terms,
    deadline: Instant,
    /// Who held it when last asked.
    holder: Option<Holder>,
}

impl Waiter<'_> {
    async fn wait(mut self) -> Result<Lease, Error> {
        let place = self.locks.0.queues.join(&self.terms.key);
        let Ok(mut head) = timeout_at(self.deadline, place.queue.head.lock()).await else {
            return Err(self.terms.conflict(self.holder));
        };
        let mut pauses = Pauses::default();
        loop {
            if let Some(lease) = self.terms.shared_hold(self.locks) {
                return Ok(lease);
            }
            self.arm(&mut head).await;
            let now = Instant::now();
            let next_try = match head.quiet_until.take().filter(|&quiet_until| quiet_until > now) {
                Some(quiet_until) => quiet_until,
                None => match self.ask(&mut head, &mut pauses).await? {
                    Ok(lease) => return Ok(lease),
                    Err(next_try) => next_try,
                },
            };
            if now >= self.deadline {
                return Err(self.terms.conflict(self.holder));
            }
            // A last try at the limit itself would come after it, so the wait ends there.
            let wake = next_try.min(self.deadline);
            let hinted = sleep_until_hinted(wake, head.hints.as_mut(), &place.queue.released).await;
            match hinted {
                Wake::Hint => pauses = Pauses::default(),
                Wake::Deaf => head.hints = None,
                Wake::Time if Instant::now() >= self.deadline => return Err(self.terms.conflict(self.holder)),
                Wake::Time => {}
            }
        }
    }

    /// Listens before the try that confirms that it is still held, so that a release between the two is heard. Without
    /// hints, time alone wakes us.
    async fn arm(&self, head: &mut Head) {
        /// A listener that cannot be had costs this once in a while, and not the wait.
        const LIMIT: Duration = Duration::from_millis(500);
        const AGAIN_AFTER: Duration = Duration::from_secs(5);

        let now = Instant::now();
        let deaf = head.deaf_until.is_some_and(|deaf_until| now < deaf_until);
        if head.hints.is_some() || deaf || !self.locks.store().capabilities().hints {
            return;
        }
        let watch = self.locks.store().watch(&self.terms.key);
        head.hints = timeout_at(self.deadline.min(now + LIMIT), watch).await.ok().and_then(Result::ok);
        head.deaf_until = head.hints.is_none().then(|| now + AGAIN_AFTER);
    }

    /// Asks the store, or says when to ask it next.
    async fn ask(&mut self, head: &mut Head, pauses: &mut Pauses) -> Result<Result<Lease, Instant>, Error> {
        if let Some(hints) = &mut head.hints {
            // What was hinted at up to here, the try itself finds out.
            hints.drain();
        }
        match self.terms.attempt(self.locks, self.locks.now(), Some(self.deadline)).await {
            Ok(Attempt::Acquired(lease)) => {
                // The next head is told of our release by the listener that is armed already, and need not try before.
                let expiry = after_expiry(self.terms.plan.ttl.as_duration());
                head.quiet_until = head.hints.is_some().then_some(expiry);
                Ok(Ok(lease))
            }
            Ok(Attempt::Held(holder)) => {
                let expiry = after_expiry(holder.time_left);
                self.holder = Some(holder);
                Ok(Err(if head.hints.is_some() { expiry } else { expiry.min(pauses.next()) }))
            }
            // It held once, so the store has been there: it may well come back while there is time to wait.
            Err(error) if error.effect() == Effect::None && is_passing(&error) && self.holder.is_some() => {
                tracing::debug!(%error, "a try failed while waiting for a lease");
                Ok(Err(pauses.next()))
            }
            Err(error) => Err(error),
        }
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

/// A moment just after a lease with so much time left has ended, unless it is renewed: not quite the same for all who
/// wait for it.
fn after_expiry(time_left: Duration) -> Instant {
    const LONGEST_JITTER: Duration = Duration::from_millis(50);
    let jitter = (time_left / 20).min(LONGEST_JITTER).mul_f64(rand::random());
    Moment::new(Instant::now())
        .after(time_left.saturating_add(Duration::from_millis(1)).saturating_add(jitter))
        .instant()
}

/// The pauses between tries without hints: growing, and jittered so that many who wait do not come all at once.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    fn next(&mut self) -> Instant {
        const FIRST: Duration = Duration::from_millis(10);
        const LONGEST: Duration = Duration::from_millis(500);
        let pause = FIRST.saturating_mul(1 << self.0.min(10)).min(LONGEST);
        self.0 += 1;
        Instant::now() + pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }
}

enum Wake {
    Hint,
    Time,
    /// No more hints will come from this listener.
    Deaf,
}

async fn sleep_until_hinted(wake: Instant, hints: Option<&mut Hints>, released: &tokio::sync::Notify) -> Wake {
    let woken = async {
        match hints {
            Some(hints) => match hints.next().await {
                Some(_) => Wake::Hint,
                None => Wake::Deaf,
            },
            None => {
                released.notified().await;
                Wake::Hint
            }
        }
    };
    timeout_at(wake, woken).await.unwrap_or(Wake::Time)
}
