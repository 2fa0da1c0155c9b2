//! `leasehold conform`: holds a running store to the contract.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::Args;
use leasehold::wrap::Prefixed;
use leasehold::{Error, Namespace, Store};
use leasehold_conformance::history::{Verdict, replay};
use leasehold_conformance::{Capability, Report, Selection, Suite};

use crate::failure::Failure;
use crate::store_url::StoreUrl;

/// Holds a running store to the contract
///
/// The suite is the one that every store of this project passes. It works in namespaces of its own, with random names,
/// and leaves what it wrote there to expire.
///
/// Exit status: 0 when nothing failed; 1 when something did, also when the store could not be reached; 2 for a command
/// line that cannot be; 3 when the machine failed.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The store
    #[arg(value_name = "URL", required_unless_present = "replay")]
    store: Option<StoreUrl>,

    /// Only the checks whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Make it a failure when the store lacks one of these: `all`, or names such as `hints,revisions`
    #[arg(long, value_name = "LIST", value_parser = Required::parse)]
    require: Option<Required>,

    /// What the seeded checks are drawn from; random unless chosen, and always told
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Keep a concurrent history that breaks the contract as a file in this folder
    #[arg(long, value_name = "FOLDER", default_value_os_t = std::env::temp_dir())]
    histories: PathBuf,

    /// Judge a saved history again, and ask no store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["store", "filter", "require", "seed"])]
    replay: Option<PathBuf>,

    /// Print the report as JSON on stdout and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone)]
struct Required(Vec<Capability>);

impl Required {
    fn parse(list: &str) -> Result<Self, String> {
        Capability::parse_list(list).map(Self).map_err(|error| error.to_string())
    }
}

/// Runs the suite, or judges a saved history.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { store, filter, require, seed, histories, replay, json } = arguments;
    match (replay, store) {
        (Some(path), _) => judge(&path),
        (None, None) => Err(Failure::Usage("the URL of a store is missing".to_owned())),
        (None, Some(store)) => {
            let mut suite = suite(&store)?.histories_in(histories).require(require.map_or(Vec::new(), |list| list.0));
            if let Some(seed) = seed {
                suite = suite.seed(seed);
            }
            let selection = match filter {
                Some(filter) => Selection::default().with_filter(filter),
                None => Selection::default(),
            };
            tell(&checked(suite, &selection), json)
        }
    }
}

/// `leasehold conform-process`: the other process that some checks need.
pub(crate) fn run_other_process() -> Result<ExitCode, Failure> {
    let by_hand = || Failure::Usage("`conform-process` is started by `leasehold conform`".to_owned());
    let url = std::env::var(STORE).map_err(|_| by_hand())?;
    let Ok(url) = url.parse();
    suite(&url)?.work_as_other_process().ok_or_else(by_hand)
}

/// Where the other process finds the URL: it may hold a password, and arguments are for everybody to see.
const STORE: &str = "LEASEHOLD_CONFORM_STORE";

fn suite(store: &StoreUrl) -> Result<Suite, Failure> {
    // A memory store without a name is private to each call, and two handles must share it.
    let shared = Arc::new(store.shared_in_process());
    let program = std::env::current_exe().map_err(|error| Failure::io("this program cannot be found", error))?;
    let (opened, secret) = (shared.clone(), shared);
    Ok(Suite::new(store.to_string(), move |namespace| open(opened.clone(), namespace)).other_process(move || {
        let mut command = Command::new(&program);
        command.arg("conform-process").env(STORE, secret.with_secrets());
        command
    }))
}

async fn open(url: Arc<StoreUrl>, namespace: String) -> Result<Store, Error> {
    // Within the namespace of the URL, if it has one.
    Ok(Store::new(Prefixed::new(url.connect().await?, Namespace::new(namespace)?)))
}

fn checked(suite: Suite, selection: &Selection) -> Report {
    let follows = std::io::stderr().is_terminal();
    let mut ended = 0;
    let report = suite.report_each(selection, |check| {
        ended += 1;
        if follows {
            // Over the line before, and the rest of that cleared.
            eprint!("\r{ended} checks, the last: {}\x1b[K", check.name);
        }
    });
    if follows {
        eprint!("\r\x1b[K");
    }
    report
}

fn tell(report: &Report, json: bool) -> Result<ExitCode, Failure> {
    let text = match json {
        true => serde_json::to_string_pretty(report).map_err(|error| Failure::io("no report", error.into()))?,
        false => format!("seed {}\n{report}", report.seed),
    };
    // Who reads has seen enough when the pipe is closed.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(ExitCode::from(u8::from(!report.is_success())))
}

fn judge(path: &Path) -> Result<ExitCode, Failure> {
    let unreadable = |error: String| Failure::Usage(format!("{} cannot be judged: {error}", path.display()));
    let json = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let judgement = replay(&json).map_err(|error| unreadable(error.to_string()))?;
    let states = judgement.states;
    let (said, status) = match &judgement.verdict {
        Verdict::Ok => (format!("ok: an order explains every answer ({states} states visited)"), 0),
        Verdict::Violation(violation) => (format!("violation\n{violation}"), 1),
        Verdict::Undecided(undecided) => (format!("undecided: {undecided}"), 1),
    };
    let _ = writeln!(std::io::stdout(), "{said}");
    Ok(ExitCode::from(status))
}
