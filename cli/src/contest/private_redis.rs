//! `--spawn-redis`: a server of the contest's own, for who has one installed and none running.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::contest::process::die_with_parent;
use crate::failure::Failure;
use crate::store_url::StoreUrl;

/// A server that keeps nothing and listens on a socket in a folder of its own: no port is taken, and nobody else gets at
/// it. It ends when this is dropped, and with this process however that ends.
pub(crate) struct PrivateRedis {
    // Dropped in this order: the server first, then what it lives in.
    _server: Child,
    folder: TempDir,
}

/// What is tried, one after the other.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
const SOCKET: &str = "redis.sock";

impl PrivateRedis {
    const STARTS_WITHIN: Duration = Duration::from_secs(15);

    /// Starts the server, and waits until it answers.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let failed = |error| Failure::io("cannot start a Redis server", error);
        let folder = tempfile::Builder::new().prefix("leasehold-").tempdir().map_err(failed)?;
        let socket = folder.path().join(SOCKET);
        let mut server = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("contest-server")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let deadline = Instant::now() + Self::STARTS_WITHIN;
        while UnixStream::connect(&socket).await.is_err() {
            if let Some(status) = server.try_wait().map_err(failed)? {
                return Err(failed(io::Error::other(format!("it ended at once ({status})"))));
            }
            if Instant::now() > deadline {
                return Err(failed(io::Error::from(io::ErrorKind::TimedOut)));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { _server: server, folder })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> StoreUrl {
        let socket = self.folder.path().join(SOCKET);
        StoreUrl::of_socket("redis+unix", &socket)
    }
}

/// `leasehold contest-server FOLDER`: becomes the server. A process of its own, so that it can ask for the death signal
/// before it does.
pub(crate) fn become_server(folder: &Path) -> Result<ExitCode, Failure> {
    die_with_parent();
    let socket: PathBuf = folder.join(SOCKET);
    for program in PROGRAMS {
        let error = std::process::Command::new(program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder)
            .exec();
        if error.kind() != io::ErrorKind::NotFound {
            return Err(Failure::io(format!("cannot start {program}"), error));
        }
    }
    let missing = format!("none of {} is installed", PROGRAMS.join(", "));
    Err(Failure::io("cannot start a Redis server", io::Error::new(io::ErrorKind::NotFound, missing)))
}
