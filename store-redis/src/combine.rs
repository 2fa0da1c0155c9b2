use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::error::Fault;
use crate::scripts::{Floor, Item, Script};

/// Sends together what is asked for at the same time.
///
/// Most of what a script costs is calling it, for the server and for this process. So there are a few lanes: while one
/// is free, a call is sent as it is; while none is, calls gather, and go out as items of one script when a lane is free
/// again, or after [`Combiner::PATIENCE`] in any case, as answers may be far away or not come at all. A lane takes no
/// more than its share of all calls: were most of them in one, the server would have nothing to do while its answers are
/// taken apart.
///
/// Items stay apart: each is a step of its own, with an answer or a refusal of its own. What they share is the fate of
/// the connection, as all calls on it do.
#[derive(Clone)]
pub(crate) struct Combiner(Arc<Shared>);

struct Shared {
    connection: Connection,
    script: Script,
    /// A Cluster takes no script on keys of several slots, so there each item is sent alone.
    is_spread: AtomicBool,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    busy: usize,
    gathered: Vec<Waiting>,
    /// Where these have gathered. Those of one runtime go together, since one that nobody drives any more, as between two
    /// `block_on`, would hold up the others.
    runtime: Option<Handle>,
    /// How many items the lanes have on their way.
    sent: usize,
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

    pub(crate) fn new(connection: Connection, script: Script) -> Self {
        Self(Arc::new(Shared { connection, script, is_spread: AtomicBool::new(false), lanes: Mutex::default() }))
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
            Way::Lane(lane, item) => {
                let answer = self.run_alone(item).await;
                drop(lane);
                return answer;
            }
            Way::Alone(item) => return self.run_alone(item).await,
            Way::Gathered { is_first, answered } => (is_first, answered),
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

    fn take_lane_or_gather(&self, item: Item) -> Way {
        let here = Handle::try_current();
        let mut lanes = self.0.lanes();
        if lanes.busy < Self::LANES {
            return Way::Lane(self.lane(&mut lanes, true, 1), item);
        }
        let Ok(here) = here else { return Way::Alone(item) };
        let is_first = lanes.gathered.is_empty();
        if is_first {
            lanes.runtime = Some(here);
        } else if !lanes.are_of(&here) {
            return Way::Alone(item);
        }
        let (answer, answered) = oneshot::channel();
        lanes.gathered.push(Waiting { item, answer });
        Way::Gathered { is_first, answered }
    }

    /// Does many items in one round trip and in their order.
    pub(crate) async fn run_many(&self, items: &[Item]) -> Vec<Result<Value, Fault>> {
        self.send(items).await
    }

    /// Sends one item. In a box, as it takes kilobytes that the future of a call that gathers must not have to carry.
    fn run_alone(&self, item: Item) -> Pin<Box<impl Future<Output = Result<Value, Fault>> + Send>> {
        // Each item has an answer.
        Box::pin(async move { self.send(&[item]).await.swap_remove(0) })
    }

    /// Sends what has gathered, and what gathers meanwhile, and hands out the answers.
    async fn run_lane(self, mut lane: Lane) {
        lane.has_begun = true;
        let here = Handle::current();
        while let Some((share, has_more)) = lane.take_share(&here) {
            let mut sending = pin!(self.run_gathered(share));
            let has_sent = has_more && timeout(Self::PATIENCE, &mut sending).await.is_ok();
            if !has_sent {
                if has_more {
                    // What is left to the other lanes waits no longer than what gathers does.
                    self.open_lane();
                }
                sending.await;
            }
            // Those who have their answers come with their next calls first.
            tokio::task::yield_now().await;
        }
    }

    async fn run_gathered(&self, mut gathered: Vec<Waiting>) {
        // Whoever has left meanwhile does not want it any more.
        gathered.retain(|waiting| !waiting.answer.is_closed());
        // Those of one kind are neighbours then. Nobody has an answer yet, so no order is lost.
        gathered.sort_by_key(|waiting| waiting.item.kind);
        let (items, askers): (Vec<_>, Vec<_>) =
            gathered.into_iter().map(|Waiting { item, answer }| (item, answer)).unzip();
        for (asker, answer) in askers.into_iter().zip(self.send(&items).await) {
            // Whoever has left since then is not told.
            let _ = asker.send(Answer::Sent(answer));
        }
    }

    /// Opens one lane more for what has gathered, where that has gathered.
    fn open_lane(&self) {
        let (lane, runtime) = {
            let mut lanes = self.0.lanes();
            let Some(runtime) = lanes.runtime.clone() else { return };
            (self.lane(&mut lanes, false, 0), runtime)
        };
        runtime.spawn(self.clone().run_lane(lane));
    }

    fn lane(&self, lanes: &mut Lanes, has_begun: bool, sent: usize) -> Lane {
        lanes.busy += 1;
        lanes.sent += sent;
        Lane { combiner: self.clone(), has_begun, sent }
    }

    /// Sends items in one round trip, and answers for each what it was answered or why it was not.
    async fn send(&self, items: &[Item]) -> Vec<Result<Value, Fault>> {
        let Shared { connection, script, is_spread, .. } = &*self.0;
        let call = connection.begin();
        let floor = if is_spread.load(Ordering::Relaxed) { Floor::OfSlot } else { Floor::Shared };
        let chunks = chunks(items, floor);
        // The first of several carries the text, so that the server knows the hash when it comes to the others: one that
        // did not would do the later and not the earlier.
        let commands = chunks.iter().enumerate().map(|(place, chunk)| {
            if chunks.len() > 1 && place == 0 { script.by_text(chunk, floor) } else { script.by_hash(chunk, floor) }
        });
        let answers = match connection.run_all(call, commands.collect()).await {
            Ok(answers) => answers,
            Err(fault) => return items.iter().map(|_| Err(fault.clone())).collect(),
        };
        let mut of_each = Vec::with_capacity(items.len());
        for (chunk, answer) in chunks.into_iter().zip(answers) {
            // Each says for itself what becomes of it from here: another may have been done.
            let answer = if is_error(&answer, "NOSCRIPT") {
                connection.run(call, &script.by_text(chunk, floor)).await
            } else {
                Ok(answer)
            };
            if floor == Floor::Shared && answer.as_ref().is_ok_and(|answer| is_error(answer, "CROSSSLOT")) {
                self.spread();
                for item in chunk {
                    let item = std::slice::from_ref(item);
                    take_apart(1, connection.run(call, &script.by_text(item, Floor::OfSlot)).await, &mut of_each);
                }
            } else {
                take_apart(chunk.len(), answer, &mut of_each);
            }
        }
        of_each
    }
}

/// How a call is sent.
enum Way {
    /// By itself, and what gathers meanwhile after it.
    Lane(Lane, Item),
    /// By itself, as those that have gathered are of another runtime.
    Alone(Item),
    Gathered {
        is_first: bool,
        answered: oneshot::Receiver<Answer>,
    },
}

/// A lane that is in use.
struct Lane {
    combiner: Combiner,
    has_begun: bool,
    /// How many items it has on their way.
    sent: usize,
}

impl Lane {
    /// Takes its share of what has gathered, if anything has, and says whether it leaves some.
    fn take_share(&mut self, here: &Handle) -> Option<(Vec<Waiting>, bool)> {
        let lanes = &mut *self.combiner.0.lanes();
        lanes.sent -= std::mem::take(&mut self.sent);
        if !lanes.are_of(here) {
            return None;
        }
        let gathered = lanes.gathered.len();
        let among = lanes.busy.min(Combiner::LANES);
        let share = (lanes.sent + gathered).div_ceil(among).min(Combiner::TOGETHER).min(gathered);
        // As many are likely to come again.
        let mut left = Vec::with_capacity(gathered);
        left.extend(lanes.gathered.drain(share..));
        let taken = std::mem::replace(&mut lanes.gathered, left);
        if lanes.gathered.is_empty() {
            lanes.runtime = None;
        }
        self.sent = share;
        lanes.sent += share;
        (share > 0).then_some((taken, share < gathered))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self.combiner.0.lanes();
        lanes.busy -= 1;
        lanes.sent -= self.sent;
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
            lanes.runtime = None;
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

impl Lanes {
    fn are_of(&self, runtime: &Handle) -> bool {
        self.runtime.as_ref().is_some_and(|gathers| gathers.id() == runtime.id())
    }
}

impl Shared {
    // Nothing panics under this lock.
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Neighbours that one script does.
fn chunks(mut items: &[Item], floor: Floor) -> Vec<&[Item]> {
    let most = if floor == Floor::OfSlot { 1 } else { Combiner::ITEMS };
    let mut chunks = Vec::with_capacity(items.len().div_ceil(most));
    while !items.is_empty() {
        let mut bytes = 0;
        let fits = |item: &&Item| {
            bytes += item.len();
            bytes <= Combiner::BYTES
        };
        let count = items.iter().take(most).take_while(fits).count().max(1);
        let (chunk, rest) = items.split_at(count);
        chunks.push(chunk);
        items = rest;
    }
    chunks
}

/// Takes the answer of a script apart: that of each item, or for each item the same refusal or fault.
fn take_apart(items: usize, answer: Result<Value, Fault>, of_each: &mut Vec<Result<Value, Fault>>) {
    match answer {
        Ok(Value::Array(answers)) if answers.len() == items => of_each.extend(answers.into_iter().map(Ok)),
        Ok(Value::ServerError(error)) => of_each.extend((0..items).map(|_| Ok(Value::ServerError(error.clone())))),
        // No answer of an item, which whoever asked finds out.
        Ok(_) => of_each.extend((0..items).map(|_| Ok(Value::Okay))),
        Err(fault) => of_each.extend((0..items).map(|_| Err(fault.clone()))),
    }
}

fn is_error(answer: &Value, code: &str) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == code)
}
