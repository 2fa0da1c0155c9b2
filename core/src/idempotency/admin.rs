use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::idempotency::claim::to_json;
use crate::idempotency::record::{Record, State, as_text};
use crate::idempotency::scope::{Kind, Scope};
use crate::idempotency::service::Idempotency;
use crate::lock::Nonce;
use crate::store::{CacheStore, Cursor, Entry, KeyPrefix, Outcome, ReplaceOutcome, Ttl};

/// What is stored for one call, for an operator to see. It holds no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordInfo {
    /// Whose call it is, and which.
    pub scope: Scope,
    /// What was called.
    pub operation: String,
    /// The claim that it is the record of.
    pub nonce: Nonce,
    /// When it was claimed, by the claimant's own wall clock.
    pub since: SystemTime,
    /// How far it has come.
    pub state: RecordState,
    /// How long the record still lives, unless it is renewed.
    pub time_left: Duration,
}

/// How many records a listing has in memory at once.
const READ_AT_ONCE: usize = 32;

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordState {
    /// Its work runs, or its process has died a short while ago.
    InProgress {
        /// Who claimed it, as `host:pid`.
        owner: String,
    },
    /// Whoever claimed it has not been heard of for the in-progress ttl.
    OutcomeUnknown {
        /// Who claimed it, as `host:pid`.
        owner: String,
    },
    /// It was answered, in so many bytes as they are stored.
    Answered {
        /// The length of the answer.
        bytes: usize,
    },
    /// It was answered, and the answer was not kept.
    AnswerNotKept,
}

/// One page of the records of a store.
#[derive(Debug, Clone)]
#[must_use = "a listing goes on until `next` is nothing"]
pub struct RecordPage {
    /// The records of this page, in no order.
    pub records: Vec<RecordInfo>,
    /// The calls for which something else is stored, or a record that this version cannot read: they are refused until
    /// that is [purged](Idempotency::purge).
    pub unreadable: Vec<Scope>,
    /// Where the next page starts; nothing after the last.
    pub next: Option<Cursor>,
}

impl RecordInfo {
    fn of(scope: Scope, entry: &Entry, operation: &'static str) -> Result<Self, Error> {
        let Record { header, state } = Record::decode(&entry.value, operation)?;
        let time_left = entry.time_left.unwrap_or(Duration::MAX);
        let state = match state {
            State::InProgress(progress) => {
                let owner = as_text(&progress.owner).to_owned();
                match progress.is_stale(time_left) {
                    true => RecordState::OutcomeUnknown { owner },
                    false => RecordState::InProgress { owner },
                }
            }
            State::Answered(answer) | State::Sealed(answer) => RecordState::Answered { bytes: answer.len() },
            State::Unkept => RecordState::AnswerNotKept,
        };
        let operation = as_text(&header.operation).to_owned();
        Ok(Self { scope, operation, nonce: header.nonce, since: header.since, state, time_left })
    }

    /// Whether nobody knows what became of it: then it stays as it is until it is settled or its ttl has passed.
    pub fn is_stuck(&self) -> bool {
        matches!(self.state, RecordState::OutcomeUnknown { .. })
    }
}

/// For operators. None of this needs a claim.
impl Idempotency {
    /// What is stored for a call, if anything. It is of the past as soon as it is given.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a scope that breaks a rule, `Corrupt` for a record that cannot be read, and what the store could
    /// not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn inspect(&self, scope: &Scope) -> Result<Option<RecordInfo>, Error> {
        let found = self.0.leases.store().get(&scope.stored_key()?).await?;
        found.map(|entry| RecordInfo::of(scope.clone(), &entry, "inspect")).transpose()
    }

    /// Answers, for whoever claimed a call under `nonce` and will not. The answer is replayed from then on, for the ttl of
    /// a record. `NotApplied` when that claim does not hold the call any more.
    ///
    /// Its claimant, should it still be there, is told that the claim is lost; its work goes on.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect), and `InvalidInput` for an answer that cannot be written as JSON.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped it may be settled.
    pub async fn settle<T>(&self, scope: &Scope, nonce: Nonce, answer: &T) -> Result<Outcome, Error>
    where
        T: Serialize + ?Sized,
    {
        let ttl = Ttl::try_from(self.0.policy.record_ttl)?;
        let (key, answer) = (scope.stored_key()?, to_json(answer)?);
        let store = self.0.leases.store();
        let Some((entry, mut record)) = self.claimed(scope, nonce, "settle").await? else {
            return Ok(Outcome::NotApplied);
        };
        record.state = self.0.seal.close(&key, &record.header, answer)?;
        let replaced = store.try_replace(&key, &entry.value, record.encode(), ttl).await?;
        Ok(Outcome::from_applied(matches!(replaced, ReplaceOutcome::Applied(_))))
    }

    /// Frees a call that was claimed under `nonce`, so that the next one runs the work. `NotApplied` when that claim does
    /// not hold the call any more.
    ///
    /// Its claimant, should it still be there, is told that the claim is lost. If it comes to an answer all the same before
    /// the next call is claimed, that is recorded.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped it may be free.
    pub async fn free(&self, scope: &Scope, nonce: Nonce) -> Result<Outcome, Error> {
        match self.claimed(scope, nonce, "free").await? {
            Some((entry, _)) => self.0.leases.store().try_remove(&scope.stored_key()?, &entry.value).await,
            None => Ok(Outcome::NotApplied),
        }
    }

    /// Forgets a call, whatever is stored for it, so that the next one runs the work. `NotApplied` when nothing is, or
    /// when that has just changed. An answer that is on its way meanwhile is recorded all the same.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect), but that it takes what cannot be read, too.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped it may be forgotten.
    pub async fn purge(&self, scope: &Scope) -> Result<Outcome, Error> {
        let key = scope.stored_key()?;
        let store = self.0.leases.store();
        // A replay may come meanwhile, or be on its way; and who purges may go away when it is done in the store.
        let _forgotten = self.0.first_level.as_ref().map(|first_level| first_level.forget_when_dropped(&key));
        match store.get(&key).await? {
            Some(entry) => store.try_remove(&key, &entry.value).await,
            None => Ok(Outcome::NotApplied),
        }
    }

    /// One page of what is stored for calls and messages, from `cursor` on; `None` starts. `store` is the one that the
    /// calls are on. Those that nobody will finish are [stuck](RecordInfo::is_stuck).
    ///
    /// A page may be empty though more follow.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of something else, and what the store could not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(store: &dyn CacheStore, cursor: Option<Cursor>) -> Result<RecordPage, Error> {
        // A store's cursor is good for one prefix, so ours says whose it is in its first byte.
        let (kind, cursor) = match &cursor {
            None => (Kind::ALL[0], None),
            Some(cursor) => {
                let invalid = || Error::new(ErrorKind::InvalidInput, "list", "the cursor is not of this listing");
                let (kind, rest) = cursor.as_bytes().split_first().ok_or_else(invalid)?;
                let kind = *Kind::ALL.get(usize::from(*kind)).ok_or_else(invalid)?;
                (kind, (!rest.is_empty()).then(|| Cursor::from_store(rest.to_vec())))
            }
        };
        let prefix = KeyPrefix::new(format!("{}:", kind.module()))?;
        let page = store.scan(&prefix, cursor).await?;
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        // A page has a thousand keys, and what is read of each has its whole answer.
        for keys in page.keys.chunks(READ_AT_ONCE) {
            for (key, entry) in keys.iter().zip(store.get_many(keys).await?) {
                // A key that no scope has is no call's, and what has gone since the scan is not there.
                let (Some(scope), Some(entry)) = (Scope::of_stored_key(key), entry) else { continue };
                match RecordInfo::of(scope.clone(), &entry, "list") {
                    Ok(record) => records.push(record),
                    Err(_) => unreadable.push(scope),
                }
            }
        }
        let place = Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default();
        let next = match page.next {
            Some(next) => Some(Cursor::from_store([&[place as u8], next.as_bytes()].concat())),
            None if place + 1 < Kind::ALL.len() => Some(Cursor::from_store(vec![place as u8 + 1])),
            None => None,
        };
        Ok(RecordPage { records, unreadable, next })
    }

    /// The marker of a claim, if that still holds the call.
    async fn claimed(
        &self,
        scope: &Scope,
        nonce: Nonce,
        operation: &'static str,
    ) -> Result<Option<(Entry, Record)>, Error> {
        let Some(entry) = self.0.leases.store().get(&scope.stored_key()?).await? else { return Ok(None) };
        let record = Record::decode(&entry.value, operation)?;
        let is_claimed = record.header.nonce == nonce && matches!(record.state, State::InProgress(_));
        Ok(is_claimed.then_some((entry, record)))
    }
}
