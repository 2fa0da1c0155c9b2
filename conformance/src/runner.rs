use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::capability::Capability;
use crate::checks::{Check, Need};
use crate::history::Tolerance;
use crate::open::Opener;
use crate::other_process::OtherProcess;
use crate::report::{CheckReport, Status};
use crate::subject::Subject;
use crate::verdict::{Stop, Verdict};

/// All that is chosen about a run, shared by its checks.
pub(crate) struct Plan {
    pub(crate) opener: Opener,
    pub(crate) tolerance: Tolerance,
    pub(crate) stepped: bool,
    pub(crate) seed: u64,
    pub(crate) deadline: Duration,
    pub(crate) required: Vec<Capability>,
    pub(crate) known_failures: HashMap<String, String>,
    pub(crate) other_process: Option<OtherProcess>,
    pub(crate) rounds: u32,
    pub(crate) histories: Option<PathBuf>,
    /// How long a check waited in vain for the store to open. The others need not wait for it again.
    pub(crate) never_opened: OnceLock<Duration>,
}

impl Plan {
    /// Runs one check and judges it by what is known to fail.
    pub(crate) fn report(self: &Arc<Self>, check: &'static Check) -> CheckReport {
        let started = Instant::now();
        let verdict = self.judge(check, self.run(check));
        let (status, reason) = match verdict {
            Ok(()) => (Status::Passed, None),
            Err(Stop::Failed(reason)) => (Status::Failed, Some(reason)),
            Err(Stop::Ignored(reason)) => (Status::Ignored, Some(reason)),
        };
        let (name, group) = (check.name.to_owned(), check.group.to_owned());
        CheckReport { name, group, status, reason, duration: started.elapsed() }
    }

    fn judge(&self, check: &Check, verdict: Verdict) -> Verdict {
        let Some(why) = self.known_failures.get(check.name) else { return verdict };
        match verdict {
            Ok(()) => {
                Stop::failed(format!("it is listed as a known failure ({why}), and passes: take it off the list"))
            }
            Err(Stop::Failed(reason)) => Err(Stop::Ignored(format!("known to fail: {why}\n{reason}"))),
            ignored => ignored,
        }
    }

    /// Runs a check on a thread of its own. One that hangs, in a future or in blocking code, is left behind there.
    fn run(self: &Arc<Self>, check: &'static Check) -> Verdict {
        if let Some(waited) = self.never_opened.get() {
            return Stop::failed(format!("the store did not open within {waited:?} for another check"));
        }
        let (plan, opened) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = mpsc::channel();
        let work = {
            let opened = opened.clone();
            move || {
                let verdict = catch_unwind(AssertUnwindSafe(|| plan.conduct(check, &opened)));
                let verdict =
                    verdict.unwrap_or_else(|panic| Some(Stop::failed(format!("panicked: {}", told(&*panic)))));
                // Who waited has given up when nobody receives it.
                let _ = sender.send(verdict);
            }
        };
        if let Err(error) = thread::Builder::new().name(check.name.to_owned()).spawn(work) {
            return Stop::failed(format!("no thread could be started: {error}"));
        }
        // A future that hangs is dropped at the deadline. What blocks its thread is not heard of even a little later.
        match receiver.recv_timeout(self.deadline + self.deadline / 10) {
            Ok(Some(verdict)) => verdict,
            Ok(None) | Err(RecvTimeoutError::Timeout) if opened.load(Ordering::Acquire) => {
                Stop::failed(format!("hangs: it came to no end within {:?}", self.deadline))
            }
            Ok(None) | Err(RecvTimeoutError::Timeout) => {
                let _ = self.never_opened.set(self.deadline);
                Stop::failed(format!("the store did not open within {:?}", self.deadline))
            }
            Err(RecvTimeoutError::Disconnected) => Stop::failed("the thread of the check ended without a verdict"),
        }
    }

    /// Runs a check on a runtime of its own. Nothing when it came to no end in time.
    fn conduct(&self, check: &Check, opened: &AtomicBool) -> Option<Verdict> {
        let runtime = match self.runtime() {
            Ok(runtime) => runtime,
            Err(error) => return Some(Stop::failed(format!("no runtime could be started: {error}"))),
        };
        // Stepped time runs as fast as it can: there the limit is for what would wait in it for ever.
        let limit = if self.stepped { self.deadline.max(LONGEST_STEPPED) } else { self.deadline };
        let work = async {
            let namespace = format!("conformance_{:016x}", rand::random::<u64>());
            let store = match self.opener.open(&namespace).await {
                Ok(store) => store,
                Err(error) => return Stop::failed(format!("the store could not be opened: {error:#}")),
            };
            opened.store(true, Ordering::Release);
            for &need in check.needs {
                self.see_to(need, &store)?;
            }
            (check.run)(&Subject::new(store, namespace, self)).await
        };
        let verdict = runtime.block_on(async { timeout(limit, work).await.ok() });
        // What the store still does on its blocking threads holds nobody up.
        runtime.shutdown_background();
        verdict
    }

    fn see_to(&self, need: Need, store: &crate::handle::Handle) -> Verdict {
        let capabilities = store.capabilities();
        let unmet = match need {
            Need::Cache if store.has_cache() => return Ok(()),
            Need::Cache => "it is about a CacheStore, and the suite was made for the primitives only".to_owned(),
            Need::Without(capability) if !capability.is_declared(&capabilities) => return Ok(()),
            Need::Without(capability) => format!("it is about stores without `{capability}`"),
            Need::Capable(capability) if capability.is_declared(&capabilities) => return Ok(()),
            Need::Capable(capability) if self.required.contains(&capability) => {
                return Stop::failed(format!("`{capability}` is required, and the store does not declare it"));
            }
            Need::Capable(capability) => format!("the store does not declare `{capability}`"),
        };
        Err(Stop::Ignored(unmet))
    }

    #[cfg(feature = "stepped-time")]
    fn runtime(&self) -> std::io::Result<Runtime> {
        match self.stepped {
            true => Builder::new_current_thread().enable_all().start_paused(true).build(),
            false => real_runtime(),
        }
    }

    #[cfg(not(feature = "stepped-time"))]
    fn runtime(&self) -> std::io::Result<Runtime> {
        debug_assert!(!self.stepped, "only the feature can set it");
        real_runtime()
    }
}

/// Far longer than any check takes on stepped time.
const LONGEST_STEPPED: Duration = Duration::from_secs(60);

/// A runtime on the true clock. Two workers: races need two.
pub(crate) fn real_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// What a panic said.
fn told(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(message) => message,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("without a message"),
    }
}
