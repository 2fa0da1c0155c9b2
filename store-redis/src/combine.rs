use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::connection::{Call, Connection};
use crate::error::Fault;
use crate::scripts::{Floor, Item, Script};

/// Sends together what is asked for at the same time.
///
/// Most of what a script costs is calling it, for the server and for this process. So there are a few lanes: while one
/// is free, a call is sent as it is; while none is, calls gather, and go out as items of one script when a lane is free
/// again. A lane takes no more than its share of all calls: were most of them in one, the server would have nothing to
/// do while its answers are taken apart. A lane whose answers are far away, or do not come at all, makes room for
/// another.
///
/// All lanes but one are tasks, so that nothing hangs because a caller does not poll its call, and each runtime has its
/// own, so that nothing hangs because nobody drives another one, as between two `block_on`.
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
    /// Of each runtime that has any: one, as a rule.
    lanes: Mutex<Vec<Lanes>>,
}

/// The lanes of a runtime, and what has gathered before them.
struct Lanes {
    runtime: Handle,
    /// How many there are, but for those that have made room.
    open: usize,
    /// How many of these are about to look for what has gathered.
    looking: usize,
    /// How many items the others have on their way.
    sent: usize,
    gathered: VecDeque<Waiting>,
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
    /// How many lanes there are: the server does what one has sent while this process takes the other's answers apart.
    const LANES: usize = 2;
    /// So few items are not shared between lanes.
    const FEW: usize = 4;
    /// How long a lane waits for its answers before it makes room for another.
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
        match self.go_or_gather(item) {
            Way::Go(mut lane, item) => {
                let answer = self.run_alone(item).await;
                lane.turn_to(State::Aside);
                answer
            }
            Way::Gathered(answered) => answered.await.unwrap_or(Err(Fault::Abandoned)),
        }
    }

    /// Does many items in one round trip and in their order.
    pub(crate) async fn run_many(&self, items: &[Item]) -> Vec<Result<Value, Fault>> {
        self.send(items, Order::Kept).await
    }

    /// Sends one item. In a box, as it takes kilobytes that the future of a call that gathers must not have to carry.
    fn run_alone(&self, item: Item) -> Pin<Box<impl Future<Output = Result<Value, Fault>> + Send>> {
        // Each item has an answer.
        Box::pin(async move { self.send(&[item], Order::Free).await.swap_remove(0) })
    }

    /// Where no others are on their way, a call goes by itself, which spares it a task. Else a lane sends it: one that
    /// there is, or a new one.
    fn go_or_gather(&self, item: Item) -> Way {
        let here = Handle::current();
        let mut all = self.0.lanes();
        let lanes = Lanes::of(&mut all, &here);
        if lanes.open == 0 {
            lanes.open = 1;
            lanes.sent += 1;
            drop(all);
            return Way::Go(Lane { combiner: self.clone(), runtime: here, state: State::Sent(1) }, item);
        }
        let (answer, answered) = oneshot::channel();
        lanes.gathered.push_back(Waiting { item, answer });
        let lane = self.open_lane(lanes);
        drop(all);
        lane.into_iter().for_each(Lane::start);
        Way::Gathered(answered)
    }

    /// A lane for what has gathered, if there is none that looks for it, and room for one more.
    fn open_lane(&self, lanes: &mut Lanes) -> Option<Lane> {
        if lanes.gathered.is_empty() || lanes.looking > 0 || lanes.open == Self::LANES {
            return None;
        }
        lanes.open += 1;
        lanes.looking += 1;
        Some(Lane { combiner: self.clone(), runtime: lanes.runtime.clone(), state: State::Looking })
    }

    /// Sends items in one round trip, and answers for each what it was answered or why it was not.
    async fn send(&self, items: &[Item], order: Order) -> Vec<Result<Value, Fault>> {
        let Shared { connection, script, is_spread, .. } = &*self.0;
        let call = connection.begin();
        let floor = if is_spread.load(Ordering::Relaxed) { Floor::OfSlot } else { Floor::Shared };
        let chunks = chunks(items, floor);
        // Where the order counts the first of several carries the text, so that the server knows the hash when it comes to
        // the others: one that did not would do the later and not the earlier.
        let by_text = |place| order == Order::Kept && chunks.len() > 1 && place == 0;
        let commands = chunks.iter().enumerate().map(|(place, chunk)| {
            if by_text(place) { script.by_text(chunk, floor) } else { script.by_hash(chunk, floor) }
        });
        match connection.run_all(call, commands.collect()).await {
            Ok(answers) => self.send_refused(call, &chunks, answers, floor).await,
            Err(fault) => items.iter().map(|_| Err(fault.clone())).collect(),
        }
    }

    /// Sends again, in one more round trip, what was refused as a whole: to a server that has forgotten the script with
    /// its text, and to a Cluster item by item. Each item says for itself what becomes of it: others may have been done.
    async fn send_refused(
        &self,
        call: Call,
        chunks: &[&[Item]],
        answers: Vec<Value>,
        floor: Floor,
    ) -> Vec<Result<Value, Fault>> {
        let Shared { connection, script, .. } = &*self.0;
        let is_apart = |answer: &Value| floor == Floor::Shared && is_error(answer, "CROSSSLOT");
        let mut again: Vec<Cmd> = Vec::new();
        for (chunk, answer) in chunks.iter().zip(&answers) {
            if is_apart(answer) {
                self.spread();
                again.extend(chunk.chunks(1).map(|item| script.by_text(item, Floor::OfSlot)));
            } else if is_error(answer, "NOSCRIPT") {
                again.push(script.by_text(chunk, floor));
            }
        }
        let again = if again.is_empty() { Ok(Vec::new()) } else { connection.run_all(call, again).await };
        let mut again = again.map(Vec::into_iter);
        let mut next = || match &mut again {
            Ok(answers) => Ok(answers.next().unwrap_or(Value::Nil)),
            Err(fault) => Err(fault.clone()),
        };
        let mut of_each = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
        for (chunk, answer) in chunks.iter().zip(answers) {
            if is_apart(&answer) {
                chunk.iter().for_each(|_| take_apart(1, next(), &mut of_each));
            } else {
                let answer = if is_error(&answer, "NOSCRIPT") { next() } else { Ok(answer) };
                take_apart(chunk.len(), answer, &mut of_each);
            }
        }
        of_each
    }
}

/// How a call is sent.
enum Way {
    Go(Lane, Item),
    Gathered(oneshot::Receiver<Result<Value, Fault>>),
}

/// Whether items have to be done in the order in which they are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Kept,
    Free,
}

/// Sends what has gathered, and what gathers meanwhile.
struct Lane {
    combiner: Combiner,
    runtime: Handle,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// It is about to look for what has gathered.
    Looking,
    /// It has so many items on their way.
    Sent(usize),
    /// It has made room, and does not count.
    Aside,
}

impl Lane {
    /// Called while the lanes are not locked, as a runtime that has ended drops it in here.
    fn start(self) {
        let runtime = self.runtime.clone();
        runtime.spawn(self.run());
    }

    async fn run(mut self) {
        let combiner = self.combiner.clone();
        while let Some(mut share) = self.take_share() {
            // Whoever has left meanwhile does not want it any more.
            share.retain(|waiting| !waiting.answer.is_closed());
            // Those of one kind are neighbours then. Nobody has an answer yet, so no order is lost.
            share.sort_by_key(|waiting| waiting.item.kind);
            let (items, askers): (Vec<_>, Vec<_>) =
                share.into_iter().map(|Waiting { item, answer }| (item, answer)).unzip();
            let mut sending = pin!(combiner.send(&items, Order::Free));
            let answers = match timeout(Combiner::PATIENCE, &mut sending).await {
                Ok(answers) => answers,
                Err(_) => {
                    self.turn_to(State::Aside);
                    sending.await
                }
            };
            self.turn_to(State::Looking);
            for (asker, answer) in askers.into_iter().zip(answers) {
                // Whoever has left since then is not told.
                let _ = asker.send(answer);
            }
            // Those who have their answers come with their next calls first; once is not enough for those of them whom
            // another worker takes over.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    }

    /// Takes its share of what has gathered; if nothing has, it is over.
    fn take_share(&mut self) -> Option<Vec<Waiting>> {
        let mut all = self.combiner.0.lanes();
        let lanes = Lanes::of(&mut all, &self.runtime);
        let gathered = lanes.gathered.len();
        if gathered == 0 || !matches!(self.state, State::Looking) {
            // From here on nobody counts on it.
            lanes.turn(&mut self.state, State::Aside);
            return None;
        }
        let share = (lanes.sent + gathered).div_ceil(Combiner::LANES).max(Combiner::FEW);
        let share: Vec<_> = lanes.gathered.drain(..share.min(gathered).min(Combiner::TOGETHER)).collect();
        lanes.turn(&mut self.state, State::Sent(share.len()));
        let other = self.combiner.open_lane(lanes);
        drop(all);
        other.into_iter().for_each(Lane::start);
        Some(share)
    }

    fn turn_to(&mut self, state: State) {
        let mut all = self.combiner.0.lanes();
        let lanes = Lanes::of(&mut all, &self.runtime);
        lanes.turn(&mut self.state, state);
        let other = self.combiner.open_lane(lanes);
        drop(all);
        other.into_iter().for_each(Lane::start);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut all = self.combiner.0.lanes();
        let lanes = Lanes::of(&mut all, &self.runtime);
        lanes.turn(&mut self.state, State::Aside);
        if lanes.open == 0 {
            // Something has gathered here only if their runtime ended, and then those who wait are let go.
            all.retain(|lanes| lanes.runtime.id() != self.runtime.id());
        }
    }
}

impl Lanes {
    fn of<'l>(all: &'l mut Vec<Self>, runtime: &Handle) -> &'l mut Self {
        let place = all.iter().position(|lanes| lanes.runtime.id() == runtime.id()).unwrap_or_else(|| {
            let gathered = VecDeque::new();
            all.push(Self { runtime: runtime.clone(), open: 0, looking: 0, sent: 0, gathered });
            all.len() - 1
        });
        &mut all[place]
    }

    /// Counts a lane as what it is from now on. One that has made room gets it back only if there is some.
    fn turn(&mut self, state: &mut State, to: State) {
        match *state {
            State::Looking => self.looking -= 1,
            State::Sent(items) => self.sent -= items,
            State::Aside if self.open == Combiner::LANES => return,
            State::Aside => self.open += 1,
        }
        *state = to;
        match to {
            State::Looking => self.looking += 1,
            State::Sent(items) => self.sent += items,
            State::Aside => self.open -= 1,
        }
    }
}

impl Shared {
    // Nothing panics under this lock.
    fn lanes(&self) -> MutexGuard<'_, Vec<Lanes>> {
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
