//! This very program, started once more: what a store is to another process, only another process can tell.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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

/// What the answer of the other process begins with: its program may print as well.
const ANSWER: &str = "leasehold-conformance: ";
const SAW_IT: &str = "saw it";
const SAW_NOTHING: &str = "saw nothing";

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
        const PATIENCE: Duration = Duration::from_secs(30);
        let mut command = (self.0)();
        command.env(VARIABLE, namespace).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Stop::failed(format!("the other process could not be started: {error}")),
        };
        let mut running = Running { child, saw_the_first: false };
        let complaints = Complaints::of(running.child.stderr.take());
        let answer = match answer_in(running.child.stdout.take()).recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => format!("none within {PATIENCE:?}"),
        };
        match &*answer {
            SAW_IT => running.saw_the_first = true,
            SAW_NOTHING => {}
            _ => {
                // Dead, it has said all that it had to say.
                running.kill()?;
                return Stop::failed(format!("the other process gave no answer: {answer}{}", complaints.told()));
            }
        }
        Ok(running)
    }
}

/// The answer among what is printed, which is read to its end, so that printing never blocks.
fn answer_in(stdout: Option<ChildStdout>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n')) {
            let Ok(line) = line else { return };
            if let Some(answer) = String::from_utf8_lossy(&line).trim().strip_prefix(ANSWER) {
                // Nobody waits any more: it came too late.
                let _ = sender.send(answer.to_owned());
            }
        }
    });
    receiver
}

/// What is printed to stderr, which is read all the while for the same reason.
struct Complaints {
    heard: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Complaints {
    fn of(stderr: Option<ChildStderr>) -> Self {
        const MOST: usize = 16 * 1024;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (sender, ended) = mpsc::channel();
        let kept = heard.clone();
        thread::spawn(move || {
            let _ended = sender;
            let Some(mut stderr) = stderr else { return };
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = MOST - kept.len();
                kept.extend_from_slice(&part[..read.min(room)]);
            }
        });
        Self { heard, ended }
    }

    /// What was said by a process that has ended.
    fn told(self) -> String {
        // What it has started may hold the other end for longer.
        const LAST_WORDS: Duration = Duration::from_secs(1);
        let _ = self.ended.recv_timeout(LAST_WORDS);
        String::from_utf8_lossy(&self.heard.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Running {
    /// Kills it, without a chance to write or close anything, and waits for its end.
    pub(crate) fn kill(&mut self) -> Verdict {
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
    let answer = if found.is_some_and(|entry| entry.value == FROM_THE_FIRST) { SAW_IT } else { SAW_NOTHING };
    let mut stdout = std::io::stdout();
    // Begun on a line of its own, whatever was printed before. When nobody reads it any more, this process has nothing left to do anyway.
    let _ = writeln!(stdout, "\n{ANSWER}{answer}").and_then(|()| stdout.flush());
    // The first process holds the other end, so this ends with it at the latest.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
