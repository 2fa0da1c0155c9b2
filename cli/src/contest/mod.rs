//! `leasehold contest`: many workers fight for one lease, and a referee counts what must not happen.

mod event;
mod progress;
mod recording;
mod referee;
mod report;
mod scenario;
mod tasks;
mod timeline;
mod worker;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use leasehold::fence::FencedCell;
use leasehold::{Key, Store};

use crate::contest::progress::Progress;
use crate::contest::referee::{Referee, Tally};
use crate::contest::report::Report;
use crate::contest::scenario::{Plan, Scenario};
use crate::duration;
use crate::failure::Failure;
use crate::store_url::StoreUrl;

/// Many workers fight for one lease, and a referee counts what must not happen
///
/// The referee does not use the store that they fight over. It counts two workers that are in at once, and keeps a
/// register to which each holder writes on entry and again before it leaves, behind a fence that refuses a token below
/// the highest it has seen.
///
/// Exit status: 0 when all was well; 1 when `mutex` or `renew` saw an overlap, or when the fence let a stale write
/// through or refused a rightful one; 2 for a command line that cannot be; 3 when the store or the machine failed.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What the workers do; all three, one after the other, unless chosen
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,

    /// How many fight
    #[arg(long, value_name = "COUNT", default_value_t = 8, allow_negative_numbers = true,
          value_parser = value_parser!(u32).range(1..=10_000))]
    workers: u32,

    /// For how many seconds, for each scenario
    #[arg(long, value_name = "COUNT", default_value_t = 5, allow_negative_numbers = true,
          value_parser = value_parser!(u32).range(1..=86_400))]
    seconds: u32,

    /// How long the lease lives without a renewal [default: 2s for mutex, else 200ms]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::ttl)]
    ttl: Option<Duration>,

    /// How long a worker stays in [default: entry and exit alone for mutex, 300ms for expiry, 500ms for renew]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::any)]
    hold: Option<Duration>,

    /// The store they fight over. It is not taken from the environment: this makes load
    #[arg(long, value_name = "URL", default_value = "memory://")]
    store: StoreUrl,

    /// Print JSON on stdout and nothing else: an object with --scenario, else an array of three
    #[arg(long)]
    json: bool,

    /// Draw who held the lease when
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
}

/// Runs the contest, and says how it went.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { scenario, workers, seconds, ttl, hold, store: url, json, timeline } = arguments;
    let scenarios = scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    if let Some(path) = &timeline {
        check_writable(path)?;
    }
    let store = url.connect().await?;
    let mut reports = Vec::new();
    let mut pictures = Vec::new();
    for scenario in scenarios {
        let plan = Plan {
            scenario,
            workers: workers as usize,
            length: Duration::from_secs(seconds.into()),
            ttl: ttl.unwrap_or(scenario.default_ttl()),
            hold: hold.unwrap_or(scenario.default_hold()),
        };
        let tally = fight(&plan, &store, timeline.is_some()).await?;
        if let Some(error) = &tally.first_trouble {
            eprintln!("{}: {} calls failed; the first: {error}", plan.scenario.name(), tally.counts.store_errors);
        }
        reports.push(Report::new(&plan, url.to_string(), &tally));
        if timeline.is_some() {
            pictures.push(timeline::section(&plan, &url.to_string(), &tally));
        }
    }
    if let Some(path) = &timeline {
        std::fs::write(path, timeline::picture(&pictures)).map_err(|error| cannot_write(path, error))?;
    }
    print(&if json { as_json(&reports, scenario.is_some()) } else { for_people(&reports) })?;
    Ok(ExitCode::from(u8::from(reports.iter().any(Report::failed))))
}

async fn fight(plan: &Plan, store: &Store, record: bool) -> Result<Tally, Failure> {
    // Nobody else is at it, and nothing is left of an earlier contest.
    let resource = Key::new(format!("leasehold-contest:{:016x}", rand::random::<u64>()))?;
    let referee = Arc::new(Referee::new(plan, FencedCell::new(0), record));
    let progress = Progress::start(plan, &referee);
    let fought = tokio::select! {
        fought = tasks::fight(plan, store, &resource, &referee) => fought,
        () = progress.tell() => unreachable!("it tells for ever"),
    };
    progress.end();
    fought.map(|()| referee.finish())
}

fn as_json(reports: &[Report], chosen: bool) -> String {
    let json = match reports {
        [report] if chosen => serde_json::to_string_pretty(report),
        reports => serde_json::to_string_pretty(reports),
    };
    json.expect("a report has string keys and finite numbers") + "\n"
}

fn for_people(reports: &[Report]) -> String {
    let sentences: Vec<_> = reports.iter().map(Report::sentence).collect();
    format!("{}\n{}\n", report::table(reports), sentences.join("\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        // Who reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| Failure::io("cannot print", error)),
    }
}

/// A picture that cannot be written is better known before the contest than after it.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    opened.map(drop).map_err(|error| Failure::Usage(cannot_write(path, error).to_string()))
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::io(format!("cannot write {}", path.display()), error)
}
