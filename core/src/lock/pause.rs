//! How long to wait until the next look at a key that somebody else holds.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::clock::Moment;
use crate::store::Hints;

/// A moment just after a lease with so much time left has ended, unless it is renewed: not quite the same for all who
/// wait for it.
pub(crate) fn after_expiry(time_left: Duration) -> Instant {
    const LONGEST_JITTER: Duration = Duration::from_millis(50);
    let jitter = (time_left / 20).min(LONGEST_JITTER).mul_f64(rand::random());
    Moment::new(Instant::now())
        .after(time_left.saturating_add(Duration::from_millis(1)).saturating_add(jitter))
        .instant()
}

/// The pauses between tries without hints: growing, and jittered so that many who wait do not come all at once.
#[derive(Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    pub(crate) fn next(&mut self) -> Instant {
        const FIRST: Duration = Duration::from_millis(10);
        const LONGEST: Duration = Duration::from_millis(500);
        let pause = FIRST.saturating_mul(1 << self.0.min(10)).min(LONGEST);
        self.0 += 1;
        Instant::now() + pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }
}

/// What ended a wait.
pub(crate) enum Wake {
    /// Something may have changed.
    Hint,
    /// It is time to look again.
    Time,
    /// No more hints will come from this listener.
    Deaf,
}

/// Sleeps until `wake`, or until a hint of the store comes, or `told`: what this process knows by itself it need not
/// hear of by a store whose hints may be lost.
pub(crate) async fn sleep_until_hinted(wake: Instant, hints: Option<&mut Hints>, told: impl Future) -> Wake {
    let hinted = async {
        match hints {
            Some(hints) => match hints.next().await {
                Some(_) => Wake::Hint,
                None => Wake::Deaf,
            },
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        hinted = hinted => hinted,
        _ = told => Wake::Hint,
        () = sleep_until(wake) => Wake::Time,
    }
}
