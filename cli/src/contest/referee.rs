use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::fence::{FencePolicy, FencedCell, FencingToken};
use leasehold::lock::Renewal;

use crate::contest::event::{Event, Verdict};
use crate::contest::recording::{Hold, Mark, MarkKind, Recording};
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
    /// From the death of a worker that was in to the next entry.
    pub(crate) longest_wait_after_kill: Option<Duration>,
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
    /// The same, where the one with the older lease had been paused and could not know that it had ended.
    pub(crate) overlaps_by_pause: u64,
    /// Writes with a token below the highest that the register had seen.
    pub(crate) stale_writes_rejected: u64,
    pub(crate) stale_writes_accepted: u64,
    /// Writes that were refused without a reason.
    pub(crate) fresh_writes_rejected: u64,
    pub(crate) leases_lost: u64,
    /// Calls that the store did not answer.
    pub(crate) store_errors: u64,
    /// Workers that were stopped for a while.
    pub(crate) pauses: u64,
    /// Workers that were killed.
    pub(crate) kills: u64,
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
                holder_killed_at: None,
                longest_wait_after_kill: None,
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

    /// Who is in, if anybody is.
    pub(crate) fn holder(&self) -> Option<usize> {
        self.state().inside.first().copied()
    }

    /// A worker is about to be stopped for a while.
    pub(crate) fn paused(&self, worker: usize) {
        let mut state = self.state();
        let now = self.started.elapsed();
        state.paused(now, worker);
    }

    /// It goes on.
    pub(crate) fn resumed(&self, worker: usize) {
        let mut state = self.state();
        let now = self.started.elapsed();
        state.resumed(now, worker);
    }

    /// A worker was killed. What it said before that may still be on its way.
    pub(crate) fn killed(&self, worker: usize) {
        let mut state = self.state();
        let now = self.started.elapsed();
        state.counts.kills += 1;
        state.seats[worker].killed_at = Some(now);
    }

    /// All that a worker has said was heard, and it is gone. Another may take its seat.
    pub(crate) fn gone(&self, worker: usize) {
        let mut state = self.state();
        let now = self.started.elapsed();
        state.gone(now, worker);
    }

    /// What is counted so far, and since when.
    pub(crate) fn so_far(&self) -> (Duration, Counts) {
        (self.started.elapsed(), self.state().counts)
    }

    /// Ends the contest, and every hold that is still open with it.
    pub(crate) fn finish(&self) -> Tally {
        let mut state = self.state();
        let elapsed = self.started.elapsed();
        for worker in 0..state.seats.len() {
            state.resumed(elapsed, worker);
            state.left(elapsed, worker);
        }
        // Who still waits has waited that long.
        state.waited_after_kill(elapsed);
        let State { seats, counts, acquire, handover, longest_wait_after_kill, first_trouble, recording, .. } =
            &mut *state;
        Tally {
            elapsed,
            counts: *counts,
            by_worker: seats.iter().map(|seat| seat.acquisitions).collect(),
            acquire: acquire.clone(),
            handover: handover.clone(),
            longest_wait_after_kill: *longest_wait_after_kill,
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
    /// When a worker was killed that was in, if nobody has entered since.
    holder_killed_at: Option<Duration>,
    longest_wait_after_kill: Option<Duration>,
    first_trouble: Option<String>,
    recording: Option<Recording>,
}

/// What is known of one worker.
#[derive(Debug, Clone, Copy, Default)]
struct Seat {
    seeks_since: Option<Duration>,
    inside_since: Option<Duration>,
    /// Of its latest entry.
    token: Option<FencingToken>,
    acquisitions: u64,
    /// Since when it is stopped.
    paused_at: Option<Duration>,
    /// It was stopped since it asked for the lease.
    paused_seeking: bool,
    /// It was stopped while it was in.
    paused_inside: bool,
    killed_at: Option<Duration>,
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
            Event::Seek => {
                let seat = &mut self.seats[worker];
                seat.seeks_since = Some(now);
                seat.paused_seeking = seat.paused_at.is_some();
            }
            Event::Enter { token } => {
                self.entered(now, worker, token);
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

    fn entered(&mut self, now: Duration, worker: usize, token: FencingToken) {
        // A worker that is in already has failed to say that it left; it is in once.
        self.left(now, worker);
        self.counts.acquisitions += 1;
        self.waited_after_kill(now);
        if let Some(since) = self.seats[worker].seeks_since.take() {
            record(&mut self.acquire, now - since);
        }
        if let Some(free) = self.last.filter(|last| last.worker != worker).and_then(|last| self.came_free(last)) {
            record(&mut self.handover, now.saturating_sub(free));
        }
        self.count_overlaps(now, worker, token);
        self.inside.push(worker);
        let seat = &mut self.seats[worker];
        seat.acquisitions += 1;
        seat.inside_since = Some(now);
        seat.token = Some(token);
        // What it says arrives though it was stopped just after it had said so.
        seat.paused_inside = seat.paused_at.is_some();
        self.last = Some(LastEntry { worker, at: now, left: None });
    }

    /// A worker enters while others are in. A pause excuses it only if the one whose lease is older was paused, as that
    /// is the one that should be out.
    fn count_overlaps(&mut self, now: Duration, worker: usize, token: FencingToken) {
        for &other in &self.inside {
            let (entering, inside) = (&self.seats[worker], &self.seats[other]);
            let is_late = inside.token.is_some_and(|others| token < others);
            if if is_late { entering.paused_seeking } else { inside.paused_inside } {
                self.counts.overlaps_by_pause += 1;
            } else {
                self.counts.overlaps += 1;
            }
        }
        if !self.inside.is_empty()
            && let Some(recording) = &mut self.recording
        {
            recording.incident(now);
        }
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
            recording.mark(Mark { worker, at: now, kind });
        }
    }

    fn paused(&mut self, now: Duration, worker: usize) {
        self.counts.pauses += 1;
        let seat = &mut self.seats[worker];
        seat.paused_at = Some(now);
        seat.paused_seeking = true;
        seat.paused_inside = true;
    }

    fn resumed(&mut self, now: Duration, worker: usize) {
        if let Some(from) = self.seats[worker].paused_at.take()
            && let Some(recording) = &mut self.recording
        {
            recording.pause(Hold { worker, from, to: now });
        }
    }

    fn gone(&mut self, now: Duration, worker: usize) {
        let killed_at = self.seats[worker].killed_at.take();
        if let Some(killed_at) = killed_at {
            self.mark(now, worker, MarkKind::Killed);
            if self.seats[worker].inside_since.is_some() {
                self.holder_killed_at.get_or_insert(killed_at);
            }
        }
        self.resumed(now, worker);
        self.left(now, worker);
        if self.last.is_some_and(|last| last.worker == worker) && killed_at.is_some() {
            // Its lease was not handed over, it ran out.
            self.last = None;
        }
        self.seats[worker].seeks_since = None;
    }

    fn waited_after_kill(&mut self, now: Duration) {
        if let Some(killed_at) = self.holder_killed_at.take() {
            let waited = now.saturating_sub(killed_at);
            self.longest_wait_after_kill = self.longest_wait_after_kill.max(Some(waited));
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
    fn a_pause_excuses_the_one_that_should_be_out_and_nobody_else() {
        let of_one_pair = |tell: &dyn Fn(&Referee)| {
            let referee = referee(Scenario::Mutex, FencedCell::new(0));
            tell(&referee);
            let counts = referee.finish().counts;
            assert_eq!(counts.overlaps + counts.overlaps_by_pause, 1);
            counts.overlaps_by_pause == 1
        };
        assert!(of_one_pair(&|referee| {
            let _ = referee.hear(0, enter(10));
            referee.paused(0);
            let _ = referee.hear(1, enter(11));
        }));
        assert!(
            of_one_pair(&|referee| {
                let _ = referee.hear(0, Event::Seek);
                referee.paused(0);
                referee.resumed(0);
                let _ = referee.hear(1, enter(11));
                let _ = referee.hear(0, enter(10));
            }),
            "it was stopped between the grant and the entry, and comes late"
        );
        assert!(
            !of_one_pair(&|referee| {
                let _ = referee.hear(0, enter(10));
                let _ = referee.hear(1, Event::Seek);
                referee.paused(1);
                referee.resumed(1);
                let _ = referee.hear(1, enter(11));
            }),
            "the one that should be out was never stopped"
        );
        assert!(
            !of_one_pair(&|referee| {
                referee.paused(0);
                referee.resumed(0);
                let _ = referee.hear(0, enter(10));
                let _ = referee.hear(1, enter(11));
            }),
            "a pause before the stay is no excuse"
        );
    }

    #[test]
    fn the_wait_after_a_kill_is_from_the_death_of_a_holder_to_the_next_entry() {
        let ms = Duration::from_millis;
        let gate = FencedCell::new(0);
        let referee = referee(Scenario::Mutex, FencedCell::new(0));
        let mut state = referee.state();
        let _ = state.note(ms(0), 0, enter(1), &gate);
        state.seats[1].killed_at = Some(ms(1));
        state.gone(ms(2), 1);
        assert_eq!(state.holder_killed_at, None, "it was not in");
        state.seats[0].killed_at = Some(ms(10));
        state.gone(ms(12), 0);
        let _ = state.note(ms(2010), 1, enter(2), &gate);
        assert_eq!(state.longest_wait_after_kill, Some(ms(2000)));
        assert_eq!(state.handover.len(), 0, "the dead hand over nothing");
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
