use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{OnOrphaned, Owner, Process, blocking, end_of_log, find_in_path};
use crate::{PostgresServer, ReservedPort, signal};

/// A private pgbouncer on 127.0.0.1 before a [`PostgresServer`], for every database of it.
///
/// Its clients log in as `leasehold`, without a password. It refuses what a client sends at the start and pgbouncer
/// cannot keep, as one does that is installed and left alone: sqlx sends `extra_float_digits` unless told not to.
/// It is killed when this value is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    // First: fields are dropped in this order, and the process must be gone before its port is
    // given away and its folder removed.
    process: Process,
    port: ReservedPort,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one with the defaults of [`builder`](Self::builder) and waits until it takes
    /// connections.
    ///
    /// # Panics
    ///
    /// As [`PgBouncerBuilder::start`].
    pub async fn start(server: &PostgresServer, mode: PoolMode) -> Self {
        Self::builder(server).pool_mode(mode).start().await
    }

    /// One that is yet to be configured and started.
    pub fn builder(server: &PostgresServer) -> PgBouncerBuilder {
        PgBouncerBuilder { upstream: server.addr(), mode: PoolMode::Transaction, settings: Vec::new() }
    }

    /// The URL of a database: `postgres://leasehold@127.0.0.1:12345/postgres`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://leasehold@{}/{database}", self.addr())
    }

    /// The address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Everything that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log(&self.folder)).unwrap_or_default()
    }

    /// Stops the process in its tracks (`SIGSTOP`): connections stay open and hang, as do new ones.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn pause(&self) {
        signal::pause(self.pid()).unwrap_or_else(|error| panic!("pgbouncer: {error}"));
    }

    /// Lets a paused process go on (`SIGCONT`).
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn resume(&self) {
        signal::resume(self.pid()).unwrap_or_else(|error| panic!("pgbouncer: {error}"));
    }
}

/// When a client's server connection goes back to the pool. Closed: pgbouncer has these three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolMode {
    /// When the client disconnects.
    Session,
    /// After each transaction: nothing that a session holds (prepared statements, advisory
    /// locks, LISTEN) can be relied on.
    Transaction,
    /// After each statement; transactions of several statements are refused.
    Statement,
}

/// Configures a [`PgBouncer`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start`"]
pub struct PgBouncerBuilder {
    upstream: SocketAddr,
    mode: PoolMode,
    settings: Vec<(String, String)>,
}

impl PgBouncerBuilder {
    /// When server connections are reused; after each transaction by default.
    pub fn pool_mode(mut self, mode: PoolMode) -> Self {
        self.mode = mode;
        self
    }

    /// Reaches the server by way of another address, such as that of a [`Proxy`](crate::Proxy).
    pub fn upstream(mut self, addr: SocketAddr) -> Self {
        self.upstream = addr;
        self
    }

    /// Sets anything else in the section `pgbouncer`, such as `default_pool_size` to `2`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If pgbouncer is not installed, with the command that installs it; if it does not come up
    /// within 10 s, with the end of its log.
    pub async fn start(self) -> PgBouncer {
        blocking(move || self.start_blocking()).await
    }

    fn start_blocking(self) -> PgBouncer {
        let variable = "LEASEHOLD_PGBOUNCER";
        let program = match std::env::var_os(variable) {
            Some(program) => PathBuf::from(program),
            None => find_in_path("pgbouncer").unwrap_or_else(|| {
                panic!("no pgbouncer found: run ./scripts/install-servers, or name one in {variable}")
            }),
        };
        let owner = Owner::unprivileged();
        let mut last_log = String::new();
        // The port was free a moment ago; if another program took it since, pgbouncer ends at once
        // and gets another port.
        for _ in 0..5 {
            let folder = TempDir::with_prefix("leasehold-pgbouncer-").expect("a temporary folder");
            owner.take(folder.path());
            let port = ReservedPort::reserve();
            let config = self.write_config(&folder, &port);
            let process = Process::spawn(
                &program,
                &[config.to_string_lossy().into_owned()],
                owner,
                OnOrphaned::Kill,
                folder.path(),
                &log(&folder),
            );
            let process = process.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
            let mut bouncer = PgBouncer { process, port, folder };
            if bouncer.comes_up() {
                return bouncer;
            }
            last_log = end_of_log(&log(&bouncer.folder));
        }
        panic!("pgbouncer did not come up:\n{last_log}");
    }

    fn write_config(&self, folder: &TempDir, port: &ReservedPort) -> PathBuf {
        let mode = match self.mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        };
        let users = folder.path().join("users.txt");
        fs::write(&users, "\"leasehold\" \"\"\n").expect("the temporary folder can be written");
        let mut config = format!(
            "[databases]\n* = host={} port={}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = {mode}\nadmin_users = leasehold\n",
            self.upstream.ip(),
            self.upstream.port(),
            port.port(),
            users.display(),
        );
        for (name, value) in &self.settings {
            config.push_str(&format!("{name} = {value}\n"));
        }
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, config).expect("the temporary folder can be written");
        file
    }
}

impl PgBouncer {
    fn comes_up(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) && !self.process.has_ended() {
            // Whoever answers is ours if the log says so: a port that is taken ends pgbouncer only
            // a moment after its start.
            let listening = self.log().contains("process up");
            if listening && TcpStream::connect(self.addr()).is_ok() {
                return !self.process.has_ended();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

fn log(folder: &TempDir) -> PathBuf {
    folder.path().join("server.log")
}
