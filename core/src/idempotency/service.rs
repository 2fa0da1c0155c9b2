use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Clock;
use crate::idempotency::call::Call;
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::first_level::{FirstLevel, Limits};
use crate::idempotency::scope::Scope;
use crate::idempotency::seal::Seal;
use crate::lock::{Locks, LocksBuilder, NonceSource, Renewal};
use crate::store::AtomicStore;

/// Takes calls that must have their effect once. Clones are one and the same.
///
/// It runs on the tokio runtime that it is used in. Claims are renewed, and answers that could not be recorded at once
/// are recorded, in tasks there; [`close`](Self::close) waits for the latter.
#[derive(Clone)]
pub struct Idempotency(pub(super) Arc<Service>);

pub(super) struct Service {
    /// A claim is a lease on its marker: kept alive, lost and reclaimed as any other.
    pub(super) leases: Locks,
    pub(super) policy: Policy,
    pub(super) first_level: Option<FirstLevel>,
    pub(super) seal: Seal,
}

/// What a call starts from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) in_progress_ttl: Duration,
    pub(super) record_ttl: Duration,
    pub(super) wait: Duration,
    pub(super) renewal: Renewal,
    pub(super) after_crash: AfterCrash,
    pub(super) after_error: AfterError,
    pub(super) drop_work_when_lost: bool,
    pub(super) settle_for: Duration,
    pub(super) max_payload_len: usize,
}

/// What becomes of a call whose process died, or whose future was dropped, while its work ran. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterCrash {
    /// The next call runs the work again, once the in-progress ttl has passed: at least once.
    #[default]
    RunAgain,
    /// The next call is told that the outcome is unknown, until an operator has [settled](Idempotency::settle) it or the
    /// record's ttl has passed: at most once meanwhile.
    OutcomeUnknown,
}

/// What becomes of a call whose work failed, or panicked. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterError {
    /// The key is free at once, and the next call runs the work again: at least once, if it had an effect before it
    /// failed.
    #[default]
    Free,
    /// As after a crash: nobody knows what the work has done before it failed.
    AsAfterCrash,
}

impl Idempotency {
    /// Takes calls on `store`, with the defaults of [`IdempotencyBuilder`].
    pub fn new(store: impl AtomicStore + 'static) -> Self {
        Self::builder(store).build()
    }

    /// Chooses ttls, policies and surroundings.
    pub fn builder(store: impl AtomicStore + 'static) -> IdempotencyBuilder {
        IdempotencyBuilder {
            leases: Locks::builder(store),
            policy: Policy {
                in_progress_ttl: Duration::from_secs(60),
                record_ttl: Duration::from_secs(24 * 60 * 60),
                wait: Duration::ZERO,
                renewal: Renewal::Auto,
                after_crash: AfterCrash::default(),
                after_error: AfterError::default(),
                drop_work_when_lost: false,
                settle_for: Duration::from_secs(10 * 60),
                max_payload_len: 1024 * 1024,
            },
            first_level: None,
            first_level_bytes: 64 * 1024 * 1024,
            seal: Seal::none(),
        }
    }

    /// A call of `operation` under the idempotency key that its caller chose. The payload is what must be the same when
    /// the call comes again; it is not stored, only its [`Fingerprint`].
    ///
    /// What is wrong with any of it is answered when the call begins.
    pub fn call<P>(&self, operation: impl Into<String>, key: impl Into<String>, payload: &P) -> Call
    where
        P: Serialize + ?Sized,
    {
        let fingerprint = Fingerprint::of_at_most(payload, self.0.policy.max_payload_len);
        Call::new(self.clone(), operation.into(), Scope::call(key), fingerprint)
    }

    /// The same for a payload that is no serde value, in any scope.
    pub fn call_in(&self, scope: Scope, operation: impl Into<String>, fingerprint: Fingerprint) -> Call {
        Call::new(self.clone(), operation.into(), scope, Ok(fingerprint))
    }

    /// Waits until each answer that could not be recorded at once is recorded or given up, and each claim that nobody
    /// got is reclaimed: the last thing to do before the process ends. It refuses nothing that is asked for meanwhile.
    ///
    /// An answer can take for as long as it is [offered](IdempotencyBuilder::settle_for), also while the call has been
    /// claimed by another since. While the store is away a reclaim can take as long as a marker lives, and that is the ttl
    /// of a record under [`AfterCrash::OutcomeUnknown`]. Who will not wait so long puts a timeout around this.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting and nothing else.
    pub async fn close(&self) {
        self.0.leases.close().await;
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Service { leases, policy, .. } = &*self.0;
        f.debug_struct("Idempotency").field("store", &leases.store().name()).field("policy", policy).finish()
    }
}

/// Makes an [`Idempotency`] whose ttls, policies and surroundings are chosen.
///
/// | option | default |
/// |---|---|
/// | [`in_progress_ttl`](Self::in_progress_ttl) | 60 s |
/// | [`record_ttl`](Self::record_ttl) | 24 h |
/// | [`wait`](Self::wait) | zero: a call in progress is a conflict |
/// | [`renewal`](Self::renewal) | `Renewal::Auto` |
/// | [`after_crash`](Self::after_crash) | `AfterCrash::RunAgain` |
/// | [`after_error`](Self::after_error) | `AfterError::Free` |
/// | [`settle_for`](Self::settle_for) | 10 min |
/// | [`max_payload_len`](Self::max_payload_len) | 1 MiB |
/// | [`first_level`](Self::first_level) | none |
/// | [`first_level_bytes`](Self::first_level_bytes) | 64 MiB |
#[must_use = "it is made by `build`"]
pub struct IdempotencyBuilder {
    leases: LocksBuilder,
    policy: Policy,
    /// How many answers, and for how long.
    first_level: Option<(NonZeroUsize, Duration)>,
    first_level_bytes: usize,
    seal: Seal,
}

impl IdempotencyBuilder {
    /// How long a claim lives without a renewal: how long a call is in progress after its process has died.
    pub fn in_progress_ttl(mut self, ttl: Duration) -> Self {
        self.policy.in_progress_ttl = ttl;
        self
    }

    /// How long an answer is replayed.
    pub fn record_ttl(mut self, ttl: Duration) -> Self {
        self.policy.record_ttl = ttl;
        self
    }

    /// How long a call waits for another that is in progress under its key, to replay its answer. Zero makes that a
    /// conflict at once.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.policy.wait = limit;
        self
    }

    /// Whether a claim renews itself while the work runs. Without, work that takes longer than the in-progress ttl runs
    /// again beside the next call.
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.policy.renewal = renewal;
        self
    }

    /// What becomes of a call whose process died.
    pub fn after_crash(mut self, policy: AfterCrash) -> Self {
        self.policy.after_crash = policy;
        self
    }

    /// What becomes of a call whose work failed.
    pub fn after_error(mut self, policy: AfterError) -> Self {
        self.policy.after_error = policy;
        self
    }

    /// Drops the work at its next await when its claim is lost. By default it goes on: its caller still wants the answer,
    /// though a later call may run beside it.
    pub fn drop_work_when_lost(mut self) -> Self {
        self.policy.drop_work_when_lost = true;
        self
    }

    /// How long an answer that the store did not take is offered to it again in the background.
    pub fn settle_for(mut self, limit: Duration) -> Self {
        self.policy.settle_for = limit;
        self
    }

    /// The longest payload that is fingerprinted, in bytes of JSON. A longer one is refused with
    /// [`Code::InvalidKey`](crate::Code::InvalidKey), and a message that says what it is.
    pub fn max_payload_len(mut self, bytes: usize) -> Self {
        self.policy.max_payload_len = bytes;
        self
    }

    /// Keeps up to `entries` answers in this process, for `at_most` each, and replays them without a trip: as many of
    /// them as [fit](Self::first_level_bytes). Every check is made as if they came from the store. What an operator purges
    /// or settles elsewhere is replayed here until then.
    pub fn first_level(mut self, entries: NonZeroUsize, at_most: Duration) -> Self {
        self.first_level = Some((entries, at_most));
        self
    }

    /// How many bytes the answers of the first level may have together, as they are stored. The one that was of use the
    /// longest ago makes way, and one that alone has more is not kept.
    pub fn first_level_bytes(mut self, most: usize) -> Self {
        self.first_level_bytes = most;
        self
    }

    /// Encrypts the answers that are recorded, and reads those that were encrypted under any of the keys.
    ///
    /// It hides answers from who can read the store. It does not stop who can write there from planting one: an answer
    /// that is not encrypted, as all of before are, is replayed as it is.
    #[cfg(feature = "encryption")]
    pub fn encrypt(mut self, keys: crate::idempotency::PayloadKeys) -> Self {
        self.seal = Seal::with(keys);
        self
    }

    /// The clock that claims are measured on. As [`LocksBuilder::clock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.leases = self.leases.clock(clock);
        self
    }

    /// Where nonces come from. As [`LocksBuilder::nonces`].
    pub fn nonces(mut self, nonces: impl NonceSource) -> Self {
        self.leases = self.leases.nonces(nonces);
        self
    }

    /// How long after a request was given up it may still reach the store. As
    /// [`LocksBuilder::transport_gives_up_after`].
    pub fn transport_gives_up_after(mut self, limit: Duration) -> Self {
        self.leases = self.leases.transport_gives_up_after(limit);
        self
    }

    /// Makes it.
    pub fn build(self) -> Idempotency {
        let Self { leases, policy, first_level, first_level_bytes: bytes, seal } = self;
        let first_level = first_level.map(|(entries, at_most)| FirstLevel::new(Limits { entries, bytes, at_most }));
        Idempotency(Arc::new(Service { leases: leases.build(), policy, first_level, seal }))
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder").field("policy", &self.policy).finish_non_exhaustive()
    }
}
