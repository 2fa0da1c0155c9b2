use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::timeout;

use crate::connection::{Call, Connection};
use crate::error::Fault;
use crate::scripts::{Item, Scripts};

/// Sends together what is asked for at the same time.
///
/// Most of what a script costs is calling it, for the server and for this process. So there are a few lanes: while one
/// is free, a call is sent as it is; while none is, calls gather, and go out as items of one script for each kind when a
/// lane is free again, or after [`Combiner::PATIENCE`] in any case, as answers may be far away or not come at all.
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
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    busy: usize,
    gathered: Vec<Waiting>,
}

struct Waiting {
    item: Item,
    answer: oneshot::Sender<Answer>,
}

/// What becomes of an item that has gathered.
enum Answer {
    Sent(Result<Value, Fault>),
    /// There was nobody to send it, and its caller has it back.
    Unsent(Item),
}

impl Combiner {
    /// How many items one script does, so that the server can turn to others soon.
    const ITEMS: usize = 64;
    /// How many bytes of items one script does, and above which an item is sent alone.
    const BYTES: usize = 16 * 1024;
    /// How many items wait for each other's answers.
    const TOGETHER: usize = 256;
    /// How many lanes there are: the server does what one has sent while this process takes the other's answers apart.
    const LANES: usize = 2;
    /// How long calls gather at most.
    const PATIENCE: Duration = Duration::from_millis(5);

    pub(crate) fn new(connection: Connection, scripts: Scripts) -> Self {
        Self(Arc::new(Shared { connection, scripts, is_spread: AtomicBool::new(false), lanes: Mutex::default() }))
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
        if item.len() > Self::BYTES || self.0.is_spread.load(Ordering::Relaxed) {
            return self.run_alone(item).await;
        }
        let (is_first, mut answered) = match self.take_lane_or_gather(item) {
            Place::Lane(lane, item) => {
                let answer = self.run_alone(item).await;
                drop(lane);
                return answer;
            }
            Place::Gathered { is_first, answered } => (is_first, answered),
        };
        if is_first {
            // Whoever begins to gather sees to it that it ends, also by leaving.
            let patience = Patience(Some(self));
            let answer = timeout(Self::PATIENCE, &mut answered).await;
            if let Ok(answer) = answer {
                patience.call_off();
                return self.take(answer).await;
            }
        }
        self.take(answered.await).await
    }

    async fn take(&self, answer: Result<Answer, RecvError>) -> Result<Value, Fault> {
        match answer {
            Ok(Answer::Sent(answer)) => answer,
            Ok(Answer::Unsent(item)) => self.run_alone(item).await,
            Err(_) => Err(Fault::Abandoned),
        }
    }

    fn take_lane_or_gather(&self, item: Item) -> Place {
        let mut lanes = self.0.lanes();
        if lanes.busy < Self::LANES {
            return Place::Lane(self.lane(&mut lanes, true), item);
        }
        let (answer, answered) = oneshot::channel();
        lanes.gathered.push(Waiting { item, answer });
        Place::Gathered { is_first: lanes.gathered.len() == 1, answered }
    }

    /// Does many items in one round trip and in their order.
    pub(crate) async fn run_many(&self, items: Vec<Item>) -> Result<Vec<Value>, Fault> {
        let groups = self.groups(&items);
        let mut answers = Vec::with_capacity(items.len());
        // The first carries the text, so that the server knows the hash when it comes to the others: one that did not
        // would do the later and not the earlier.
        for (group, answer) in groups.iter().zip(self.send(&groups, true).await?) {
            each_of(group.len(), answer, &mut answers);
        }
        Ok(answers)
    }

    /// Sends one item. In a box, as it takes kilobytes that the future of a call that gathers must not have to carry.
    fn run_alone(&self, item: Item) -> Pin<Box<impl Future<Output = Result<Value, Fault>> + Send>> {
        Box::pin(async move {
            let answer = self.send(&[&[item]], false).await?.pop();
            let mut answers = Vec::with_capacity(1);
            each_of(1, answer.unwrap_or(Value::Nil), &mut answers);
            Ok(answers.swap_remove(0))
        })
    }

    /// Sends what has gathered, and what gathers meanwhile, and hands out the answers.
    async fn run_lane(self, mut lane: Lane) {
        lane.has_begun = true;
        loop {
            let (gathered, has_more) = {
                let mut lanes = self.0.lanes();
                // As many are likely to come again.
                let room = Vec::with_capacity(lanes.gathered.len());
                let mut gathered = std::mem::replace(&mut lanes.gathered, room);
                if gathered.len() > Self::TOGETHER {
                    lanes.gathered = gathered.split_off(Self::TOGETHER);
                }
                (gathered, !lanes.gathered.is_empty())
            };
            if gathered.is_empty() {
                return;
            }
            if has_more {
                self.open_lane();
            }
            self.run_gathered(gathered).await;
            // Those who have their answers come with their next calls first.
            tokio::task::yield_now().await;
        }
    }

    async fn run_gathered(&self, mut gathered: Vec<Waiting>) {
        // Whoever has left meanwhile does not want it any more.
        gathered.retain(|waiting| !waiting.answer.is_closed());
        // Those of one kind are neighbours then. Nobody has an answer yet, so no order is lost.
        gathered.sort_by_key(|waiting| waiting.item.kind as usize);
        let (items, askers): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|Waiting { item, answer }| (item, answer)).unzip();
        let groups = self.groups(&items);
        match self.send(&groups, false).await {
            Ok(answers) => {
                let mut apart = Vec::with_capacity(askers.len());
                for (group, answer) in groups.iter().zip(answers) {
                    each_of(group.len(), answer, &mut apart);
                }
                for (asker, answer) in askers.into_iter().zip(apart) {
                    // Whoever has left since then is not told.
                    let _ = asker.send(Answer::Sent(Ok(answer)));
                }
            }
            Err(fault) => {
                for asker in askers {
                    let _ = asker.send(Answer::Sent(Err(fault.clone())));
                }
            }
        }
    }

    /// Opens one lane more for what has gathered.
    fn open_lane(&self) {
        let lane = self.lane(&mut self.0.lanes(), false);
        // Without a runtime the lane ends before it begins.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.clone().run_lane(lane));
        }
    }

    fn lane(&self, lanes: &mut Lanes, has_begun: bool) -> Lane {
        lanes.busy += 1;
        Lane { combiner: self.clone(), has_begun }
    }

    /// Puts together neighbours that one script does.
    fn groups<'i>(&self, mut items: &'i [Item]) -> Vec<&'i [Item]> {
        let most = if self.0.is_spread.load(Ordering::Relaxed) { 1 } else { Self::ITEMS };
        let mut groups = Vec::new();
        while let Some(first) = items.first() {
            let mut bytes = 0;
            let goes_along = |item: &&Item| {
                bytes += item.len();
                item.kind == first.kind && bytes <= Self::BYTES
            };
            let count = items.iter().take(most).take_while(goes_along).count().max(1);
            let (group, rest) = items.split_at(count);
            groups.push(group);
            items = rest;
        }
        groups
    }

    /// Sends groups in one round trip, and answers what each script answered. A server that does not know a script has
    /// done nothing, and is sent its text.
    async fn send(&self, groups: &[&[Item]], text_first: bool) -> Result<Vec<Value>, Fault> {
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
        self.send_apart(call, groups, answers).await
    }

    /// Sends again, item by item, what a Cluster refused to do together.
    async fn send_apart(&self, call: Call, groups: &[&[Item]], mut answers: Vec<Value>) -> Result<Vec<Value>, Fault> {
        let Shared { connection, scripts, .. } = &*self.0;
        for (group, answer) in groups.iter().zip(&mut answers) {
            if group.len() == 1 || !is_error(answer, "CROSSSLOT") {
                continue;
            }
            self.spread();
            let commands = group.iter().map(|item| scripts.by_text(item.kind, std::iter::once(item)));
            let mut apart = Vec::with_capacity(group.len());
            for answer in connection.run_all(call, commands.collect()).await? {
                each_of(1, answer, &mut apart);
            }
            *answer = Value::Array(apart);
        }
        Ok(answers)
    }
}

/// Where a call finds itself.
enum Place {
    Lane(Lane, Item),
    Gathered { is_first: bool, answered: oneshot::Receiver<Answer> },
}

/// A lane that is in use.
struct Lane {
    combiner: Combiner,
    has_begun: bool,
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self.combiner.0.lanes();
        lanes.busy -= 1;
        if lanes.gathered.is_empty() {
            return;
        }
        if self.has_begun {
            // What gathered until now goes on, however this lane has ended.
            drop(lanes);
            self.combiner.open_lane();
        } else {
            // Its runtime has ended, and would end the next one too. Those of other runtimes help themselves.
            let unsent = std::mem::take(&mut lanes.gathered);
            drop(lanes);
            for Waiting { item, answer } in unsent {
                let _ = answer.send(Answer::Unsent(item));
            }
        }
    }
}

/// Ends a gathering that has lasted long enough, or whose first caller leaves.
struct Patience<'c>(Option<&'c Combiner>);

impl Patience<'_> {
    fn call_off(mut self) {
        self.0 = None;
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if let Some(combiner) = self.0 {
            combiner.open_lane();
        }
    }
}

impl Shared {
    // Nothing panics under this lock.
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
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
