use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::{Failure, Fault};

/// What is listened to, and what the server has confirmed of it on the connection that there is.
///
/// Every step costs as much as what has changed, however much is listened to; only the end of a connection is about all.
#[derive(Default)]
pub(super) struct Table {
    topics: HashMap<Topic, Interest>,
    /// How many listen in all.
    listening: usize,
    /// The topics that may have to be subscribed to, or no longer; some more than once.
    changed: Vec<Topic>,
    /// The topics that the server refused while they were listened to, and when to ask for them again.
    refused: Vec<Topic>,
    retry_at: Option<Instant>,
    /// Why there is no connection.
    failure: Option<Failure>,
}

/// What the server is asked to tell of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Channel(Bytes),
    Pattern(Bytes),
}

/// One topic.
struct Interest {
    listeners: usize,
    standing: Standing,
    /// It has listeners from before a connection was lost, who have not been told what that means.
    is_deaf: bool,
    /// Those who wait for the server's answer.
    asked: Vec<Asker>,
    /// What the server said when it last refused.
    refusal: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unsubscribed,
    /// The server is being told, one way or the other.
    Changing,
    Subscribed,
}

/// Who waits for the server's answer. One who is dropped unanswered is to ask again.
pub(super) type Asker = oneshot::Sender<Result<(), Fault>>;

/// What the server is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) topic: Topic,
    pub(super) is_wanted: bool,
}

/// What follows from an answer of the server. It is told after the table is let go of.
#[must_use = "somebody waits for it"]
pub(super) struct Settled {
    askers: Vec<Asker>,
    answer: Result<(), Fault>,
    was_deaf: bool,
}

impl Table {
    /// Adds a listener.
    pub(super) fn join(&mut self, topic: &Topic) {
        self.listening += 1;
        self.topics.entry(topic.clone()).or_insert_with(Interest::new).listeners += 1;
    }

    /// Asks for a topic that has a listener; nothing if the server tells of it already.
    pub(super) fn ask(&mut self, topic: &Topic) -> Option<oneshot::Receiver<Result<(), Fault>>> {
        let interest = self.topics.get_mut(topic).filter(|interest| interest.standing != Standing::Subscribed)?;
        let (asker, answered) = oneshot::channel();
        interest.asked.retain(|asker| !asker.is_closed());
        interest.asked.push(asker);
        self.changed.push(topic.clone());
        Some(answered)
    }

    /// Takes a listener away.
    pub(super) fn leave(&mut self, topic: &Topic) {
        self.listening -= 1;
        let Some(interest) = self.topics.get_mut(topic) else { return };
        interest.listeners -= 1;
        if interest.listeners > 0 {
            return;
        }
        if interest.standing == Standing::Unsubscribed {
            self.topics.remove(topic);
        } else {
            interest.is_deaf = false;
            self.changed.push(topic.clone());
        }
    }

    /// What the server is to be told now. None of it counts as confirmed from here on, before the server is told:
    /// whoever comes meanwhile waits for a confirmation that is yet to come.
    pub(super) fn changes(&mut self, now: Instant) -> Vec<Change> {
        if self.retry_at.is_some_and(|retry_at| retry_at <= now) {
            self.retry_at = None;
            self.changed.append(&mut self.refused);
        }
        let mut changes = Vec::new();
        for topic in self.changed.drain(..) {
            let Some(interest) = self.topics.get_mut(&topic) else { continue };
            let is_wanted = interest.listeners > 0;
            let is_changed = match interest.standing {
                Standing::Unsubscribed => is_wanted,
                Standing::Subscribed => !is_wanted,
                // It has come up before.
                Standing::Changing => false,
            };
            if is_changed {
                interest.standing = Standing::Changing;
                changes.push(Change { topic, is_wanted });
            }
        }
        changes
    }

    /// Takes the server's answer to a change. What it refuses is that topic's own affair.
    pub(super) fn settle(&mut self, change: &Change, refusal: Option<Failure>) -> Settled {
        let mut settled = Settled { askers: Vec::new(), answer: Ok(()), was_deaf: false };
        let Some(interest) = self.topics.get_mut(&change.topic) else { return settled };
        let is_subscribed = change.is_wanted == refusal.is_none();
        interest.standing = if is_subscribed { Standing::Subscribed } else { Standing::Unsubscribed };
        if is_subscribed {
            interest.refusal = None;
            settled.askers = std::mem::take(&mut interest.asked);
            settled.was_deaf = std::mem::take(&mut interest.is_deaf);
        } else if interest.listeners == 0 {
            self.topics.remove(&change.topic);
        } else if let Some(refusal) = refusal {
            if refusal.is_final() {
                settled.askers = std::mem::take(&mut interest.asked);
                settled.answer = Err(Fault::NotHeard(refusal.clone()));
            }
            interest.refusal = Some(refusal);
            self.refused.push(change.topic.clone());
            self.retry_at.get_or_insert_with(|| Instant::now() + Connection::pause(u32::MAX));
        }
        settled
    }

    /// There is a connection, with nothing subscribed to.
    pub(super) fn connected(&mut self) {
        self.failure = None;
    }

    /// Whatever connection there was is gone, with all that was subscribed to.
    pub(super) fn lost(&mut self) {
        self.refused.clear();
        self.retry_at = None;
        self.topics.retain(|_, interest| {
            interest.is_deaf |= interest.standing == Standing::Subscribed;
            interest.standing = Standing::Unsubscribed;
            interest.listeners > 0
        });
        self.changed.clear();
        self.changed.extend(self.topics.keys().cloned());
    }

    /// An attempt to have a connection has failed. Those for whom no other would succeed are to be told.
    pub(super) fn fail(&mut self, failure: Failure) -> Settled {
        self.lost();
        let askers = if failure.is_final() { self.askers() } else { Vec::new() };
        let answer = Err(Fault::Unreachable(Some(failure.clone())));
        self.failure = Some(failure);
        Settled { askers, answer, was_deaf: false }
    }

    /// All who wait for an answer.
    pub(super) fn askers(&mut self) -> Vec<Asker> {
        self.topics.values_mut().flat_map(|interest| interest.asked.drain(..)).collect()
    }

    /// Why there has been no answer up to now.
    pub(super) fn fault(&self, topic: &Topic) -> Fault {
        match self.topics.get(topic).and_then(|interest| interest.refusal.clone()) {
            Some(refusal) if self.failure.is_none() => Fault::NotHeard(refusal),
            _ => Fault::Unreachable(self.failure.clone()),
        }
    }

    /// Whether nobody listens.
    pub(super) fn is_unwanted(&self) -> bool {
        self.listening == 0
    }

    /// When to ask again for what was refused.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl Interest {
    fn new() -> Self {
        Self { listeners: 0, standing: Standing::Unsubscribed, is_deaf: false, asked: Vec::new(), refusal: None }
    }
}

impl Settled {
    /// Tells those who asked, and answers whether there are others who listened before the connection was lost.
    pub(super) fn tell(self) -> bool {
        for asker in self.askers {
            // Whoever has left since then is not told.
            let _ = asker.send(self.answer.clone());
        }
        self.was_deaf
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use redis::RedisError;

    use super::*;

    fn topic(number: usize) -> Topic {
        let name = Bytes::from(number.to_string());
        if number.is_multiple_of(2) { Topic::Channel(name) } else { Topic::Pattern(name) }
    }

    fn refusal() -> Failure {
        Failure::refusal(&RedisError::from((redis::ServerErrorKind::NoPerm.into(), "no"))).unwrap()
    }

    /// As long after now as all pauses are over.
    fn later() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    #[test]
    fn in_the_end_the_server_tells_of_what_is_listened_to_and_nothing_else() {
        const TOPICS: usize = 5;
        for round in 0..300 {
            // One that the server refuses to end goes on with nobody listening.
            let refuses_ends = round % 2 == 0;
            let mut table = Table::default();
            let mut listeners = [0; TOPICS];
            // What the server tells of, and what it is being told.
            let (mut subscribed, mut changes) = (HashSet::new(), Vec::<Change>::new());
            let mut answered = Vec::new();
            for _ in 0..200 {
                let number = rand::random_range(0..TOPICS);
                match rand::random_range(0..12) {
                    0..4 => {
                        table.join(&topic(number));
                        listeners[number] += 1;
                        match table.ask(&topic(number)) {
                            Some(asker) => answered.push(asker),
                            None => assert!(subscribed.contains(&topic(number)), "what is confirmed is so"),
                        }
                    }
                    4..8 if listeners[number] > 0 => {
                        table.leave(&topic(number));
                        listeners[number] -= 1;
                    }
                    8..11 => match changes.pop() {
                        Some(change) => {
                            let is_refused = rand::random_ratio(1, 4) && (change.is_wanted || refuses_ends);
                            if change.is_wanted && !is_refused {
                                assert!(subscribed.insert(change.topic.clone()), "{change:?} is told twice");
                            } else if !change.is_wanted && !is_refused {
                                assert!(subscribed.remove(&change.topic), "{change:?} is told twice");
                            }
                            table.settle(&change, is_refused.then(refusal)).tell();
                        }
                        None => changes = table.changes(later()),
                    },
                    11 => {
                        subscribed.clear();
                        changes.clear();
                        table.lost();
                    }
                    _ => {}
                }
            }
            let mut turns = 0;
            loop {
                for change in changes.drain(..) {
                    if change.is_wanted {
                        subscribed.insert(change.topic.clone());
                    } else {
                        subscribed.remove(&change.topic);
                    }
                    table.settle(&change, None).tell();
                }
                changes = table.changes(later());
                if changes.is_empty() {
                    break;
                }
                turns += 1;
                assert!(turns < 3, "nothing changes any more");
            }
            for (number, listeners) in listeners.into_iter().enumerate() {
                let is_subscribed = subscribed.contains(&topic(number));
                assert!(if listeners == 0 { refuses_ends || !is_subscribed } else { is_subscribed });
            }
            assert_eq!(table.is_unwanted(), listeners.iter().all(|listeners| *listeners == 0));
            // Nobody is left without an answer.
            let unanswered = |asker: &mut oneshot::Receiver<_>| {
                asker.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
            };
            assert!(!answered.iter_mut().any(unanswered));
            for (number, listeners) in listeners.into_iter().enumerate() {
                (0..listeners).for_each(|_| table.leave(&topic(number)));
            }
            table.lost();
            assert!(table.topics.is_empty() && table.changed.is_empty());
        }
    }

    #[test]
    fn who_listened_across_a_loss_is_told_once_the_topic_is_back() {
        let mut table = Table::default();
        let settle = |table: &mut Table, refusal: Option<Failure>| {
            let changes = table.changes(later());
            assert_eq!(changes.len(), 1);
            table.settle(&changes[0], refusal).tell()
        };
        table.join(&topic(0));
        let _answered = table.ask(&topic(0));
        assert!(!settle(&mut table, None), "nothing was missed before the first answer");
        table.lost();
        assert!(!settle(&mut table, Some(refusal())), "it is not back yet");
        table.lost();
        // One that comes later waits beside the first.
        table.join(&topic(0));
        let _answered = table.ask(&topic(0));
        assert!(settle(&mut table, None));
        assert!(table.changes(later()).is_empty());
    }

    #[test]
    fn a_turn_looks_at_what_has_changed_however_much_is_listened_to() {
        let mut table = Table::default();
        for number in 0..1000 {
            table.join(&topic(number));
            let _answered = table.ask(&topic(number));
        }
        for change in table.changes(later()) {
            table.settle(&change, None).tell();
        }
        // One more who listens to what is confirmed already is none.
        table.join(&topic(0));
        assert!(table.ask(&topic(0)).is_none());
        table.leave(&topic(1));
        table.join(&topic(1000));
        let _answered = table.ask(&topic(1000));
        assert_eq!(table.changed, [topic(1), topic(1000)]);
        assert_eq!(table.changes(later()).len(), 2);
        assert!(table.changed.is_empty());
    }
}
