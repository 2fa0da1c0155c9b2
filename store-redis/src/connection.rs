use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::config::Settings;
use crate::error::{Failure, Fault};

/// The way to one server: one connection that all callers share, and that is replaced when it fails.
///
/// Nothing is ever sent twice here. A connection is replaced as soon as it breaks, when it stops answering, and when the
/// server has become a replica; all who wait for the next one wait for the same attempt, and only while somebody waits are
/// there further ones.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

/// A call on its way: the moment by which it is answered or given up, whatever it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) deadline: Instant,
    limit: Duration,
}

struct Shared {
    /// What connections are made of; none where somebody else made the one there is.
    client: Option<Client>,
    settings: Settings,
    state: watch::Sender<State>,
    /// How many attempts to connect have failed so far.
    failures: AtomicU64,
    /// How many sessions there have been.
    sessions: AtomicU64,
}

enum State {
    Up(Session),
    Down(Outage),
}

/// One connection for as long as it works.
#[derive(Clone)]
struct Session {
    connection: MultiplexedConnection,
    health: Arc<Health>,
}

struct Health {
    number: u64,
    began: Instant,
    /// The driver has said that it is over.
    is_over: AtomicBool,
    answers: AtomicU64,
    timeouts_in_a_row: AtomicU32,
    /// Until when nobody else asks whether it is still there, in milliseconds since it began.
    is_asked_until: AtomicU64,
}

struct Outage {
    since: Instant,
    /// How many attempts in a row have failed.
    failed: u32,
    /// No attempt begins before.
    not_before: Instant,
    /// By when the attempt that is under way has ended, if its runtime is driven; else it is no reason to wait.
    connecting: Option<Instant>,
    last: Option<Failure>,
}

impl Connection {
    /// How many timeouts in a row end a connection that still answers others.
    const TIMEOUTS_IN_A_ROW: u32 = 3;
    const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    /// How long a connection to a replica is kept at least.
    const REPLICA_AT_LEAST: Duration = Duration::from_secs(1);
    /// The driver's queue. Beyond it callers wait for each other before the link does.
    const QUEUE: usize = 512;

    /// Connects: one attempt.
    pub(crate) async fn open(client: Client, settings: Settings) -> Result<Self, Failure> {
        let shared = Shared {
            client: Some(client),
            settings,
            state: watch::Sender::new(State::Down(Outage::begin())),
            failures: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
        };
        let this = Self(Arc::new(shared));
        let session = this.connect().await?;
        this.0.state.send_replace(State::Up(session));
        Ok(this)
    }

    /// Takes a connection that somebody else made.
    pub(crate) fn given(connection: MultiplexedConnection, settings: Settings) -> Self {
        let session = Session { connection, health: Arc::new(Health::new(0)) };
        Self(Arc::new(Shared {
            client: None,
            settings,
            state: watch::Sender::new(State::Up(session)),
            failures: AtomicU64::new(0),
            sessions: AtomicU64::new(1),
        }))
    }

    /// The client, where there is one to make further connections of.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.0.client.as_ref()
    }

    pub(crate) fn begin(&self) -> Call {
        let limit = self.0.settings.deadline;
        Call { deadline: Instant::now() + limit, limit }
    }

    /// Sends a command and waits for its answer, which can be a server's error.
    pub(crate) async fn run(&self, call: Call, command: &Cmd) -> Result<Value, Fault> {
        let Session { mut connection, health } = self.session(call).await?;
        self.answer(call, &health, connection.send_packed_command(command)).await
    }

    /// Sends commands at once and waits for all their answers, each of which can be a server's error.
    pub(crate) async fn run_all(&self, call: Call, commands: Vec<Cmd>) -> Result<Vec<Value>, Fault> {
        match commands.as_slice() {
            [] => Ok(Vec::new()),
            [command] => Ok(vec![self.run(call, command).await?]),
            _ => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command);
                }
                let Session { mut connection, health } = self.session(call).await?;
                self.answer(call, &health, connection.send_packed_commands(&pipeline, 0, pipeline.len())).await
            }
        }
    }

    async fn answer<T: Answer>(
        &self,
        call: Call,
        health: &Health,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Fault> {
        let sent = Instant::now();
        let answers = health.answers.load(Ordering::Relaxed);
        let unanswered = Unanswered { connection: self, health, limit: call.limit, sent, answers };
        let answered = timeout_at(call.deadline, answer).await;
        unanswered.call_off();
        match answered {
            Ok(Ok(answer)) => {
                health.answers.fetch_add(1, Ordering::Relaxed);
                health.timeouts_in_a_row.store(0, Ordering::Relaxed);
                if answer.is_of_a_replica() {
                    self.leave_replica(health);
                }
                Ok(answer)
            }
            Ok(Err(error)) => {
                self.replace(health.number);
                Err(Fault::Broken(Failure::of(&error)))
            }
            Err(_) => {
                let in_a_row = 1 + health.timeouts_in_a_row.fetch_add(1, Ordering::Relaxed);
                // Answers come in the order of the requests: if none has come since this one was sent, none comes to
                // those behind it. What was sent late in its deadline proves nothing.
                let is_silent = health.answers.load(Ordering::Relaxed) == answers && sent.elapsed() >= call.limit / 2;
                if is_silent || in_a_row >= Self::TIMEOUTS_IN_A_ROW {
                    self.replace(health.number);
                }
                Err(Fault::TimedOut(call.limit))
            }
        }
    }

    /// Gives up a connection to a server that has become a replica, as the address may lead to its primary by now. One
    /// that is as new as that led to a replica again, and the next would too.
    fn leave_replica(&self, health: &Health) {
        if self.0.client.is_some() && health.began.elapsed() >= Self::REPLICA_AT_LEAST {
            tracing::debug!("the server answers as a replica");
            self.replace(health.number);
        }
    }

    /// Asks a connection whether it is still there, for somebody who has stopped waiting for it: whoever does so before
    /// the deadline would never find out that it is not.
    fn ask(&self, number: u64, sent: Instant, limit: Duration) {
        if self.0.client.is_none() {
            // There would be no other.
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(Session { mut connection, health }) = self.in_use(number) else { return };
        if !health.begin_to_ask(limit) {
            return;
        }
        let this = self.clone();
        runtime.spawn(async move {
            // As late as the call would have found out, and late enough to prove something.
            let deadline = (sent + limit).max(Instant::now() + limit / 2);
            let ping = redis::cmd("PING");
            if this.answer(Call { deadline, limit }, &health, connection.send_packed_command(&ping)).await.is_ok() {
                health.is_asked_until.store(0, Ordering::Relaxed);
            }
        });
    }

    /// A connection by its number, if it is still the one in use.
    fn in_use(&self, number: u64) -> Option<Session> {
        match &*self.0.state.borrow() {
            State::Up(session) if session.health.number == number => Some(session.clone()),
            _ => None,
        }
    }

    /// The connection, as soon as there is one.
    ///
    /// In an outage that has just begun a call waits until its deadline. In one that has lasted longer than a deadline
    /// it waits for the next attempt alone, so that callers are not all held up for the whole time.
    async fn session(&self, call: Call) -> Result<Session, Fault> {
        if let State::Up(session) = &*self.0.state.borrow() {
            return Ok(session.clone());
        }
        let mut states = self.0.state.subscribe();
        let failures = self.0.failures.load(Ordering::Acquire);
        loop {
            self.attempt();
            let last = match &*states.borrow_and_update() {
                State::Up(session) => return Ok(session.clone()),
                State::Down(outage) => {
                    let is_final = outage.last.as_ref().is_some_and(Failure::is_final);
                    if self.0.failures.load(Ordering::Acquire) > failures
                        && (is_final || outage.since.elapsed() >= call.limit)
                    {
                        return Err(Fault::Unreachable(outage.last.clone()));
                    }
                    outage.last.clone()
                }
            };
            // The sender lives in `self`, so only the time can end this wait.
            if timeout_at(call.deadline, states.changed()).await.is_err() {
                return Err(Fault::Unreachable(last));
            }
        }
    }

    /// Begins an attempt to connect, unless there is a connection or an attempt already.
    fn attempt(&self) {
        let mut begins = None;
        self.0.state.send_if_modified(|state| {
            let now = Instant::now();
            if let State::Down(outage) = state
                && outage.connecting.is_none_or(|until| until < now)
            {
                let until = outage.not_before.max(now) + self.0.settings.connect_timeout + Self::LONGEST_PAUSE;
                outage.connecting = Some(until);
                begins = Some((outage.not_before, until));
            }
            false
        });
        let Some((not_before, until)) = begins else { return };
        let attempt = Attempt { connection: self.clone(), until };
        tokio::spawn(async move {
            sleep_until(not_before).await;
            let connected = attempt.connection.connect().await;
            attempt.connection.settle(connected);
        });
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let Some(client) = &self.0.client else { return Err(Failure::CLOSED) };
        let health = Arc::new(Health::new(self.0.sessions.fetch_add(1, Ordering::Relaxed)));
        let (weak, of_session) = (Arc::downgrade(&self.0), health.clone());
        let pushes = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Disconnection {
                of_session.is_over.store(true, Ordering::Release);
                if let Some(shared) = Weak::upgrade(&weak) {
                    Self(shared).replace(of_session.number);
                }
            }
            Ok(())
        };
        let connection = connect(client, &self.0.settings, pushes).await?;
        Ok(Session { connection, health })
    }

    fn settle(&self, connected: Result<Session, Failure>) {
        match connected {
            Ok(session) => {
                let health = session.health.clone();
                // An attempt that others did not wait for comes too late.
                self.0.state.send_if_modified(|state| {
                    let is_down = matches!(state, State::Down(_));
                    if is_down {
                        *state = State::Up(session);
                    }
                    is_down
                });
                // It may have ended before there was anything to replace.
                if health.is_over.load(Ordering::Acquire) {
                    self.replace(health.number);
                }
            }
            Err(failure) => {
                self.0.failures.fetch_add(1, Ordering::AcqRel);
                tracing::debug!(%failure, "cannot connect to the server");
                self.0.state.send_modify(|state| {
                    if let State::Down(outage) = state {
                        outage.failed += 1;
                        outage.not_before = Instant::now() + Self::pause(outage.failed);
                        outage.last = Some(failure);
                    }
                });
            }
        }
    }

    /// Gives up a connection, if it is still the one in use, and begins to make the next.
    fn replace(&self, number: u64) {
        let replaced = self.0.state.send_if_modified(|state| {
            let is_in_use = matches!(state, State::Up(session) if session.health.number == number);
            if is_in_use {
                *state = State::Down(Outage::begin());
            }
            is_in_use
        });
        if replaced {
            tracing::debug!("the connection to the server is over, and is made anew");
            self.attempt();
        }
    }

    /// How long to pause after so many failures in a row: twice as long each time, and never in step with others.
    pub(crate) fn pause(failed: u32) -> Duration {
        let longest = Self::LONGEST_PAUSE.min(Self::SHORTEST_PAUSE * 2u32.saturating_pow(failed.min(16)));
        longest.mul_f64(rand::random_range(0.5..=1.0))
    }
}

/// Makes one connection; the driver's own limits and replays are off.
pub(crate) async fn connect(
    client: &Client,
    settings: &Settings,
    pushes: impl AsyncPushSender,
) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(Connection::QUEUE)
        .set_push_sender(pushes);
    match timeout(settings.connect_timeout, client.get_multiplexed_async_connection_with_config(&config)).await {
        Ok(connected) => connected.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::TIMED_OUT),
    }
}

/// An attempt to connect. However it ends, also with the runtime that ran it, the next one can begin.
struct Attempt {
    connection: Connection,
    until: Instant,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.connection.0.state.send_if_modified(|state| match state {
            State::Down(outage) if outage.connecting == Some(self.until) => {
                outage.connecting = None;
                true
            }
            // There is a connection, or another attempt.
            _ => false,
        });
    }
}

/// A call on its way. Dropped there, without an answer to anybody since it was sent, it has the connection asked.
struct Unanswered<'c> {
    connection: &'c Connection,
    health: &'c Health,
    limit: Duration,
    sent: Instant,
    /// How many answers there were when it was sent.
    answers: u64,
}

impl Unanswered<'_> {
    /// It has an answer, or its deadline is over.
    fn call_off(self) {
        // It holds nothing.
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.health.answers.load(Ordering::Relaxed) == self.answers {
            self.connection.ask(self.health.number, self.sent, self.limit);
        }
    }
}

/// What is found out about a server by what it answers.
trait Answer {
    /// Whether it says, or an item of it does, that the server is a replica: it refuses writes, or has lost its primary
    /// and refuses all.
    fn is_of_a_replica(&self) -> bool;
}

impl Answer for Value {
    fn is_of_a_replica(&self) -> bool {
        match self {
            Self::ServerError(error) => matches!(error.code(), "READONLY" | "MASTERDOWN"),
            Self::Array(items) => items.is_of_a_replica(),
            _ => false,
        }
    }
}

impl Answer for Vec<Value> {
    fn is_of_a_replica(&self) -> bool {
        self.iter().any(Value::is_of_a_replica)
    }
}

impl Health {
    fn new(number: u64) -> Self {
        Self {
            number,
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            timeouts_in_a_row: AtomicU32::new(0),
            is_asked_until: AtomicU64::new(0),
        }
    }

    /// Whether nobody asks for the moment. One who asks in a runtime that stands still is not waited for.
    fn begin_to_ask(&self, limit: Duration) -> bool {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let now = self.began.elapsed();
        let until = self.is_asked_until.load(Ordering::Relaxed);
        let (from, to) = (millis(now), millis(now + limit));
        until <= from && self.is_asked_until.compare_exchange(until, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Outage {
    fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, failed: 0, not_before: now, connecting: None, last: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_are_never_in_step() {
        for failed in 0..100 {
            let pause = Connection::pause(failed);
            assert!(pause <= Connection::LONGEST_PAUSE && pause >= Connection::SHORTEST_PAUSE / 2, "{pause:?}");
        }
        let pauses: Vec<_> = (0..20).map(|_| Connection::pause(40)).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        assert!(pauses.iter().all(|pause| *pause >= Connection::LONGEST_PAUSE / 2));
    }
}
