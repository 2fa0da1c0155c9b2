use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Code, Error, ErrorKind};
use crate::idempotency::answer::{Answer, CallError};
use crate::idempotency::begin::Begin;
use crate::idempotency::claim::Claim;
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::record::Header;
use crate::idempotency::recording::Completion;
use crate::idempotency::scope::Scope;
use crate::idempotency::service::{AfterCrash, AfterError, Idempotency, Policy};
use crate::lock::{Plan, plan};
use crate::store::{Key, Ttl};

/// One call that must have its effect once: what [`Idempotency::call`] gives.
///
/// Everything is checked when it begins, before anything is sent.
#[must_use = "nothing is claimed before `run`, `try_run` or `begin`"]
pub struct Call {
    once: Idempotency,
    operation: String,
    scope: Scope,
    fingerprint: Result<Fingerprint, Error>,
    policy: Policy,
}

/// A call that is known to be valid.
pub(super) struct Terms {
    pub(super) once: Idempotency,
    /// What the record is stored under.
    pub(super) key: Key,
    pub(super) operation: Bytes,
    pub(super) fingerprint: Fingerprint,
    /// Of the claim: how long its marker lives in the store, and how long it is trusted here.
    pub(super) plan: Plan,
    pub(super) in_progress_ttl: Ttl,
    pub(super) record_ttl: Ttl,
    pub(super) policy: Policy,
}

impl Call {
    pub(super) fn new(
        once: Idempotency,
        operation: String,
        scope: Scope,
        fingerprint: Result<Fingerprint, Error>,
    ) -> Self {
        let policy = once.0.policy;
        Self { once, operation, scope, fingerprint, policy }
    }

    /// Whose customer's call it is. The same key of another tenant is another call.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.scope = self.scope.with_tenant(tenant);
        self
    }

    /// Who calls, as authenticated. The same key of another principal is another call. For a message, which has a
    /// consumer, this is refused when it begins.
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.scope = self.scope.with_principal(principal);
        self
    }

    /// How long to wait for a call that is in progress under the key, to replay its answer.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.policy.wait = limit;
        self
    }

    /// How long the claim lives without a renewal.
    pub fn in_progress_ttl(mut self, ttl: Duration) -> Self {
        self.policy.in_progress_ttl = ttl;
        self
    }

    /// How long the answer is replayed.
    pub fn record_ttl(mut self, ttl: Duration) -> Self {
        self.policy.record_ttl = ttl;
        self
    }

    /// Runs the work, unless the call was made before: then its answer is replayed.
    ///
    /// Whatever the work answers is recorded, before this answers; a failure of the business, such as a card that is
    /// declined, is an answer too. Work that may fail without an answer is for [`try_run`](Self::try_run).
    ///
    /// If the answer cannot be recorded, its caller gets it all the same, and recording goes on in the background. If the
    /// claim was lost meanwhile, its caller gets the answer too, and what a later call has recorded stays.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin), and then the work did not run; `Corrupt` with [`Code::NotReplayable`] when the recorded
    /// answer is not a `T`; `Lost` where work is dropped when its claim is lost.
    ///
    /// # Panics
    ///
    /// When the work does. By default the key is free by then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. What is left of the call is as after a crash.
    pub async fn run<T>(self, work: impl AsyncFnOnce() -> T) -> Result<Answer<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.try_run(async || Ok::<T, Infallible>(work().await)).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Call(error)) => Err(error),
            Err(CallError::Work(never)) => match never {},
        }
    }

    /// Runs work that may fail. An `Ok` is recorded as by [`run`](Self::run); an `Err` is not, and by default frees the
    /// key at once, so that the next call runs the work again.
    ///
    /// # Errors
    ///
    /// [`CallError::Work`] with what the work said, and else as [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<T, E>(self, work: impl AsyncFnOnce() -> Result<T, E>) -> Result<Answer<T>, CallError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let Policy { after_error, drop_work_when_lost, .. } = self.policy;
        let claim = match self.begin().await? {
            Begin::Replay(replay) => return Ok(Answer { value: replay.value()?, replayed: true }),
            Begin::Claimed(claim) => claim,
        };
        // The call of a closure that is not `async` runs code of its own, so it belongs to what is caught.
        let work = caught(async { work().await });
        let done = if drop_work_when_lost { claim.while_held(work).await.map_err(Error::from)? } else { work.await };
        match done {
            Ok(Ok(value)) => {
                match claim.complete(&value).await {
                    Ok(Completion::Recorded) => {}
                    Ok(Completion::Lost) => tracing::warn!("the work is done, and its claim was lost meanwhile"),
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {
                        tracing::warn!(%error, "the work is done, and its answer will not be replayed");
                    }
                    Err(error) => tracing::warn!(%error, "the work is done, and its answer is not recorded yet"),
                }
                Ok(Answer { value, replayed: false })
            }
            Ok(Err(error)) => {
                give_up(claim, after_error).await;
                Err(CallError::Work(error))
            }
            Err(panic) => {
                give_up(claim, after_error).await;
                resume_unwind(panic)
            }
        }
    }

    pub(super) fn into_terms(self) -> Result<Terms, Error> {
        let Self { once, operation, scope, fingerprint, policy } = self;
        let invalid = |message: String| Error::new(ErrorKind::InvalidInput, "begin", message);
        let key = scope.stored_key()?;
        if operation.is_empty()
            || operation.len() > Header::LONGEST_OPERATION
            || operation.chars().any(|character| character.is_control())
        {
            let message = "the name of an operation must be 1 to 1,024 bytes without a control character".to_owned();
            return Err(invalid(message).with_code(Code::InvalidKey));
        }
        let fingerprint = fingerprint?;
        let Policy { in_progress_ttl, record_ttl, renewal, after_crash, .. } = policy;
        let mut plan = plan("begin", in_progress_ttl, renewal, None, None)?;
        let (in_progress_ttl, record_ttl) = (plan.ttl, Ttl::try_from(record_ttl)?);
        if after_crash == AfterCrash::OutcomeUnknown {
            if record_ttl <= in_progress_ttl {
                return Err(invalid(format!(
                    "a record that says that an outcome is unknown must live longer than a claim, and {record_ttl:?} is \
                     not longer than {in_progress_ttl:?}"
                )));
            }
            // An expired marker could not be told from none, so it lives as long as a record would.
            plan.ttl = record_ttl;
        }
        Ok(Terms { once, key, operation: operation.into(), fingerprint, plan, in_progress_ttl, record_ttl, policy })
    }
}

/// Leaves a call whose work has failed as the policy says.
async fn give_up(claim: Claim, after_error: AfterError) {
    if after_error == AfterError::Free
        && let Err(error) = claim.abandon().await
    {
        tracing::warn!(%error, "the work has failed, and its key is freed in the background");
    }
}

/// Work whose panic is an answer, so that what has to be done about it is done before it goes on.
async fn caught<T>(work: impl Future<Output = T>) -> thread::Result<T> {
    let mut work = pin!(work);
    // After a panic the work is polled no more, so nobody sees what it has left half done.
    std::future::poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { once: _, operation, scope, fingerprint: _, policy } = self;
        f.debug_struct("Call").field("operation", operation).field("scope", scope).field("policy", policy).finish()
    }
}
