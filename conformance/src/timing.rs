//! Time is never asserted as it passes, only by bounds that were measured around a call.
//!
//! A write was applied between its call and its return, so its entry ends between `call + ttl` and `return + ttl`, give
//! or take the tolerance. A stalled machine widens that interval: it can cost a check another round, and no false
//! alarm.

use std::time::Duration;

use leasehold_core::Ttl;
use tokio::time::{Instant, sleep_until};

use crate::history::Tolerance;
use crate::verdict::{Verdict, ensure};

/// When a call was sent and when its answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) called: Instant,
    pub(crate) returned: Instant,
}

/// Whether a round of a timed check came to a verdict, or was too slow to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Decided,
    Undecided,
}

impl Tolerance {
    /// An answer that came before this moment must know of the entry.
    pub(crate) fn earliest_end(&self, written: Span, ttl: Ttl) -> Instant {
        // A ttl below the tolerance ends whenever it likes.
        written.called + ttl.as_duration().saturating_sub(self.early)
    }

    /// A call from this moment on must not see the entry.
    pub(crate) fn latest_end(&self, written: Span, ttl: Ttl) -> Instant {
        written.returned + ttl.as_duration() + self.late
    }

    /// Waits until the entry must be gone.
    pub(crate) async fn past_the_end(&self, written: Span, ttl: Ttl) {
        sleep_until(self.latest_end(written, ttl)).await;
    }

    /// Waits until whatever would still end the entry at its end has surely done so: what is there then stays.
    pub(crate) async fn well_past_the_end(&self, written: Span, ttl: Ttl) {
        const WELL: Duration = Duration::from_millis(50);
        sleep_until(self.latest_end(written, ttl) + WELL).await;
    }

    /// Whether what `read` reports as the time left of an entry is possible.
    pub(crate) fn ensure_time_left(&self, reported: Option<Duration>, written: Span, ttl: Ttl, read: Span) -> Verdict {
        let least = self.earliest_end(written, ttl).saturating_duration_since(read.returned);
        let most = self.latest_end(written, ttl).saturating_duration_since(read.called);
        ensure!(reported.is_some(), "an entry with a ttl of {ttl:?} must tell the time left, and tells none");
        let left = reported.unwrap_or_default();
        ensure!(!left.is_zero(), "a live entry must have time left above zero");
        ensure!(
            least <= left && left <= most,
            "the time left must be between {least:?} and {most:?}, and {left:?} is reported"
        );
        Ok(())
    }
}

/// Runs a call, and says when it began and ended.
pub(crate) async fn measured<T>(call: impl Future<Output = Verdict<T>>) -> Verdict<(Span, T)> {
    let called = Instant::now();
    let answer = call.await?;
    Ok((Span { called, returned: Instant::now() }, answer))
}
