//! `leasehold contest`: many workers fight for one lease, and a referee counts what must not happen.

#[cfg(unix)]
mod chaos;
mod event;
#[cfg(unix)]
mod fleet;
#[cfg(unix)]
mod private_redis;
#[cfg(unix)]
mod process;
mod progress;
mod recording;
mod referee;
mod report;
mod scenario;
mod tasks;
mod timeline;
#[cfg(unix)]
mod wire;
mod worker;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, value_parser};
use leasehold::fence::FencedCell;
use leasehold::{AtomicStore, Key, Store};

#[cfg(unix)]
use crate::contest::chaos::Chaos;
#[cfg(unix)]
use crate::contest::fleet::{Fleet, Interrupts};
#[cfg(unix)]
use crate::contest::private_redis::PrivateRedis;
#[cfg(unix)]
pub(crate) use crate::contest::private_redis::become_server;
#[cfg(unix)]
pub(crate) use crate::contest::process::run as run_worker;
use crate::contest::progress::Progress;
use crate::contest::referee::{Referee, Tally};
use crate::contest::report::{Report, WorkersAre};
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
/// through or refused a rightful one, or when nobody got the lease; 2 for a command line that cannot be; 3 when the
/// store or the machine failed.
///
/// On a store that processes share, each worker is a process of its own, and can be paused and killed. Elsewhere each
/// is a task of this process, with nothing in common with the others but the store.
#[derive(Args)]
#[command(group = ArgGroup::new("faults").args(["pause", "kill"]).multiple(true))]
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

    /// Fight over a Redis server (or Valkey) that is started for the contest, if one is installed
    #[cfg(unix)]
    #[arg(long, conflicts_with = "store")]
    spawn_redis: bool,

    /// Stop a worker for longer than the lease lives, again and again. Overlaps that come of it are no failure: a process
    /// that does not run cannot know that its lease has ended, and only the fence helps
    #[arg(long)]
    pause: bool,

    /// Kill a worker, again and again, and start another in its place
    #[arg(long)]
    kill: bool,

    /// Repeat the pauses and kills of an earlier contest
    #[arg(long, value_name = "NUMBER", requires = "faults")]
    seed: Option<u32>,

    /// Have processes as workers though they do not share the store: each has the lease of its own, and the referee must
    /// see it
    #[arg(long, hide = true)]
    unshared_processes: bool,

    /// Print JSON on stdout and nothing else: an object with --scenario, else an array of three
    #[arg(long)]
    json: bool,

    /// Draw who held the lease when
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
}

/// Runs the contest, and says how it went.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { scenario, workers, seconds, ttl, hold, store: url, .. } = &arguments;
    let Arguments { pause, kill, seed, unshared_processes, json, timeline, .. } = &arguments;
    let scenarios = scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    if let Some(path) = timeline {
        check_writable(path)?;
    }
    // Kept until the contest has ended.
    #[cfg(unix)]
    let spawned = if arguments.spawn_redis { Some(PrivateRedis::start().await?) } else { None };
    #[cfg(unix)]
    let url = &spawned.as_ref().map_or_else(|| url.clone(), PrivateRedis::url);
    let store = url.connect().await?;
    let workers_are = match store.capabilities().shared || *unshared_processes {
        true => WorkersAre::Processes,
        false => WorkersAre::Tasks,
    };
    let faults = (*pause || *kill).then(|| seed.unwrap_or_else(rand::random));
    check_processes(workers_are, *workers, faults.is_some(), url)?;

    let mut reports = Vec::new();
    let mut pictures = Vec::new();
    for scenario in scenarios {
        let plan = Plan {
            scenario,
            workers: *workers as usize,
            length: Duration::from_secs((*seconds).into()),
            ttl: ttl.unwrap_or(scenario.default_ttl()),
            hold: hold.unwrap_or(scenario.default_hold()),
        };
        let contest = Contest { plan, url, store: &store, workers_are, record: timeline.is_some() };
        let tally = contest.fight(faults.map(|seed| (seed, *pause, *kill))).await?;
        let plan = &contest.plan;
        if let Some(error) = &tally.first_trouble {
            eprintln!("{}: {} calls failed; the first: {error}", scenario.name(), tally.counts.store_errors);
        }
        reports.push(Report::new(plan, url.to_string(), workers_are, faults, &tally));
        if timeline.is_some() {
            pictures.push(timeline::section(plan, &url.to_string(), &tally));
        }
    }
    if let Some(path) = timeline {
        std::fs::write(path, timeline::picture(&pictures)).map_err(|error| cannot_write(path, error))?;
    }
    print(&if *json { as_json(&reports, scenario.is_some()) } else { for_people(&reports) })?;
    // What must not happen counts for more than what could not.
    let status = match reports.iter().any(Report::failed) {
        true => 1,
        false => reports.iter().map(Report::status).max().unwrap_or(0),
    };
    Ok(ExitCode::from(status))
}

/// One scenario to be run.
struct Contest<'a> {
    plan: Plan,
    url: &'a StoreUrl,
    store: &'a Store,
    workers_are: WorkersAre,
    /// Whether a picture is to be drawn.
    record: bool,
}

impl Contest<'_> {
    /// Runs it. `faults` are a seed, and whether there are pauses and kills.
    async fn fight(&self, faults: Option<(u32, bool, bool)>) -> Result<Tally, Failure> {
        let Self { plan, url, store, workers_are, record } = self;
        // Nobody else is at it, and nothing is left of an earlier contest.
        let resource = Key::new(format!("leasehold-contest:{:016x}", rand::random::<u64>()))?;
        match workers_are {
            WorkersAre::Tasks => {
                let referee = Arc::new(Referee::new(plan, FencedCell::new(0), *record));
                told(plan, &referee, tasks::fight(plan, store, &resource, &referee)).await
            }
            #[cfg(unix)]
            WorkersAre::Processes => {
                let mut interrupts = Interrupts::listen()?;
                let fleet = Fleet::gather(plan, url, &resource, &mut interrupts).await?;
                let chaos = faults.map(|(seed, pauses, kills)| Chaos::new(seed.into(), pauses, kills, plan.ttl));
                // Its clock starts when all are there.
                let referee = Arc::new(Referee::new(plan, FencedCell::new(0), *record));
                told(plan, &referee, fleet.fight(&referee, chaos, &mut interrupts)).await
            }
            #[cfg(not(unix))]
            WorkersAre::Processes => {
                let _ = (url, faults);
                Err(Failure::Usage("workers that are processes need a Unix".to_owned()))
            }
        }
    }
}

/// Tells how the contest is going while it is.
async fn told(
    plan: &Plan,
    referee: &Referee,
    fight: impl Future<Output = Result<(), Failure>>,
) -> Result<Tally, Failure> {
    let progress = Progress::start(plan, referee);
    let fought = tokio::select! {
        fought = fight => fought,
        () = progress.tell() => unreachable!("it tells for ever"),
    };
    progress.end();
    fought.map(|()| referee.finish())
}

fn check_processes(workers_are: WorkersAre, workers: u32, faults: bool, url: &StoreUrl) -> Result<(), Failure> {
    const MOST: u32 = 256;
    match workers_are {
        WorkersAre::Processes if workers > MOST => {
            let message =
                format!("on a store that processes share each worker is one: --workers {workers} is above {MOST}");
            Err(Failure::Usage(message))
        }
        WorkersAre::Tasks if faults => Err(Failure::Usage(format!(
            "--pause and --kill need workers that are processes, and {url} is a store of this process alone, so that its \
             workers are tasks: choose a store that processes share"
        ))),
        _ => Ok(()),
    }
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
    let is_there = path.exists();
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    opened.map_err(|error| Failure::Usage(cannot_write(path, error).to_string()))?;
    // A contest that comes to no end leaves no empty picture.
    if !is_there {
        std::fs::remove_file(path).map_err(|error| cannot_write(path, error))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::io(format!("cannot write {}", path.display()), error)
}
