use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::history::{Answer, Call, Exchange, FoundEntry, SetItem};

/// What some exchanges say of one key, for a terminal: a row of bars for each client, and a line for each operation.
///
/// The bars run over the order of calls and answers and not over time, so that what happened at once stays readable.
pub(super) struct Timeline<'h> {
    pub(super) key: &'h str,
    pub(super) exchanges: &'h [Exchange],
}

impl Timeline<'_> {
    /// The width of one call or answer: room for a number.
    const STEP: usize = 3;
    /// So many calls and answers fit on a terminal of 110 columns; of more, the last ones are drawn.
    const STEPS: usize = 32;

    fn bars(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders: BTreeSet<u64> = self
            .exchanges
            .iter()
            .flat_map(|exchange| [Some(exchange.called), exchange.returned])
            .flatten()
            .map(|stamp| stamp.order)
            .collect();
        let skipped = orders.len().saturating_sub(Self::STEPS);
        let column = |order: u64| (orders.range(..order).count().saturating_sub(skipped)) * Self::STEP;
        let width = orders.len().min(Self::STEPS) * Self::STEP;
        let mut rows: BTreeMap<u32, Vec<char>> = BTreeMap::new();
        for (number, exchange) in self.exchanges.iter().enumerate() {
            let row = rows.entry(exchange.client).or_insert_with(|| vec![' '; width + 1]);
            let from = column(exchange.called.order);
            let ends = exchange.returned.map(|returned| column(returned.order));
            let to = ends.unwrap_or(width);
            if skipped > 0 && to == 0 {
                continue;
            }
            row[from..=to].fill('─');
            row[from] = '├';
            row[to] = if ends.is_some() { '┤' } else { '…' };
            let number = (number + 1).to_string();
            for (place, digit) in number.chars().enumerate().filter(|(place, _)| from + 1 + place < to) {
                row[from + 1 + place] = digit;
            }
        }
        for (client, row) in rows {
            writeln!(f, "  client {client:<3} {}", row.into_iter().collect::<String>().trim_end())?;
        }
        Ok(())
    }

    fn lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, exchange) in self.exchanges.iter().enumerate() {
            let Exchange { client, called, returned, call, answer } = exchange;
            let millis = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
            let from = millis(called.nanos);
            let to = returned.map_or("…".to_owned(), |returned| millis(returned.nanos));
            let (call, answer) = (Asked { call, key: self.key }, Told { call, answer, key: self.key });
            writeln!(f, "  {:>3}  client {client:<3} {from:>9} … {to:<9} ms  {call} -> {answer}", number + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bars(f)?;
        writeln!(f)?;
        self.lines(f)
    }
}

/// A call, as far as it concerns one key.
struct Asked<'h> {
    call: &'h Call,
    key: &'h str,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call.name())?;
        match self.call {
            Call::TryAdd { value, ttl, .. } => write!(f, "({value}, {ttl:?})"),
            Call::TryReplace { expected, value, ttl, .. } => write!(f, "({expected} by {value}, {ttl:?})"),
            Call::TryRemove { expected, .. } => write!(f, "({expected})"),
            Call::TryExpire { expected, ttl, .. } => write!(f, "({expected}, {ttl:?})"),
            Call::Set(item) => write_item(f, item),
            Call::SetMany { items } => {
                items.iter().filter(|item| item.key == self.key).try_for_each(|item| write_item(f, item))
            }
            Call::Get { .. } | Call::Remove { .. } | Call::GetMany { .. } | Call::RemoveMany { .. } => Ok(()),
        }
    }
}

fn write_item(f: &mut fmt::Formatter<'_>, item: &SetItem) -> fmt::Result {
    let SetItem { key: _, value, expiry } = item;
    write!(f, "({value}, {expiry:?})")
}

/// An answer, as far as it concerns one key.
struct Told<'h> {
    call: &'h Call,
    answer: &'h Answer,
    key: &'h str,
}

impl Told<'_> {
    /// The parts of a batch's answer that concern the key.
    fn of_key<'t, T>(&'t self, answers: &'t [T]) -> impl Iterator<Item = &'t T> {
        let keys = self.call.keys();
        answers.iter().enumerate().filter(move |(item, _)| keys.get(*item) == Some(&self.key)).map(|(_, answer)| answer)
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = |applied: bool| if applied { "applied" } else { "not applied" };
        match self.answer {
            Answer::Added { revision } => write_revision(f, "added", *revision),
            Answer::Replaced { revision } => write_revision(f, "replaced", *revision),
            Answer::Written { revision } => write_revision(f, "written", *revision),
            Answer::Exists(entry) | Answer::Found(entry) => write_entry(f, Some(entry)),
            Answer::Absent => write_entry(f, None),
            Answer::Applied => f.write_str(applied(true)),
            Answer::NotApplied => f.write_str(applied(false)),
            Answer::ManyFound(entries) => {
                self.of_key(entries).try_for_each(|entry| write_entry(f, entry.as_ref()))?;
                write_count(f, entries.len(), self.call)
            }
            Answer::ManyWritten(revisions) => {
                self.of_key(revisions).try_for_each(|revision| write_revision(f, "written", *revision))?;
                write_count(f, revisions.len(), self.call)
            }
            Answer::ManyRemoved(removed) => {
                self.of_key(removed).try_for_each(|removed| f.write_str(applied(*removed)))?;
                write_count(f, removed.len(), self.call)
            }
            Answer::ErrorWithoutEffect { error } => write!(f, "no effect: {error}"),
            Answer::ErrorOfUnknownEffect { error } => write!(f, "unknown effect: {error}"),
            Answer::Missing => f.write_str("no answer"),
        }
    }
}

fn write_revision(f: &mut fmt::Formatter<'_>, done: &str, revision: Option<u64>) -> fmt::Result {
    f.write_str(done)?;
    revision.map_or(Ok(()), |revision| write!(f, ", revision {revision}"))
}

fn write_entry(f: &mut fmt::Formatter<'_>, entry: Option<&FoundEntry>) -> fmt::Result {
    let Some(FoundEntry { value, time_left_nanos }) = entry else { return f.write_str("nothing there") };
    match time_left_nanos {
        Some(nanos) => write!(f, "{value}, {:.3} ms left", *nanos as f64 / 1e6),
        None => write!(f, "{value}, for ever"),
    }
}

/// Says how many answers came, where that is not how many were asked for.
fn write_count(f: &mut fmt::Formatter<'_>, answers: usize, call: &Call) -> fmt::Result {
    let asked = call.keys().len();
    if answers == asked { Ok(()) } else { write!(f, " ({answers} answers for {asked} keys)") }
}
