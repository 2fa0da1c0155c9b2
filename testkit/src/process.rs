use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::eventually::eventually_blocking;
use crate::signal;

/// A server process that does not outlive this value, nor the test process.
///
/// Dropping it sends `SIGKILL` and reaps it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` as `owner`, with what it prints appended to `log`.
    ///
    /// `on_orphaned` is what the kernel sends it when the test process ends by any means.
    ///
    /// **The trap:** `PR_SET_PDEATHSIG` fires when the *thread* that made the child ends, not the
    /// process (prctl(2)). The test harness ends a thread with each test and tokio ends idle
    /// blocking threads, so a server started there would die in the middle of things. All
    /// children are therefore made by one thread that never ends.
    pub(crate) fn spawn(
        program: &Path,
        arguments: &[String],
        owner: Owner,
        on_orphaned: OnOrphaned,
        folder: &Path,
        log: &Path,
    ) -> io::Result<Self> {
        let mut command = owner.command(program, Some(on_orphaned));
        let log = File::options().create(true).append(true).open(log)?;
        command
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal goes to the whole foreground group. The servers leave that
            // group, so that they end with the test and not before it.
            .process_group(0);
        let (answer, child) = mpsc::sync_channel(1);
        SPAWNER.send((command, answer)).expect("the spawning thread never ends");
        let child = child.recv().expect("the spawning thread always answers")?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, reaping it if so.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends `request`, wakes it if it is paused, and waits for its end; kills it after `deadline`.
    /// Answers whether it ended by itself.
    pub(crate) fn stop(mut self, request: Signal, deadline: Duration) -> bool {
        // An error means that it has ended already.
        let _ = signal::send(self.pid(), request);
        let _ = signal::resume(self.pid());
        eventually_blocking(deadline, || self.has_ended())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended and was reaped, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The signal for a server whose test process has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnOrphaned {
    Kill,
    /// For a Postgres: its children and its shared memory go only if it shuts down itself. It does
    /// so while paused too, since the kernel wakes a stopped process group that nobody is left to
    /// wake; its paused children cost it 5 s then.
    Quit,
}

/// The user that a server runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// Whoever runs the tests.
    Caller,
    /// The user `postgres`: Postgres and pgbouncer refuse to run as root.
    Postgres,
}

impl Owner {
    /// The user for a server that refuses root.
    pub(crate) fn unprivileged() -> Self {
        if rustix::process::geteuid().is_root() { Self::Postgres } else { Self::Caller }
    }

    /// The command that runs `program` as this user. It becomes the program by `exec`, without a
    /// process between (as `runuser` would leave), so that the child's id is the server's.
    pub(crate) fn command(self, program: &Path, on_orphaned: Option<OnOrphaned>) -> Command {
        // A shell without job control starts what runs in the background with these two ignored,
        // and a server that has just been made would inherit that and miss the signal.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,QUIT", "setpriv"]);
        if let Self::Postgres = self {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        match on_orphaned {
            Some(OnOrphaned::Kill) => command.args(["--pdeathsig", "KILL"]),
            Some(OnOrphaned::Quit) => command.args(["--pdeathsig", "QUIT"]),
            // setpriv insists on something to do.
            None => command.args(["--pdeathsig", "clear"]),
        };
        command.arg("--").arg(program);
        // The user's own defaults (PGHOST, PGOPTIONS, PGSERVICE …) must not reach a private server.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C");
        command
    }

    /// Gives a file or folder made by the caller to this user.
    pub(crate) fn take(self, path: &Path) {
        if let Self::Postgres = self {
            let (user, group) = (id("-u"), id("-g"));
            std::os::unix::fs::chown(path, Some(user), Some(group))
                .unwrap_or_else(|error| panic!("cannot give {} away: {error}", path.display()));
        }
    }
}

fn id(which: &str) -> u32 {
    let output = Command::new("id").args([which, "postgres"]).output();
    output.ok().and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok()).unwrap_or_else(|| {
        panic!(
            "run as root, the tests start Postgres as the user `postgres`, and there is \
                 none: run ./scripts/install-servers"
        )
    })
}

/// Runs a command to its end and answers what it printed, or what it complained of.
pub(crate) fn run(command: Command) -> Result<String, String> {
    run_with_input(command, "")
}

/// As [`run`], with something short to read.
pub(crate) fn run_with_input(mut command: Command, input: &str) -> Result<String, String> {
    let outcome =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().and_then(|mut child| {
            if let Some(mut stdin) = child.stdin.take() {
                // It fails only for a program that has ended already, which tells more itself.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        });
    let output = outcome.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", output.status, complaint.trim_end()))
    }
}

/// Runs blocking work beside the runtime, so that a proxy in the same runtime goes on.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("the runtime shut down meanwhile: {error}"),
        },
    }
}

/// The first file of that name in the folders of `PATH`.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        // Daemons live in sbin, which is not in every user's PATH.
        .chain(["/usr/local/sbin".into(), "/usr/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The end of a server's log, for the message of a panic.
pub(crate) fn end_of_log(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// A lock that a panic in another test thread leaves usable: what it guards is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Spawn = (Command, mpsc::SyncSender<io::Result<Child>>);

static SPAWNER: LazyLock<mpsc::Sender<Spawn>> = LazyLock::new(|| {
    let (sender, requests) = mpsc::channel::<Spawn>();
    std::thread::Builder::new()
        .name("testkit-spawner".into())
        .spawn(move || {
            // The sender is a static and is never dropped, so this loop ends with the process.
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        })
        .expect("the machine can start a thread");
    sender
});
