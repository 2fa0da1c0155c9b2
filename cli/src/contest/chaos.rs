use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Decides what is done to the workers, and when. One seed gives one sequence of decisions; on whom they fall depends on
/// who is in at the time.
pub(crate) struct Chaos {
    random: StdRng,
    pauses: bool,
    kills: bool,
    ttl: Duration,
}

/// What is done to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is stopped for so long.
    Pause(usize, Duration),
    /// It is killed, and another takes its place.
    Kill(usize),
}

impl Chaos {
    /// Pauses, kills, or both.
    pub(crate) fn new(seed: u64, pauses: bool, kills: bool, ttl: Duration) -> Self {
        Self { random: StdRng::seed_from_u64(seed), pauses, kills, ttl }
    }

    /// How long nothing happens: about as long as a lease lives, so that each fault is seen through before the next.
    pub(crate) fn quiet(&mut self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(2);
        let longest = self.ttl.min(LONGEST);
        longest.mul_f64(self.random.random_range(0.25..1.0))
    }

    /// What happens now, to one of the `candidates`: every other time to the holder, if there is one, as it is there
    /// that it matters; else to any.
    pub(crate) fn strike(&mut self, holder: Option<usize>, candidates: &[usize]) -> Option<Fault> {
        // All is drawn at each strike, so that the sequence does not depend on what is found.
        let (at_holder, kill) = (self.random.random_bool(0.5), self.random.random_bool(0.5));
        let length = self.ttl.mul_f64(self.random.random_range(1.2..2.0));
        let any = candidates.choose(&mut self.random).copied()?;
        let holder = holder.filter(|holder| at_holder && candidates.contains(holder));
        let worker = holder.unwrap_or(any);
        Some(if self.kills && (kill || !self.pauses) { Fault::Kill(worker) } else { Fault::Pause(worker, length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(200);

    #[test]
    fn one_seed_gives_one_sequence() {
        let sequence = |seed| {
            let mut chaos = Chaos::new(seed, true, true, TTL);
            (0..50).map(|_| (chaos.quiet(), chaos.strike(None, &[0, 1, 2]))).collect::<Vec<_>>()
        };
        assert_eq!(sequence(7), sequence(7));
        assert_ne!(sequence(7), sequence(8));
    }

    #[test]
    fn a_pause_outlasts_the_lease_and_only_what_was_asked_for_happens() {
        let mut pauses = Chaos::new(1, true, false, TTL);
        let mut kills = Chaos::new(1, false, true, TTL);
        for _ in 0..100 {
            assert!(matches!(pauses.strike(Some(1), &[0, 1]), Some(Fault::Pause(_, length)) if length > TTL));
            assert!(matches!(kills.strike(Some(1), &[0, 2]), Some(Fault::Kill(0 | 2))), "the holder is none of them");
        }
        assert_eq!(kills.strike(None, &[]), None);
    }
}
