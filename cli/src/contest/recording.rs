use std::collections::VecDeque;
use std::time::Duration;

/// What a picture of the contest needs, in bounded memory.
///
/// It keeps the latest holds, until the first incident: then it goes on for half as many again, and keeps those. So
/// whatever went wrong first is in it, with what came before and after.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording {
    holds: VecDeque<Hold>,
    marks: Vec<Mark>,
    pauses: Vec<Hold>,
    first_incident: Option<Duration>,
    holds_since_incident: usize,
    left_out: u64,
}

/// One stay, or one pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: usize,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// Something that happened to a worker at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) worker: usize,
    pub(crate) at: Duration,
    pub(crate) kind: MarkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MarkKind {
    /// A write that the gate refused.
    Rejected,
    /// A stale write that it let through.
    StaleAccepted,
    /// It was killed.
    Killed,
}

impl Recording {
    const MOST_HOLDS: usize = 100_000;
    const MOST_MARKS: usize = 20_000;

    /// Adds a stay that has ended.
    pub(crate) fn hold(&mut self, hold: Hold) {
        if self.first_incident.is_some() {
            self.holds_since_incident += 1;
            if self.holds_since_incident > Self::MOST_HOLDS / 2 && self.holds.len() >= Self::MOST_HOLDS {
                self.left_out += 1;
                return;
            }
        }
        if self.holds.len() == Self::MOST_HOLDS {
            self.holds.pop_front();
            self.left_out += 1;
        }
        self.holds.push_back(hold);
    }

    /// Adds a mark.
    pub(crate) fn mark(&mut self, mark: Mark) {
        if self.marks.len() < Self::MOST_MARKS {
            self.marks.push(mark);
        }
    }

    /// Adds a pause that has ended.
    pub(crate) fn pause(&mut self, pause: Hold) {
        if self.pauses.len() < Self::MOST_MARKS {
            self.pauses.push(pause);
        }
    }

    /// Something went wrong, or was kept from going wrong.
    pub(crate) fn incident(&mut self, at: Duration) {
        self.first_incident.get_or_insert(at);
    }

    /// When the first incident was.
    pub(crate) fn first_incident(&self) -> Option<Duration> {
        self.first_incident
    }

    /// The stays that were kept, in the order of their beginnings.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        let mut holds: Vec<_> = self.holds.iter().copied().collect();
        holds.sort_by_key(|hold| hold.from);
        holds
    }

    /// The marks that were kept, in the order of their times.
    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The pauses that were kept.
    pub(crate) fn pauses(&self) -> &[Hold] {
        &self.pauses
    }

    /// How many stays there were, those that were not kept included.
    pub(crate) fn holds_in_all(&self) -> u64 {
        self.holds.len() as u64 + self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(number: u64) -> Hold {
        let from = Duration::from_micros(number * 10);
        Hold { worker: 0, from, to: from + Duration::from_micros(1) }
    }

    #[test]
    fn memory_is_bounded_and_the_latest_is_kept() {
        let mut recording = Recording::default();
        for number in 0..250_000 {
            recording.hold(hold(number));
        }
        assert_eq!(recording.holds_in_all(), 250_000);
        let kept = recording.holds();
        assert_eq!((kept.len(), kept.last().copied()), (Recording::MOST_HOLDS, Some(hold(249_999))));
    }

    #[test]
    fn the_first_incident_stays_in_whatever_follows() {
        let mut recording = Recording::default();
        for number in 0..500_000 {
            if number == 120_000 {
                recording.incident(hold(number).from);
            }
            recording.hold(hold(number));
        }
        let kept = recording.holds();
        let incident = recording.first_incident().unwrap();
        assert!(kept[0].from < incident && incident < kept[kept.len() - 1].from);
        assert_eq!(recording.holds_in_all(), 500_000);
    }
}
