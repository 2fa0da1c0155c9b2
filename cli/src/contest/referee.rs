use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::fence::{FencePolicy, FencedCell, FencingToken};
use leasehold::lock::Renewal;

use crate::contest::event::{Event, Verdict};
use crate::contest::recording::{Hold, MarkKind, Recording};
use crate::contest::scenario::Plan;

/// Sees who is in, and counts what must not be. It never asks the store that the workers fight over.
///
/// It also keeps the register that they write to, behind a fence gate, and checks the gate against a record of its own.
pub(crate) struct Referee {
    gate: Box<dyn Gate>,
    started: Instant,
    state: Mutex<State>,
}

/// What guards the protected register.
pub(crate) trait Gate: Send + Sync {
    /// Writes, or refuses to.
    fn write(&self, token: FencingToken) -> bool;
}

/// The register counts its writes.
impl Gate for FencedCell<u64> {
    fn write(&self, token: FencingToken) -> bool {
        FencedCell::write(self, token, FencePolicy::Repeatable, |writes| *writes += 1).is_admitted()
    }
}

/// What the referee has seen.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// How long it watched.
    pub(crate) elapsed: Duration,
    pub(crate) counts: Counts,
    /// Entries of each worker.
    pub(crate) by_worker: Vec<u64>,
    /// From the first request to the entry, in nanoseconds.
    pub(crate) acquire: Histogram<u64>,
    /// From when the lease came free to the entry of another worker, in nanoseconds.
    pub(crate) handover: Histogram<u64>,
    /// The first thing that the store did not answer.
    pub(crate) first_trouble: Option<String>,
    pub(crate) recording: Option<Recording>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Entries.
    pub(crate) acquisitions: u64,
    /// Pairs of workers that were in at once.
    pub(crate) overlaps: u64,
    /// Writes with a token below the highest that the register had seen.
    pub(crate) stale_writes_rejected: u64,
    pub(crate) stale_writes_accepted: u64,
    /// Writes that were refused without a reason.
    pub(crate) fresh_writes_rejected: u64,
    pub(crate) leases_lost: u64,
    /// Calls that the store did not answer.
    pub(crate) store_errors: u64,
}

impl Referee {
    /// A referee whose clock starts now, before a register behind `gate`. With `record` it keeps what a picture needs.
    pub(crate) fn new(plan: &Plan, gate: impl Gate + 'static, record: bool) -> Self {
        let runs_out_after = (plan.scenario.renewal() == Renewal::Off).then_some(plan.ttl);
        Self {
            gate: Box::new(gate),
            started: Instant::now(),
            state: Mutex::new(State {
                seats: vec![Seat::default(); plan.workers],
                inside: Vec::new(),
                last: None,
                runs_out_after,
                highest: None,
                counts: Counts::default(),
                acquire: histogram(),
                handover: histogram(),
                first_trouble: None,
                recording: record.then(Recording::default),
            }),
        }
    }

    /// Takes note of what a worker says, as of now.
    pub(crate) fn hear(&self, worker: usize, event: Event) -> Verdict {
        // The time is read, and the gate is asked, under the lock: events are then in the order of their times.
        let mut state = self.state();
        state.note(self.started.elapsed(), worker, event, &*self.gate)
    }

    /// What is counted so far, and since when.
    pub(crate) fn so_far(&self) -> (Duration, Counts) {
        (self.started.elapsed(), self.state().counts)
    }

    /// Ends the contest, and every hold that is still open with it.
    pub(crate) fn finish(&self) -> Tally {
        let mut state = self.state();
        let elapsed = self.started.elapsed();
        for worker in state.inside.clone() {
            state.left(elapsed, worker);
        }
        let State { seats, counts, acquire, handover, first_trouble, recording, .. } = &mut *state;
        Tally {
            elapsed,
            counts: *counts,
            by_worker: seats.iter().map(|seat| seat.acquisitions).collect(),
            acquire: acquire.clone(),
            handover: handover.clone(),
            first_trouble: first_trouble.take(),
            recording: recording.take(),
        }
    }

    // Nothing panics under this lock but a gate, and the state is whole before that is asked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it knows: a pure function of the events and their times.
struct State {
    seats: Vec<Seat>,
    /// The workers that are in; mostly one at most.
    inside: Vec<usize>,
    /// The latest entry.
    last: Option<LastEntry>,
    /// When a lease that nobody renews comes free, counted from the entry.
    runs_out_after: Option<Duration>,
    /// The highest token of any write that was tried: what the gate is checked against.
    highest: Option<FencingToken>,
    counts: Counts,
    acquire: Histogram<u64>,
    handover: Histogram<u64>,
    first_trouble: Option<String>,
    recording: Option<Recording>,
}

/// What is known of one worker.
#[derive(Debug, Clone, Copy, Default)]
struct Seat {
    seeks_since: Option<Duration>,
    inside_since: Option<Duration>,
    acquisitions: u64,
}

#[derive(Debug, Clone, Copy)]
struct LastEntry {
    worker: usize,
    at: Duration,
    left: Option<Duration>,
}

impl State {
    fn note(&mut self, now: Duration, worker: usize, event: Event, gate: &dyn Gate) -> Verdict {
        match event {
            Event::Seek => self.seats[worker].seeks_since = Some(now),
            Event::Enter { token } => {
                self.entered(now, worker);
                return self.written(now, worker, token, gate);
            }
            Event::Write { token } => return self.written(now, worker, token, gate),
            Event::Leave => self.left(now, worker),
            Event::Lost => self.counts.leases_lost += 1,
            Event::Trouble { error } => {
                self.counts.store_errors += 1;
                self.first_trouble.get_or_insert(error);
            }
        }
        Verdict::Noted
    }

    fn entered(&mut self, now: Duration, worker: usize) {
        self.counts.acquisitions += 1;
        self.seats[worker].acquisitions += 1;
        if let Some(since) = self.seats[worker].seeks_since.take() {
            record(&mut self.acquire, now - since);
        }
        if let Some(free) = self.last.filter(|last| last.worker != worker).and_then(|last| self.came_free(last)) {
            record(&mut self.handover, now.saturating_sub(free));
        }
        let others = self.inside.iter().filter(|&&other| other != worker).count();
        self.counts.overlaps += others as u64;
        if others > 0
            && let Some(recording) = &mut self.recording
        {
            recording.incident(now);
        }
        // A worker that is in already has failed to say that it left; it is in once.
        self.left(now, worker);
        self.inside.push(worker);
        self.seats[worker].inside_since = Some(now);
        self.last = Some(LastEntry { worker, at: now, left: None });
    }

    /// When the lease of an entry came free: when its holder left, or when it ran out before that.
    fn came_free(&self, LastEntry { worker: _, at, left }: LastEntry) -> Option<Duration> {
        let ran_out = self.runs_out_after.map(|after| at.saturating_add(after));
        match (left, ran_out) {
            (Some(left), Some(ran_out)) => Some(left.min(ran_out)),
            (left, ran_out) => left.or(ran_out),
        }
    }

    fn written(&mut self, now: Duration, worker: usize, token: FencingToken, gate: &dyn Gate) -> Verdict {
        let stale = self.highest.is_some_and(|highest| token < highest);
        self.highest = self.highest.max(Some(token));
        let admitted = gate.write(token);
        match (admitted, stale) {
            (true, false) => {}
            (false, true) => {
                self.counts.stale_writes_rejected += 1;
                self.mark(now, worker, MarkKind::Rejected);
            }
            (true, true) => {
                self.counts.stale_writes_accepted += 1;
                self.mark(now, worker, MarkKind::StaleAccepted);
            }
            (false, false) => {
                self.counts.fresh_writes_rejected += 1;
                self.mark(now, worker, MarkKind::Rejected);
            }
        }
        if admitted { Verdict::Admitted } else { Verdict::Refused }
    }

    fn mark(&mut self, now: Duration, worker: usize, kind: MarkKind) {
        if let Some(recording) = &mut self.recording {
            recording.incident(now);
            recording.mark(worker, now, kind);
        }
    }

    fn left(&mut self, now: Duration, worker: usize) {
        let Some(since) = self.seats[worker].inside_since.take() else { return };
        self.inside.retain(|&other| other != worker);
        if let Some(last) = self.last.as_mut().filter(|last| last.worker == worker) {
            last.left = Some(now);
        }
        if let Some(recording) = &mut self.recording {
            recording.hold(Hold { worker, from: since, to: now });
        }
    }
}

fn histogram() -> Histogram<u64> {
    const ONE_DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
    Histogram::new_with_bounds(1, ONE_DAY, 3)
        .expect("the bounds are in order and the precision is one of those allowed")
}

fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::scenario::Scenario;

    /// A gate that lets everybody through.
    struct OpenGate;

    impl Gate for OpenGate {
        fn write(&self, _: FencingToken) -> bool {
            true
        }
    }

    /// A gate that lets nobody through.
    struct ShutGate;

    impl Gate for ShutGate {
        fn write(&self, _: FencingToken) -> bool {
            false
        }
    }

    fn referee(scenario: Scenario, gate: impl Gate + 'static) -> Referee {
        let (ttl, hold) = (scenario.default_ttl(), scenario.default_hold());
        Referee::new(&Plan { scenario, workers: 3, length: Duration::from_secs(1), ttl, hold }, gate, false)
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn enter(number: u64) -> Event {
        Event::Enter { token: token(number) }
    }

    fn write(number: u64) -> Event {
        Event::Write { token: token(number) }
    }

    #[test]
    fn one_after_the_other_is_no_overlap_and_no_write_is_stale() {
        let referee = referee(Scenario::Mutex, FencedCell::new(0));
        for (worker, number) in [(0, 10), (1, 11), (0, 12)] {
            assert_eq!(referee.hear(worker, enter(number)), Verdict::Admitted);
            assert_eq!(referee.hear(worker, write(number)), Verdict::Admitted);
            assert_eq!(referee.hear(worker, Event::Leave), Verdict::Noted);
        }
        let expected = Counts { acquisitions: 3, ..Counts::default() };
        assert_eq!(referee.finish().counts, expected);
    }

    #[test]
    fn every_pair_that_is_in_at_once_counts() {
        let referee = referee(Scenario::Mutex, FencedCell::new(0));
        let _ = referee.hear(0, enter(10));
        let _ = referee.hear(1, enter(11));
        assert_eq!(referee.so_far().1.overlaps, 1);
        let _ = referee.hear(2, enter(12));
        assert_eq!(referee.so_far().1.overlaps, 3);
        let _ = referee.hear(1, Event::Leave);
        let _ = referee.hear(1, enter(13));
        assert_eq!(referee.finish().counts.overlaps, 5);
    }

    #[test]
    fn a_late_write_is_refused_and_counts_as_that() {
        let referee = referee(Scenario::Expiry, FencedCell::new(0));
        let _ = referee.hear(0, enter(10));
        let _ = referee.hear(1, enter(11));
        assert_eq!(referee.hear(0, write(10)), Verdict::Refused);
        assert_eq!(referee.hear(1, write(11)), Verdict::Admitted);
        let counts = referee.finish().counts;
        assert_eq!((counts.stale_writes_rejected, counts.stale_writes_accepted), (1, 0));
    }

    #[test]
    fn a_broken_gate_is_found_out() {
        let open = referee(Scenario::Expiry, OpenGate);
        let _ = open.hear(0, enter(10));
        let _ = open.hear(1, enter(11));
        assert_eq!(open.hear(0, write(10)), Verdict::Admitted);
        assert_eq!(open.finish().counts.stale_writes_accepted, 1);

        let shut = referee(Scenario::Expiry, ShutGate);
        assert_eq!(shut.hear(0, enter(10)), Verdict::Refused);
        assert_eq!(shut.finish().counts.fresh_writes_rejected, 1);
    }

    #[test]
    fn a_handover_is_from_the_end_of_the_lease_to_the_entry_of_another() {
        let ms = Duration::from_millis;
        let gate = FencedCell::new(0);
        let handovers = |scenario, events: Vec<(u64, usize, Event)>| {
            let referee = referee(scenario, FencedCell::new(0));
            let mut state = referee.state();
            for (at, worker, event) in events {
                let _ = state.note(ms(at), worker, event, &gate);
            }
            (state.handover.len(), state.handover.max() / 1_000_000)
        };
        let leave = Event::Leave;
        let released = vec![(0, 0, enter(1)), (5, 0, leave.clone()), (8, 1, enter(2))];
        assert_eq!(handovers(Scenario::Mutex, released), (1, 3));
        let again = vec![(0, 0, enter(3)), (5, 0, leave.clone()), (8, 0, enter(4))];
        assert_eq!(handovers(Scenario::Mutex, again), (0, 0), "one's own next entry is none");
        let ran_out = vec![(0, 0, enter(5)), (207, 1, enter(6)), (300, 0, leave)];
        assert_eq!(handovers(Scenario::Expiry, ran_out), (1, 7), "free since 200 ms");
        let overlapping = vec![(0, 0, enter(7)), (207, 1, enter(8))];
        assert_eq!(handovers(Scenario::Renew, overlapping), (0, 0), "it was never free");
    }

    #[test]
    fn an_acquisition_is_measured_from_its_request() {
        let referee = referee(Scenario::Mutex, FencedCell::new(0));
        let gate = FencedCell::new(0);
        let mut state = referee.state();
        let _ = state.note(Duration::from_millis(10), 0, Event::Seek, &gate);
        let _ = state.note(Duration::from_millis(50), 0, enter(1), &gate);
        assert_eq!(state.acquire.len(), 1);
        let measured = state.acquire.max() / 100_000;
        assert!((399..=401).contains(&measured), "{measured}");
    }
}
