use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, Error, Key, ReplaceOutcome};
use tokio::time::{Instant, sleep_until, timeout};

use crate::history::script::{Action, Guess, Planned, script};
use crate::history::{Handles, Workload};
use crate::{Recorded, Recorder};

/// One client at work.
pub(super) struct Player {
    workload: Workload,
    round: u32,
    /// Its place among the clients.
    client: u32,
    /// What it is recorded as: a client in doubt acts no more, and goes on as another.
    number: u32,
    began: Instant,
    recorder: Recorder,
    handles: Handles,
    keys: Arc<[Key]>,
    own: Vec<Option<Bytes>>,
    latest: Latest,
    written: u32,
}

impl Player {
    /// The clients of one round.
    pub(super) fn all(
        workload: &Workload,
        round: u32,
        handles: &Handles,
        recorder: &Recorder,
        keys: Arc<[Key]>,
    ) -> impl Iterator<Item = Self> {
        let (latest, began) = (Latest::new(keys.len()), Instant::now());
        (0..workload.clients).map(move |client| Self {
            workload: workload.clone(),
            round,
            client,
            number: client,
            began,
            recorder: recorder.clone(),
            handles: handles.clone(),
            keys: keys.clone(),
            own: vec![None; keys.len()],
            latest: latest.clone(),
            written: 0,
        })
    }

    /// Works through its script.
    pub(super) async fn play(mut self) {
        let script = script(&self.workload, self.round, self.client, self.handles.have_cache());
        let mut store = self.store();
        for Planned { at, action } in script {
            let due = self.began + at;
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let seen = match timeout(self.workload.patience, self.act(&store, action)).await {
                Ok(Ok(seen)) => seen,
                Ok(Err(error)) if error.effect() == Effect::None => continue,
                Ok(Err(_)) | Err(_) => {
                    self.number += self.workload.clients;
                    store = self.store();
                    continue;
                }
            };
            for (key, value) in seen {
                self.latest.seen(key, value.clone());
                self.own[key] = Some(value);
            }
        }
    }

    fn store(&self) -> Client {
        let store = self.handles.client(&self.recorder, self.client, self.number);
        let Workload { journeys, seed, .. } = self.workload;
        let seed = seed ^ u64::from(self.round) << 32 ^ u64::from(self.number);
        match journeys {
            // Every other round is over in no time but for the turns of others, so that they meet more closely.
            Some(longest) if self.round % 2 == 1 => store.with_journeys(seed, longest),
            Some(_) => store.with_journeys(seed, Duration::ZERO),
            None => store,
        }
    }

    /// Does one thing, and says which values are now known to be, or to have been, under which keys.
    async fn act(&mut self, store: &Client, action: Action) -> Result<Vec<(usize, Bytes)>, Error> {
        Ok(match action {
            Action::TryAdd { key, ttl } => {
                let value = self.value();
                match store.atomic().try_add(&self.keys[key], value.clone(), ttl).await? {
                    AddOutcome::Added(_) => vec![(key, value)],
                    AddOutcome::Exists(entry) => vec![(key, entry.value)],
                }
            }
            Action::TryReplace { key, expected, ttl } => {
                let (expected, value) = (self.guess(key, expected), self.value());
                match store.atomic().try_replace(&self.keys[key], &expected, value.clone(), ttl).await? {
                    ReplaceOutcome::Applied(_) => vec![(key, value)],
                    ReplaceOutcome::NotApplied => Vec::new(),
                }
            }
            Action::TryRemove { key, expected } => {
                let _ = store.atomic().try_remove(&self.keys[key], &self.guess(key, expected)).await?;
                Vec::new()
            }
            Action::TryExpire { key, expected, ttl } => {
                let _ = store.atomic().try_expire(&self.keys[key], &self.guess(key, expected), ttl).await?;
                Vec::new()
            }
            Action::Get { key } => {
                let entry = store.atomic().get(&self.keys[key]).await?;
                entry.map(|entry| (key, entry.value)).into_iter().collect()
            }
            Action::Set { key, expiry } => {
                let value = self.value();
                store.cache().set(&self.keys[key], value.clone(), expiry).await?;
                vec![(key, value)]
            }
            Action::Remove { key } => {
                let _ = store.cache().remove(&self.keys[key]).await?;
                Vec::new()
            }
            Action::GetMany { keys } => {
                let entries = store.cache().get_many(&self.named(&keys)).await?;
                let seen = keys.into_iter().zip(entries);
                seen.filter_map(|(key, entry)| entry.map(|entry| (key, entry.value))).collect()
            }
            Action::SetMany { items } => {
                let items: Vec<_> = items.into_iter().map(|(key, expiry)| (key, self.value(), expiry)).collect();
                let named =
                    |(key, value, expiry): &(usize, Bytes, _)| (self.keys[*key].clone(), value.clone(), *expiry);
                store.cache().set_many(items.iter().map(named).collect()).await?;
                items.into_iter().map(|(key, value, _)| (key, value)).collect()
            }
            Action::RemoveMany { keys } => {
                let _ = store.cache().remove_many(&self.named(&keys)).await?;
                Vec::new()
            }
        })
    }

    /// A value that nobody else writes.
    fn value(&mut self) -> Bytes {
        self.written += 1;
        format!("{}.{}", self.client, self.written).into()
    }

    fn guess(&self, key: usize, guess: Guess) -> Bytes {
        let value = match guess {
            Guess::Own => self.own[key].clone().or_else(|| self.latest.of(key)),
            Guess::Latest => self.latest.of(key),
            Guess::Wrong => None,
        };
        value.unwrap_or_else(|| "never.written".into())
    }

    fn named(&self, keys: &[usize]) -> Vec<Key> {
        keys.iter().map(|&key| self.keys[key].clone()).collect()
    }
}

/// A store as a client uses it, recorded.
pub(super) enum Client {
    Atomic(Recorded<Arc<dyn AtomicStore>>),
    Cache(Recorded<Arc<dyn CacheStore>>),
}

impl Client {
    fn with_journeys(self, seed: u64, longest: Duration) -> Self {
        match self {
            Self::Atomic(store) => Self::Atomic(store.with_journeys(seed, longest)),
            Self::Cache(store) => Self::Cache(store.with_journeys(seed, longest)),
        }
    }

    fn atomic(&self) -> &dyn AtomicStore {
        match self {
            Self::Atomic(store) => store,
            Self::Cache(store) => store,
        }
    }

    fn cache(&self) -> &dyn CacheStore {
        match self {
            Self::Atomic(_) => unreachable!("a script for the primitives asks for nothing else"),
            Self::Cache(store) => store,
        }
    }
}

/// The last value of each key that any client saw or wrote.
#[derive(Clone)]
struct Latest(Arc<Mutex<Vec<Option<Bytes>>>>);

impl Latest {
    fn new(keys: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; keys])))
    }

    // Nothing panics under this lock.
    fn seen(&self, key: usize, value: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[key] = Some(value);
    }

    fn of(&self, key: usize) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[key].clone()
    }
}
