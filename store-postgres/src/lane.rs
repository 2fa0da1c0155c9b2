use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::hints::Bell;
use crate::link::Link;
use crate::request::{Request, answers};
use crate::sql::{Forms, Sql};
use crate::waiting::{Turn, Waiting};

/// Puts the operations of this process that come together into one statement, each with an answer of its own.
///
/// What comes while all of the lane's statements are on the wire waits, and goes with the next. A statement for many
/// never waits for a lock: what another transaction holds goes into a statement of its own, which does, so that one
/// open transaction stalls nobody but those who want its rows. Where there is no connection to wait with, it goes along
/// with the others every now and then. No key comes twice in a statement.
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
    /// For statements of one item, which may wait for a lock.
    waiting: Arc<Waiting>,
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
    /// The most items that it goes with, itself counted.
    together: usize,
    /// After it has met a lock.
    lock: Option<Lock>,
    answer: oneshot::Sender<Result<R::Answer, Failure>>,
}

/// What an item knows that has met a lock.
struct Lock {
    /// That those who want the same key wait behind it.
    _turn: Turn,
    /// How long it waits for a place before it goes along with the others again.
    pause: Duration,
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

/// The most items of one statement for a batch of one caller's. An insert holds a lock in a table that all of the
/// server's sessions share: there is room for some thousands, and several such statements run at the same time.
const MOST_OF_ONE_CALLER: usize = 256;
/// The most that one search for items passes over, because their keys are in the statement already.
const MOST_PASSED_OVER: usize = 1024;
/// The most bytes of one statement, unless one item alone has more.
const MOST_BYTES: usize = 4 << 20;
/// How long a statement may wait for a lock before it makes room for another that waits.
const LOCK_TURN: Duration = Duration::from_millis(250);
/// How soon what has met a lock goes along with others again when it finds no place to wait in.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// How long a connection is kept while there is something to ask, until others have their turn.
const KEPT_FOR: Duration = Duration::from_millis(100);

impl<R: Request + Clone> Lane<R> {
    /// At most `width` statements of `most_items` items are on the wire.
    pub(crate) fn new(
        link: Link,
        sql: Arc<Sql>,
        bell: Bell,
        [width, most_items]: [usize; 2],
        waiting: Arc<Waiting>,
    ) -> Self {
        let state = Mutex::new(State { queue: VecDeque::new(), running: 0 });
        Self(Arc::new(Shared { link, sql, bell, width, most_items, state, waiting }))
    }

    /// Asks, and waits for the answer until the deadline.
    pub(crate) async fn ask(&self, request: R) -> Result<R::Answer, Failure> {
        let (item, asked) = self.0.item(request, self.0.link.until());
        self.0.enqueue(item);
        asked.answer().await
    }

    /// Asks for all of them, in one statement if they are not too many and no key comes twice.
    pub(crate) async fn ask_all(&self, requests: Vec<R>) -> Result<Vec<R::Answer>, Failure> {
        let until = self.0.link.until();
        let shared = self.0.clone();
        // In a task, as a statement is not to be dropped midway.
        let task = tokio::spawn(async move {
            let mut gathered: Vec<Option<R::Answer>> = std::iter::repeat_with(|| None).take(requests.len()).collect();
            let mut left: VecDeque<(usize, R)> = requests.into_iter().enumerate().collect();
            let mut has_effect = false;
            while !left.is_empty() {
                let now = first(&mut left, MOST_OF_ONE_CALLER, |(_, request)| Some((request, MOST_OF_ONE_CALLER)));
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

/// Takes what goes in one statement: the first items that are still wanted, one a key. Of an item that is, `look` says what
/// it asks for and how many may go with it.
fn first<T, R: Request>(queue: &mut VecDeque<T>, most: usize, look: impl Fn(&T) -> Option<(&R, usize)>) -> Vec<T> {
    let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
    let (mut keys, mut bytes, mut most) = (HashSet::new(), 0, most);
    while taken.len() < most && bytes < MOST_BYTES && kept.len() < MOST_PASSED_OVER {
        let Some(item) = queue.pop_front() else { break };
        let Some((request, together)) = look(&item) else { continue };
        if taken.len() >= together || !keys.insert(request.key().clone()) {
            kept.push_back(item);
            continue;
        }
        most = most.min(together);
        bytes += request.weight();
        taken.push(item);
    }
    kept.append(queue);
    *queue = kept;
    taken
}

/// Waits for the answer to an item.
struct Asked<A> {
    stage: Arc<Stage>,
    answer: oneshot::Receiver<Result<A, Failure>>,
    until: Instant,
    deadline: Duration,
}

impl<A> Asked<A> {
    async fn answer(self) -> Result<A, Failure> {
        match timeout_at(self.until, self.answer).await {
            Ok(Ok(answer)) => answer,
            // The task is gone, and with it what it knew.
            Ok(Err(_)) if self.stage.move_on(Stage::WAITING, Stage::GIVEN_UP) => Err(Failure::no_connection()),
            Ok(Err(_)) => Err(Failure::abandoned()),
            Err(_) if self.stage.move_on(Stage::WAITING, Stage::GIVEN_UP) => Err(Failure::no_connection()),
            Err(_) => Err(Failure::no_answer(self.deadline)),
        }
    }
}

impl<R: Request + Clone> Shared<R> {
    fn item(&self, request: R, until: Instant) -> (Item<R>, Asked<R::Answer>) {
        let stage = Arc::new(Stage(AtomicU8::new(Stage::WAITING)));
        let (answer, answered) = oneshot::channel();
        let item = Item { request, until, stage: stage.clone(), together: self.most_items, lock: None, answer };
        (item, Asked { stage, answer: answered, until, deadline: self.link.deadline() })
    }

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

    /// Takes what goes in the next statement.
    fn take(&self) -> Vec<Item<R>> {
        let mut state = self.state();
        let mut taken = first(&mut state.queue, self.most_items, |item| {
            (!item.answer.is_closed()).then_some((&item.request, item.together))
        });
        // Marked last, and under the lock that a new item comes in by: who gives up after this is told of a doubt.
        taken.retain(|item| item.stage.move_on(Stage::WAITING, Stage::SENT));
        taken
    }

    /// Puts items back of which nothing was applied, to go before all others and with fewer.
    fn put_back(&self, items: Vec<Item<R>>, together: usize) {
        let mut state = self.state();
        for mut item in items.into_iter().rev() {
            item.together = together;
            if item.stage.move_on(Stage::SENT, Stage::WAITING) {
                state.queue.push_front(item);
            }
        }
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
            // What one of them did to the statement must not fail the others: which of them it was is found by halves.
            Err(failure) if failure.is_without_effect() && batch.len() > 1 => {
                let half = batch.len().div_ceil(2);
                self.put_back(batch, half);
            }
            Err(failure) if failure.is_contention() => batch.into_iter().for_each(|item| self.send_alone(item)),
            Err(failure) => batch.into_iter().for_each(|item| self.deliver(item, Err(failure.clone()))),
        }
        connection
    }

    /// Sends an item that has met a lock by itself. Nothing of it was applied so far.
    fn send_alone(self: &Arc<Self>, item: Item<R>) {
        if item.stage.move_on(Stage::SENT, Stage::WAITING) {
            let shared = self.clone();
            tokio::spawn(async move { shared.alone(item).await });
        }
    }

    /// Repeats the statement for one item until it has an answer, or is no longer to be sent.
    async fn alone(self: &Arc<Self>, mut item: Item<R>) {
        let Forms { alone, .. } = R::statement(&self.sql);
        // Some of the time is kept back, so that it is the server that gives up, and says that nothing was done.
        let until = item.until - self.link.deadline() / 10;
        let lock = match item.lock.take() {
            Some(lock) => Ok(lock),
            None => timeout_at(until, self.waiting.turn(item.request.key()))
                .await
                .map(|turn| Lock { _turn: turn, pause: FIRST_PAUSE }),
        };
        let Ok(mut lock) = lock else { return self.deliver(item, Err(Failure::locked_out())) };
        loop {
            let pause_ends = (Instant::now() + lock.pause).min(until);
            let place = match timeout_at(pause_ends, self.waiting.place()).await {
                Ok(place) => place,
                Err(_) if Instant::now() < until => {
                    lock.pause = (lock.pause * 2).min(LOCK_TURN);
                    item.lock = Some(lock);
                    return self.enqueue(item);
                }
                Err(_) => return self.deliver(item, Err(Failure::locked_out())),
            };
            let connection = match self.link.connection(item.until).await {
                Ok(connection) => connection,
                Err(failure) => return self.deliver(item, Err(failure)),
            };
            let wait = until.saturating_duration_since(Instant::now()).min(LOCK_TURN);
            if wait < Duration::from_millis(1) {
                return self.deliver(item, Err(Failure::locked_out()));
            }
            let parameters = R::parameters(&[&item.request], &self.sql).text(format!("{}ms", wait.as_millis()));
            if item.answer.is_closed() || !item.stage.move_on(Stage::WAITING, Stage::SENT) {
                return;
            }
            let (rows, _) = self.link.send(connection, alone, parameters, item.until).await;
            drop(place);
            let answer = rows.and_then(|rows| answers::<R>(&rows, &[&item.request]));
            match answer.map(|mut answers| answers.pop().flatten()) {
                Ok(Some(answer)) => return self.deliver(item, Ok(answer)),
                Err(failure) if !failure.is_contention() => return self.deliver(item, Err(failure)),
                // Not applied.
                Ok(None) | Err(_) => {
                    item.stage.move_on(Stage::SENT, Stage::WAITING);
                }
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
        let mut locked = Vec::new();
        for ((place, request), answer) in items.into_iter().zip(answers) {
            match answer {
                Some(answer) => {
                    self.ring(&request, &answer);
                    gathered[place] = Some(answer);
                }
                None => {
                    let (item, asked) = self.item(request, until);
                    let shared = self.clone();
                    tokio::spawn(async move { shared.alone(item).await });
                    locked.push((place, asked));
                }
            }
        }
        for (place, asked) in locked {
            gathered[place] = Some(asked.answer().await?);
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
        let mut kept: Option<(PoolConnection<Postgres>, Instant)> = None;
        // The connection comes first: what queues meanwhile goes along, and what fails was surely not sent.
        while let Some(until) = self.next_deadline() {
            let (connection, since) = match kept.take() {
                Some(kept) => kept,
                None => match self.shared.link.connection(until).await {
                    Ok(connection) => (connection, Instant::now()),
                    Err(failure) => {
                        self.shared.fail_waiting(&failure);
                        continue;
                    }
                },
            };
            let batch = self.shared.take();
            let connection =
                if batch.is_empty() { Some(connection) } else { self.shared.send_batch(connection, batch).await };
            // The pool gives connections in the order that they were asked for, and this one asks anew.
            kept = connection.filter(|_| since.elapsed() < KEPT_FOR).map(|connection| (connection, since));
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use leasehold_core::{Expiry, Key};

    use super::*;
    use crate::request::Write;

    fn queue(items: &[(&str, usize)]) -> VecDeque<Write> {
        let write = |(key, len): &(&str, usize)| {
            Write::set(&Key::new(*key).unwrap(), Bytes::from(vec![0; *len]), Expiry::Never)
        };
        items.iter().map(write).collect()
    }

    fn keys<'r>(requests: impl IntoIterator<Item = &'r Write>) -> String {
        requests.into_iter().map(|request| request.key().as_str()).collect()
    }

    #[test]
    fn a_statement_has_each_key_once_and_no_more_items_and_bytes_than_it_may() {
        let mut left = queue(&[("a", 1), ("a", 2), ("b", 1), ("c", 1), ("d", 1)]);
        let taken = first(&mut left, 3, |request| Some((request, 9)));
        assert_eq!((keys(&taken), keys(&left)), ("abc".to_owned(), "ad".to_owned()));
        assert!(left[0].weight() > taken[0].weight(), "in their order");

        let mut left = queue(&[("a", MOST_BYTES / 2), ("b", MOST_BYTES), ("c", 1)]);
        assert_eq!(keys(&first(&mut left, 9, |request| Some((request, 9)))), "ab");
        assert_eq!(keys(&left), "c");
    }

    #[test]
    fn what_goes_with_few_goes_with_no_more() {
        let mut left = queue(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let look = |request: &Write| match request.key().as_str() {
            "a" => None,
            "c" => Some(1),
            _ => Some(2),
        };
        let mut next = || keys(&first(&mut left, 9, |request| look(request).map(|together| (request, together))));
        assert_eq!([next(), next(), next()], ["bd", "c", ""]);
    }
}
