use std::future::pending;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use crate::error::{Code, Effect, Error, ErrorKind};
use crate::idempotency::answer::Replay;
use crate::idempotency::call::{Call, Terms};
use crate::idempotency::claim::Claim;
use crate::idempotency::record::{Header, Progress, Record, State, as_text};
use crate::lock::{Bid, Pauses, Place, Placed, Wake, after_expiry, process_label, sleep_until_hinted};
use crate::store::Hints;

/// How often a claim whose answer is lost is sent in all. It is told from any other by its nonce.
pub(super) const SENDINGS: u32 = 3;

/// How a call begins. This enum is closed.
#[derive(Debug)]
#[must_use = "a claim that is dropped keeps its key taken"]
pub enum Begin {
    /// It was made before, and this is its answer.
    Replay(Replay),
    /// It is ours to do.
    Claimed(Claim),
}

impl Call {
    /// Claims the call, or says how it was answered: the first of the steps that [`run`](Self::run) takes.
    ///
    /// A claim whose answer from the store is lost is sent again under the same nonce, and recognised.
    ///
    /// # Errors
    ///
    /// Checked in this order, and nothing is claimed:
    ///
    /// - `InvalidInput` with [`Code::InvalidKey`] for a key, an operation or a payload that breaks a rule.
    /// - `Conflict` with [`Code::NotReplayable`] when the key was used for another operation.
    /// - `InvalidInput` with [`Code::PayloadMismatch`] when it was used with another payload, also while that call is in
    ///   progress.
    /// - `Conflict` with [`Code::CallInProgress`] and [a hint when to try again](Error::retry_after), when the same call
    ///   is in progress, and is all through the wait limit.
    /// - `Conflict` with [`Code::NotReplayable`] when its outcome is unknown, or its answer was not kept; `Corrupt` with
    ///   the same code when its record cannot be read.
    /// - What the store could not answer, such as `Unavailable`, or `Timeout` when its first answer did not come within
    ///   the wait limit, where there is one. After an unknown effect nobody has the claim: what may be there is reclaimed
    ///   in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the claim up, and reclaims what the store may have granted. One who waits for another's
    /// call touches nothing of it.
    pub async fn begin(self) -> Result<Begin, Error> {
        let terms = self.into_terms()?;
        let begin = terms.begin().await;
        let outcome = match &begin {
            Ok(Begin::Claimed(_)) => "claimed",
            Ok(Begin::Replay(_)) => "replayed",
            Err(error) => error.code().map_or("failed", Code::as_str),
        };
        metrics::counter!("leasehold_calls_total", "outcome" => outcome).increment(1);
        begin
    }
}

/// What the store says to a bid.
enum Asked {
    Begun(Begin),
    /// The same call is in progress, and its claim lives for so long unless it is renewed.
    InProgress(Duration),
}

impl Terms {
    async fn begin(&self) -> Result<Begin, Error> {
        let leases = &self.once.0.leases;
        if let Some(first_level) = &self.once.0.first_level
            && let Some(record) = first_level.get(&self.key, leases.now())
        {
            self.check(&record)?;
            return self.replay(record).map(Begin::Replay);
        }
        let limit = (!self.policy.wait.is_zero()).then(|| leases.now().after(self.policy.wait).instant());
        match self.ask(limit).await? {
            Asked::Begun(begin) => Ok(begin),
            Asked::InProgress(time_left) => match limit {
                Some(limit) => self.wait(limit, time_left).await,
                None => Err(in_progress(as_text(&self.operation), time_left)),
            },
        }
    }

    /// Waits for the call that is in progress to end, one way or another.
    async fn wait(&self, limit: Instant, mut time_left: Duration) -> Result<Begin, Error> {
        // Where hints may be lost, who waits looks again this often.
        const LONGEST: Duration = Duration::from_secs(5);

        let mut hints = self.listen(limit).await;
        let mut pauses = Pauses::default();
        loop {
            // Listening first, and then asking once more, so that an answer between the two is heard of.
            let next = match self.ask(Some(limit)).await {
                Ok(Asked::Begun(begin)) => return Ok(begin),
                Ok(Asked::InProgress(left)) => {
                    time_left = left;
                    let next = if hints.is_some() { Instant::now() + LONGEST } else { pauses.next() };
                    next.min(after_expiry(time_left))
                }
                // The store was there before: it may well come back while there is time to wait.
                Err(error) if error.effect() == Effect::None && error.code() == Some(Code::StoreUnavailable) => {
                    tracing::debug!(%error, "a try failed while waiting for a call in progress");
                    pauses.next()
                }
                // It was in progress when last seen, and that is what the caller can act on.
                Err(error) if error.code() == Some(Code::StoreUnavailable) && Instant::now() >= limit => {
                    tracing::debug!(%error, "the store did not answer before the end of a wait");
                    return Err(in_progress(as_text(&self.operation), time_left).with_effect(error.effect()));
                }
                Err(error) => return Err(error),
            };
            match sleep_until_hinted(next.min(limit), hints.as_mut(), pending::<()>()).await {
                Wake::Hint => pauses = Pauses::default(),
                Wake::Deaf => hints = None,
                Wake::Time if Instant::now() >= limit => return Err(in_progress(as_text(&self.operation), time_left)),
                Wake::Time => {}
            }
            if let Some(hints) = &mut hints {
                hints.drain();
            }
        }
    }

    /// A listener for the key, if there is one to be had soon.
    async fn listen(&self, limit: Instant) -> Option<Hints> {
        const SOON: Duration = Duration::from_millis(500);
        let store = self.once.0.leases.store();
        if !store.capabilities().hints {
            return None;
        }
        let soon = limit.min(Instant::now() + SOON);
        timeout_at(soon, store.watch(&self.key)).await.ok().and_then(Result::ok)
    }

    /// Asks the store once: claims the call if nobody has, else says what is there.
    async fn ask(&self, limit: Option<Instant>) -> Result<Asked, Error> {
        let leases = &self.once.0.leases;
        let place = Place {
            locks: leases,
            key: &self.key,
            resource: &self.key,
            plan: self.plan,
            // A marker says that the work may still run, or has had its effect, though its claim is lost.
            outlives_loss: true,
            operation: "begin",
        };
        let sent = leases.now();
        let first_level = self.once.0.first_level.as_ref().map(|first_level| (first_level, first_level.before(sent)));
        let entry = match place.bid(|| self.bid(), sent, limit, SENDINGS).await? {
            Placed::Ours(lease) => return Ok(Asked::Begun(Begin::Claimed(Claim::new(self, lease)))),
            Placed::Theirs(entry) => entry,
        };
        let record = Record::decode(&entry.value, "begin").map_err(|error| error.with_store(leases.store().name()))?;
        self.check(&record)?;
        let time_left = entry.time_left.unwrap_or(Duration::MAX);
        if let State::InProgress(progress) = &record.state {
            return match progress.is_stale(time_left) {
                true => Err(refused("its claimant is gone, and the outcome is unknown until an operator settles it")),
                false => Ok(Asked::InProgress(progress.claim_left(time_left))),
            };
        }
        if let Some((first_level, before)) = first_level {
            first_level.put(&self.key, &record, &entry.value, before, time_left);
        }
        self.replay(record).map(|replay| Asked::Begun(Begin::Replay(replay)))
    }

    fn bid(&self) -> Bid {
        let (nonce, since) = (self.once.0.leases.nonce(), SystemTime::now());
        let header = Header { nonce, fingerprint: self.fingerprint, since, operation: self.operation.clone() };
        let state = State::InProgress(Progress {
            ttl: self.in_progress_ttl.as_duration(),
            marker_ttl: self.plan.ttl.as_duration(),
            owner: process_label().into(),
        });
        Bid { nonce, value: Record { header, state }.encode(), since }
    }

    /// Whether it is the record of this very call.
    fn check(&self, record: &Record) -> Result<(), Error> {
        let Header { operation, fingerprint, .. } = &record.header;
        if *operation != self.operation {
            return Err(refused(&format!("its key was used for {:?} before", as_text(operation))));
        }
        if *fingerprint != self.fingerprint {
            let message = "the key was used with another payload before";
            return Err(Error::new(ErrorKind::InvalidInput, "begin", message).with_code(Code::PayloadMismatch));
        }
        Ok(())
    }

    /// The answer of a call that was made before.
    fn replay(&self, record: Record) -> Result<Replay, Error> {
        let Record { header, state } = record;
        let answer = match state {
            State::Answered(answer) => answer,
            State::Sealed(sealed) => self.once.0.seal.open(&self.key, &header, sealed)?,
            State::Unkept => return Err(refused("it was made before, and its answer was too large to keep")),
            State::InProgress(_) => return Err(in_progress(as_text(&header.operation), Duration::ZERO)),
        };
        Ok(Replay { nonce: header.nonce, answer })
    }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Conflict, "begin", format!("the call cannot be replayed: {why}"))
        .with_code(Code::NotReplayable)
}

fn in_progress(operation: &str, time_left: Duration) -> Error {
    // Mostly it is done in a moment; how long it may take at most says nothing.
    const LONGEST_HINT: Duration = Duration::from_secs(1);
    Error::new(ErrorKind::Conflict, "begin", format!("the same call of {operation:?} is in progress"))
        .with_code(Code::CallInProgress)
        .with_retry_after(time_left.min(LONGEST_HINT))
}
