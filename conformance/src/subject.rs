use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Ttl};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::capability::Capability;
use crate::handle::Handle;
use crate::history::Tolerance;
use crate::open::Opener;
use crate::other_process::OtherProcess;
use crate::runner::Plan;
use crate::timing::{Round, Span};
use crate::verdict::{Stop, Verdict, ensure};

/// The store that a check is run on, in a namespace of the check's own.
pub(crate) struct Subject {
    /// The first handle.
    pub(crate) store: Handle,
    pub(crate) tolerance: Tolerance,
    /// Whether tokio's clock stands still until everybody waits.
    pub(crate) stepped: bool,
    /// What a check that draws at random draws from.
    pub(crate) seed: u64,
    /// How this very program is started once more, where it can be.
    pub(crate) other_process: Option<OtherProcess>,
    /// What the store must not do without.
    pub(crate) required: Vec<Capability>,
    /// How many histories are recorded.
    pub(crate) rounds: u32,
    /// Where a history that breaks the contract is kept.
    pub(crate) histories: Option<PathBuf>,
    opener: Opener,
    namespace: String,
}

impl Subject {
    pub(crate) fn new(store: Handle, namespace: String, plan: &Plan) -> Self {
        let Plan { opener, tolerance, stepped, seed, required, other_process, rounds, histories, .. } = plan;
        Self {
            store,
            tolerance: *tolerance,
            stepped: *stepped,
            seed: *seed,
            other_process: other_process.clone(),
            required: required.clone(),
            rounds: *rounds,
            histories: histories.clone(),
            opener: opener.clone(),
            namespace,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Another handle on the same data.
    pub(crate) async fn another_handle(&self) -> Verdict<Handle> {
        self.open(&self.namespace).await
    }

    /// A handle on a namespace whose name is this one's and then `suffix`.
    pub(crate) async fn neighbour(&self, suffix: &str) -> Verdict<Handle> {
        self.open(&format!("{}{suffix}", self.namespace)).await
    }

    async fn open(&self, namespace: &str) -> Verdict<Handle> {
        match self.opener.open(namespace).await {
            Ok(handle) => Ok(handle),
            Err(error) => Stop::failed(format!("a further handle could not be opened: {error:#}")),
        }
    }

    /// Repeats a timed round with a ttl of 400 ms and then twice that, three times at most, until it comes to a verdict.
    /// Each round has a key of its own.
    pub(crate) async fn rounds(&self, round: impl AsyncFn(&Key, Ttl) -> Verdict<Round>) -> Verdict {
        self.rounds_from(BASE_MILLIS, round).await
    }

    /// The same from another ttl on, in milliseconds.
    pub(crate) async fn rounds_from(&self, base: u64, round: impl AsyncFn(&Key, Ttl) -> Verdict<Round>) -> Verdict {
        for doubled in 0..=3 {
            let key = key(&format!("round-{doubled}"));
            if round(&key, millis(base << doubled)).await? == Round::Decided {
                return Ok(());
            }
        }
        Stop::failed(format!(
            "undecided: with a ttl of {:?} too, the answers came too late to judge by",
            millis(base << 3)
        ))
    }

    /// The entry that `write` writes is there until its ttl has passed since, and not after that.
    pub(crate) async fn lives_its_ttl(&self, write: impl AsyncFn(&Key, Ttl) -> Verdict<Span>) -> Verdict {
        self.rounds(async |key, ttl| {
            let written = write(key, ttl).await?;
            let round = self.is_there_until(written.called, key, self.tolerance.earliest_end(written, ttl)).await?;
            self.is_gone_after(written, key, ttl).await?;
            Ok(round)
        })
        .await
    }

    /// Looks at a key until `end`: answers that come before that must know of it. The last quarter decides.
    pub(crate) async fn is_there_until(&self, since: Instant, key: &Key, end: Instant) -> Verdict<Round> {
        const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
        let last_quarter = end - end.saturating_duration_since(since) / 4;
        let mut round = Round::Undecided;
        loop {
            let asked = Instant::now();
            let is_there = self.store.get(key).await?.is_some();
            let answered = Instant::now();
            if answered >= end {
                return Ok(round);
            }
            ensure!(
                is_there,
                "{key:?} was gone {:?} after its write was sent, {:?} too early",
                answered - since,
                end - answered
            );
            if asked >= last_quarter {
                round = Round::Decided;
            }
            // Ever closer to the end, so that an end that comes only a little too early is seen.
            sleep_until(answered + ((end - answered) / 2).max(SHORTEST_PAUSE)).await;
        }
    }

    /// Waits until a key must be gone, and looks.
    pub(crate) async fn is_gone_after(&self, written: Span, key: &Key, ttl: Ttl) -> Verdict {
        self.tolerance.past_the_end(written, ttl).await;
        let late = Instant::now() - written.returned;
        self.store.must_not_show(key, &format!("its ttl was {ttl:?} and its write is {late:?} ago")).await
    }

    /// Runs `count` tasks at once, and gives their answers in the order of their numbers.
    pub(crate) async fn at_once<T, F>(&self, count: usize, task: impl Fn(usize) -> F) -> Verdict<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Verdict<T>> + Send + 'static,
    {
        // A semaphore lets them go in their order, so that a run on stepped time is the same every time.
        let start = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (start, work) = (start.clone(), task(number));
            tasks.spawn(async move {
                let _started = start.acquire().await;
                (number, work.await)
            });
        }
        start.add_permits(count);
        let mut answers = Vec::with_capacity(count);
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok((number, answer)) => answers.push((number, answer?)),
                Err(error) => return Stop::failed(format!("a task of the check ended badly: {error}")),
            }
        }
        answers.sort_by_key(|(number, _)| *number);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

const BASE_MILLIS: u64 = 400;

/// A key of a check.
pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("checks write valid keys")
}

/// A ttl of a check.
pub(crate) fn millis(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("checks write valid ttls")
}

/// A ttl that outlives every check.
pub(crate) fn long() -> Ttl {
    millis(60 * 60 * 1000)
}

/// The ttl that timed checks begin with.
pub(crate) fn base() -> Ttl {
    millis(BASE_MILLIS)
}
