//! This very program, started once more: what a store is to another process, only another process can tell.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::handle::Handle;
use crate::open::Opener;
use crate::subject::{key, long};
use crate::verdict::{Stop, Verdict};

/// The namespace that the other process is to work in.
const VARIABLE: &str = "LEASEHOLD_CONFORMANCE_OTHER_PROCESS";

/// How to start the other process, so that it comes to the same suite.
#[derive(Clone)]
pub(crate) struct OtherProcess(Arc<dyn Fn() -> Command + Send + Sync>);

/// What each of the two adds, for the other to find.
pub(crate) const FROM_THE_FIRST: &str = "added-by-the-first-process";
pub(crate) const FROM_THE_OTHER: &str = "added-by-the-other-process";

/// The other process, after it has added its key. It is killed at the end.
pub(crate) struct Running {
    child: Child,
    /// Whether it saw what the first process had added.
    pub(crate) saw_the_first: bool,
}

impl OtherProcess {
    pub(crate) fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Self(Arc::new(command))
    }

    /// Starts it, and waits until the store has answered to it. This blocks: the check has its thread for itself.
    pub(crate) fn start(&self, namespace: &str) -> Verdict<Running> {
        let mut command = (self.0)();
        command.env(VARIABLE, namespace).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Stop::failed(format!("the other process could not be started: {error}")),
        };
        let mut running = Running { child, saw_the_first: false };
        let mut line = String::new();
        if let Some(stdout) = running.child.stdout.as_mut() {
            // What cannot be read is no answer, and told as such below.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match line.trim() {
            "saw it" => running.saw_the_first = true,
            "saw nothing" => {}
            _ => {
                let mut complaint = String::new();
                if let Some(mut stderr) = running.child.stderr.take() {
                    let _ = stderr.read_to_string(&mut complaint);
                }
                return Stop::failed(format!("the other process gave no answer: {}{complaint}", line.trim()));
            }
        }
        Ok(running)
    }
}

impl Running {
    /// Kills it, without a chance to write or close anything, and waits for its end.
    pub(crate) fn kill(mut self) -> Verdict {
        match self.child.kill().and_then(|()| self.child.wait()) {
            Ok(_) => Ok(()),
            Err(error) => Stop::failed(format!("the other process could not be killed: {error}")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The namespace to work in, if this is the other process.
pub(crate) fn namespace() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// What the other process does: it looks for what the first has added, adds a key itself, says so, and waits to be
/// killed.
pub(crate) async fn work(opener: &Opener, namespace: &str) -> Verdict {
    let store: Handle = match opener.open(namespace).await {
        Ok(store) => store,
        Err(error) => return Stop::failed(format!("the store could not be opened: {error:#}")),
    };
    let found = store.get(&key(FROM_THE_FIRST)).await?;
    store.must_add(&key(FROM_THE_OTHER), FROM_THE_OTHER, long()).await?;
    let answer = if found.is_some_and(|entry| entry.value == FROM_THE_FIRST) { "saw it" } else { "saw nothing" };
    let mut stdout = std::io::stdout();
    // When nobody reads it any more, this process has nothing left to do anyway.
    let _ = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
    // The first process holds the other end, so this ends with it at the latest.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
