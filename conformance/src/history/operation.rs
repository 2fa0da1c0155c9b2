use std::collections::BTreeMap;

use leasehold_core::{Expiry, Ttl};

use crate::history::model::FOREVER;
use crate::history::{Answer, Call, Exchange, FoundEntry, History, SetItem, Stamp, Value};

/// What one exchange says of one key. A batch is as many of these as it has items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation<'h> {
    /// Where it stands in the history.
    pub(super) exchange: usize,
    /// Where it stands in its batch.
    pub(super) item: usize,
    pub(super) called: Moment,
    /// Nothing if it may have happened, may happen at any time after its call, or may never.
    pub(super) returned: Option<Moment>,
    pub(super) deed: Deed<'h>,
}

/// A [`Stamp`] to reckon with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: i64,
    pub(super) order: u64,
}

/// What an operation found and did, if it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed<'h> {
    /// It found this entry there. Only a get makes a sliding entry live on.
    Found { value: &'h Value, time_left: Option<i64>, slides: bool },
    /// A get that nobody heard the answer of: it did something only to a sliding entry.
    Touched,
    /// It found nothing there.
    Absent,
    /// It found nothing there, or another value.
    NotThere { expected: &'h Value },
    /// It wrote.
    Written { over: Over<'h>, value: &'h Value, expiry: Expiry, revision: Option<u64> },
    /// It removed what was there: this value, or any.
    Removed { expected: Option<&'h Value> },
    /// It gave what was there another end.
    Expires { expected: &'h Value, ttl: Ttl },
}

/// What a write has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over<'h> {
    Anything,
    Nothing,
    Value(&'h Value),
}

/// An exchange whose answer is none to its call, such as two entries for three keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) exchange: usize,
}

/// The operations of each key. Keys have nothing to do with one another, so each is judged alone.
pub(super) fn by_key(history: &History) -> Result<BTreeMap<&str, Vec<Operation<'_>>>, Misfit> {
    let mut by_key: BTreeMap<&str, Vec<Operation<'_>>> = BTreeMap::new();
    for (index, exchange) in history.exchanges.iter().enumerate() {
        let deeds = deeds(exchange).ok_or(Misfit { exchange: index })?;
        let heard = !matches!(exchange.answer, Answer::ErrorOfUnknownEffect { .. } | Answer::Missing);
        for (item, (key, deed)) in exchange.call.keys().into_iter().zip(deeds).enumerate() {
            by_key.entry(key).or_default().push(Operation {
                exchange: index,
                item,
                called: exchange.called.into(),
                returned: exchange.returned.filter(|_| heard).map(Moment::from),
                deed,
            });
        }
    }
    Ok(by_key)
}

impl<'h> Operation<'h> {
    /// Whether it was surely over before the other began. The order of the record tells, as it never runs against its
    /// clock; items of one batch come in the order of the batch.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        let Some(returned) = self.returned else { return false };
        if self.exchange == other.exchange {
            return self.item < other.item;
        }
        returned.order < other.called.order
    }

    /// The last moment at which it can have happened.
    pub(super) fn at_latest(&self) -> i64 {
        self.returned.map_or(FOREVER, |returned| returned.at)
    }
}

/// What an exchange did to each of its keys, in their order; no deeds at all if it surely did nothing.
fn deeds(exchange: &Exchange) -> Option<Vec<Deed<'_>>> {
    if exchange.returned.is_none() && exchange.answer != Answer::Missing {
        return None;
    }
    match &exchange.answer {
        Answer::ErrorWithoutEffect { .. } => Some(Vec::new()),
        Answer::ErrorOfUnknownEffect { .. } | Answer::Missing => Some(effects(&exchange.call)),
        answer => answered(&exchange.call, answer),
    }
}

/// What a call does if it does anything.
fn effects(call: &Call) -> Vec<Deed<'_>> {
    match call {
        Call::TryAdd { value, ttl, .. } => vec![written(Over::Nothing, value, Expiry::After(*ttl), None)],
        Call::TryReplace { expected, value, ttl, .. } => {
            vec![written(Over::Value(expected), value, Expiry::After(*ttl), None)]
        }
        Call::TryRemove { expected, .. } => vec![Deed::Removed { expected: Some(expected) }],
        Call::TryExpire { expected, ttl, .. } => vec![Deed::Expires { expected, ttl: *ttl }],
        Call::Set(item) => vec![set(item, None)],
        Call::SetMany { items } => items.iter().map(|item| set(item, None)).collect(),
        Call::Get { .. } => vec![Deed::Touched],
        Call::GetMany { keys } => vec![Deed::Touched; keys.len()],
        Call::Remove { .. } => vec![Deed::Removed { expected: None }],
        Call::RemoveMany { keys } => vec![Deed::Removed { expected: None }; keys.len()],
    }
}

/// What a call did, by its answer; nothing if that is no answer to it.
fn answered<'h>(call: &'h Call, answer: &'h Answer) -> Option<Vec<Deed<'h>>> {
    Some(match (call, answer) {
        (Call::TryAdd { value, ttl, .. }, Answer::Added { revision }) => {
            vec![written(Over::Nothing, value, Expiry::After(*ttl), *revision)]
        }
        (Call::TryAdd { .. }, Answer::Exists(entry)) => vec![found(entry, false)],
        (Call::TryReplace { expected, value, ttl, .. }, Answer::Replaced { revision }) => {
            vec![written(Over::Value(expected), value, Expiry::After(*ttl), *revision)]
        }
        (Call::TryRemove { expected, .. }, Answer::Applied) => vec![Deed::Removed { expected: Some(expected) }],
        (Call::TryExpire { expected, ttl, .. }, Answer::Applied) => vec![Deed::Expires { expected, ttl: *ttl }],
        (
            Call::TryReplace { expected, .. } | Call::TryRemove { expected, .. } | Call::TryExpire { expected, .. },
            Answer::NotApplied,
        ) => vec![Deed::NotThere { expected }],
        (Call::Get { .. }, Answer::Found(entry)) => vec![found(entry, true)],
        (Call::Get { .. }, Answer::Absent) => vec![Deed::Absent],
        (Call::Set(item), Answer::Written { revision }) => vec![set(item, *revision)],
        (Call::Remove { .. }, Answer::Applied) => vec![removed(true)],
        (Call::Remove { .. }, Answer::NotApplied) => vec![removed(false)],
        (Call::GetMany { keys }, Answer::ManyFound(entries)) if keys.len() == entries.len() => {
            entries.iter().map(|entry| entry.as_ref().map_or(Deed::Absent, |entry| found(entry, true))).collect()
        }
        (Call::SetMany { items }, Answer::ManyWritten(revisions)) if items.len() == revisions.len() => {
            items.iter().zip(revisions).map(|(item, revision)| set(item, *revision)).collect()
        }
        (Call::RemoveMany { keys }, Answer::ManyRemoved(applied)) if keys.len() == applied.len() => {
            applied.iter().copied().map(removed).collect()
        }
        _ => return None,
    })
}

fn written<'h>(over: Over<'h>, value: &'h Value, expiry: Expiry, revision: Option<u64>) -> Deed<'h> {
    Deed::Written { over, value, expiry, revision }
}

fn set(item: &SetItem, revision: Option<u64>) -> Deed<'_> {
    written(Over::Anything, &item.value, item.expiry, revision)
}

fn removed<'h>(applied: bool) -> Deed<'h> {
    if applied { Deed::Removed { expected: None } } else { Deed::Absent }
}

fn found(entry: &FoundEntry, slides: bool) -> Deed<'_> {
    Deed::Found { value: &entry.value, time_left: entry.time_left_nanos.map(nanos), slides }
}

impl From<Stamp> for Moment {
    fn from(stamp: Stamp) -> Self {
        Self { at: nanos(stamp.nanos), order: stamp.order }
    }
}

// What is beyond three centuries counts as that, and as less than for ever.
fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(FOREVER).min(FOREVER - 1)
}
