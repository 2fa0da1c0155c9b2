use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::Key;
use tokio::time::Instant;

/// The keys of entries in the order in which they expire, so that the expired are found without looking at the others.
///
/// It is split into parts, each with a lock of its own, as every add and every removal comes here. A [`Ticket`] names
/// its part, so none is searched for.
pub(crate) struct Deadlines {
    parts: [Part; Self::PARTS],
    next_id: AtomicU64,
    /// The part that the next sweep looks at.
    turn: AtomicU64,
    origin: Instant,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    at: Instant,
    id: u64,
}

struct Part {
    /// The first deadline in microseconds since the origin, so that a sweep that finds nothing takes no lock.
    earliest: AtomicU64,
    queue: Mutex<BTreeMap<Ticket, Key>>,
}

impl Deadlines {
    const PARTS: usize = 16;
    const NOTHING_QUEUED: u64 = u64::MAX;
    /// How many entries one sweep takes. Above one, so that reclaiming is faster than adding; small, so that no
    /// operation waits for it.
    const SWEEP: usize = 4;

    pub(crate) fn new() -> Self {
        let part = |_| Part { earliest: AtomicU64::new(Self::NOTHING_QUEUED), queue: Mutex::default() };
        Self {
            parts: std::array::from_fn(part),
            next_id: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            origin: Instant::now(),
        }
    }

    /// Queues a key for its deadline.
    pub(crate) fn push(&self, at: Instant, key: Key) -> Ticket {
        let ticket = Ticket { at, id: self.next_id.fetch_add(1, Ordering::Relaxed) };
        self.change(self.part_of(ticket), |queue| queue.insert(ticket, key));
        ticket
    }

    /// Takes a key out of the queue.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.change(self.part_of(ticket), |queue| queue.remove(&ticket));
    }

    /// How many keys are queued.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// Takes out the next few keys whose deadline has passed, of the part whose turn it is.
    pub(crate) fn due(&self) -> Vec<(Ticket, Key)> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize % Self::PARTS;
        let part = &self.parts[turn];
        // Mostly nothing is queued there, or nothing is due: then neither the clock nor the lock is asked.
        let earliest = part.earliest.load(Ordering::Acquire);
        if earliest == Self::NOTHING_QUEUED {
            return Vec::new();
        }
        let now = Instant::now();
        if self.micros(now) < earliest {
            return Vec::new();
        }
        self.change(part, |queue| {
            let mut due = Vec::new();
            while due.len() < Self::SWEEP
                && let Some(first) = queue.first_entry()
                && first.key().at <= now
            {
                due.push(first.remove_entry());
            }
            due
        })
    }

    fn part_of(&self, ticket: Ticket) -> &Part {
        &self.parts[ticket.id as usize % Self::PARTS]
    }

    fn change<T>(&self, part: &Part, change: impl FnOnce(&mut BTreeMap<Ticket, Key>) -> T) -> T {
        let mut queue = part.lock();
        let answer = change(&mut queue);
        let earliest = queue.first_key_value().map_or(Self::NOTHING_QUEUED, |(first, _)| self.micros(first.at));
        part.earliest.store(earliest, Ordering::Release);
        answer
    }

    // Rounded down on both sides of the comparison, a deadline is never taken for a later one.
    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.origin).as_micros()).unwrap_or(u64::MAX)
    }
}

impl Part {
    // Nothing panics under this lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ticket, Key>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The deadline that it was queued for.
    pub(crate) fn at(self) -> Instant {
        self.at
    }
}
