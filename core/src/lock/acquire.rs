use std::future::pending;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::Moment;
use crate::error::{Code, Effect, Error, ErrorKind};
use crate::lock::lease::Lease;
use crate::lock::locks::Locks;
use crate::lock::owner::process_label;
use crate::lock::pause::{Pauses, Wake, after_expiry, sleep_until_hinted};
use crate::lock::place::{Bid, Place, Placed};
use crate::lock::queue::{Head, Queue};
use crate::lock::record::{Holder, encode};
use crate::lock::request::{LockRequest, Terms};
use crate::store::Entry;

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
    ///   once; one that fails later, or while others here wait as well, and without effect, is tried again until the
    ///   wait limit.
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
        let mut holder = None;
        if terms.wait.is_zero() || !locks.0.queues.is_queued_for(&terms.key) {
            let limit = if terms.wait.is_zero() { None } else { Some(deadline) };
            match terms.attempt(&locks, started, limit).await? {
                Attempt::Acquired(lease) => return Ok(lease),
                Attempt::Held(holder) if terms.wait.is_zero() => return Err(terms.conflict(Some(holder))),
                Attempt::Held(first) => holder = Some(first),
            }
        }
        let turn = locks.0.queues.join(&terms.key);
        if let Some(holder) = holder {
            turn.queue.is_held_by(holder);
        }
        let waiter = Waiter { locks: &locks, terms: &terms, deadline, queue: &turn.queue };
        // In a box, as it is several times as large as a try that succeeds, and every acquisition would have to carry it.
        Box::pin(waiter.wait()).await
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
    /// fails then goes on in the background, and one that finds the lease lost is counted and warned of. Who has to know
    /// takes the steps apart, and looks at what [`release`](Lease::release) says.
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

    /// Resolves with a share as soon as the same owner holds the lease: two of one owner never wait for each other.
    async fn share_when_held(&self, locks: &Locks) -> Lease {
        let Some(owner) = &self.owner else { return pending().await };
        loop {
            // Listening before the look, so that a grant between the two is heard of.
            let granted = owner.granted();
            if let Some(lease) = self.shared_hold(locks) {
                return lease;
            }
            granted.await;
        }
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
        let Self { key, resource, plan, .. } = self;
        let place = Place { locks, key, resource, plan: *plan, outlives_loss: false, operation: "acquire" };
        match place.bid(|| self.bid(locks), sent, limit, 1).await? {
            Placed::Ours(lease) => {
                if let Some(owner) = &self.owner {
                    owner.remember(lease.hold());
                }
                Ok(Attempt::Acquired(lease))
            }
            Placed::Theirs(entry) => match self.shared_hold(locks) {
                // It went to the same owner while this was on its way.
                Some(lease) => Ok(Attempt::Acquired(lease)),
                None => self.held(locks, &entry),
            },
        }
    }

    fn bid(&self, locks: &Locks) -> Bid {
        let (nonce, since) = (locks.nonce(), SystemTime::now());
        Bid { nonce, value: encode(nonce, self.label(), since), since }
    }

    /// What others are told of a lease that was just granted.
    fn holder(&self, lease: &Lease) -> Holder {
        let (owner, time_left) = (self.label().to_owned(), self.plan.ttl.as_duration());
        Holder { owner, nonce: lease.nonce(), since: lease.since(), time_left }
    }

    fn label(&self) -> &str {
        match &self.owner {
            Some(owner) => owner.label(),
            None => process_label(),
        }
    }

    fn held(&self, locks: &Locks, entry: &Entry) -> Result<Attempt, Error> {
        match Holder::of(entry, "acquire") {
            Ok(holder) => Ok(Attempt::Held(holder)),
            Err(error) => Err(error.with_store(locks.store().name())),
        }
    }
}

/// How long no listener is tried after one that could not be had, or that has ended.
const DEAF_FOR: Duration = Duration::from_secs(5);

/// One acquisition that found the lease held, or others waiting for it.
struct Waiter<'a> {
    locks: &'a Locks,
    terms: &'a Terms,
    deadline: Instant,
    queue: &'a Queue,
}

impl Waiter<'_> {
    async fn wait(&self) -> Result<Lease, Error> {
        let turn = timeout_at(self.deadline, self.queue.head.lock());
        let mut head = tokio::select! {
            biased;
            lease = self.terms.share_when_held(self.locks) => return Ok(lease),
            turn = turn => match turn {
                Ok(head) => head,
                Err(_) => return Err(self.conflict()),
            },
        };
        let mut pauses = Pauses::default();
        loop {
            self.arm(&mut head).await;
            if let Some(lease) = self.terms.shared_hold(self.locks) {
                return Ok(lease);
            }
            let now = Instant::now();
            if now >= self.deadline {
                // A try would be given up at once, and may all the same be made.
                return Err(self.conflict());
            }
            let next_try = match head.quiet_until.take().filter(|&quiet_until| quiet_until > now) {
                Some(quiet_until) => quiet_until,
                None => match self.ask(&mut head, &mut pauses).await? {
                    Ok(lease) => return Ok(lease),
                    Err(next_try) => next_try,
                },
            };
            // A last try at the limit itself would come after it, so the wait ends there.
            let wake = next_try.min(self.deadline);
            let Head { hints, released, .. } = &mut *head;
            let hinted = tokio::select! {
                biased;
                lease = self.terms.share_when_held(self.locks) => return Ok(lease),
                hinted = sleep_until_hinted(wake, hints.as_mut(), released.changed()) => hinted,
            };
            match hinted {
                Wake::Hint => pauses = Pauses::default(),
                // A store whose streams end soon is not asked for another at once, nor again and again.
                Wake::Deaf => {
                    head.hints = None;
                    head.deaf_until = Some(Instant::now() + DEAF_FOR);
                }
                Wake::Time if Instant::now() >= self.deadline => return Err(self.conflict()),
                Wake::Time => {}
            }
        }
    }

    fn conflict(&self) -> Error {
        self.terms.conflict(self.queue.holder())
    }

    /// Listens before the try that confirms that it is still held, so that a release between the two is heard. Without
    /// hints, time alone wakes us.
    async fn arm(&self, head: &mut Head) {
        /// A listener that cannot be had costs this once in a while, or half of a short wait: the rest is for the try.
        const LIMIT: Duration = Duration::from_millis(500);

        let now = Instant::now();
        let deaf = head.deaf_until.is_some_and(|deaf_until| now < deaf_until);
        if head.hints.is_some() || deaf || !self.locks.store().capabilities().hints {
            return;
        }
        let watch = self.locks.store().watch(&self.terms.key);
        let limit = LIMIT.min(self.deadline.saturating_duration_since(now) / 2);
        head.hints = timeout(limit, watch).await.ok().and_then(Result::ok);
        head.deaf_until = head.hints.is_none().then(|| now + DEAF_FOR);
    }

    /// Asks the store, or says when to ask it next.
    async fn ask(&self, head: &mut Head, pauses: &mut Pauses) -> Result<Result<Lease, Instant>, Error> {
        // What has happened up to here, the try itself finds out.
        head.forget_news();
        match self.terms.attempt(self.locks, self.locks.now(), Some(self.deadline)).await {
            Ok(Attempt::Acquired(lease)) => {
                // The next head is told of our release by the listener that is armed already, and need not try before.
                // What comes by now is still of the one who held it before us.
                head.forget_news();
                let expiry = after_expiry(self.terms.plan.ttl.as_duration());
                head.quiet_until = head.hints.is_some().then_some(expiry);
                self.queue.is_held_by(self.terms.holder(&lease));
                Ok(Ok(lease))
            }
            Ok(Attempt::Held(holder)) => {
                let expiry = after_expiry(holder.time_left);
                self.queue.is_held_by(holder);
                Ok(Err(if head.hints.is_some() { expiry } else { expiry.min(pauses.next()) }))
            }
            // A queue begins with an answer of the store: it may well come back while there is time to wait.
            Err(error) if error.effect() == Effect::None && is_passing(&error) => {
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
