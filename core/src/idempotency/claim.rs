use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind};
use crate::fence::FencingToken;
use crate::idempotency::call::Terms;
use crate::idempotency::record::{Header, Record, State};
use crate::idempotency::recording::{Completion, Draft, LIMIT, Recording};
use crate::idempotency::service::Idempotency;
use crate::lock::{Lease, Lost, Nonce, Release};
use crate::store::{Key, Ttl};

/// A call that is ours to do: a lease on its key, until it is completed or abandoned.
///
/// Dropping it renews it no more and leaves its key taken, as nobody can tell from that whether the work has had an
/// effect: what comes then is as after a crash. Where it has none before the claim is completed,
/// [`free_when_dropped`](Self::free_when_dropped) says so.
#[must_use = "a claim that is dropped keeps its key taken"]
pub struct Claim {
    once: Idempotency,
    key: Key,
    header: Header,
    record_ttl: Ttl,
    marker_ttl: Ttl,
    in_progress_ttl: Ttl,
    settle_for: Duration,
    lease: Lease,
}

impl Claim {
    pub(super) fn new(terms: &Terms, mut lease: Lease) -> Self {
        lease.forgo_when_dropped(true);
        let Terms { once, key, operation, fingerprint, plan, in_progress_ttl, record_ttl, policy } = terms;
        let header = Header {
            nonce: lease.nonce(),
            fingerprint: *fingerprint,
            since: lease.since(),
            operation: operation.clone(),
        };
        Self {
            once: once.clone(),
            key: key.clone(),
            header,
            record_ttl: *record_ttl,
            marker_ttl: plan.ttl,
            in_progress_ttl: *in_progress_ttl,
            settle_for: policy.settle_for,
            lease,
        }
    }

    /// What makes this claim different from every other, of the same call too.
    pub fn nonce(&self) -> Nonce {
        self.header.nonce
    }

    /// When it was claimed, by this machine's wall clock.
    pub fn since(&self) -> SystemTime {
        self.header.since
    }

    /// A number larger than that of every earlier claim of this call. What the work writes to can refuse an older one, so
    /// that a run that was taken for dead has no effect after the one that followed it.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lease.fencing_token()
    }

    /// How long it is still ours without a renewal; zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether it is still ours now. It asks nobody.
    ///
    /// # Errors
    ///
    /// [`Lost`]; from then on always.
    pub fn check(&self) -> Result<(), Lost> {
        self.lease.check()
    }

    /// Resolves when it is lost, as [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> Lost {
        self.lease.lost().await
    }

    /// A token that fires when it is lost, completed or abandoned, as [`Lease::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        self.lease.cancellation_token()
    }

    /// Works while it is held, as [`Lease::while_held`].
    ///
    /// # Errors
    ///
    /// [`Lost`]. Work that has ended is never turned into it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.lease.while_held(work).await
    }

    /// Renews it by hand, as [`Lease::renew`].
    ///
    /// # Errors
    ///
    /// `Lost` when it is; else what the store could not answer.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the renewal may still be made, and does not count.
    pub async fn renew(&self) -> Result<(), Error> {
        self.lease.renew().await
    }

    /// Says that the work has no effect unless the claim is completed, so that dropping it frees its key.
    pub fn free_when_dropped(mut self) -> Self {
        self.lease.forgo_when_dropped(false);
        self
    }

    /// Records the answer. From then on it is what the call is answered with.
    ///
    /// A claim that was lost is recorded all the same if nothing is there by then: nobody else has claimed the call, or
    /// whoever did has given it back. Else what is there stays, and that is said.
    ///
    /// An answer that is too large for the store is not kept; that the call was made is.
    ///
    /// # Errors
    ///
    /// What the store could not answer: recording then goes on in the background, and the key stays taken meanwhile.
    /// `InvalidInput` when the answer cannot be written as JSON: then it is recorded that the call was made.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, polled or not, recording goes on in the background.
    pub fn complete<T>(self, answer: &T) -> impl Future<Output = Result<Completion, Error>> + Send + use<T>
    where
        T: Serialize + ?Sized,
    {
        let (recording, refused) = match to_json(answer) {
            Ok(answer) => (self.recorded_as(Some(answer)), None),
            Err(error) => (self.recorded_as(None), Some(error)),
        };
        async move {
            let completion = recording?.finish().await?;
            refused.map_or(Ok(completion), Err)
        }
    }

    /// Records an answer that is bytes already. As [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Self::complete).
    pub fn complete_with<A>(self, answer: A) -> impl Future<Output = Result<Completion, Error>> + Send + use<A>
    where
        A: Into<Bytes>,
    {
        let recording = self.recorded_as(Some(answer.into()));
        async move { recording?.finish().await }
    }

    /// Records that the call was made, and no answer: it is not run again, and cannot be replayed.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Self::complete).
    pub fn complete_without_answer(self) -> impl Future<Output = Result<Completion, Error>> + Send {
        let recording = self.recorded_as(None);
        async move { recording?.finish().await }
    }

    /// The answer as a write that somebody else makes: a store, in the caller's own transaction. Dropped before that is
    /// known to have been made, it frees the key if it was not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the answer cannot be written as JSON: then the claim is dropped.
    pub fn recording<T: Serialize + ?Sized>(self, answer: &T) -> Result<Recording, Error> {
        let answer = to_json(answer)?;
        Ok(self.recorded_as(Some(answer))?.in_a_transaction())
    }

    /// Gives the call back: its key is free, and the next call does the work.
    ///
    /// # Errors
    ///
    /// What the store could not answer: the key is then freed in the background.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, polled or not, the key is freed in the background.
    pub fn abandon(self) -> impl Future<Output = Result<Release, Error>> + Send {
        let Self { once, mut lease, .. } = self;
        lease.forgo_when_dropped(false);
        async move { once.0.leases.answered_by(Instant::now() + LIMIT, "abandon", lease.release()).await }
    }

    /// Ends the claim here, with a record of its answer to be written; of no answer where it is none or too large.
    fn recorded_as(self, answer: Option<Bytes>) -> Result<Recording, Error> {
        let Self { once, key, header, record_ttl, marker_ttl, in_progress_ttl, settle_for, lease } = self;
        let before = once.0.first_level.as_ref().map(|first_level| first_level.before(once.0.leases.now()));
        let (marker, marker_may_land_again) = (lease.value().clone(), lease.may_land_again());
        let runtime = lease.runtime().clone();
        let renew_every = in_progress_ttl.as_duration() / 3;
        // Without a renewal of its own the claim may be near its end.
        let renew_first = renew_every.min(lease.remaining() / 2);
        // From here on the recording keeps the marker: a renewal of the lease would find it gone, and call that a loss.
        let _ = lease.forgo();
        let longest = once.0.leases.store().capabilities().max_value_len;
        let state = match answer {
            Some(answer) if header.len() + once.0.seal.overhead() + answer.len() > longest => {
                metrics::counter!("leasehold_answers_not_kept_total").increment(1);
                tracing::warn!(%key, bytes = answer.len(), "an answer is too large to keep, and will not be replayed");
                State::Unkept
            }
            Some(answer) => once.0.seal.close(&key, &header, answer)?,
            None => State::Unkept,
        };
        let value = Record { header, state }.encode();
        // Not the answer as it came: that may be a small piece of something large, kept in memory as long as the record.
        let record = Record::decode(&value, "complete")?;
        let draft = Draft {
            once,
            key,
            marker,
            marker_may_land_again,
            value,
            record,
            before,
            record_ttl,
            marker_ttl,
            renew_first,
            renew_every,
            settle_for,
        };
        Ok(Recording::of(draft, runtime))
    }
}

pub(super) fn to_json<T: Serialize + ?Sized>(answer: &T) -> Result<Bytes, Error> {
    serde_json::to_vec(answer).map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "complete", "the answer cannot be written as JSON").with_source(error)
    })
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("key", &self.key).field("lease", &self.lease).finish_non_exhaustive()
    }
}
