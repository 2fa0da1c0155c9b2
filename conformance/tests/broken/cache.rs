use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    CacheStore, Cursor, Entry, Error, ErrorKind, Expiry, Hints, Key, KeyPrefix, Outcome, Page, Revision, Ttl,
};

use super::{Broken, Mistake};

/// Where the mistake "batches are cut" cuts.
const LONGEST_BATCH: usize = 500;

#[async_trait]
impl CacheStore for Broken {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.enter().await;
        self.check("set", &value)?;
        let revision = self.set_one(key, value, expiry).await?;
        if self.mistake != Mistake::NoHintAtASet {
            self.hint(&self.key(key)).await;
        }
        Ok(revision)
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.enter().await;
        let outcome = self.remove_one(key).await;
        self.hint_at_removal(&self.key(key), outcome).await;
        Ok(outcome)
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        self.enter().await;
        self.refuse_empty("get_many", keys.is_empty())?;
        let mut keys: Vec<_> = keys.iter().map(|key| self.key(key)).collect();
        match self.mistake {
            Mistake::GetManySorts => keys.sort(),
            Mistake::BatchesAreCut => keys.truncate(LONGEST_BATCH),
            _ => {}
        }
        let mut found = Vec::new();
        for key in &keys {
            let mut entry = match self.mistake {
                Mistake::ReadsOfManyDoNotSlide => self.read(key).await?,
                _ => self.read_and_slide(key).await?,
            };
            match (self.mistake, &mut entry) {
                (Mistake::GetManySkipsWhatIsAbsent, None) => continue,
                (Mistake::GetManyTellsNoTimeLeft, Some(entry)) => entry.time_left = None,
                _ => {}
            }
            found.push(entry);
        }
        Ok(found)
    }

    async fn set_many(&self, mut items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        self.enter().await;
        self.refuse_empty("set_many", items.is_empty())?;
        if self.mistake != Mistake::SetManyStopsAtWhatIsTooLong {
            for (_, value, _) in &items {
                self.check("set_many", value)?;
            }
        }
        match self.mistake {
            Mistake::BatchesAreCut => items.truncate(LONGEST_BATCH),
            Mistake::SetManyKeepsTheFirstOfTwo => items.reverse(),
            Mistake::SetManyGivesAllOneEnd => {
                let last = items.last().map(|(_, _, expiry)| *expiry);
                items.iter_mut().for_each(|(_, _, expiry)| *expiry = last.unwrap_or(*expiry));
            }
            _ => {}
        }
        let mut revisions = Vec::new();
        for (key, value, expiry) in items {
            self.check("set_many", &value)?;
            revisions.push(self.set_one(&key, value, expiry).await?);
            if self.mistake != Mistake::NoHintAtABatch {
                self.hint(&self.key(&key)).await;
            }
        }
        match self.mistake {
            Mistake::RevisionsOfABatchAreTurnedAround => revisions.reverse(),
            Mistake::SetManyGivesOneRevision => revisions.truncate(1),
            _ => {}
        }
        Ok(revisions)
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        self.enter().await;
        self.refuse_empty("remove_many", keys.is_empty())?;
        let longest = if self.mistake == Mistake::BatchesAreCut { LONGEST_BATCH } else { usize::MAX };
        let mut outcomes = Vec::new();
        for (place, key) in keys.iter().take(longest).enumerate() {
            let outcome = self.remove_one(key).await;
            if !matches!(self.mistake, Mistake::NoHintAtABatch | Mistake::NoHintAtARemovalOfABatch) {
                self.hint_at_removal(&self.key(key), outcome).await;
            }
            let twice = self.mistake == Mistake::RemoveManySaysAppliedTwice && keys[..place].contains(key);
            outcomes.push(if twice { Outcome::Applied } else { outcome });
        }
        Ok(outcomes)
    }

    async fn scan(&self, prefix: &KeyPrefix, mut cursor: Option<Cursor>) -> Result<Page, Error> {
        const PAGE: usize = 400;
        self.enter().await;
        if self.mistake == Mistake::ScanBeginsWithEmptyPages {
            const EMPTY: u32 = 10_500;
            let given =
                cursor.as_ref().map_or("~0", |cursor| std::str::from_utf8(cursor.as_bytes()).unwrap_or_default());
            match given.strip_prefix('~').and_then(|pages| pages.parse::<u32>().ok()) {
                Some(EMPTY) => cursor = None,
                Some(pages) => {
                    let next = Some(Cursor::from_store(format!("~{}", pages + 1)));
                    return Ok(Page { keys: Vec::new(), next });
                }
                None => {}
            }
        }
        let after = match &cursor {
            None => String::new(),
            Some(cursor) => match std::str::from_utf8(cursor.as_bytes()) {
                Ok(after) => after.to_owned(),
                Err(_) if self.mistake == Mistake::ForeignCursorsEndTheScan => {
                    return Ok(Page { keys: Vec::new(), next: None });
                }
                Err(_) => {
                    let error = Error::new(ErrorKind::InvalidInput, "scan", "the cursor is not one of this store's");
                    return Err(error.with_store("broken"));
                }
            },
        };
        let counted = after.parse().unwrap_or(0);
        let mut keys = self.scanned_keys(prefix);
        match self.mistake {
            Mistake::ScanCountsFromTheStart => {}
            _ => keys.retain(|(_, shown)| shown.as_str() > &*after),
        }
        let mut page = Vec::new();
        let skipped = if self.mistake == Mistake::ScanCountsFromTheStart { counted } else { 0 };
        let mut live = 0;
        for (stored, shown) in keys {
            if self.is_shown(&stored).await {
                live += 1;
                if live > skipped {
                    page.push(shown);
                }
            }
            if page.len() == PAGE {
                break;
            }
        }
        let next = match self.mistake {
            Mistake::ScanStopsAfterAPage => None,
            Mistake::ScanCountsFromTheStart => Some((counted + PAGE).to_string()),
            _ => page.last().map(|last| last.as_str().to_owned()),
        };
        let next = next.filter(|_| page.len() == PAGE).map(Cursor::from_store);
        Ok(Page { keys: page, next })
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.enter().await;
        self.listen_for_all(prefix).await
    }
}

impl Broken {
    async fn set_one(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        let (key, mut value, universe) = (self.key(key), self.value(value), &self.universe);
        let mut expiry = self.expiry(expiry);
        match (self.mistake, universe.live(&key).await) {
            (Mistake::SetWritesOnlyWhereNothingIs, Some(_)) => return Revision::new(1),
            (Mistake::SetKeepsTheOldEnd, Some(Entry { time_left: Some(left), .. })) => {
                expiry = Ttl::try_from(left).map_or(expiry, Expiry::After);
            }
            (Mistake::SetWritesAHeader, _) => value = [b"set:", &value[..]].concat().into(),
            _ => {}
        }
        let revision = self.write(&key, value, expiry).await?;
        match self.mistake {
            Mistake::RevisionsOfSetsAreTheirOwn => {
                let mut revisions = universe.revisions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let last = revisions.entry(key).or_default();
                *last += 1;
                Revision::new(*last)
            }
            _ => Ok(revision),
        }
    }

    async fn remove_one(&self, key: &Key) -> Outcome {
        let key = self.key(key);
        match (self.mistake, self.universe.live(&key).await) {
            (Mistake::RemoveAnyNeverApplies, _) => Outcome::NotApplied,
            (Mistake::RemoveAnyAlwaysSaysApplied, None) => Outcome::Applied,
            (_, None) => Outcome::NotApplied,
            (_, Some(_)) => {
                self.erase(&key).await;
                Outcome::Applied
            }
        }
    }

    /// Tells of the removal of a key as it is stored.
    pub(super) async fn hint_at_removal(&self, key: &Key, outcome: Outcome) {
        let silent = matches!(self.mistake, Mistake::NoHintAtARemoval | Mistake::HintsComeAtAddsAndNotAtRemovals);
        if outcome.is_applied() && !silent {
            self.hint(key).await;
        }
    }

    fn refuse_empty(&self, operation: &'static str, is_empty: bool) -> Result<(), Error> {
        if is_empty && self.mistake == Mistake::EmptyBatchesFail {
            return Err(Error::new(ErrorKind::InvalidInput, operation, "there is nothing to do"));
        }
        Ok(())
    }

    /// The keys that a scan goes through, in order: as they are stored, and as they are shown.
    fn scanned_keys(&self, prefix: &KeyPrefix) -> Vec<(Key, Key)> {
        let before = self.stored("").as_str().to_owned();
        let records = self.universe.records();
        let shown = |stored: &Key| {
            let key = match stored.as_str().strip_prefix(&before) {
                Some(key) if self.is_wanted(prefix.as_str(), key) => key,
                None if self.mistake == Mistake::ScanLeavesTheNamespace && prefix.as_str().is_empty() => {
                    stored.as_str()
                }
                _ => return None,
            };
            match self.mistake {
                Mistake::ScanShowsEscapedKeys => Key::from_store(&key.escape_default().to_string()),
                _ => Key::from_store(key),
            }
            .ok()
        };
        let mut keys: Vec<_> = records.keys().filter_map(|key| Some((key.clone(), shown(key)?))).collect();
        keys.sort_by(|(_, one), (_, other)| one.cmp(other));
        keys
    }

    async fn is_shown(&self, stored: &Key) -> bool {
        let removed = self.universe.record(stored).is_some_and(|record| record.removed);
        match self.mistake {
            Mistake::ScanShowsWhatExpired if !removed => true,
            Mistake::ScanShowsWhatWasRemoved if removed => true,
            _ => self.universe.live(stored).await.is_some(),
        }
    }

    fn is_wanted(&self, prefix: &str, key: &str) -> bool {
        match self.mistake {
            Mistake::ScanIgnoresThePrefix => true,
            Mistake::ScanFoldsCase => key.to_lowercase().starts_with(&prefix.to_lowercase()),
            Mistake::ScanTakesWildcards => {
                let mut letters = key.chars();
                prefix.chars().all(|wanted| {
                    letters.next().is_some_and(|letter| matches!(wanted, '*' | '?' | '_' | '%') || wanted == letter)
                })
            }
            _ => key.starts_with(prefix),
        }
    }
}
