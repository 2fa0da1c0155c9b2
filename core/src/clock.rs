//! The local clock that leases are measured on.
//!
//! A lease is counted on two clocks at once: tokio's, which timers run on and which a test can step, and one that also
//! runs while the machine sleeps. Whichever ends a lease first ends it: a laptop that slept for an hour has lost every
//! lease, though its monotonic clock stood still.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// What tells the time to leases. Replace it to test how your code takes a suspend.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// One moment, on tokio's clock and, where there is one, on the clock that runs during suspend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    instant: Instant,
    boot: Option<Duration>,
}

impl Moment {
    /// A moment on tokio's clock alone.
    pub fn new(instant: Instant) -> Self {
        Self { instant, boot: None }
    }

    /// A moment on both clocks. `since_boot` may count from any fixed point.
    #[must_use]
    pub fn with_boot_time(mut self, since_boot: Duration) -> Self {
        self.boot = Some(since_boot);
        self
    }

    /// The moment on tokio's clock, for timers.
    pub fn instant(self) -> Instant {
        self.instant
    }

    /// This moment and `duration` later, on both clocks; a duration beyond a hundred years counts as that.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
        let duration = duration.min(FAR);
        Self { instant: self.instant + duration, boot: self.boot.map(|boot| boot + duration) }
    }

    /// How long it is until `deadline`, on the clock where that is sooner; zero once either has reached it.
    pub fn until(self, deadline: Self) -> Duration {
        let awake = deadline.instant.saturating_duration_since(self.instant);
        match (self.boot, deadline.boot) {
            (Some(now), Some(then)) => awake.min(then.saturating_sub(now)),
            _ => awake,
        }
    }

    /// Whether `deadline` is reached on either clock.
    pub fn is_past(self, deadline: Self) -> bool {
        self.until(deadline).is_zero()
    }

    /// The sooner of two, on each clock.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let boot = match (self.boot, other.boot) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self { instant: self.instant.min(other.instant), boot }
    }

    /// How much more the clock that runs during suspend has moved than tokio's since `earlier`.
    pub(crate) fn asleep_since(self, earlier: Self) -> Duration {
        let awake = self.instant.saturating_duration_since(earlier.instant);
        match (earlier.boot, self.boot) {
            (Some(then), Some(now)) => now.saturating_sub(then).saturating_sub(awake),
            _ => Duration::ZERO,
        }
    }

    /// When a timer on tokio's clock that waits for `deadline` has to look at both clocks again.
    pub(crate) fn nap(self, deadline: Self) -> Instant {
        self.look_again_by(self.instant + self.until(deadline))
    }

    /// The same for a deadline on tokio's clock: a suspend is found out about within a second after it.
    pub(crate) fn look_again_by(self, deadline: Instant) -> Instant {
        const LONGEST_NAP: Duration = Duration::from_secs(1);
        if self.boot.is_some() { deadline.min(self.instant + LONGEST_NAP) } else { deadline }
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instant, boot } = self;
        f.debug_struct("Moment").field("instant", instant).field("boot", boot).finish()
    }
}

/// Tokio's clock alone: the right one for a store that lives in this process and counts on the same clock. It stands
/// still and steps with `tokio::time::pause()`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::new(Instant::now())
    }
}

/// Tokio's clock, and one that runs during suspend (`CLOCK_BOOTTIME` on Linux): the right one for a store that others
/// share, as theirs goes on while this machine sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let moment = Moment::new(Instant::now());
        match since_boot() {
            Some(boot) => moment.with_boot_time(boot),
            None => moment,
        }
    }
}

#[cfg(unix)]
fn since_boot() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On the systems of Apple this one runs during sleep. Elsewhere it is no worse than tokio's.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    Duration::try_from(clock_gettime(CLOCK)).ok()
}

#[cfg(not(unix))]
fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn either_clock_reaches_a_deadline() {
        let start = Instant::now();
        let moment =
            |awake: u64, boot: u64| Moment::new(start + SECOND * awake as u32).with_boot_time(SECOND * boot as u32);
        let deadline = moment(0, 0).after(SECOND * 10);
        assert_eq!(moment(4, 4).until(deadline), SECOND * 6);
        assert_eq!(moment(4, 9).until(deadline), SECOND, "five seconds of sleep count");
        assert!(moment(1, 10).is_past(deadline) && moment(10, 1).is_past(deadline));
        assert!(!moment(9, 9).is_past(deadline));
        assert_eq!(moment(0, 0).nap(deadline), start + SECOND, "the other clock is looked at once a second");
        assert_eq!(Moment::new(start).nap(deadline), start + SECOND * 10);
    }

    #[tokio::test]
    async fn the_far_future_does_not_overflow() {
        let now = SystemClock.now();
        assert!(!now.is_past(now.after(Duration::MAX)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_clock_counts_suspend() {
        assert!(SystemClock.now().boot.is_some());
    }
}
