use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use leasehold_core::{AtomicStore, CacheStore, Key};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Recorder;
use crate::history::player::{Client, Player};
use crate::history::timeline::Timeline;
use crate::history::{Exchange, History, Judgement, Origin, Tolerance, Undecided, Verdict, Violation, Workload, judge};

/// Handles on one store, which the clients share out among themselves.
#[derive(Clone)]
pub enum Handles {
    /// The primitives are all that is asked of them.
    Atomic(Vec<Arc<dyn AtomicStore>>),
    /// The whole contract is.
    Cache(Vec<Arc<dyn CacheStore>>),
}

/// What a run without a failure came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many histories were judged.
    pub rounds: u32,
    /// How many operations they have.
    pub operations: usize,
    /// How many of those failed, or got no answer.
    pub failed: usize,
    /// The states that the largest search visited.
    pub states: usize,
    /// How long judging took, all in all.
    pub judging: Duration,
}

/// A round that failed. Its display is for people, and says how to run it again.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which workload it was.
    pub origin: Origin,
    /// What was recorded; [`History::save`] keeps it for [`replay`](crate::history::replay).
    pub history: History,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What is wrong with a history.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// No order explains it.
    Violation(Violation),
    /// The search was given up.
    Undecided(Undecided),
    /// Operations failed, or got no answer, though nothing was wrong.
    Failed {
        /// How many.
        operations: usize,
        /// The first of them.
        first: Box<Exchange>,
    },
}

impl Handles {
    /// Handles on a store with the primitives only.
    pub fn atomic<S: AtomicStore + 'static>(handles: impl IntoIterator<Item = S>) -> Self {
        Self::Atomic(handles.into_iter().map(|handle| Arc::new(handle) as Arc<dyn AtomicStore>).collect())
    }

    /// Handles on a store with the whole contract.
    pub fn cache<S: CacheStore + 'static>(handles: impl IntoIterator<Item = S>) -> Self {
        Self::Cache(handles.into_iter().map(|handle| Arc::new(handle) as Arc<dyn CacheStore>).collect())
    }

    /// Removes what the rounds leave behind, some of which would stay for ever. Nobody judges it: a store that fails
    /// here has been told so by the rounds.
    async fn forget(&self, keys: &[Key], patience: Duration) {
        if let Self::Cache(handles) = self
            && let Some(handle) = handles.first()
        {
            for keys in keys.chunks(1_000) {
                let _ = timeout(patience, handle.remove_many(keys)).await;
            }
        }
    }

    /// Whether the whole contract is asked of them.
    pub(super) fn have_cache(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    /// The handle of a client, recorded under a number. There is at least one handle.
    pub(super) fn client(&self, recorder: &Recorder, client: u32, number: u32) -> Client {
        match self {
            Self::Atomic(handles) => {
                Client::Atomic(recorder.client(number, handles[client as usize % handles.len()].clone()))
            }
            Self::Cache(handles) => {
                Client::Cache(recorder.client(number, handles[client as usize % handles.len()].clone()))
            }
        }
    }
}

impl Workload {
    /// Records and judges every round, and ends with the first that fails. What the rounds leave behind is removed, where
    /// the store can be asked to remove whatever is there; elsewhere all of it ends.
    ///
    /// The keys begin with `history:` and the seed, and must be free: a history that does not begin with nothing, or
    /// that others write to, is judged wrongly. A namespace of its own sees to that.
    ///
    /// # Panics
    ///
    /// When there is no handle, and when the store panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the clients at their next await.
    pub async fn run(&self, handles: &Handles, tolerance: Tolerance) -> Result<Summary, Box<Failure>> {
        let judged = self.judged(handles, tolerance).await;
        // Not after each round: what ends by itself must not harm the rounds after it, and that is to be seen.
        let keys: Vec<_> = (0..self.rounds).flat_map(|round| self.keys_of(round)).collect();
        handles.forget(&keys, self.patience).await;
        judged
    }

    async fn judged(&self, handles: &Handles, tolerance: Tolerance) -> Result<Summary, Box<Failure>> {
        let mut summary = Summary { rounds: 0, operations: 0, failed: 0, states: 0, judging: Duration::ZERO };
        let rounds = (0..self.rounds).map(|round| self.record(round, handles, tolerance));
        let mut histories = stream::iter(rounds).buffer_unordered(self.rounds_at_once.max(1) as usize);
        while let Some(history) = histories.next().await {
            // Not tokio's clock, which may stand still.
            let started = std::time::Instant::now();
            let Judgement { verdict, states } = judge(&history);
            summary.judging += started.elapsed();
            let mut failures = history.exchanges.iter().filter(|exchange| exchange.answer.is_failure());
            let failed = failures.clone().count();
            let first = failures.next().filter(|_| !self.errors_expected);
            let cause = match verdict {
                Verdict::Violation(violation) => Some(Cause::Violation(violation)),
                Verdict::Undecided(undecided) => Some(Cause::Undecided(undecided)),
                Verdict::Ok => first.map(|first| Cause::Failed { operations: failed, first: Box::new(first.clone()) }),
            };
            if let Some(cause) = cause {
                let origin = history.origin.unwrap_or(Origin { seed: self.seed, round: summary.rounds });
                return Err(Box::new(Failure { origin, history, cause }));
            }
            summary.rounds += 1;
            summary.operations += history.exchanges.len();
            summary.failed += failed;
            summary.states = summary.states.max(states);
        }
        Ok(summary)
    }

    /// Records one round: the same seed and round ask the same, and on stepped time get the same answers. What it leaves
    /// behind may stay for ever.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub async fn record(&self, round: u32, handles: &Handles, tolerance: Tolerance) -> History {
        let recorder = Recorder::new();
        let keys: Arc<[Key]> = self.keys_of(round).collect();
        let mut clients = JoinSet::new();
        for player in Player::all(self, round, handles, &recorder, keys) {
            clients.spawn(player.play());
        }
        while let Some(ended) = clients.join_next().await {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
        recorder.history(tolerance).with_origin(Origin { seed: self.seed, round })
    }

    fn keys_of(&self, round: u32) -> impl Iterator<Item = Key> {
        (0..self.keys.max(1)).map(move |key| self.key(round, key))
    }

    fn key(&self, round: u32, key: u32) -> Key {
        let key = Key::new(format!("history:{}:{round}:{key}", self.seed));
        key.expect("letters, digits and separators, and few of them, are a key")
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, names): (_, Vec<_>) = match self {
            Self::Atomic(handles) => ("Atomic", handles.iter().map(|handle| handle.name()).collect()),
            Self::Cache(handles) => ("Cache", handles.iter().map(|handle| handle.name()).collect()),
        };
        f.debug_tuple(kind).field(&names).finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin: Origin { seed, round }, history: _, cause } = self;
        match cause {
            Cause::Violation(violation) => write!(f, "{violation}")?,
            Cause::Undecided(undecided) => writeln!(f, "{undecided}")?,
            Cause::Failed { operations, first } => {
                writeln!(f, "{operations} operations failed or got no answer, and this was the first:")?;
                let key = first.call.keys().first().map(ToString::to_string).unwrap_or_default();
                write!(f, "{}", Timeline { key: &key, exchanges: std::slice::from_ref(first) })?;
            }
        }
        write!(f, "(seed {seed}, round {round})")
    }
}

impl std::error::Error for Failure {}
