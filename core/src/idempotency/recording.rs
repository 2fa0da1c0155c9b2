use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Effect, Error};
use crate::idempotency::begin::SENDINGS;
use crate::idempotency::first_level::Before;
use crate::idempotency::record::{Record, State};
use crate::idempotency::service::Idempotency;
use crate::lock::Landed;
use crate::store::{AddOutcome, AtomicStore, Key, ReplaceOutcome, Ttl};

/// What became of a claim that was completed. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "another may have claimed the call meanwhile"]
pub enum Completion {
    /// The answer is recorded.
    Recorded,
    /// The claim had ended, and what is there now is another's: it stays as it is. Of one that is
    /// [written in a transaction](Recording::write_to), whose effect is rolled back with it: the claim had ended.
    Lost,
}

/// How long one try may take, of a store that has no limit of its own.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// An answer on its way into the store: what [`Claim::recording`](crate::idempotency::Claim::recording) gives to a store
/// that completes a claim in its caller's own transaction.
///
/// Write it [in the transaction](Self::write_to), commit, and say that it [was recorded](Self::recorded); or, when the
/// answer to the commit is lost, [find out](Self::find_out). Dropped before, it frees the key in the background if the
/// transaction did not record it.
#[must_use = "dropped, it frees the key"]
pub struct Recording {
    draft: Draft,
    when_dropped: WhenDropped,
    /// Where the rest is done in the background.
    runtime: Handle,
}

/// What has to be written, and over what.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) once: Idempotency,
    pub(super) key: Key,
    pub(super) marker: Bytes,
    /// Whether another sending of the marker may still land once the key is free.
    pub(super) marker_may_land_again: bool,
    /// The record as it is written.
    pub(super) value: Bytes,
    /// The record, in the memory of what is written.
    pub(super) record: Record,
    /// When the work was done, before the record can have been written, if it is to be kept in this process.
    pub(super) before: Option<Before>,
    pub(super) record_ttl: Ttl,
    pub(super) marker_ttl: Ttl,
    /// How soon and how often the marker is renewed while the answer is on its way.
    pub(super) renew_first: Duration,
    pub(super) renew_every: Duration,
    pub(super) settle_for: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenDropped {
    /// The work is done: the answer is offered to the store until it takes it.
    Offer,
    /// Nothing is done unless the transaction says so: the key is freed.
    Free,
    Nothing,
}

impl Recording {
    pub(super) fn of(draft: Draft, runtime: Handle) -> Self {
        Self { draft, when_dropped: WhenDropped::Offer, runtime }
    }

    pub(super) fn in_a_transaction(mut self) -> Self {
        self.when_dropped = WhenDropped::Free;
        self
    }

    /// What it is written under, for a store that tells of changes once they are committed.
    pub fn key(&self) -> &Key {
        &self.draft.key
    }

    /// Writes it through this store, in one trip. `Lost` when the claim's marker is not there any more.
    ///
    /// # Errors
    ///
    /// What the store could not answer.
    ///
    /// # Cancel safety
    ///
    /// It may be written, in a transaction that the caller then rolls back.
    pub async fn write_to(&self, store: &dyn AtomicStore) -> Result<Completion, Error> {
        let Draft { key, marker, value, record_ttl, .. } = &self.draft;
        Ok(match store.try_replace(key, marker, value.clone(), *record_ttl).await? {
            ReplaceOutcome::Applied(_) => Completion::Recorded,
            ReplaceOutcome::NotApplied => Completion::Lost,
        })
    }

    /// Takes note that what was written is committed.
    pub fn recorded(mut self) {
        self.when_dropped = WhenDropped::Nothing;
        self.draft.remember();
    }

    /// Finds out what became of a transaction whose commit was not answered, from the claim's own store. `Recorded` when
    /// it was committed. `Lost` when it was not: then it never will be, and the key is another's, or is freed in the
    /// background.
    ///
    /// It waits for the transaction to end, as far as the store's own limits let it, and tries for a few seconds. Meanwhile
    /// it may claim the key anew.
    ///
    /// # Errors
    ///
    /// What the store could not answer, with an unknown effect. The key is freed in the background if the transaction did
    /// not record the answer.
    ///
    /// # Cancel safety
    ///
    /// As after an error.
    pub async fn find_out(mut self) -> Result<Completion, Error> {
        let until = Instant::now() + LIMIT;
        let mut pause = FIRST_PAUSE;
        // What is asked may put the marker there again: then and, when nobody waits for the answer, later.
        let mut may_land_again = mem::replace(&mut self.draft.marker_may_land_again, true);
        loop {
            let asked = self.draft.once.0.leases.answered_by(until, "commit", self.draft.look_behind_commit()).await;
            match asked {
                Ok(Completion::Recorded) => {
                    self.recorded();
                    return Ok(Completion::Recorded);
                }
                Ok(Completion::Lost) => {
                    self.draft.marker_may_land_again = may_land_again;
                    return Ok(Completion::Lost);
                }
                // It may be that nobody was asked this once: of the commit that says nothing.
                Err(error) if Instant::now() + pause >= until => return Err(error.with_effect(Effect::Unknown)),
                Err(error) => {
                    may_land_again |= error.effect() == Effect::Unknown;
                    sleep(pause).await;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Records the answer through the claim's own store.
    pub(super) async fn finish(mut self) -> Result<Completion, Error> {
        let limit = Instant::now() + LIMIT;
        let attempt = self.draft.once.0.leases.answered_by(limit, "complete", self.draft.attempt());
        let attempt = self.draft.while_kept(attempt).await?;
        self.when_dropped = WhenDropped::Nothing;
        Ok(match attempt {
            Attempt::Recorded => {
                self.draft.remember();
                Completion::Recorded
            }
            // Who is told so may have undone the effect by the time that the other gives the call back.
            Attempt::Claimed | Attempt::Lost => {
                self.draft.remove_what_lands_again(&self.runtime);
                Completion::Lost
            }
        })
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// After an outage that the claim did not live through, whoever is first has the key: so not much longer than a client
/// waits before it asks again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What one try to record an answer comes to.
enum Attempt {
    Recorded,
    /// Another has claimed the call since, and may give it back.
    Claimed,
    /// Another's answer is there, or something that is no record.
    Lost,
}

impl Draft {
    /// Replaces the marker by the record. When it is not there an earlier try may have done so, or it has ended in an
    /// outage longer than its ttl: then the record is put where nothing is. The answer is no less true for that, and
    /// whoever comes next would run the work again.
    async fn attempt(&self) -> Result<Attempt, Error> {
        let Self { key, marker, value, record_ttl, .. } = self;
        let store = self.once.0.leases.store();
        // Once more for each sending of the marker that may land between the two.
        for _ in 0..SENDINGS {
            if let ReplaceOutcome::Applied(_) = store.try_replace(key, marker, value.clone(), *record_ttl).await? {
                return Ok(Attempt::Recorded);
            }
            let there = match store.try_add(key, value.clone(), *record_ttl).await? {
                AddOutcome::Added(_) => return Ok(Attempt::Recorded),
                AddOutcome::Exists(entry) if entry.value == *value => return Ok(Attempt::Recorded),
                AddOutcome::Exists(entry) if entry.value == *marker => continue,
                AddOutcome::Exists(entry) => Record::decode(&entry.value, "complete"),
            };
            return Ok(match there {
                Ok(Record { state: State::InProgress(_), .. }) => Attempt::Claimed,
                _ => Attempt::Lost,
            });
        }
        Ok(Attempt::Lost)
    }

    /// What a transaction of unknown outcome has left. The key is in its hands until it ends, so that whoever gets to
    /// write there knows how it ended.
    ///
    /// To look is not enough: where the marker has ended meanwhile there is nothing to be seen, before the transaction
    /// commits and after it was rolled back.
    async fn look_behind_commit(&self) -> Result<Completion, Error> {
        let Self { key, marker, marker_ttl, value, .. } = self;
        let store = self.once.0.leases.store();
        if store.try_expire(key, marker, *marker_ttl).await?.is_applied() {
            return Ok(Completion::Lost);
        }
        Ok(match store.try_add(key, marker.clone(), *marker_ttl).await? {
            AddOutcome::Exists(entry) if entry.value == *value => Completion::Recorded,
            AddOutcome::Exists(_) | AddOutcome::Added(_) => Completion::Lost,
        })
    }

    /// Keeps the answer in this process, if it is to be.
    fn remember(&self) {
        if let (Some(first_level), Some(before)) = (&self.once.0.first_level, self.before) {
            first_level.put(&self.key, &self.record, &self.value, before, self.record_ttl.as_duration());
        }
    }

    /// Waits for what records the answer, and keeps the key taken meanwhile: a claim may end sooner than a slow store
    /// has taken its answer.
    async fn while_kept<T>(&self, recording: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = recording => done,
            never = self.keep() => match never {},
        }
    }

    async fn keep(&self) -> Infallible {
        let mut pause = self.renew_first;
        loop {
            sleep(pause).await;
            let renewal = self.once.0.leases.store().try_expire(&self.key, &self.marker, self.marker_ttl);
            // What it answers, the recording finds out too; without an answer the marker may be near its end.
            pause = match timeout(self.renew_every, renewal).await {
                Ok(Ok(_)) => self.renew_every,
                Ok(Err(_)) | Err(_) => self.renew_every / 8,
            };
        }
    }

    /// Takes away a marker that lands when its claim is lost: nobody works under it, and it would keep others waiting.
    fn remove_what_lands_again(&self, runtime: &Handle) {
        let Self { once, key, marker, marker_ttl, marker_may_land_again, .. } = self;
        if *marker_may_land_again {
            once.0.leases.remove_later(runtime, key, marker, *marker_ttl, Landed::PerhapsAgain);
        }
    }

    /// Offers the answer to the store until it takes it, or has another, or time is up. Who has claimed the call since may
    /// fail and give it back, and this answer is then better than to run the work once more.
    async fn offer(&self, runtime: &Handle) {
        let leases = &self.once.0.leases;
        let until = leases.now().after(self.settle_for);
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            match timeout(LIMIT, self.attempt()).await {
                Ok(Ok(Attempt::Recorded)) => return,
                Ok(Ok(Attempt::Lost)) => {
                    tracing::warn!(key = %self.key, "an answer was not recorded: its call has another by now");
                    return self.remove_what_lands_again(runtime);
                }
                Ok(Ok(Attempt::Claimed)) => {
                    tracing::debug!(key = %self.key, "an answer is not recorded yet: another has claimed its call since");
                }
                Ok(Err(error)) => tracing::debug!(key = %self.key, %error, "an answer is not recorded yet"),
                Err(_) => tracing::debug!(key = %self.key, "an answer is not recorded yet: the store did not answer"),
            }
            if leases.now().is_past(until) {
                metrics::counter!("leasehold_answers_given_up_total").increment(1);
                tracing::error!(key = %self.key, "an answer is given up: the call may run again");
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let leases = &self.draft.once.0.leases;
        match self.when_dropped {
            WhenDropped::Nothing => {}
            WhenDropped::Offer => {
                metrics::counter!("leasehold_answers_delayed_total").increment(1);
                let (draft, runtime) = (self.draft.clone(), self.runtime.clone());
                leases.settle(&self.runtime, async move { draft.while_kept(draft.offer(&runtime)).await });
            }
            WhenDropped::Free => {
                let Draft { key, marker, marker_ttl, marker_may_land_again, .. } = &self.draft;
                let landed = if *marker_may_land_again { Landed::PerhapsAgain } else { Landed::Surely };
                leases.remove_later(&self.runtime, key, marker, *marker_ttl, landed);
            }
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Draft { key, record, .. } = &self.draft;
        f.debug_struct("Recording").field("key", key).field("record", record).finish_non_exhaustive()
    }
}
