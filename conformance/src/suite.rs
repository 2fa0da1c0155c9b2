use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Trial};
use serde::Serialize;

use crate::capability::Capability;
use crate::checks::{self, Check};
use crate::history::Tolerance;
use crate::open::{IntoAtomicStore, IntoCacheStore, Opener};
use crate::other_process::{self, OtherProcess};
use crate::report::{CheckReport, Report, Status};
use crate::runner::{Plan, real_runtime};
use crate::verdict::Stop;

/// Everything that a store is held to, to be run against one.
///
/// The closure opens the store in the namespace that it is given: a random name of at most 40 characters out of `a-z`,
/// `0-9` and `_`. Called twice with one namespace it must give two handles on the same data; handles on different
/// namespaces must not see each other. So no check has to clean up, and all run in parallel on a shared server: what they
/// leave behind ends within the hour.
///
/// Each check is a test of its own, run on a thread and a tokio runtime of its own, with a deadline: a store that cannot
/// be opened, hangs or panics fails checks by name. Checks that need a [`Capability`] which the store does not declare are
/// ignored, with the reason.
///
/// Two environment variables are read by [`run`](Self::run):
///
/// - `CONFORMANCE_REQUIRE=all`, or names such as `hints,revisions`: a capability that is missing is a failure. Set it where
///   you test your own store, so that coverage cannot shrink unnoticed.
/// - `CONFORMANCE_REPORT=FILE` appends a line of JSON for each check that was run: a [`CheckReport`] with the suite's name.
///   It works with several suites at once, and under `cargo nextest`, where each check is a process.
#[must_use = "it is run by `run` or `report`"]
pub struct Suite {
    name: String,
    opener: Opener,
    tolerance: Option<Tolerance>,
    stepped: bool,
    deadline: Duration,
    seed: Option<u64>,
    required: Vec<Capability>,
    known_failures: HashMap<String, String>,
    other_process: Option<OtherProcess>,
    rounds: u32,
    histories: Option<PathBuf>,
}

/// Which checks to run, and how many at once.
#[derive(Debug, Clone)]
pub struct Selection {
    filter: Option<String>,
    left_out: Vec<String>,
    at_once: usize,
}

impl Suite {
    /// The suite for a store with the whole contract. The closure answers with the store, or with a `Result` of it.
    pub fn new<F, Fut, By>(name: impl Into<String>, open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCacheStore<By>> + 'static,
    {
        Self::with_opener(name.into(), Opener::of_cache(open))
    }

    /// The suite for a store that has the primitives only.
    pub fn atomic<F, Fut, By>(name: impl Into<String>, open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoAtomicStore<By>> + 'static,
    {
        Self::with_opener(name.into(), Opener::of_atomic(open))
    }

    fn with_opener(name: String, opener: Opener) -> Self {
        Self {
            name,
            opener,
            tolerance: None,
            stepped: false,
            deadline: Duration::from_secs(60),
            seed: None,
            required: Vec::new(),
            known_failures: HashMap::new(),
            other_process: None,
            rounds: 20,
            histories: None,
        }
    }

    /// How much sooner and how much later than measured an entry may end; 5 ms and 250 ms by default.
    pub fn tolerance(mut self, early: Duration, late: Duration) -> Self {
        self.tolerance = Some(Tolerance { early, late });
        self
    }

    /// Runs each check on a clock that stands still until everybody waits, and without tolerance unless one is set.
    ///
    /// Only for a store that lives in this process and counts time on tokio's clock: waiting for a socket would make
    /// the clock jump.
    #[cfg(feature = "stepped-time")]
    pub fn stepped_time(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// What the seeded checks are drawn from; random by default, and always reported.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How long one check may take; 60 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Makes it a failure when the store does not declare these.
    pub fn require(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.required.extend(capabilities);
        self
    }

    /// Says that the store is known to fail a check, and why. Then the check is ignored while it fails, and is an error
    /// once it passes.
    pub fn known_failure(mut self, check: impl Into<String>, reason: impl Into<String>) -> Self {
        self.known_failures.insert(check.into(), reason.into());
        self
    }

    /// How another process is started that comes to [`work_as_other_process`](Self::work_as_other_process) of the same
    /// suite: what the store is to other processes can be checked then. [`run`](Self::run) sees to this by itself.
    pub fn other_process(mut self, command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        self.other_process = Some(OtherProcess::new(command));
        self
    }

    /// How many concurrent histories are recorded and judged for each check of them; 20 by default.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Keeps a concurrent history that breaks the contract as a file in this folder, to be looked at and
    /// [judged again](crate::history::replay). [`run`](Self::run) keeps them in the system's temporary folder by itself.
    pub fn histories_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.histories = Some(folder.into());
        self
    }

    /// The names of all checks, in the order of the table.
    pub fn checks() -> impl Iterator<Item = &'static str> {
        checks::table().map(|check| check.name)
    }

    /// Runs the suite as a test without a harness does: it takes the arguments of `cargo test`, such as filters,
    /// `--list` and `--exact`, prints, and gives the exit status. It connects to nothing for `--list`.
    pub fn run(mut self) -> ExitCode {
        if self.other_process.is_none() {
            // The path cannot be had on some systems; then what needs another process is ignored and says so.
            self.other_process =
                std::env::current_exe().ok().map(|path| OtherProcess::new(move || Command::new(&path)));
        }
        if let Some(status) = self.work_as_other_process() {
            return status;
        }
        self.histories.get_or_insert_with(std::env::temp_dir);
        match std::env::var("CONFORMANCE_REQUIRE").ok().as_deref().map(Capability::parse_list) {
            None => {}
            Some(Ok(required)) => self.required.extend(required),
            Some(Err(error)) => {
                eprintln!("CONFORMANCE_REQUIRE: {error}");
                return ExitCode::from(2);
            }
        }
        let mut arguments = Arguments::from_args();
        if arguments.test_threads.is_none() {
            arguments.test_threads = Some(Selection::default().at_once);
        }
        let name = self.name.clone();
        let unknown = self.unknown_checks();
        let plan = self.into_plan();
        if !arguments.list {
            println!("conformance of {name}, seed {}", plan.seed);
        }
        let lines = Arc::new(Mutex::new(String::new()));
        let trials = checks::table().map(|check| trial(check, &plan, &name, &lines));
        let trials = trials.chain(unknown.into_iter().map(|check| {
            let reason = check.reason.unwrap_or_default();
            Trial::test(check.name, move || Err(reason.into()))
        }));
        let conclusion = libtest_mimic::run(&arguments, trials.collect());
        if let Some(path) = std::env::var_os("CONFORMANCE_REPORT") {
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = append(path.as_ref(), &lines) {
                eprintln!("CONFORMANCE_REPORT: {} cannot be written: {error}", path.display());
                return ExitCode::from(2);
            }
        }
        conclusion.exit_code()
    }

    /// Runs the checks that are selected. It blocks, so async code calls it on a thread for blocking work.
    pub fn report(self, selection: &Selection) -> Report {
        self.report_each(selection, |_| {})
    }

    /// The same, and tells of each check as soon as it has ended.
    pub fn report_each(self, selection: &Selection, mut told: impl FnMut(&CheckReport)) -> Report {
        let suite = self.name.clone();
        let mut unknown = self.unknown_checks();
        unknown.iter().for_each(&mut told);
        let plan = self.into_plan();
        let selected: Vec<_> = checks::table().filter(|check| selection.includes(check.name)).collect();
        let next = Mutex::new(selected.iter().enumerate());
        let (sender, receiver) = mpsc::channel();
        let mut ended = thread::scope(|scope| {
            for _ in 0..selection.at_once.clamp(1, selected.len().max(1)) {
                scope.spawn(|| {
                    let sender = sender.clone();
                    loop {
                        // The guard must be gone before the check runs.
                        let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((place, check)) = taken else { return };
                        // The receiver outlives the scope.
                        let _ = sender.send((place, plan.report(check)));
                    }
                });
            }
            let ended = receiver.iter().take(selected.len()).inspect(|(_, check)| told(check));
            ended.collect::<Vec<_>>()
        });
        ended.sort_by_key(|(place, _)| *place);
        let mut checks: Vec<_> = ended.into_iter().map(|(_, check)| check).collect();
        checks.append(&mut unknown);
        Report { suite, seed: plan.seed, checks }
    }

    /// Does the other process's part of a check, if this process was started as such by the suite; else nothing. Who
    /// uses [`report`](Self::report) and [`other_process`](Self::other_process) calls this first.
    pub fn work_as_other_process(&self) -> Option<ExitCode> {
        let namespace = other_process::namespace()?;
        let worked = match real_runtime() {
            Ok(runtime) => runtime.block_on(other_process::work(&self.opener, &namespace)),
            Err(error) => Stop::failed(format!("no runtime could be started: {error}")),
        };
        Some(match worked {
            Ok(()) => ExitCode::SUCCESS,
            Err(Stop::Failed(reason) | Stop::Ignored(reason)) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        })
    }

    /// A failure for each known failure that names no check.
    fn unknown_checks(&self) -> Vec<CheckReport> {
        let named = |name: &String| checks::table().any(|check| check.name == name);
        let unknown = self.known_failures.keys().filter(|name| !named(name));
        unknown
            .map(|name| CheckReport {
                name: name.clone(),
                group: name.split("::").next().unwrap_or_default().to_owned(),
                status: Status::Failed,
                reason: Some("it is listed as a known failure, and there is no check of this name".to_owned()),
                duration: Duration::ZERO,
            })
            .collect()
    }

    fn into_plan(self) -> Arc<Plan> {
        let Self {
            name: _,
            opener,
            tolerance,
            stepped,
            deadline,
            seed,
            required,
            known_failures,
            other_process,
            rounds,
            histories,
        } = self;
        let tolerance = tolerance.unwrap_or(if stepped { Tolerance::EXACT } else { Tolerance::default() });
        Arc::new(Plan {
            opener,
            tolerance,
            stepped,
            seed: seed.unwrap_or_else(rand::random),
            deadline,
            required,
            known_failures,
            other_process,
            rounds,
            histories,
            never_opened: OnceLock::new(),
        })
    }
}

impl Selection {
    /// Only the checks whose names contain this.
    #[must_use]
    pub fn with_filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = Some(filter.into());
        self
    }

    /// None of the checks whose names contain this, either.
    #[must_use]
    pub fn without(mut self, part: impl Into<String>) -> Self {
        self.left_out.push(part.into());
        self
    }

    /// How many checks run at once; 8 by default, as most of what they do is to wait.
    #[must_use]
    pub fn with_at_once(mut self, at_once: usize) -> Self {
        self.at_once = at_once;
        self
    }

    /// Whether it has this check.
    pub fn includes(&self, check: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| check.contains(filter))
            && !self.left_out.iter().any(|part| check.contains(part))
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self { filter: None, left_out: Vec::new(), at_once: 8 }
    }
}

/// One line of the file of `CONFORMANCE_REPORT`.
#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    #[serde(flatten)]
    check: &'a CheckReport,
}

fn trial(check: &'static Check, plan: &Arc<Plan>, suite: &str, lines: &Arc<Mutex<String>>) -> Trial {
    let (plan, suite, lines) = (plan.clone(), suite.to_owned(), lines.clone());
    Trial::ignorable_test(check.name, move || {
        let report = plan.report(check);
        let line = serde_json::to_string(&Line { suite: &suite, check: &report }).map_err(|error| error.to_string())?;
        {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_str(&line);
            lines.push('\n');
        }
        let CheckReport { status, reason, .. } = report;
        match status {
            Status::Passed => Ok(Completion::Completed),
            Status::Ignored => Ok(Completion::ignored_with(reason.unwrap_or_default())),
            Status::Failed => Err(reason.unwrap_or_default().into()),
        }
    })
}

/// Appends in one write, so that the lines of two processes do not mix.
fn append(path: &Path, lines: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(lines.as_bytes())
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("name", &self.name).finish_non_exhaustive()
    }
}
