use leasehold_core::{Expiry, Ttl};

use crate::history::operation::{Deed, Operation, Over};
use crate::history::{Tolerance, Value};

/// A moment that never comes.
pub(super) const FOREVER: i64 = i64::MAX;

/// What may be said of one key after some operations in some order: a sequential store with a clock that is only known
/// to be within intervals. All moments are nanoseconds since the recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State<'h> {
    /// The next operation happens no sooner than this. Without it a grant could be ordered before the expiry that
    /// allowed it.
    pub(super) floor: i64,
    /// The next write has a larger one. It outlives the entry.
    revision: u64,
    entry: Option<Live<'h>>,
}

/// An entry that nothing is known to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Live<'h> {
    value: &'h Value,
    ends: Ends,
    sliding: Option<Sliding>,
}

/// When something ends: at some moment within these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    earliest: i64,
    latest: i64,
}

/// How a get moves the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sliding {
    idle: Ttl,
    /// The end that no get moves.
    at_most: Ends,
}

/// When an operation happens: at some moment within these.
#[derive(Debug, Clone, Copy)]
struct Within {
    from: i64,
    to: i64,
    early: i64,
    late: i64,
}

impl<'h> State<'h> {
    /// Nothing is there, and nothing ever was.
    pub(super) const START: Self = Self { floor: 0, revision: 0, entry: None };

    /// What may be said after one more operation, or nothing if it cannot be the next.
    pub(super) fn after(mut self, operation: &Operation<'h>, tolerance: Tolerance) -> Option<Self> {
        self.floor = self.floor.max(operation.called.at);
        // Every operation before this one happened, so this one did no sooner than the floor they raised.
        let within = Within {
            from: self.floor,
            to: operation.at_latest(),
            early: nanos(tolerance.early),
            late: nanos(tolerance.late),
        };
        if within.to < self.floor {
            return None;
        }
        match operation.deed {
            Deed::Found { value, time_left, slides } => {
                let mut live = self.find(Some(value))?;
                if slides {
                    live.slide(within);
                }
                if !live.ends.meet(time_left, within) {
                    return None;
                }
                self.entry = Some(live);
            }
            Deed::Touched => {
                let mut live = self.find(None).filter(|live| live.sliding.is_some())?;
                live.slide(within);
                self.entry = Some(live);
            }
            Deed::Absent => self.find_nothing(within)?,
            // Another value, live or not, is all that is known: whichever it was, what follows has to bear it out.
            Deed::NotThere { expected } => match self.entry {
                Some(live) if live.value == expected => self.find_nothing(within)?,
                _ => {}
            },
            Deed::Written { over, value, expiry, revision } => {
                match over {
                    Over::Anything => {}
                    Over::Nothing => self.find_nothing(within)?,
                    Over::Value(expected) => {
                        self.find(Some(expected))?;
                    }
                }
                self.write(value, expiry, revision, Within { from: self.floor, ..within })?;
            }
            Deed::Removed { expected } => {
                self.find(expected)?;
                self.entry = None;
            }
            Deed::Expires { expected, ttl } => {
                let live = self.find(Some(expected))?;
                self.entry = Some(Live { ends: Ends::after(ttl, within), sliding: None, ..live });
            }
        }
        Some(self)
    }

    /// Finds the entry there: this value, or any. So it ends later than now, which needs no note: whatever follows
    /// happens no sooner than the floor.
    fn find(&self, value: Option<&Value>) -> Option<Live<'h>> {
        self.entry.filter(|live| value.is_none_or(|value| value == live.value) && self.floor < live.ends.latest)
    }

    /// Finds nothing there. What was there has ended, so it is no sooner than that end.
    fn find_nothing(&mut self, within: Within) -> Option<()> {
        if let Some(live) = self.entry {
            if live.ends.earliest == FOREVER || within.to < live.ends.earliest {
                return None;
            }
            self.floor = self.floor.max(live.ends.earliest);
            self.entry = None;
        }
        Some(())
    }

    fn write(&mut self, value: &'h Value, expiry: Expiry, revision: Option<u64>, within: Within) -> Option<()> {
        self.revision = match revision {
            Some(revision) if revision <= self.revision => return None,
            Some(revision) => revision,
            // It has one that nobody heard of, and that is larger too. Where none is promised, nothing compares them.
            None => self.revision + 1,
        };
        let ends = |ttl: Option<Ttl>| ttl.map_or(Ends::NEVER, |ttl| Ends::after(ttl, within));
        let sliding = expiry.idle().map(|idle| Sliding { idle, at_most: ends(expiry.at_most()) });
        self.entry = Some(Live { value, ends: ends(expiry.first_ttl()), sliding });
        Some(())
    }
}

impl Live<'_> {
    /// What a get does to a sliding entry: it is a write of its end.
    fn slide(&mut self, within: Within) {
        if let Some(Sliding { idle, at_most }) = self.sliding {
            let slid = Ends::after(idle, within);
            self.ends = Ends { earliest: slid.earliest.min(at_most.earliest), latest: slid.latest.min(at_most.latest) };
        }
    }
}

impl Ends {
    const NEVER: Self = Self { earliest: FOREVER, latest: FOREVER };

    fn after(ttl: Ttl, within: Within) -> Self {
        let ttl = nanos(ttl.as_duration());
        Self {
            earliest: within.from.saturating_add(ttl).saturating_sub(within.early),
            // What may happen at any time may end at any time, and that sum is for ever too.
            latest: within.to.saturating_add(ttl).saturating_add(within.late),
        }
    }

    /// Whether an entry that ends within these can be said to have so much time left.
    fn meet(self, time_left: Option<i64>, within: Within) -> bool {
        match time_left {
            None => self.earliest == FOREVER,
            Some(left) => {
                let (from, to) = (within.from.saturating_add(left), within.to.saturating_add(left));
                left > 0 && to >= self.earliest && from <= self.latest
            }
        }
    }
}

fn nanos(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(FOREVER)
}
