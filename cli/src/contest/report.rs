use std::fmt::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::contest::referee::Tally;
use crate::contest::scenario::{Plan, Scenario};
use crate::duration::shown;

/// What came of one contest: one object of the JSON, one column of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    scenario: Scenario,
    /// Without its credentials.
    store: String,
    workers: usize,
    workers_are: WorkersAre,
    /// How long they were to fight.
    seconds: u64,
    ttl_ms: f64,
    hold_ms: f64,
    acquisitions: u64,
    acquisitions_per_second: f64,
    /// By the worker that had the lease the least often, and the most often.
    acquisitions_by_worker: Spread,
    /// Pairs of workers that were in at once.
    overlaps: u64,
    /// The same, where the one with the older lease had been paused; not among `overlaps`.
    overlaps_by_pause: u64,
    stale_writes_rejected: u64,
    stale_writes_accepted: u64,
    /// Writes that the gate refused though no later lease had written.
    fresh_writes_rejected: u64,
    leases_lost: u64,
    /// Calls that the store did not answer.
    store_errors: u64,
    /// From when the lease came free to the entry of another worker.
    handover_ms: Percentiles,
    /// From the request to the entry.
    acquire_ms: Percentiles,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    faults: Option<Faults>,
}

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkersAre {
    Tasks,
    Processes,
}

/// What was done to the workers, and what came of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Faults {
    seed: u32,
    pauses: u64,
    kills: u64,
    /// From the death of a worker that was in to the next entry.
    longest_wait_after_kill_ms: Option<f64>,
}

/// In milliseconds; nothing when nothing was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    p50: Option<f64>,
    p99: Option<f64>,
}

/// How a count differs among the workers.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Spread {
    fewest: u64,
    most: u64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, store: String, workers_are: WorkersAre, seed: Option<u32>, tally: &Tally) -> Self {
        let Plan { scenario, workers, length, ttl, hold } = plan;
        let Tally {
            elapsed,
            counts,
            by_worker,
            acquire,
            handover,
            longest_wait_after_kill,
            first_trouble: _,
            recording: _,
        } = tally;
        Self {
            scenario: *scenario,
            store,
            workers: *workers,
            workers_are,
            seconds: length.as_secs(),
            ttl_ms: ttl.as_secs_f64() * 1e3,
            hold_ms: hold.as_secs_f64() * 1e3,
            acquisitions: counts.acquisitions,
            acquisitions_per_second: (counts.acquisitions as f64 / elapsed.as_secs_f64()).round(),
            acquisitions_by_worker: Spread {
                fewest: by_worker.iter().copied().min().unwrap_or(0),
                most: by_worker.iter().copied().max().unwrap_or(0),
            },
            overlaps: counts.overlaps,
            overlaps_by_pause: counts.overlaps_by_pause,
            stale_writes_rejected: counts.stale_writes_rejected,
            stale_writes_accepted: counts.stale_writes_accepted,
            fresh_writes_rejected: counts.fresh_writes_rejected,
            leases_lost: counts.leases_lost,
            store_errors: counts.store_errors,
            handover_ms: Percentiles::of(handover),
            acquire_ms: Percentiles::of(acquire),
            faults: seed.map(|seed| Faults {
                seed,
                pauses: counts.pauses,
                kills: counts.kills,
                longest_wait_after_kill_ms: longest_wait_after_kill.map(|wait| wait.as_secs_f64() * 1e3),
            }),
        }
    }

    /// Whether something happened that must not.
    pub(crate) fn failed(&self) -> bool {
        self.stale_writes_accepted > 0
            || self.fresh_writes_rejected > 0
            || (self.scenario.forbids_overlap() && self.overlaps > 0)
    }

    /// The exit status that it calls for. A contest that nobody was in shows nothing, so it is no success: it is the
    /// store's failure where the store failed.
    pub(crate) fn status(&self) -> u8 {
        match (self.failed(), self.acquisitions, self.store_errors) {
            (true, ..) | (false, 0, 0) => 1,
            (false, 0, _) => 3,
            (false, ..) => 0,
        }
    }

    /// What it means, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { workers, acquisitions, overlaps, leases_lost, .. } = self;
        let (ttl, hold) = (shown(millis(self.ttl_ms)), shown(millis(self.hold_ms)));
        let (rejected, accepted) = (self.stale_writes_rejected, self.stale_writes_accepted);
        let name = self.scenario.name();
        if accepted > 0 {
            return format!("{name}: FAILED: the fence let {accepted} stale {} through.", plural(accepted, "write"));
        }
        if self.fresh_writes_rejected > 0 {
            let refused = self.fresh_writes_rejected;
            return format!(
                "{name}: FAILED: the fence refused {refused} {} of the rightful holder.",
                plural(refused, "write")
            );
        }
        if *acquisitions == 0 {
            return format!("{name}: nobody got the lease, so this shows nothing.");
        }
        let times = format!("{} {}", grouped(*acquisitions), plural(*acquisitions, "time"));
        if self.scenario.forbids_overlap() && *overlaps > 0 {
            let late = match rejected {
                0 => "no stale write was tried".to_owned(),
                _ => format!("the fence refused {} stale {}", grouped(rejected), plural(rejected, "write")),
            };
            return format!(
                "{name}: FAILED: two workers were in at once {} {}; {late}.",
                grouped(*overlaps),
                plural(*overlaps, "time")
            );
        }
        let never_two = match self.overlaps_by_pause {
            0 => "never were two in at once".to_owned(),
            pauses => format!(
                "two were in at once only where the one that should have been out was paused, {} {}",
                grouped(pauses),
                plural(pauses, "time")
            ),
        };
        match self.scenario {
            Scenario::Mutex => {
                let workers = format!("{workers} {}", plural(*workers as u64, "worker"));
                format!("{name}: {workers} held the lease {times} between them, and {never_two}.")
            }
            Scenario::Renew => {
                let lost = match leases_lost {
                    0 => "none was lost".to_owned(),
                    lost => {
                        format!("{lost} {} lost, and the work stopped in time", if *lost == 1 { "was" } else { "were" })
                    }
                };
                format!(
                    "{name}: the work took {hold} under a lease of {ttl} that renewed itself, {times}: {lost}, and \
                     {never_two}."
                )
            }
            Scenario::Expiry if *overlaps == 0 => {
                format!("{name}: the lease was held {times}, and no work ran beyond it into another's.")
            }
            Scenario::Expiry => format!(
                "{name}: {} {} a worker went on beyond its lease while another held it, as no lease can prevent; the \
                 fence refused {} late {}, and let none through.",
                grouped(*overlaps),
                plural(*overlaps, "time"),
                grouped(rejected),
                plural(rejected, "write")
            ),
        }
    }
}

impl Percentiles {
    fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| (!nanos.is_empty()).then(|| nanos.value_at_quantile(quantile) as f64 / 1e6);
        Self { p50: at(0.50), p99: at(0.99) }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.p50, self.p99) {
            (Some(p50), Some(p99)) => write!(f, "{} / {}", short(p50), short(p99)),
            _ => f.write_str("-"),
        }
    }
}

/// The reports side by side, for people.
pub(crate) fn table(reports: &[Report]) -> String {
    type Row = (&'static str, fn(&Report) -> String);
    const ROWS: &[Row] = &[
        ("", |report| report.scenario.name().to_owned()),
        ("ttl", |report| shown(millis(report.ttl_ms))),
        ("hold", |report| if report.hold_ms == 0.0 { "-".to_owned() } else { shown(millis(report.hold_ms)) }),
        ("acquisitions", |report| grouped(report.acquisitions)),
        ("per second", |report| grouped(report.acquisitions_per_second as u64)),
        ("fewest / most by a worker", |report| {
            let Spread { fewest, most } = report.acquisitions_by_worker;
            format!("{} / {}", grouped(fewest), grouped(most))
        }),
        ("acquire p50 / p99 ms", |report| report.acquire_ms.to_string()),
        ("hand-over p50 / p99 ms", |report| report.handover_ms.to_string()),
        ("overlaps", |report| grouped(report.overlaps)),
        ("stale writes refused", |report| grouped(report.stale_writes_rejected)),
        ("stale writes accepted", |report| grouped(report.stale_writes_accepted)),
        ("leases lost", |report| grouped(report.leases_lost)),
    ];
    const OCCASIONAL: &[Row] = &[
        ("pauses", |report| grouped(report.faults.map_or(0, |faults| faults.pauses))),
        ("overlaps by a pause", |report| grouped(report.overlaps_by_pause)),
        ("kills", |report| grouped(report.faults.map_or(0, |faults| faults.kills))),
        ("longest wait after a kill ms", |report| {
            report.faults.and_then(|faults| faults.longest_wait_after_kill_ms).map_or("0".to_owned(), short)
        }),
        ("fresh writes refused", |report| grouped(report.fresh_writes_rejected)),
        ("store errors", |report| grouped(report.store_errors)),
    ];
    let mut rows = ROWS.to_vec();
    // What does not happen in every contest is shown when it has.
    rows.extend(OCCASIONAL.iter().filter(|(_, cell)| reports.iter().any(|report| cell(report) != "0")));

    let cells: Vec<Vec<String>> = rows.iter().map(|(_, cell)| reports.iter().map(cell).collect()).collect();
    let widths: Vec<_> =
        (0..reports.len()).map(|column| cells.iter().map(|row| row[column].len()).max().unwrap_or(0) + 3).collect();
    let head = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut table = String::new();
    for ((name, _), row) in rows.iter().zip(&cells) {
        let _ = write!(table, "{name:<head$}");
        for (cell, &width) in row.iter().zip(&widths) {
            let _ = write!(table, "{cell:>width$}");
        }
        table.push('\n');
    }
    table
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

pub(crate) fn plural(count: u64, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

/// Three significant digits or so.
fn short(millis: f64) -> String {
    match millis {
        ..1.0 => format!("{millis:.3}"),
        ..10.0 => format!("{millis:.2}"),
        ..100.0 => format!("{millis:.1}"),
        _ => format!("{millis:.0}"),
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3)
}

#[cfg(test)]
mod tests {
    use leasehold::fence::FencedCell;

    use super::*;
    use crate::contest::referee::{Counts, Referee};

    fn report(scenario: Scenario, counts: Counts) -> Report {
        let (ttl, hold) = (scenario.default_ttl(), scenario.default_hold());
        let plan = Plan { scenario, workers: 8, length: Duration::from_secs(5), ttl, hold };
        let mut tally = Referee::new(&plan, FencedCell::new(0), false).finish();
        tally.counts = counts;
        tally.elapsed = plan.length;
        Report::new(&plan, "memory://".to_owned(), WorkersAre::Tasks, None, &tally)
    }

    #[test]
    fn overlaps_fail_where_they_are_forbidden_and_stale_writes_everywhere() {
        let quiet = Counts { acquisitions: 9, stale_writes_rejected: 4, ..Counts::default() };
        let overlap = Counts { overlaps: 1, ..quiet };
        let accepted = Counts { stale_writes_accepted: 1, ..quiet };
        for scenario in Scenario::ALL {
            assert!(!report(scenario, quiet).failed());
            assert_eq!(report(scenario, overlap).failed(), scenario != Scenario::Expiry);
            assert!(report(scenario, accepted).failed());
            for counts in [overlap, accepted] {
                let report = report(scenario, counts);
                assert_eq!(report.sentence().contains("FAILED"), report.failed(), "{}", report.sentence());
            }
        }
    }

    #[test]
    fn a_contest_that_nobody_was_in_is_no_success() {
        let nobody = Counts::default();
        let in_vain = Counts { store_errors: 3, ..nobody };
        let some = Counts { acquisitions: 1, ..in_vain };
        for (counts, status) in [(nobody, 1), (in_vain, 3), (some, 0)] {
            assert_eq!(report(Scenario::Mutex, counts).status(), status, "{counts:?}");
        }
        let accepted = Counts { stale_writes_accepted: 1, ..in_vain };
        assert_eq!(report(Scenario::Mutex, accepted).status(), 1);
    }

    #[test]
    fn an_overlap_by_a_pause_is_told_and_is_no_failure() {
        let counts = Counts { acquisitions: 9, overlaps_by_pause: 2, ..Counts::default() };
        for scenario in [Scenario::Mutex, Scenario::Renew] {
            let report = report(scenario, counts);
            assert!(!report.failed());
            assert!(report.sentence().contains("was paused, 2 times"), "{}", report.sentence());
        }
    }

    #[test]
    fn the_table_has_a_column_for_each_report() {
        let counts = Counts { acquisitions: 1_234_567, ..Counts::default() };
        let reports: Vec<_> = Scenario::ALL.into_iter().map(|scenario| report(scenario, counts)).collect();
        let table = table(&reports);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["mutex", "expiry", "renew"]);
        assert!(table.contains("   1,234,567   1,234,567   1,234,567\n"), "{table}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
        assert!(!table.contains("store errors"));
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
