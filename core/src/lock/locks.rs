use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, Id as RuntimeId};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, Moment, SystemClock, TokioClock};
use crate::error::{Error, ErrorKind};
use crate::lock::keeper::Keeper;
use crate::lock::queue::Queues;
use crate::lock::record::{Nonce, NonceSource, random_nonce};
use crate::lock::request::LockRequest;
use crate::store::{AtomicStore, Key};

/// Acquires leases on a store. Clones are one and the same.
///
/// Make one for each store and keep it: those who wait in one `Locks` queue up and cost the store one listener a key.
///
/// It runs on the tokio runtime that it is used in, and may be used in several. What outlives a call (renewals, queued
/// releases, reclaims) runs in tasks there; [`close`](Self::close) waits for the latter two. A lease that outlives its
/// runtime is renewed and watched over on another that has leases, if there is one.
#[derive(Clone)]
pub struct Locks(pub(super) Arc<Shared>);

pub(super) struct Shared {
    store: Arc<dyn AtomicStore>,
    clock: Box<dyn Clock>,
    nonces: Option<Box<dyn NonceSource>>,
    transport_gives_up_after: Duration,
    pub(super) keeper: Keeper,
    pub(super) queues: Queues,
    pub(super) held: AtomicUsize,
    /// Queued releases, and reclaims.
    chores: TaskTracker,
}

/// What a [`Locks`] is busy with, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Leases held, lost ones that are not dropped yet included. Shares of one lease count once.
    pub held: usize,
    /// Leases that are renewed or watched over in the background.
    pub watched: usize,
    /// Acquisitions that wait for somebody else's lease.
    pub waiting: usize,
    /// Releases and reclaims that run in the background.
    pub settling: usize,
}

impl Locks {
    /// Acquires leases on `store`, with the defaults of [`LocksBuilder`].
    pub fn new(store: impl AtomicStore + 'static) -> Self {
        Self::builder(store).build()
    }

    /// Chooses the clock, the source of nonces, or what the store's transport does.
    pub fn builder(store: impl AtomicStore + 'static) -> LocksBuilder {
        LocksBuilder {
            store: Arc::new(store),
            clock: None,
            nonces: None,
            transport_gives_up_after: LocksBuilder::TRANSPORT_GIVES_UP_AFTER,
        }
    }

    /// Starts a request for a lease on `resource`: any valid key of at most 507 characters.
    ///
    /// What is wrong with it, or with an option, is answered when it is acquired.
    pub fn lock<K>(&self, resource: K) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        LockRequest::new(self.clone(), resource.try_into().map_err(Into::into))
    }

    /// What it is busy with now.
    pub fn stats(&self) -> Stats {
        Stats {
            held: self.0.held.load(Ordering::Acquire),
            watched: self.0.keeper.len(),
            waiting: self.0.queues.waiting(),
            settling: self.0.chores.len(),
        }
    }

    /// Waits until each queued release and each reclaim has ended: the last thing to do before the process ends. It
    /// refuses nothing that is asked for meanwhile.
    ///
    /// A reclaim can take as long as a lease lives and the transport holds a request back; who will not wait so long
    /// puts a timeout around this.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting and nothing else.
    pub async fn close(&self) {
        self.0.chores.close();
        self.0.chores.wait().await;
    }

    pub(crate) fn store(&self) -> &dyn AtomicStore {
        &*self.0.store
    }

    /// An answer of the store, or `Timeout` when it has not come by `deadline`.
    pub(crate) async fn answered_by<T>(
        &self,
        deadline: Instant,
        operation: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (mut answer, mut alarm) = (pin!(answer), pin!(None));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            // A store in memory has the answer at once, and needs no timer.
            if alarm.is_none() {
                alarm.set(Some(sleep_until(deadline)));
            }
            let alarm = alarm.as_mut().as_pin_mut().expect("it was set");
            alarm.poll(cx).map(|()| {
                let message = "the store did not answer in time";
                Err(Error::new(ErrorKind::Timeout, operation, message).with_store(self.store().name()))
            })
        })
        .await
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn gives_fencing_tokens(&self) -> bool {
        self.0.store.capabilities().revisions
    }

    /// The key that a lease on `resource` is stored under.
    pub(super) fn key_of(&self, resource: &Key) -> Result<Key, Error> {
        resource.within("lock")
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    pub(crate) fn nonce(&self) -> Nonce {
        self.0.nonces.as_ref().map_or_else(random_nonce, |nonces| nonces.next_nonce())
    }

    /// How long a request that was given up may still be on its way.
    pub(super) fn transport_gives_up_after(&self) -> Duration {
        self.0.transport_gives_up_after
    }

    /// Runs a release or a reclaim in the background: on this runtime, or where that has ended, on the one that we are on.
    pub(crate) fn settle(&self, runtime: &Handle, chore: impl Future<Output = ()> + Send + 'static) {
        let mut chore = Chore { locks: self.clone(), runtime: runtime.id(), work: Some(Box::pin(chore)) };
        let chore = async move {
            if let Some(work) = chore.work.take() {
                work.await;
            }
        };
        self.0.chores.spawn_on(chore, runtime);
    }
}

/// A release or a reclaim that has not begun. A runtime that has ended drops it where it is spawned.
struct Chore {
    locks: Locks,
    runtime: RuntimeId,
    work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Drop for Chore {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && let Ok(here) = Handle::try_current()
            && here.id() != self.runtime
        {
            self.locks.0.chores.spawn_on(work, &here);
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("store", &self.0.store.name()).field("stats", &self.stats()).finish()
    }
}

/// Makes a [`Locks`] whose surroundings are chosen.
#[must_use = "it is made by `build`"]
pub struct LocksBuilder {
    store: Arc<dyn AtomicStore>,
    clock: Option<Box<dyn Clock>>,
    nonces: Option<Box<dyn NonceSource>>,
    transport_gives_up_after: Duration,
}

impl LocksBuilder {
    const TRANSPORT_GIVES_UP_AFTER: Duration = Duration::from_secs(60);

    /// The clock that validity is measured on. By default [`SystemClock`] for a store that other processes share, and
    /// [`TokioClock`] for one that lives in this process.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Where nonces come from; by default from the thread's cryptographic generator.
    pub fn nonces(mut self, nonces: impl NonceSource) -> Self {
        self.nonces = Some(Box::new(nonces));
        self
    }

    /// How long after a request was given up it may still reach the store; 60 s by default. A request whose outcome is
    /// unknown is reclaimed for its ttl and this long, ever less often: what lands late keeps others waiting for about as
    /// long as it took, and at most for a tenth of this (or a second).
    pub fn transport_gives_up_after(mut self, limit: Duration) -> Self {
        self.transport_gives_up_after = limit;
        self
    }

    /// Makes it.
    pub fn build(self) -> Locks {
        let Self { store, clock, nonces, transport_gives_up_after } = self;
        let clock = clock.unwrap_or_else(|| match store.capabilities().shared {
            true => Box::new(SystemClock),
            false => Box::new(TokioClock),
        });
        Locks(Arc::new(Shared {
            store,
            clock,
            nonces,
            transport_gives_up_after,
            keeper: Keeper::default(),
            queues: Queues::default(),
            held: AtomicUsize::new(0),
            chores: TaskTracker::new(),
        }))
    }
}

impl fmt::Debug for LocksBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksBuilder").field("store", &self.store.name()).finish_non_exhaustive()
    }
}
