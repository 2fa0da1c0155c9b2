mod table;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use leasehold_core::{Hint, HintHub, Hints, Key, KeyPrefix};
use redis::aio::MultiplexedConnection;
use redis::{Client, PushInfo, PushKind, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::table::{Change, Table, Topic};
use crate::config::Settings;
use crate::connection::{Call, Connection, connect};
use crate::error::{Failure, Fault};
use crate::layout::Layout;

/// The hints of a store: one connection of its own for all that is listened for, made when somebody first listens.
///
/// The channel of a key is named as its entry. A task keeps what the connection is subscribed to the same as what is
/// listened for; whoever listens waits until that is so.
#[derive(Clone)]
pub(crate) struct Subscriptions(Arc<Shared>);

struct Shared {
    client: Client,
    settings: Settings,
    layout: Layout,
    database: String,
    hub: HintHub,
    table: Mutex<Table>,
    /// Whether there is a task. It changes to false under the table's lock, so that nobody is overlooked.
    is_served: AtomicBool,
    /// Rouses the task. Apart from the rest, which the task holds only while it works.
    wake: Arc<Notify>,
}

impl Subscriptions {
    /// How long the connection is kept after the last listener has gone.
    const LINGER: Duration = Duration::from_secs(30);
    /// How long a connection may be silent until it is asked whether it is still there.
    const HEARTBEAT: Duration = Duration::from_secs(15);

    pub(crate) fn new(client: Client, settings: Settings, layout: Layout, database: i64) -> Self {
        Self(Arc::new(Shared {
            client,
            settings,
            layout,
            database: database.to_string(),
            hub: HintHub::new(),
            table: Mutex::default(),
            is_served: AtomicBool::new(false),
            wake: Arc::default(),
        }))
    }

    pub(crate) async fn watch(&self, call: Call, key: &Key) -> Result<Hints, Fault> {
        let topic = Topic::Channel(self.0.layout.entry(key).into());
        self.listen(call, topic, self.0.hub.watch(key)).await
    }

    pub(crate) async fn watch_prefix(&self, call: Call, prefix: &KeyPrefix) -> Result<Hints, Fault> {
        let topic = Topic::Pattern(self.0.layout.pattern(prefix).into());
        self.listen(call, topic, self.0.hub.watch_prefix(prefix)).await
    }

    async fn listen(&self, call: Call, topic: Topic, hints: Hints) -> Result<Hints, Fault> {
        self.0.table().join(&topic);
        let listener = Listener { hints, subscriptions: self.clone(), topic };
        loop {
            let asked = self.0.table().ask(&listener.topic);
            let Some(answered) = asked else { return Ok(Hints::new(listener)) };
            self.be_served();
            self.0.wake.notify_one();
            match timeout_at(call.deadline, answered).await {
                Ok(Ok(answer)) => return answer.map(|()| Hints::new(listener)),
                // The task has ended with its runtime. If that is ours too, it must get to end us.
                Ok(Err(_)) => yield_now().await,
                Err(_) => return Err(self.0.table().fault(&listener.topic)),
            }
        }
    }

    /// Sees to it that there is a task, and begins one on this runtime if there is none.
    fn be_served(&self) {
        if self.0.is_served.load(Ordering::Acquire) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.0.is_served.swap(true, Ordering::AcqRel) {
            return;
        }
        // Made before the task, which a runtime that ends drops before its first step.
        let served = Served(Arc::downgrade(&self.0));
        runtime.spawn(serve(served, self.0.wake.clone()));
    }
}

/// Who listens to a topic. It stops when it is dropped, also midway through the wait for the server.
struct Listener {
    hints: Hints,
    subscriptions: Subscriptions,
    topic: Topic,
}

impl Stream for Listener {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let hint = Pin::new(&mut self.hints).poll_next(cx);
        if hint.is_pending() {
            // The task may have ended with a runtime of somebody else's; then it has woken us.
            self.subscriptions.be_served();
        }
        hint
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.subscriptions.0.table().leave(&self.topic);
        self.subscriptions.0.wake.notify_one();
    }
}

/// Keeps the subscriptions as they are wanted, until nobody has wanted any for a while.
async fn serve(mut served: Served, wake: Arc<Notify>) {
    let mut link: Option<Link> = None;
    let mut failed = 0;
    loop {
        let Some(alive) = served.0.upgrade() else { return };
        if link.as_ref().is_some_and(Link::is_over) {
            link = None;
            alive.table().lost();
        }
        if let Err(failure) = alive.reconcile(&mut link).await {
            link = None;
            failed += 1;
            alive.fail(failure);
            drop(alive);
            sleep(Connection::pause(failed)).await;
            continue;
        }
        failed = 0;
        let next = alive.next_turn(link.as_ref());
        drop(alive);
        if timeout_at(next, wake.notified()).await.is_ok() {
            continue;
        }
        let Some(alive) = served.0.upgrade() else { return };
        if alive.stop_if_unwanted() {
            served.0 = Weak::new();
            return;
        }
    }
}

/// Says that the task is gone when it ended with its runtime, however far it had come.
struct Served(Weak<Shared>);

impl Drop for Served {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let askers = {
            let mut table = shared.table();
            table.lost();
            shared.is_served.store(false, Ordering::Release);
            table.askers()
        };
        // Those who are waiting ask again, and those who listen look again for a task: they may be of another runtime.
        drop(askers);
        shared.hub.anything();
    }
}

/// The connection.
struct Link {
    connection: MultiplexedConnection,
    /// When it last answered.
    answered: Instant,
    is_over: Arc<AtomicBool>,
}

impl Link {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Tells the server of changes. Each is a command of its own, as the server refuses a command as a whole.
    fn tell(&self, changes: Vec<Change>) -> JoinSet<(Change, RedisResult<()>)> {
        let told = changes.into_iter().map(|change| {
            let mut connection = self.connection.clone();
            async move {
                let answer = match (&change.topic, change.is_wanted) {
                    (Topic::Channel(name), true) => connection.subscribe(&name[..]).await,
                    (Topic::Channel(name), false) => connection.unsubscribe(&name[..]).await,
                    (Topic::Pattern(name), true) => connection.psubscribe(&name[..]).await,
                    (Topic::Pattern(name), false) => connection.punsubscribe(&name[..]).await,
                };
                (change, answer)
            }
        });
        told.collect()
    }

    /// Asks whether it is still there, if it has been silent for long.
    async fn keep_up(&mut self, settings: &Settings) -> Result<(), Failure> {
        if self.answered.elapsed() < Subscriptions::HEARTBEAT {
            return Ok(());
        }
        let ping = redis::cmd("PING");
        match timeout(settings.deadline, self.connection.send_packed_command(&ping)).await {
            Ok(Ok(_)) => {
                self.answered = Instant::now();
                Ok(())
            }
            Ok(Err(error)) => Err(Failure::of(&error)),
            Err(_) => Err(Failure::SILENT),
        }
    }
}

impl Shared {
    /// Subscribes to what is wanted and not subscribed to yet, and the other way round.
    ///
    /// What changes meanwhile is left to the next time, so that those who come and go hold up neither the hint that
    /// hints may be missing nor the question whether the connection is still there.
    async fn reconcile(&self, link: &mut Option<Link>) -> Result<(), Failure> {
        let changes = self.table().changes(Instant::now());
        let open = match link {
            Some(open) if changes.is_empty() => return open.keep_up(&self.settings).await,
            Some(open) => open,
            None if changes.is_empty() => return Ok(()),
            None => link.insert(self.connect().await?),
        };
        let mut some_are_deaf = false;
        let mut told = open.tell(changes);
        while let Some(answered) =
            timeout(self.settings.deadline, told.join_next()).await.map_err(|_| Failure::SILENT)?
        {
            // One that was stopped was stopped with the runtime, which stops this too.
            let (change, answer) = answered.map_err(|_| Failure::SILENT)?;
            let refusal = match answer {
                Ok(()) => None,
                Err(error) => Some(Failure::refusal(&error).ok_or_else(|| Failure::of(&error))?),
            };
            open.answered = Instant::now();
            if let Some(refusal) = &refusal {
                tracing::debug!(%refusal, "the server refused a subscription");
            }
            let settled = self.table().settle(&change, refusal);
            some_are_deaf |= settled.tell();
        }
        if some_are_deaf {
            // Told after the new subscriptions, so that nothing falls in between.
            self.hub.anything();
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Link, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, wake, hub) = (is_over.clone(), self.wake.clone(), self.hub.clone());
        let (layout, database) = (self.layout.clone(), self.database.clone());
        let pushes = move |push: PushInfo| -> Result<(), ()> {
            let published = match (&push.kind, push.data.as_slice()) {
                (PushKind::Disconnection, _) => {
                    over.store(true, Ordering::Release);
                    wake.notify_one();
                    None
                }
                (PushKind::Message, [Value::BulkString(channel), message])
                | (PushKind::PMessage, [_, Value::BulkString(channel), message]) => Some((channel, message)),
                _ => None,
            };
            if let Some((channel, Value::BulkString(message))) = published
                && *message == database.as_bytes()
                && let Some(key) = layout.key(channel)
            {
                hub.changed(&key);
            }
            Ok(())
        };
        let connection = connect(&self.client, &self.settings, pushes).await?;
        self.table().connected();
        Ok(Link { connection, answered: Instant::now(), is_over })
    }

    fn fail(&self, failure: Failure) {
        tracing::debug!(%failure, "no hints come from the server for now");
        let failed = self.table().fail(failure);
        failed.tell();
    }

    /// When there is something to do though nothing changes.
    fn next_turn(&self, link: Option<&Link>) -> Instant {
        let now = Instant::now();
        let table = self.table();
        if table.is_unwanted() {
            return now + Subscriptions::LINGER;
        }
        let heartbeat = link.map_or(now, |open| open.answered) + Subscriptions::HEARTBEAT;
        table.retry_at().map_or(heartbeat, |retry_at| retry_at.min(heartbeat))
    }

    /// Whether nobody listens; the task is then as good as gone.
    fn stop_if_unwanted(&self) -> bool {
        let mut table = self.table();
        let is_unwanted = table.is_unwanted();
        if is_unwanted {
            table.lost();
            self.is_served.store(false, Ordering::Release);
        }
        is_unwanted
    }

    // Nothing panics under this lock.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
