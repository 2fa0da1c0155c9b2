//! `leasehold conform`: whether a store keeps the contract.

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::Duration;

use clap::{Args, value_parser};
use leasehold::{Error, Store};
use leasehold_conformance::history::{Judgement, Verdict, replay};
use leasehold_conformance::{Capability, CheckReport, Report, Selection, Status, Suite};
use serde::Serialize;
use url::Url;

use crate::duration;
use crate::failure::Failure;
use crate::store_url::StoreUrl;

/// Check whether a store keeps the contract that leases rest on
///
/// Each check works in a random namespace of its own below the one of the URL, so that a server in use can be checked.
/// What it leaves behind ends within the hour. Where a scan walks all that a server has, as it does on Redis, the checks
/// of scans and of listings take the longer the more that is: give them a longer --deadline there.
///
/// Exit status: 0 when no check failed and one passed at least, 1 otherwise; 2 for a command line that cannot be; 3 when
/// the store could not be opened.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The store. It is not taken from the environment: this makes load
    #[arg(value_name = "URL", required_unless_present_any = ["replay", "other_process"])]
    store: Option<StoreUrl>,

    /// Only the checks whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Fail if the store lacks one of these: `all`, or names out of shared,durable,hints,revisions
    #[arg(long, value_name = "LIST")]
    require: Option<String>,

    /// What the checks that draw at random draw from
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// How many concurrent histories to record for each check of them
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,

    /// How many checks to run at once
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = value_parser!(u16).range(1..=256))]
    at_once: u16,

    /// How long one check may take
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::any)]
    deadline: Duration,

    /// Keep concurrent histories that break the contract in this folder [default: the system's temporary one]
    #[arg(long, value_name = "FOLDER")]
    histories: Option<PathBuf>,

    /// Judge a history that was kept once more, and ask no store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["store", "filter", "require", "seed"])]
    replay: Option<PathBuf>,

    /// Print JSON on stdout and nothing else
    #[arg(long)]
    json: bool,

    /// Play the other process in a check
    #[arg(long, hide = true, conflicts_with = "store")]
    other_process: bool,
}

/// The store for the other process: its URL may hold a password, and anybody can see a command line.
const OTHER_PROCESS_STORE: &str = "LEASEHOLD_CONFORM_STORE";

/// Runs the checks, or judges a history, and says how that went.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.replay {
        return judge_again(path, arguments.json);
    }
    let store = match (&arguments.store, std::env::var(OTHER_PROCESS_STORE)) {
        (Some(store), _) => store.clone(),
        // It cannot fail: what is wrong with a URL is found when it is opened.
        (None, Ok(url)) => url.parse().unwrap_or_else(|never| match never {}),
        (None, Err(_)) => return Err(Failure::Usage("--other-process is for the command itself".to_owned())),
    };
    let suite = suite(&arguments, &store)?;
    let selection = selection(&arguments)?;
    if !arguments.other_process {
        reachable(&store, arguments.deadline).await?;
    }
    let (json, quiet) = (arguments.json, !stderr().is_terminal());
    // The suite has runtimes of its own, and blocks.
    let ran = tokio::task::spawn_blocking(move || match suite.work_as_other_process() {
        Some(status) => Err(status),
        None => {
            let mut progress = Progress { of: selected(&selection), ended: 0, failed: 0, quiet };
            let report = suite.report_each(&selection, |check| progress.tell(check));
            progress.clear();
            Ok(report)
        }
    });
    let report = match ran.await {
        Ok(Ok(report)) => report,
        Ok(Err(status)) => return Ok(status),
        Err(error) => return Err(Failure::io("the checks came to no end", std::io::Error::other(error))),
    };
    print(&if json { as_json(&report) } else { format!("{report}\n") })?;
    Ok(ExitCode::from(u8::from(!report.is_success())))
}

fn suite(arguments: &Arguments, store: &StoreUrl) -> Result<Suite, Failure> {
    let url = store.with_secrets().to_owned();
    let opened = url.clone();
    let open = move |namespace: String| {
        let url = below(&opened, &namespace);
        async move { leasehold::connect(&url).await as Result<Store, Error> }
    };
    let required = arguments.require.as_deref().map_or(Ok(Vec::new()), Capability::parse_list);
    let mut suite = Suite::new(store.to_string(), open)
        .require(required.map_err(|error| Failure::Usage(error.to_string()))?)
        .rounds(arguments.rounds)
        .deadline(arguments.deadline)
        .histories_in(arguments.histories.clone().unwrap_or_else(std::env::temp_dir));
    if let Some(seed) = arguments.seed {
        suite = suite.seed(seed);
    }
    // Without the path of this command, what needs another process is ignored and says so.
    if let Ok(path) = std::env::current_exe() {
        suite = suite.other_process(move || {
            let mut command = process::Command::new(&path);
            command.args(["conform", "--other-process"]).env(OTHER_PROCESS_STORE, &url);
            command
        });
    }
    Ok(suite)
}

fn selection(arguments: &Arguments) -> Result<Selection, Failure> {
    let selection = Selection::default().with_at_once(arguments.at_once.into());
    let Some(filter) = &arguments.filter else { return Ok(selection) };
    let selection = selection.with_filter(filter);
    match selected(&selection) {
        0 => Err(Failure::Usage(format!("no check has {filter:?} in its name"))),
        _ => Ok(selection),
    }
}

fn selected(selection: &Selection) -> usize {
    Suite::checks().filter(|check| selection.includes(check)).count()
}

/// Opens the store once, so that one that cannot be opened is told of once and not by every check.
async fn reachable(store: &StoreUrl, limit: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(limit, store.connect()).await {
        Ok(opened) => opened.map(drop).map_err(Failure::from),
        Err(_) => Err(Failure::io(
            format!("{store} did not open within {}", duration::shown(limit)),
            std::io::ErrorKind::TimedOut.into(),
        )),
    }
}

/// The URL with a namespace below its own.
fn below(url: &str, namespace: &str) -> String {
    // What cannot be read is left to who opens it, and refused there.
    let Ok(mut parsed) = Url::parse(url) else { return url.to_owned() };
    if parsed.scheme() == "memory" && parsed.host_str().is_none() {
        // One without a name is private to each handle, and several are needed on the same data.
        return format!("memory://{namespace}");
    }
    let parameters: Vec<_> = parsed.query_pairs().into_owned().collect();
    let of_url = parameters.iter().find(|(name, _)| name == "namespace").map(|(_, value)| format!("{value}/"));
    let namespace = format!("{}{namespace}", of_url.unwrap_or_default());
    parsed
        .query_pairs_mut()
        .clear()
        .extend_pairs(parameters.iter().filter(|(name, _)| name != "namespace"))
        .append_pair("namespace", &namespace);
    parsed.into()
}

fn judge_again(path: &PathBuf, json: bool) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(format!("{}", path.display()), error))?;
    let Judgement { verdict, states } =
        replay(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let (word, told) = match &verdict {
        Verdict::Ok => ("ok", format!("some order explains every answer ({states} states were looked at)")),
        Verdict::Violation(violation) => ("violation", violation.to_string()),
        Verdict::Undecided(undecided) => ("undecided", undecided.to_string()),
    };
    if json {
        print(&format!("{}\n", serde_json::json!({ "verdict": word, "states": states, "told": told })))?;
    } else {
        print(&format!("{}\n", told.trim_end()))?;
    }
    Ok(ExitCode::from(u8::from(verdict != Verdict::Ok)))
}

/// The report, with the counts that everybody wants first.
#[derive(Serialize)]
struct Counted<'a> {
    passed: usize,
    failed: usize,
    ignored: usize,
    #[serde(flatten)]
    report: &'a Report,
}

fn as_json(report: &Report) -> String {
    let [passed, failed, ignored] =
        [Status::Passed, Status::Failed, Status::Ignored].map(|status| report.count(status));
    let counted = Counted { passed, failed, ignored, report };
    // Plain data with text for keys: there is nothing in it that cannot be written.
    let json = serde_json::to_string_pretty(&counted).unwrap_or_default();
    format!("{json}\n")
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Who has read enough of it wants no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::io("stdout", error)),
    }
}

/// Tells on a terminal how far it has come.
struct Progress {
    of: usize,
    ended: usize,
    failed: usize,
    quiet: bool,
}

impl Progress {
    fn tell(&mut self, check: &CheckReport) {
        self.ended += 1;
        self.failed += usize::from(check.status == Status::Failed);
        if !self.quiet {
            let Self { of, ended, failed, .. } = self;
            // A line that cannot be shown is no reason to stop.
            let _ = write!(stderr(), "\r\x1b[K{ended} of {of} checks, {failed} failed");
        }
    }

    fn clear(&self) {
        if !self.quiet {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_gets_a_namespace_below_that_of_the_url() {
        assert_eq!(below("redis://db/0", "c_1"), "redis://db/0?namespace=c_1");
        assert_eq!(below("redis://db/0?namespace=app", "c_1"), "redis://db/0?namespace=app%2Fc_1");
        assert_eq!(below("postgres://db/x?migrate=false", "c_1"), "postgres://db/x?migrate=false&namespace=c_1");
        assert_eq!(below("memory://", "c_1"), "memory://c_1");
        assert_eq!(below("memory://shared", "c_1"), "memory://shared?namespace=c_1");
    }
}
