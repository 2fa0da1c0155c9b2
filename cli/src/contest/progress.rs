use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use crate::contest::referee::Referee;
use crate::contest::report::grouped;
use crate::contest::scenario::Plan;

/// Tells on stderr how the contest is going: a line that changes on a terminal, and elsewhere one at the start and one
/// at the end.
pub(crate) struct Progress<'a> {
    plan: &'a Plan,
    referee: &'a Referee,
    on_terminal: bool,
}

impl<'a> Progress<'a> {
    pub(crate) fn start(plan: &'a Plan, referee: &'a Referee) -> Self {
        let on_terminal = stderr().is_terminal();
        if !on_terminal {
            let Plan { scenario, workers, length, .. } = plan;
            eprintln!("{}: {workers} workers for {} s", scenario.name(), length.as_secs());
        }
        Self { plan, referee, on_terminal }
    }

    /// Tells for ever.
    pub(crate) async fn tell(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            if self.on_terminal {
                self.line('\r');
            }
        }
    }

    pub(crate) fn end(self) {
        if self.on_terminal {
            // The table says all that the line said.
            let _ = write!(stderr(), "\r\x1b[K");
        } else {
            self.line('\n');
        }
    }

    fn line(&self, end: char) {
        let (elapsed, counts) = self.referee.so_far();
        let elapsed = elapsed.as_secs_f64().min(self.plan.length.as_secs_f64());
        let clear = if self.on_terminal { "\x1b[K" } else { "" };
        // A line that cannot be shown is no reason to stop.
        let _ = write!(
            stderr(),
            "{clear}{}: {elapsed:.1} of {} s, acquisitions {}, overlaps {}, stale writes refused {}{end}",
            self.plan.scenario.name(),
            self.plan.length.as_secs(),
            grouped(counts.acquisitions),
            grouped(counts.overlaps),
            grouped(counts.stale_writes_rejected),
        );
    }
}
