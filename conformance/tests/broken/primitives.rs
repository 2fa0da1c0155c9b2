use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Entry, Error, Expiry, Hints, Key, Outcome, ReplaceOutcome,
    Revision, Ttl,
};
use tokio::time::{Instant, sleep};

use super::universe::pause;
use super::{Broken, Mistake};

#[async_trait]
impl AtomicStore for Broken {
    fn name(&self) -> &'static str {
        match self.mistake {
            Mistake::NameIsASentence => "The broken store",
            _ => "broken",
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.declared()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.enter().await;
        self.check("try_add", &value)?;
        let (key, value, universe) = (self.key(key), self.value(value), &self.universe);
        let expiry = self.ttl(ttl).map_or(Expiry::Never, Expiry::After);
        match self.mistake {
            Mistake::AddOverwrites => return self.write(&key, value, expiry).await.map(AddOutcome::Added),
            Mistake::AddForgetsTheTtl => return self.add(&key, value, Expiry::Never).await,
            Mistake::AddChecksThenSets => return self.add_in_two_steps(&key, value, expiry).await,
            Mistake::AddChecksThenSetsWhatExpired if universe.expired(&key).await.is_some() => {
                pause().await;
                return self.write(&key, value, expiry).await.map(AddOutcome::Added);
            }
            Mistake::AddExcludesInItsHandleOnly => {
                let _own = self.own_lock.lock().await;
                return self.add_in_two_steps(&key, value, expiry).await;
            }
            Mistake::AddWritesAfterItsAnswer => {
                if let Some(entry) = universe.live(&key).await {
                    return Ok(AddOutcome::Exists(entry));
                }
                let (memory, revision) = (universe.memory.clone(), self.revision(&key));
                tokio::spawn(async move {
                    sleep(Duration::from_millis(5)).await;
                    memory.set(&key, value, expiry).await
                });
                return Ok(AddOutcome::Added(revision));
            }
            Mistake::AddNeverReclaimsWhatExpired => {
                if let Some(record) = universe.expired(&key).await {
                    return Ok(AddOutcome::Exists(last_moment(record.last)));
                }
            }
            Mistake::AddRefusesWhatWasRemoved => {
                if let Some(record) = universe.record(&key).filter(|record| record.removed) {
                    return Ok(AddOutcome::Exists(last_moment(record.last)));
                }
            }
            Mistake::NeverIsNotLiveForThePrimitives
                if universe.live(&key).await.is_some_and(|entry| entry.time_left.is_none()) =>
            {
                return self.write(&key, value, expiry).await.map(AddOutcome::Added);
            }
            Mistake::RevisionsAreMintedBeforeTheWrite => {
                let minted = self.minted_early().await?;
                return Ok(match self.add(&key, value, expiry).await? {
                    AddOutcome::Added(_) => AddOutcome::Added(minted),
                    exists => exists,
                });
            }
            _ => {}
        }
        let own = value.clone();
        match self.add(&key, value, expiry).await? {
            AddOutcome::Exists(mut entry) => {
                match self.mistake {
                    Mistake::AddHandsBackTheFirstValue => {
                        entry.value = universe.record(&key).map_or(entry.value, |record| record.first);
                    }
                    Mistake::AddHandsBackItsOwnValue => entry.value = own,
                    Mistake::AddHandsBackNoTimeLeft => entry.time_left = None,
                    Mistake::AddsThatLoseSlide => self.slide(&key, &Some(entry.clone())).await?,
                    Mistake::AddThatLosesProlongs => {
                        let _ = universe.memory.try_expire(&key, &entry.value, ttl).await?;
                    }
                    _ => {}
                }
                Ok(AddOutcome::Exists(entry))
            }
            added => {
                if self.mistake == Mistake::HintsComeAtAddsAndNotAtRemovals {
                    self.hint(&key).await;
                }
                Ok(added)
            }
        }
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.enter().await;
        if self.mistake == Mistake::TooLongReplacementIsNotApplied && self.check("try_replace", &value).is_err() {
            return Ok(ReplaceOutcome::NotApplied);
        }
        self.check("try_replace", &value)?;
        let (key, value, universe) = (self.key(key), self.value(value), &self.universe);
        let expected = self.expected("try_replace", &key, expected).await;
        let expiry = self.ttl(ttl).map_or(Expiry::Never, Expiry::After);
        let live = self.live_value(&key).await;
        match self.mistake {
            Mistake::ReplaceNeverApplies => return refused_for_ever().await,
            Mistake::ReplaceWritesWhereNothingIs if live.is_none() => {
                return self.write(&key, value, expiry).await.map(ReplaceOutcome::Applied);
            }
            Mistake::ReplaceRevives if universe.expired(&key).await.is_some_and(|record| record.last == expected) => {
                return self.write(&key, value, expiry).await.map(ReplaceOutcome::Applied);
            }
            Mistake::RemoveOnlyHides if self.is_hidden(&key, &expected) => {
                return self.write(&key, value, expiry).await.map(ReplaceOutcome::Applied);
            }
            Mistake::ReplaceSkipsTheSameValue if value == expected => return refused_for_ever().await,
            Mistake::RevisionsAreMintedBeforeTheWrite => {
                let minted = self.minted_early().await?;
                if self.live_value(&key).await.as_ref() != Some(&expected) {
                    return Ok(ReplaceOutcome::NotApplied);
                }
                self.write(&key, value, expiry).await?;
                self.hint(&key).await;
                return Ok(ReplaceOutcome::Applied(minted));
            }
            _ => {}
        }
        if live.as_ref() != Some(&expected) {
            return Ok(ReplaceOutcome::NotApplied);
        }
        let expiry = match self.mistake {
            Mistake::ReplaceDropsTheTtl => Expiry::Never,
            Mistake::ReplaceKeepsTheTtl => self.present_end(&key).await,
            Mistake::ReplaceKeepsSliding if self.slides(&key) => Expiry::Sliding(ttl),
            _ => expiry,
        };
        match self.mistake {
            Mistake::ReplaceChecksThenSets => pause().await,
            Mistake::ReplaceRemovesThenAdds => {
                universe.forget(&key).await;
                pause().await;
            }
            _ => {}
        }
        let revision = self.write(&key, value, expiry).await?;
        if self.mistake != Mistake::NoHintAtAReplacement {
            self.hint(&key).await;
        }
        Ok(ReplaceOutcome::Applied(revision))
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.enter().await;
        let (key, universe) = (self.key(key), &self.universe);
        let expected = self.expected("try_remove", &key, expected).await;
        let live = self.live_value(&key).await;
        match self.mistake {
            Mistake::RemoveNeverApplies => {
                // Who tries again for ever must not stop the stepped clock.
                sleep(Duration::from_millis(10)).await;
                return Ok(Outcome::NotApplied);
            }
            Mistake::RemoveAlwaysSaysApplied if live.is_none() => return Ok(Outcome::Applied),
            Mistake::RemoveAppliesToWhatExpired
                if universe.expired(&key).await.is_some_and(|record| record.last == expected) =>
            {
                universe.removed(&key);
                return Ok(Outcome::Applied);
            }
            _ => {}
        }
        if live.as_ref() != Some(&expected) {
            return Ok(Outcome::NotApplied);
        }
        match self.mistake {
            Mistake::RemoveChecksThenRemoves => pause().await,
            Mistake::RemoveTakesWhatBeginsSo => {
                for key in self.beginning_so(&key).await {
                    universe.forget(&key).await;
                }
            }
            _ => {}
        }
        self.erase(&key).await;
        self.hint_at_removal(&key, Outcome::Applied).await;
        Ok(Outcome::Applied)
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.enter().await;
        let (key, universe) = (self.key(key), &self.universe);
        let expected = self.expected("try_expire", &key, expected).await;
        let live = self.live_value(&key).await;
        let expiry = self.ttl(ttl).map_or(Expiry::Never, Expiry::After);
        match self.mistake {
            Mistake::ExpireAlwaysSaysApplied if live.is_none() => return Ok(Outcome::Applied),
            Mistake::ExpireRevives if universe.expired(&key).await.is_some_and(|record| record.last == expected) => {
                self.write(&key, expected, expiry).await?;
                return Ok(Outcome::Applied);
            }
            Mistake::RemoveOnlyHides if self.is_hidden(&key, &expected) => {
                self.write(&key, expected, expiry).await?;
                return Ok(Outcome::Applied);
            }
            _ => {}
        }
        if live.as_ref() != Some(&expected) {
            return Ok(Outcome::NotApplied);
        }
        let left = match self.present_end(&key).await {
            Expiry::After(left) => left,
            _ => Ttl::MAX,
        };
        match self.mistake {
            Mistake::ExpireOnlyShortens if left <= ttl => return Ok(Outcome::Applied),
            Mistake::ExpireOnlyLengthens if left >= ttl => return Ok(Outcome::Applied),
            Mistake::ExpireChangesTheValue => {
                self.write(&key, "renewed".into(), expiry).await?;
                return Ok(Outcome::Applied);
            }
            Mistake::ExpireIsJudgedBeforeAWait => {
                sleep(Duration::from_millis(30)).await;
                // A removal meanwhile is seen, an expiry is not.
                if universe.record(&key).is_some_and(|record| record.removed || record.last != expected) {
                    return Ok(Outcome::NotApplied);
                }
                self.write(&key, expected, expiry).await?;
                return Ok(Outcome::Applied);
            }
            Mistake::ExpireReadsThenWrites => {
                pause().await;
                self.write(&key, expected, expiry).await?;
                return Ok(Outcome::Applied);
            }
            Mistake::ExpireTakesWhatBeginsSo => {
                for key in self.beginning_so(&key).await {
                    let _ = universe.memory.try_expire(&key, &expected, ttl).await?;
                }
            }
            Mistake::ExpireKeepsSliding if self.slides(&key) => {
                self.write(&key, expected, Expiry::Sliding(ttl)).await?;
                return Ok(Outcome::Applied);
            }
            _ => {}
        }
        let Expiry::After(changed) = expiry else {
            self.write(&key, expected, Expiry::Never).await?;
            return Ok(Outcome::Applied);
        };
        let outcome = universe.memory.try_expire(&key, &expected, changed).await?;
        if let Some(record) = universe.records().get_mut(&key) {
            (record.expiry, record.written) = (Expiry::After(ttl), Instant::now());
        }
        Ok(outcome)
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.enter().await;
        let mut key = self.key(key);
        match self.mistake {
            Mistake::AnswersAreMixedUp => {
                *self.universe.last_asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
                pause().await;
                let asked = self.universe.last_asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
                key = asked.unwrap_or(key);
            }
            Mistake::ReadsAreKeptForAWhile | Mistake::ReadsAreKeptOverOwnWrites => {
                if let Some(kept) = self.kept_read(&key) {
                    // Who reads again for ever must not stop the stepped clock.
                    sleep(Duration::from_millis(1)).await;
                    return Ok(kept);
                }
            }
            Mistake::GetServesWhatExpired => {
                if let Some(record) = self.universe.expired(&key).await {
                    return Ok(Some(last_moment(record.last)));
                }
            }
            _ => {}
        }
        let found = self.read_and_slide(&key).await?;
        match self.mistake {
            Mistake::ReadsAreKeptForAWhile | Mistake::ReadsAreKeptOverOwnWrites => {
                let mut own = self.own_reads.lock().unwrap_or_else(PoisonError::into_inner);
                own.insert(key, (Instant::now(), found.clone()));
            }
            Mistake::GetProlongs => {
                let ttl = self.universe.record(&key).and_then(|record| record.expiry.first_ttl());
                if let (Some(entry), Some(ttl)) = (&found, ttl) {
                    let _ = self.universe.memory.try_expire(&key, &entry.value, ttl).await?;
                }
            }
            _ => {}
        }
        Ok(found)
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.enter().await;
        self.listen(key).await
    }
}

impl Broken {
    /// What `get` finds, with the time left that the read brings.
    pub(super) async fn read_and_slide(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let found = self.read(key).await?;
        self.slide(key, &found).await?;
        match self.mistake {
            Mistake::ReadsTellTheOldEnd => Ok(found),
            _ => self.read(key).await,
        }
    }

    /// Makes an entry that slides live on.
    async fn slide(&self, key: &Key, found: &Option<Entry>) -> Result<(), Error> {
        let Some((entry, record)) = found.as_ref().zip(self.universe.record(key)) else { return Ok(()) };
        let Some(idle) = record.expiry.idle() else { return Ok(()) };
        let at_most =
            record.expiry.at_most().map(|at_most| at_most.as_duration().saturating_sub(record.written.elapsed()));
        let ttl = at_most.map_or(idle.as_duration(), |at_most| idle.as_duration().min(at_most));
        if let Ok(ttl) = Ttl::try_from(ttl) {
            let value = self.universe.live(key).await.map_or(entry.value.clone(), |entry| entry.value);
            let _ = self.universe.memory.try_expire(key, &value, ttl).await?;
        }
        Ok(())
    }

    /// What `get` finds, without the mistakes of `get` alone.
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let found = self.universe.memory.get(key).await?.map(|entry| self.entry(key, entry));
        let missing = |entry: &Entry| self.mistake == Mistake::EmptyValueReadsAsMissing && entry.value.is_empty();
        Ok(found.filter(|entry| !missing(entry)))
    }

    async fn add_in_two_steps(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<AddOutcome, Error> {
        if let Some(entry) = self.universe.live(key).await {
            return Ok(AddOutcome::Exists(entry));
        }
        pause().await;
        self.write(key, value, expiry).await.map(AddOutcome::Added)
    }

    async fn add(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<AddOutcome, Error> {
        if let Some(entry) = self.universe.live(key).await {
            return Ok(AddOutcome::Exists(self.entry(key, entry)));
        }
        if self.universe.record(key).is_some_and(|record| !record.removed) {
            self.forget_revision(key, Mistake::RevisionsGoBackAfterExpiry);
        }
        self.write(key, value, expiry).await.map(AddOutcome::Added)
    }

    /// What every write comes to.
    pub(super) async fn write(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        if self.mistake == Mistake::OldTimersTakeNewEntries
            && let Some(ttl) = expiry.first_ttl()
        {
            let (memory, key) = (self.universe.memory.clone(), key.clone());
            tokio::spawn(async move {
                sleep(ttl.as_duration()).await;
                memory.remove(&key).await
            });
        }
        if self.mistake == Mistake::ReadsAreKeptForAWhile {
            self.own_reads.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
        self.universe.wrote(key, &value, expiry);
        // What slides is made to by `slide`.
        let end = expiry.first_ttl().map_or(Expiry::Never, Expiry::After);
        let _ = self.universe.memory.set(key, value, end).await?;
        Ok(self.revision(key))
    }

    /// What every removal comes to.
    pub(super) async fn erase(&self, key: &Key) {
        if self.mistake == Mistake::ReadsAreKeptForAWhile {
            self.own_reads.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
        self.forget_revision(key, Mistake::RevisionsGoBackAfterRemoval);
        self.universe.removed(key);
        self.universe.forget(key).await;
    }

    /// What the primitives compare with.
    async fn live_value(&self, key: &Key) -> Option<Bytes> {
        let entry = self.universe.live(key).await?;
        let hidden = self.mistake == Mistake::NeverIsNotLiveForThePrimitives && entry.time_left.is_none();
        (!hidden).then_some(entry.value)
    }

    async fn present_end(&self, key: &Key) -> Expiry {
        let left = self.universe.live(key).await.and_then(|entry| entry.time_left);
        left.and_then(|left| Ttl::try_from(left).ok()).map_or(Expiry::Never, Expiry::After)
    }

    fn slides(&self, key: &Key) -> bool {
        self.universe.record(key).is_some_and(|record| record.expiry.idle().is_some())
    }

    fn is_hidden(&self, key: &Key, expected: &Bytes) -> bool {
        self.universe.record(key).is_some_and(|record| record.removed && record.last == expected)
    }

    fn kept_read(&self, key: &Key) -> Option<Option<Entry>> {
        const KEPT: Duration = Duration::from_millis(50);
        let own = self.own_reads.lock().unwrap_or_else(PoisonError::into_inner);
        own.get(key).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, entry)| entry.clone())
    }

    async fn minted_early(&self) -> Result<Revision, Error> {
        let minted = self.universe.last_revision.fetch_add(1, Ordering::AcqRel) + 1;
        pause().await;
        // Who minted later may well write sooner.
        if minted % 3 == 1 {
            pause().await;
        }
        Revision::new(minted)
    }
}

/// Who tries again for ever must not stop the stepped clock.
async fn refused_for_ever() -> Result<ReplaceOutcome, Error> {
    sleep(Duration::from_millis(10)).await;
    Ok(ReplaceOutcome::NotApplied)
}

fn last_moment(value: Bytes) -> Entry {
    Entry { value, time_left: Some(Duration::from_millis(1)) }
}
