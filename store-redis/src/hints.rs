use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use leasehold_core::{Hint, HintHub, Hints, Key, KeyPrefix};
use redis::aio::MultiplexedConnection;
use redis::{Client, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout, timeout_at};

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
    /// The table has news for those who wait.
    news: watch::Sender<()>,
    /// Rouses the task. Apart from the rest, which the task holds only while it works.
    wake: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    /// How many listen to each topic.
    listeners: HashMap<Topic, usize>,
    /// What the server has confirmed, on the connection that there is.
    confirmed: HashSet<Topic>,
    /// How many attempts to get there have failed, and why the last one did.
    failures: u64,
    failure: Option<Failure>,
    is_served: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Topic {
    Channel(Vec<u8>),
    Pattern(Vec<u8>),
}

impl Subscriptions {
    /// How long the connection is kept after the last listener has gone.
    const LINGER: Duration = Duration::from_secs(30);
    /// How often a silent connection is asked whether it is still there.
    const HEARTBEAT: Duration = Duration::from_secs(15);

    pub(crate) fn new(client: Client, settings: Settings, layout: Layout, database: i64) -> Self {
        Self(Arc::new(Shared {
            client,
            settings,
            layout,
            database: database.to_string(),
            hub: HintHub::new(),
            table: Mutex::default(),
            news: watch::Sender::new(()),
            wake: Arc::default(),
        }))
    }

    pub(crate) async fn watch(&self, call: Call, key: &Key) -> Result<Hints, Fault> {
        let topic = Topic::Channel(self.0.layout.entry(key));
        self.listen(call, topic, self.0.hub.watch(key)).await
    }

    pub(crate) async fn watch_prefix(&self, call: Call, prefix: &KeyPrefix) -> Result<Hints, Fault> {
        let topic = Topic::Pattern(self.0.layout.pattern(prefix));
        self.listen(call, topic, self.0.hub.watch_prefix(prefix)).await
    }

    async fn listen(&self, call: Call, topic: Topic, hints: Hints) -> Result<Hints, Fault> {
        let listener = Listener { hints, subscriptions: self.clone(), topic };
        let mut news = self.0.news.subscribe();
        let failures = self.register(&listener.topic);
        loop {
            news.mark_unchanged();
            let failure = {
                let table = self.0.table();
                if table.confirmed.contains(&listener.topic) {
                    drop(table);
                    return Ok(Hints::new(listener));
                }
                // A failure from before has been told to those who waited then.
                table.failure.clone().filter(|_| table.failures > failures)
            };
            let is_final = failure.as_ref().is_some_and(Failure::is_final);
            // The sender lives in `self`, so only the time can end this wait.
            if is_final || timeout_at(call.deadline, news.changed()).await.is_err() {
                return Err(Fault::Unreachable(failure));
            }
        }
    }

    /// Counts a listener, and answers how many attempts had failed before it came.
    fn register(&self, topic: &Topic) -> u64 {
        let mut table = self.0.table();
        *table.listeners.entry(topic.clone()).or_default() += 1;
        if !std::mem::replace(&mut table.is_served, true) {
            tokio::spawn(serve(Arc::downgrade(&self.0), self.0.wake.clone()));
        }
        let failures = table.failures;
        drop(table);
        self.0.wake.notify_one();
        failures
    }

    fn unregister(&self, topic: &Topic) {
        let mut table = self.0.table();
        if let Some(listeners) = table.listeners.get_mut(topic) {
            *listeners -= 1;
            if *listeners == 0 {
                table.listeners.remove(topic);
            }
        }
        drop(table);
        self.0.wake.notify_one();
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
        Pin::new(&mut self.hints).poll_next(cx)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.subscriptions.unregister(&self.topic);
    }
}

/// Keeps the subscriptions as they are wanted, until nobody has wanted any for a while.
async fn serve(shared: Weak<Shared>, wake: Arc<Notify>) {
    let mut served = Served(shared.clone());
    let mut link = None;
    let mut was_lost = false;
    let mut failed = 0;
    loop {
        let Some(alive) = shared.upgrade() else { return };
        if link.as_ref().is_some_and(Link::is_over) {
            link = None;
            was_lost = true;
        }
        let reconciled = alive.reconcile(&mut link).await;
        let pause = match reconciled {
            Ok(()) => {
                failed = 0;
                if std::mem::take(&mut was_lost) {
                    // Told after the new subscriptions, so that nothing falls in between.
                    alive.hub.anything();
                }
                if alive.table().listeners.is_empty() { Subscriptions::LINGER } else { Subscriptions::HEARTBEAT }
            }
            Err(failure) => {
                was_lost |= link.take().is_some();
                failed += 1;
                alive.fail(failure);
                drop(alive);
                sleep(Connection::pause(failed)).await;
                continue;
            }
        };
        drop(alive);
        if timeout(pause, wake.notified()).await.is_ok() {
            continue;
        }
        let Some(alive) = shared.upgrade() else { return };
        if alive.stop_if_unwanted() {
            served.0 = Weak::new();
            return;
        }
        if let Some(open) = &mut link
            && !open.is_there(&alive.settings).await
        {
            link = None;
            was_lost = true;
        }
    }
}

/// Says that the task is gone when it ended with its runtime, so that the next listener begins another.
struct Served(Weak<Shared>);

impl Drop for Served {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut table = shared.table();
        table.is_served = false;
        table.confirmed.clear();
    }
}

/// The connection, and what it is subscribed to.
struct Link {
    connection: MultiplexedConnection,
    subscribed: HashSet<Topic>,
    is_over: Arc<AtomicBool>,
}

impl Link {
    /// How many topics one command names.
    const AT_ONCE: usize = 1000;

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Changes what it is subscribed to. It ends when the server has confirmed all of it.
    async fn change(
        &mut self,
        settings: &Settings,
        missing: Vec<Topic>,
        superfluous: Vec<Topic>,
    ) -> Result<(), Failure> {
        for topics in superfluous.chunks(Self::AT_ONCE) {
            let (channels, patterns) = names(topics);
            let connection = &mut self.connection;
            if !channels.is_empty() {
                confirmed(settings, connection.unsubscribe(channels)).await?;
            }
            if !patterns.is_empty() {
                confirmed(settings, connection.punsubscribe(patterns)).await?;
            }
            for topic in topics {
                self.subscribed.remove(topic);
            }
        }
        for topics in missing.chunks(Self::AT_ONCE) {
            let (channels, patterns) = names(topics);
            let connection = &mut self.connection;
            if !channels.is_empty() {
                confirmed(settings, connection.subscribe(channels)).await?;
            }
            if !patterns.is_empty() {
                confirmed(settings, connection.psubscribe(patterns)).await?;
            }
            self.subscribed.extend(topics.iter().cloned());
        }
        Ok(())
    }

    async fn is_there(&mut self, settings: &Settings) -> bool {
        let ping = redis::cmd("PING");
        matches!(timeout(settings.deadline, self.connection.send_packed_command(&ping)).await, Ok(Ok(_)))
    }
}

async fn confirmed(settings: &Settings, confirmation: impl Future<Output = RedisResult<()>>) -> Result<(), Failure> {
    match timeout(settings.deadline, confirmation).await {
        Ok(confirmed) => confirmed.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::TIMED_OUT),
    }
}

fn names(topics: &[Topic]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let (mut channels, mut patterns) = (Vec::new(), Vec::new());
    for topic in topics {
        match topic {
            Topic::Channel(name) => channels.push(name.as_slice()),
            Topic::Pattern(name) => patterns.push(name.as_slice()),
        }
    }
    (channels, patterns)
}

impl Shared {
    /// Subscribes to what is wanted and not subscribed to yet, and the other way round.
    async fn reconcile(&self, link: &mut Option<Link>) -> Result<(), Failure> {
        loop {
            let (missing, superfluous) = self.differences(link.as_ref());
            if missing.is_empty() && superfluous.is_empty() {
                return Ok(());
            }
            let open = match link {
                Some(open) => open,
                None => link.insert(self.connect().await?),
            };
            open.change(&self.settings, missing, superfluous).await?;
            self.confirm(open);
        }
    }

    /// What is wanted and not subscribed to, and the other way round. Neither counts as confirmed from here on, before
    /// the server is told: whoever comes meanwhile waits for a confirmation that is yet to come.
    fn differences(&self, link: Option<&Link>) -> (Vec<Topic>, Vec<Topic>) {
        let nothing = HashSet::new();
        let subscribed = link.map_or(&nothing, |open| &open.subscribed);
        let mut table = self.table();
        let Table { listeners, confirmed, .. } = &mut *table;
        confirmed.retain(|topic| subscribed.contains(topic) && listeners.contains_key(topic));
        let missing = listeners.keys().filter(|topic| !subscribed.contains(topic)).cloned().collect();
        let superfluous = subscribed.iter().filter(|topic| !listeners.contains_key(topic)).cloned().collect();
        (missing, superfluous)
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
        Ok(Link { connection, subscribed: HashSet::new(), is_over })
    }

    fn confirm(&self, open: &Link) {
        self.table().confirmed.clone_from(&open.subscribed);
        self.news.send_replace(());
    }

    fn fail(&self, failure: Failure) {
        tracing::debug!(%failure, "no hints come from the server for now");
        let mut table = self.table();
        table.confirmed.clear();
        table.failures += 1;
        table.failure = Some(failure);
        drop(table);
        self.news.send_replace(());
    }

    /// Whether nobody listens; the task is then as good as gone.
    fn stop_if_unwanted(&self) -> bool {
        let mut table = self.table();
        let is_unwanted = table.listeners.is_empty();
        table.is_served = !is_unwanted;
        is_unwanted
    }

    // Nothing panics under this lock.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
