use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::error::Fault;
use crate::scripts::{Item, Scripts};

/// Sends together what is asked for at the same time.
///
/// Most of what a script costs is calling it, for the server and for this process. So while other calls are under way, a
/// call waits for as long as it takes the tasks that are ready to run, and those of one kind are sent as items of one
/// script. Nobody waits for an answer to another call before it is sent, and a call that is alone is sent as it is.
///
/// Items stay apart: each is a step of its own, with an answer or a refusal of its own. What they share is the fate of
/// the connection, as all calls on it do.
#[derive(Clone)]
pub(crate) struct Combiner(Arc<Shared>);

struct Shared {
    connection: Connection,
    scripts: Scripts,
    /// A Cluster takes no script on keys of several slots, so there each item is sent alone.
    is_spread: AtomicBool,
    under_way: AtomicUsize,
    gathering: Mutex<Gathering>,
}

#[derive(Default)]
struct Gathering {
    waiting: Vec<Waiting>,
    /// One of those who wait will send for all.
    is_led: bool,
}

struct Waiting {
    item: Item,
    answer: oneshot::Sender<Result<Value, Fault>>,
}

impl Combiner {
    /// How many items one script does, so that the server can turn to others soon.
    const ITEMS: usize = 64;
    /// How many bytes of items one script does, and above which an item is sent alone.
    const BYTES: usize = 16 * 1024;
    /// How many items wait for each other's answers.
    const TOGETHER: usize = 256;

    pub(crate) fn new(connection: Connection, scripts: Scripts) -> Self {
        Self(Arc::new(Shared {
            connection,
            scripts,
            is_spread: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            gathering: Mutex::default(),
        }))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Sends each item alone from now on.
    pub(crate) fn spread(&self) {
        self.0.is_spread.store(true, Ordering::Relaxed);
    }

    /// Does one item. The answer can be a server's error.
    pub(crate) async fn run(&self, item: Item) -> Result<Value, Fault> {
        let under_way = UnderWay::enter(&self.0.under_way);
        if under_way.is_alone || item.len() > Self::BYTES || self.0.is_spread.load(Ordering::Relaxed) {
            return self.run_alone(item).await;
        }
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut gathering = self.0.gathering();
            gathering.waiting.push(Waiting { item, answer });
            !std::mem::replace(&mut gathering.is_led, true)
        };
        if leads {
            // Whoever is ready to run now comes with what it has to ask.
            let lead = Lead(self);
            tokio::task::yield_now().await;
            drop(lead);
        }
        answered.await.unwrap_or(Err(Fault::Unsent))
    }

    /// Does many items in one round trip and in their order.
    pub(crate) async fn run_many(&self, items: Vec<Item>) -> Result<Vec<Value>, Fault> {
        let groups = self.groups(items);
        let mut answers = Vec::new();
        // The first carries the text, so that the server knows the hash when it comes to the others: one that did not
        // would do the later and not the earlier.
        for (group, answer) in groups.iter().zip(self.send(&groups, true).await?) {
            each_of(group.len(), answer, &mut answers);
        }
        Ok(answers)
    }

    async fn run_alone(&self, item: Item) -> Result<Value, Fault> {
        let groups = [vec![item]];
        let answer = self.send(&groups, false).await?.pop();
        let mut answers = Vec::with_capacity(1);
        each_of(1, answer.unwrap_or(Value::Nil), &mut answers);
        Ok(answers.swap_remove(0))
    }

    /// Sends what has been gathered, and hands out the answers.
    async fn run_gathered(self, mut gathered: Vec<Waiting>) {
        // Whoever has left meanwhile does not want it any more.
        gathered.retain(|waiting| !waiting.answer.is_closed());
        // Those of one kind are neighbours then. Nobody has an answer yet, so no order is lost.
        gathered.sort_by_key(|waiting| waiting.item.kind as usize);
        let (items, askers): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|Waiting { item, answer }| (item, answer)).unzip();
        let groups = self.groups(items);
        match self.send(&groups, false).await {
            Ok(answers) => {
                let mut apart = Vec::with_capacity(askers.len());
                for (group, answer) in groups.iter().zip(answers) {
                    each_of(group.len(), answer, &mut apart);
                }
                for (asker, answer) in askers.into_iter().zip(apart) {
                    let _ = asker.send(Ok(answer));
                }
            }
            Err(fault) => askers.into_iter().for_each(|asker| drop(asker.send(Err(fault.clone())))),
        }
    }

    /// Puts together neighbours that one script does.
    fn groups(&self, items: Vec<Item>) -> Vec<Vec<Item>> {
        let is_spread = self.0.is_spread.load(Ordering::Relaxed);
        let mut groups: Vec<Vec<Item>> = Vec::new();
        let mut bytes = 0;
        for item in items {
            bytes += item.len();
            let has_room = |group: &&mut Vec<Item>| {
                !is_spread && group[0].kind == item.kind && group.len() < Self::ITEMS && bytes <= Self::BYTES
            };
            match groups.last_mut().filter(has_room) {
                Some(group) => group.push(item),
                None => {
                    bytes = item.len();
                    groups.push(vec![item]);
                }
            }
        }
        groups
    }

    /// Sends groups in one round trip, and answers what each script answered. A server that does not know a script has
    /// done nothing, and is sent its text.
    async fn send(&self, groups: &[Vec<Item>], text_first: bool) -> Result<Vec<Value>, Fault> {
        let Shared { connection, scripts, .. } = &*self.0;
        let call = connection.begin();
        let commands = groups.iter().enumerate().map(|(place, group)| {
            let (kind, items) = (group[0].kind, group.iter());
            if text_first && place == 0 { scripts.by_text(kind, items) } else { scripts.by_hash(kind, items) }
        });
        let mut answers = connection.run_all(call, commands.collect()).await?;
        for (group, answer) in groups.iter().zip(&mut answers).filter(|(_, answer)| is_error(answer, "NOSCRIPT")) {
            *answer = connection.run(call, &scripts.by_text(group[0].kind, group.iter())).await?;
        }
        self.send_apart(groups, answers).await
    }

    /// Sends again, item by item, what a Cluster refused to do together.
    async fn send_apart(&self, groups: &[Vec<Item>], mut answers: Vec<Value>) -> Result<Vec<Value>, Fault> {
        let Shared { connection, scripts, .. } = &*self.0;
        for (group, answer) in groups.iter().zip(&mut answers) {
            if group.len() == 1 || !is_error(answer, "CROSSSLOT") {
                continue;
            }
            self.spread();
            let commands = group.iter().map(|item| scripts.by_text(item.kind, std::iter::once(item)));
            let mut apart = Vec::with_capacity(group.len());
            for answer in connection.run_all(connection.begin(), commands.collect()).await? {
                each_of(1, answer, &mut apart);
            }
            *answer = Value::Array(apart);
        }
        Ok(answers)
    }
}

/// Whoever sends for all who have gathered; also when it is dropped while they gather.
struct Lead<'c>(&'c Combiner);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut gathered = {
            let mut gathering = self.0.0.gathering();
            gathering.is_led = false;
            std::mem::take(&mut gathering.waiting)
        };
        // Without a runtime nobody is there to send, and those who wait are told that nothing was.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        while !gathered.is_empty() {
            let rest = gathered.split_off(gathered.len().min(Combiner::TOGETHER));
            runtime.spawn(self.0.clone().run_gathered(std::mem::replace(&mut gathered, rest)));
        }
    }
}

/// Counts the calls that are under way.
struct UnderWay<'c> {
    calls: &'c AtomicUsize,
    is_alone: bool,
}

impl<'c> UnderWay<'c> {
    fn enter(calls: &'c AtomicUsize) -> Self {
        let is_alone = calls.fetch_add(1, Ordering::Relaxed) == 0;
        Self { calls, is_alone }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    // Nothing panics under this lock.
    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the answer of a script apart: that of each item, or for each item the same refusal.
fn each_of(items: usize, answer: Value, answers: &mut Vec<Value>) {
    match answer {
        Value::Array(of_each) if of_each.len() == items => answers.extend(of_each),
        Value::ServerError(error) => answers.extend((0..items).map(|_| Value::ServerError(error.clone()))),
        // No answer of an item, which whoever asked finds out.
        _ => answers.extend((0..items).map(|_| Value::Okay)),
    }
}

fn is_error(answer: &Value, code: &str) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == code)
}
