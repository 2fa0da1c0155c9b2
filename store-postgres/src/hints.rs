use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use leasehold_core::{Hint, HintHub, Hints, Key};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::Failure;
use crate::link::Link;
use crate::parameters::Parameters;
use crate::sql::Sql;

/// Tells of changes: who listens in this process at once, and other processes by `NOTIFY`.
///
/// A transaction that notifies takes a lock of the whole server at its commit, so no write does. What was changed is
/// told in a statement of its own afterwards, at most one at a time, with all that has come together meanwhile.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Shared>);

struct Shared {
    hub: HintHub,
    /// Nothing when hints are off.
    far: Option<Far>,
}

struct Far {
    link: Link,
    sql: Arc<Sql>,
    /// What marks the notices of this store, which has told its own listeners already.
    origin: String,
    pending: Mutex<Pending>,
    listener: Mutex<Option<Listener>>,
}

#[derive(Default)]
struct Pending {
    keys: HashSet<Key>,
    is_running: bool,
}

struct Listener {
    status: watch::Receiver<Status>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone)]
enum Status {
    Starting,
    Listening,
    Failed(Failure),
}

/// The time that changes gather for after one statement, so that a busy process commits few of them.
const GATHER: Duration = Duration::from_millis(5);
/// A notice must be shorter than 8,000 bytes.
const MOST_BYTES: usize = 7_900;
/// More notices than this at once say "anything" instead.
const MOST_NOTICES: usize = 32;
/// How often a silent connection is asked whether it still is one.
const PROBE: Duration = Duration::from_secs(5);

impl Bell {
    pub(crate) fn new(link: Link, sql: Arc<Sql>, hints: bool) -> Self {
        let far = hints.then(|| Far {
            link,
            sql,
            origin: format!("{:016x}", rand::random::<u64>()),
            pending: Mutex::default(),
            listener: Mutex::default(),
        });
        Self(Arc::new(Shared { hub: HintHub::new(), far }))
    }

    /// A key was replaced, removed or set.
    pub(crate) fn ring(&self, key: &Key) {
        self.0.hub.changed(key);
        let Some(far) = &self.0.far else { return };
        let mut pending = far.pending();
        pending.keys.insert(key.clone());
        if !std::mem::replace(&mut pending.is_running, true) {
            drop(pending);
            let teller = Teller { shared: self.0.clone(), counts: true };
            tokio::spawn(async move { teller.run().await });
        }
    }

    /// Hands out the hints of `topic` once the server has confirmed that it tells this store; nothing with hints off.
    pub(crate) async fn listen(
        &self,
        topic: impl FnOnce(&HintHub) -> Hints,
        until: Instant,
    ) -> Option<Result<Hints, Failure>> {
        let far = self.0.far.as_ref()?;
        // Listened for here first, or what changes right after the confirmation could be missed.
        let hints = topic(&self.0.hub);
        let mut status = far.listen(&self.0.hub);
        let confirmed = status.wait_for(|status| !matches!(status, Status::Starting));
        let failed = match timeout_at(until, confirmed).await {
            Ok(Ok(status)) => match &*status {
                Status::Failed(failure) => Some(failure.clone()),
                Status::Listening | Status::Starting => None,
            },
            Ok(Err(_)) => Some(Failure::abandoned()),
            Err(_) => Some(Failure::no_connection()),
        };
        Some(match failed {
            None => Ok(Hints::new(Kept { hints, _listener: status })),
            Some(failure) => Err(failure),
        })
    }
}

impl Far {
    /// Sees to it that there is a task that listens. It ends when nobody has its status any more.
    fn listen(&self, hub: &HintHub) -> watch::Receiver<Status> {
        // Nothing panics under this lock.
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        // The task is gone if the runtime is that it was started in.
        if let Some(Listener { status, task }) = &*listener
            && !task.is_finished()
        {
            return status.clone();
        }
        let (status, receiver) = watch::channel(Status::Starting);
        let ear = Ear { link: self.link.clone(), sql: self.sql.clone(), origin: self.origin.clone(), hub: hub.clone() };
        let task = tokio::spawn(async move {
            tokio::select! {
                () = ear.run(&status) => {}
                () = status.closed() => {}
            }
        });
        *listener = Some(Listener { status: receiver.clone(), task });
        receiver
    }

    // Nothing panics under this lock.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells other processes until there is nothing left to tell.
struct Teller {
    shared: Arc<Shared>,
    counts: bool,
}

impl Teller {
    async fn run(mut self) {
        while let Some(keys) = self.next() {
            let Some(far) = &self.shared.far else { return };
            let notices = notices(&far.origin, keys);
            let parameters = Parameters::default().text(&far.sql.channel).many_texts(notices);
            let told = far.link.rows(&far.sql.notify, parameters, far.link.until()).await.err();
            if let Some(failure) = told {
                // A hint may be lost; whoever waits for it asks again by himself.
                tracing::debug!(error = %failure.into_error("notify"), "hints were not told");
            }
            sleep(GATHER).await;
        }
    }

    fn next(&mut self) -> Option<HashSet<Key>> {
        let mut pending = self.shared.far.as_ref()?.pending();
        if pending.keys.is_empty() {
            pending.is_running = false;
            self.counts = false;
            return None;
        }
        Some(std::mem::take(&mut pending.keys))
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let (true, Some(far)) = (self.counts, &self.shared.far) {
            far.pending().is_running = false;
        }
    }
}

/// Keys by the line, as no key has a line feed, after a line that says who tells. No key at all is "anything".
fn notices(origin: &str, keys: HashSet<Key>) -> Vec<String> {
    let mut notices = vec![origin.to_owned()];
    for key in keys {
        let last = notices.len() - 1;
        let notice = &mut notices[last];
        if notice.len() + 1 + key.as_str().len() <= MOST_BYTES {
            notice.push('\n');
            notice.push_str(key.as_str());
        } else if notices.len() < MOST_NOTICES {
            notices.push(format!("{origin}\n{}", key.as_str()));
        } else {
            return vec![origin.to_owned()];
        }
    }
    notices
}

/// Hears what other processes tell, on a connection of its own.
struct Ear {
    link: Link,
    sql: Arc<Sql>,
    origin: String,
    hub: HintHub,
}

impl Ear {
    async fn run(&self, status: &watch::Sender<Status>) {
        const LONGEST_PAUSE: Duration = Duration::from_secs(2);
        let mut pause = Duration::from_millis(20);
        let mut is_first = true;
        loop {
            match self.connect().await {
                Ok(mut listener) => {
                    status.send_replace(Status::Listening);
                    if !std::mem::take(&mut is_first) {
                        self.hub.anything();
                    }
                    pause = Duration::from_millis(20);
                    self.hear(&mut listener).await;
                    status.send_replace(Status::Starting);
                }
                Err(failure) => {
                    status.send_replace(Status::Failed(failure));
                }
            }
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<PgListener, Failure> {
        // The driver's listener wants a pool, and would take a connection of the callers' for good.
        let options = (*self.link.pool().connect_options()).clone();
        let pool =
            PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options);
        let connect = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // It is this task that connects again, as it has to tell that it did.
            listener.eager_reconnect(false);
            listener.listen(&self.sql.channel).await?;
            Ok(listener)
        };
        self.link.connected(self.link.until(), connect).await
    }

    /// Until the connection breaks.
    async fn hear(&self, listener: &mut PgListener) {
        loop {
            match timeout(PROBE, listener.try_recv()).await {
                Ok(Ok(Some(notice))) => self.tell(notice.payload()),
                Ok(Ok(None) | Err(_)) => return,
                Err(_) => match timeout(PROBE, sqlx::query("SELECT 1").execute(&mut *listener)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => return,
                },
            }
        }
    }

    fn tell(&self, notice: &str) {
        let mut lines = notice.split('\n');
        if lines.next() == Some(&self.origin) {
            return;
        }
        let mut keys = lines.map(Key::from_store).peekable();
        if keys.peek().is_none() {
            self.hub.anything();
        }
        keys.flatten().for_each(|key| self.hub.changed(&key));
    }
}

/// Hints that keep their listener at work, also when the store is gone.
struct Kept {
    hints: Hints,
    _listener: watch::Receiver<Status>,
}

impl Stream for Kept {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        Pin::new(&mut self.hints).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> HashSet<Key> {
        (0..count).map(|number| Key::new(format!("{number:0>500}")).unwrap()).collect()
    }

    #[test]
    fn notices_are_short_and_hold_every_key_or_say_anything() {
        let told = notices("me", keys(100));
        assert!(told.len() > 1 && told.iter().all(|notice| notice.len() <= MOST_BYTES && notice.starts_with("me\n")));
        assert_eq!(told.iter().map(|notice| notice.lines().count() - 1).sum::<usize>(), 100);
        assert_eq!(notices("me", keys(1000)), ["me"]);
    }
}
