use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::hints::Bell;
use crate::link::Link;
use crate::request::{Request, answers};
use crate::sql::{Forms, Sql};

/// Puts the operations of this process that come together into one statement, each with an answer of its own.
///
/// What comes while all of the lane's statements are on the wire waits, and goes with the next. A statement for many
/// never waits for a lock: what another transaction holds goes into a statement of its own, which does, so that one
/// open transaction stalls nobody but those who want its rows. No key comes twice in a statement.
///
/// Whoever asks may drop the question: what was sent goes on to its end, and what was not is not sent.
pub(crate) struct Lane<R: Request>(Arc<Shared<R>>);

struct Shared<R: Request> {
    link: Link,
    sql: Arc<Sql>,
    bell: Bell,
    /// How many statements for many may be on the wire.
    width: usize,
    /// The most items of one of them.
    most_items: usize,
    state: Mutex<State<R>>,
    /// Permits for statements of one item, which may wait for a lock.
    alone: Arc<Semaphore>,
}

struct State<R: Request> {
    queue: VecDeque<Item<R>>,
    /// How many tasks take from the queue.
    running: usize,
}

struct Item<R: Request> {
    request: R,
    until: Instant,
    stage: Arc<Stage>,
    answer: oneshot::Sender<Result<R::Answer, Failure>>,
}

/// Whether an item is on its way, so that whoever gives up on it knows what to say of its effect.
struct Stage(AtomicU8);

impl Stage {
    const WAITING: u8 = 0;
    const SENT: u8 = 1;
    const GIVEN_UP: u8 = 2;

    fn move_on(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The most that one search for items passes over, because their keys are in the statement already.
const MOST_PASSED_OVER: usize = 1024;
/// The most bytes of one statement, unless one item alone has more.
const MOST_BYTES: usize = 4 << 20;
/// How long a statement may wait for a lock before it makes room for another that waits.
const LOCK_TURN: Duration = Duration::from_millis(250);

impl<R: Request + Clone> Lane<R> {
    /// At most `width` statements of `most_items` items are on the wire.
    pub(crate) fn new(
        link: Link,
        sql: Arc<Sql>,
        bell: Bell,
        [width, most_items]: [usize; 2],
        alone: Arc<Semaphore>,
    ) -> Self {
        let state = Mutex::new(State { queue: VecDeque::new(), running: 0 });
        Self(Arc::new(Shared { link, sql, bell, width, most_items, state, alone }))
    }

    /// Asks, and waits for the answer until the deadline.
    pub(crate) async fn ask(&self, request: R) -> Result<R::Answer, Failure> {
        let until = self.0.link.until();
        let stage = Arc::new(Stage(AtomicU8::new(Stage::WAITING)));
        let (answer, answered) = oneshot::channel();
        self.0.enqueue(Item { request, until, stage: stage.clone(), answer });
        match timeout_at(until, answered).await {
            Ok(Ok(answer)) => answer,
            // The task is gone, and with it what it knew.
            Ok(Err(_)) if stage.move_on(Stage::WAITING, Stage::GIVEN_UP) => Err(Failure::no_connection()),
            Ok(Err(_)) => Err(Failure::abandoned()),
            Err(_) if stage.move_on(Stage::WAITING, Stage::GIVEN_UP) => Err(Failure::no_connection()),
            Err(_) => Err(self.0.link.no_answer()),
        }
    }

    /// Asks for all of them in one statement, but for keys that come twice: those go in the next.
    pub(crate) async fn ask_all(&self, requests: Vec<R>) -> Result<Vec<R::Answer>, Failure> {
        let until = self.0.link.until();
        let (shared, count) = (self.0.clone(), requests.len());
        // In a task, as a statement is not to be dropped midway.
        let task = tokio::spawn(async move {
            let mut gathered: Vec<Option<R::Answer>> = std::iter::repeat_with(|| None).take(count).collect();
            let mut left: Vec<(usize, R)> = requests.into_iter().enumerate().collect();
            let mut has_effect = false;
            while !left.is_empty() {
                let mut keys = HashSet::new();
                let (now, later): (Vec<_>, Vec<_>) =
                    left.into_iter().partition(|(_, request)| keys.insert(request.key().clone()));
                left = later;
                shared
                    .round(now, until, &mut gathered, &mut has_effect)
                    .await
                    .map_err(|failure| if has_effect { failure.after_an_effect() } else { failure })?;
            }
            gathered.into_iter().map(|answer| answer.ok_or_else(Failure::unexpected)).collect()
        });
        task.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }
}

impl<R: Request + Clone> Shared<R> {
    fn enqueue(self: &Arc<Self>, item: Item<R>) {
        let mut state = self.state();
        state.queue.push_back(item);
        if state.running < self.width {
            state.running += 1;
            drop(state);
            let runner = Runner { shared: self.clone(), counts: true };
            tokio::spawn(async move { runner.run().await });
        }
    }

    /// Takes the first items that are still wanted, one a key.
    fn take(&self) -> Vec<Item<R>> {
        let mut state = self.state();
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        let (mut keys, mut bytes) = (HashSet::new(), 0);
        while taken.len() < self.most_items && bytes < MOST_BYTES && kept.len() < MOST_PASSED_OVER {
            let Some(item) = state.queue.pop_front() else { break };
            if item.answer.is_closed() {
                continue;
            }
            if !keys.insert(item.request.key().clone()) {
                kept.push_back(item);
                continue;
            }
            bytes += item.request.weight();
            taken.push(item);
        }
        kept.append(&mut state.queue);
        state.queue = kept;
        // Marked last, and under the lock that a new item comes in by: who gives up after this is told of a doubt.
        taken.retain(|item| item.stage.move_on(Stage::WAITING, Stage::SENT));
        taken
    }

    /// One statement for several who asked by themselves.
    async fn send_batch(
        self: &Arc<Self>,
        connection: PoolConnection<Postgres>,
        batch: Vec<Item<R>>,
    ) -> Option<PoolConnection<Postgres>> {
        let until = batch.iter().map(|item| item.until).max().unwrap_or_else(Instant::now);
        let (result, connection) = {
            let requests: Vec<&R> = batch.iter().map(|item| &item.request).collect();
            let parameters = R::parameters(&requests, &self.sql);
            let (rows, connection) = self.link.send(connection, self.without_wait(&requests), parameters, until).await;
            (rows.and_then(|rows| answers::<R>(&rows, &requests)), connection)
        };
        match result {
            Ok(answers) => {
                for (item, answer) in batch.into_iter().zip(answers) {
                    match answer {
                        Some(answer) => self.deliver(item, Ok(answer)),
                        None => self.send_alone(item),
                    }
                }
            }
            // What one of them did to the statement must not fail the others.
            Err(failure) if failure.is_without_effect() && (batch.len() > 1 || failure.is_contention()) => {
                batch.into_iter().for_each(|item| self.send_alone(item));
            }
            Err(failure) => batch.into_iter().for_each(|item| self.deliver(item, Err(failure.clone()))),
        }
        connection
    }

    /// Sends an item that is in somebody's way by itself. Nothing of it was applied so far.
    fn send_alone(self: &Arc<Self>, item: Item<R>) {
        if !item.stage.move_on(Stage::SENT, Stage::WAITING) {
            return;
        }
        let shared = self.clone();
        tokio::spawn(async move {
            let stage = item.stage.clone();
            let may_send = || !item.answer.is_closed() && stage.move_on(Stage::WAITING, Stage::SENT);
            let answer = shared.alone(&item.request, item.until, may_send, || {
                stage.move_on(Stage::SENT, Stage::WAITING);
            });
            if let Some(answer) = answer.await {
                shared.deliver(item, answer);
            }
        });
    }

    /// Repeats the statement for one item until it has an answer. Nothing if it is no longer to be sent.
    async fn alone(
        &self,
        request: &R,
        until: Instant,
        may_send: impl Fn() -> bool,
        was_not_applied: impl Fn(),
    ) -> Option<Result<R::Answer, Failure>> {
        let Forms { alone, .. } = R::statement(&self.sql);
        loop {
            let Ok(permit) = timeout_at(until, self.alone.acquire()).await else {
                return Some(Err(Failure::locked_out()));
            };
            let connection = match self.link.connection(until).await {
                Ok(connection) => connection,
                Err(failure) => return Some(Err(failure)),
            };
            // Some of the time is kept back, so that it is the server that gives up, and says that nothing was done.
            let kept_back = self.link.deadline() / 10;
            let wait = until.saturating_duration_since(Instant::now()).saturating_sub(kept_back).min(LOCK_TURN);
            if wait < Duration::from_millis(1) {
                return Some(Err(Failure::locked_out()));
            }
            let parameters = R::parameters(&[request], &self.sql).text(format!("{}ms", wait.as_millis()));
            if !may_send() {
                return None;
            }
            let (rows, _) = self.link.send(connection, alone, parameters, until).await;
            drop(permit);
            match rows.and_then(|rows| answers::<R>(&rows, &[request])).map(|mut answers| answers.pop().flatten()) {
                Ok(Some(answer)) => return Some(Ok(answer)),
                Ok(None) => was_not_applied(),
                Err(failure) if failure.is_contention() => was_not_applied(),
                Err(failure) => return Some(Err(failure)),
            }
        }
    }

    /// One statement for the caller of a batch, and one more for each of its items that was locked.
    async fn round(
        self: &Arc<Self>,
        items: Vec<(usize, R)>,
        until: Instant,
        gathered: &mut [Option<R::Answer>],
        has_effect: &mut bool,
    ) -> Result<(), Failure> {
        let requests: Vec<&R> = items.iter().map(|(_, request)| request).collect();
        let parameters = R::parameters(&requests, &self.sql);
        let connection = self.link.connection(until).await?;
        let (rows, connection) = self.link.send(connection, self.without_wait(&requests), parameters, until).await;
        drop(connection);
        let answers = answers::<R>(&rows?, &requests)?;
        *has_effect = true;
        for ((place, request), answer) in items.into_iter().zip(answers) {
            let answer = match answer {
                Some(answer) => answer,
                // Without a refusal there is always an answer.
                None => self.alone(&request, until, || true, || ()).await.ok_or_else(Failure::unexpected)??,
            };
            self.ring(&request, &answer);
            gathered[place] = Some(answer);
        }
        Ok(())
    }

    /// The statement for so many items that waits for no lock.
    fn without_wait(&self, requests: &[&R]) -> &Arc<str> {
        let Forms { many, one, .. } = R::statement(&self.sql);
        if requests.len() == 1 { one } else { many }
    }

    fn deliver(&self, item: Item<R>, answer: Result<R::Answer, Failure>) {
        if let Ok(answer) = &answer {
            self.ring(&item.request, answer);
        }
        // Whoever asked may be gone.
        let _ = item.answer.send(answer);
    }

    fn ring(&self, request: &R, answer: &R::Answer) {
        if request.is_change(answer) {
            self.bell.ring(request.key());
        }
    }
}

/// Empties the queue, and then ends. It counts as running until then, or until a runtime drops it midway.
struct Runner<R: Request> {
    shared: Arc<Shared<R>>,
    counts: bool,
}

impl<R: Request + Clone> Runner<R> {
    async fn run(mut self) {
        let mut kept = None;
        // The connection comes first: what queues meanwhile goes along, and what fails was surely not sent.
        while let Some(until) = self.next_deadline() {
            let connection = match kept.take() {
                Some(connection) => connection,
                None => match self.shared.link.connection(until).await {
                    Ok(connection) => connection,
                    Err(failure) => {
                        self.shared.fail_waiting(&failure);
                        continue;
                    }
                },
            };
            let batch = self.shared.take();
            kept = if batch.is_empty() { Some(connection) } else { self.shared.send_batch(connection, batch).await };
        }
    }

    /// Until when the next item can wait. With none it counts as running no more, in the same step: what comes in after
    /// that starts another.
    fn next_deadline(&mut self) -> Option<Instant> {
        let mut state = self.shared.state();
        let next = state.queue.front().map(|item| item.until);
        if next.is_none() {
            state.running -= 1;
            self.counts = false;
        }
        next
    }
}

impl<R: Request> Drop for Runner<R> {
    fn drop(&mut self) {
        if self.counts {
            self.shared.state().running -= 1;
        }
    }
}

impl<R: Request> Shared<R> {
    /// No connection could be had: those whose time is up hear it, and all do if there is no point in waiting.
    fn fail_waiting(&self, failure: &Failure) {
        let mut state = self.state();
        let now = Instant::now();
        let (failed, kept) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition::<VecDeque<_>, _>(|item| !failure.is_timeout() || item.until <= now || item.answer.is_closed());
        state.queue = kept;
        drop(state);
        for item in failed {
            let _ = item.answer.send(Err(failure.clone()));
        }
    }

    // Nothing panics under this lock.
    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
