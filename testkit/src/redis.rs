mod family;
mod resp;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ReservedPort;
use crate::process::{OnOrphaned, Owner, Process, blocking, end_of_log, lock};
use crate::signal;
pub use family::{Family, MissingServer};
use resp::Connection;

/// A private Redis or Valkey on 127.0.0.1, with its files in a temporary folder.
///
/// It keeps nothing on disk unless told to: no snapshots, no append-only file. It keeps its port
/// and its folder over [`kill`](Self::kill) and [`restart`](Self::restart), and is killed when
/// this value is dropped.
///
/// The methods take `&self`, so a server can be shared by the tasks of a test. Unless it says
/// otherwise, a future that is dropped midway leaves its work to finish in the background.
#[derive(Debug)]
pub struct RedisServer {
    inner: Arc<Inner>,
}

impl RedisServer {
    /// Starts a Redis with the defaults of [`builder`](Self::builder).
    ///
    /// # Panics
    ///
    /// As [`RedisBuilder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A Redis that is yet to be configured and started.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// The URL of database 0, with the credentials if there are any: `redis://127.0.0.1:12345`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(self.addr())
    }

    /// The URL for the same server by way of another address, such as that of a
    /// [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn url_through(&self, addr: SocketAddr) -> String {
        match &self.inner.login {
            None => format!("redis://{addr}"),
            Some(Login { user, password }) => {
                let (user, password) = (percent_encoded(user), percent_encoded(password));
                format!("redis://{user}:{password}@{addr}")
            }
        }
    }

    /// The address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.inner.port.addr()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port.port()
    }

    /// What kind of server it is.
    #[must_use]
    pub fn family(&self) -> Family {
        self.inner.family
    }

    /// The id of the process, or nothing if it was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        lock(&self.inner.process).as_ref().map(Process::pid)
    }

    /// Everything that the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.inner.log()).unwrap_or_default()
    }

    /// Sends one command on a connection of its own and answers its reply as text: what a bulk or
    /// simple string holds, a number in decimal, nothing for nil, and the parts of an array on
    /// lines of their own.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached, replies with an error or hangs for 10 s.
    pub async fn command(&self, arguments: &[&str]) -> String {
        let inner = Arc::clone(&self.inner);
        let arguments: Vec<String> = arguments.iter().map(|part| (*part).to_owned()).collect();
        blocking(move || {
            let mut connection = inner
                .connect(Duration::from_secs(10))
                .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", inner.name()));
            connection.command(&arguments).unwrap_or_else(|error| panic!("{}: {arguments:?}: {error}", inner.name()))
        })
        .await
    }

    /// Kills it (`SIGKILL`) and waits for its end: what it had not written to disk is lost.
    /// Does nothing if it does not run.
    pub async fn kill(&self) {
        let inner = Arc::clone(&self.inner);
        blocking(move || drop(lock(&inner.process).take())).await;
    }

    /// Asks it to end (`SIGTERM`) and waits until it has; it then saves what it is configured to
    /// save. A paused server is resumed for that. Does nothing if it does not run.
    ///
    /// # Panics
    ///
    /// If it has not ended within 10 s; it is killed then.
    pub async fn stop_gracefully(&self) {
        let inner = Arc::clone(&self.inner);
        blocking(move || inner.stop()).await;
    }

    /// Stops the process in its tracks (`SIGSTOP`): connections stay open and hang, as do new ones.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self) {
        self.inner.signal(signal::pause);
    }

    /// Lets a paused process go on (`SIGCONT`). It then serves the requests that came meanwhile.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self) {
        self.inner.signal(signal::resume);
    }

    /// Starts it again on the same port with the same folder, and waits until it answers. One that
    /// still runs is stopped first, as by [`stop_gracefully`](Self::stop_gracefully).
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&self) {
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            inner.stop();
            inner.start().unwrap_or_else(|error| panic!("{error}"));
        })
        .await;
    }
}

/// Configures a [`RedisServer`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start`"]
pub struct RedisBuilder {
    family: Family,
    config: Vec<(String, String)>,
    login: Option<Login>,
}

impl Default for RedisBuilder {
    fn default() -> Self {
        Self { family: Family::Redis, config: Vec::new(), login: None }
    }
}

impl RedisBuilder {
    /// Redis (the default) or Valkey.
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Adds a line to the configuration file, `name value`. The value is written as it is, so
    /// that it can have several parts; one with spaces of its own, or an empty one, needs quotes.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Requires this password of the default user (`requirepass`).
    pub fn password(mut self, password: &str) -> Self {
        self.login = Some(Login { user: String::new(), password: password.to_owned() });
        self.config("requirepass", &quoted(password))
    }

    /// Adds an ACL user who may do everything, and disables the default user.
    pub fn user(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: user.to_owned(), password: password.to_owned() });
        let rules = format!("{user} on {} ~* &* +@all", quoted(&format!(">{password}")));
        self.config("user", "default off").config("user", &rules)
    }

    /// Keeps an append-only file, written through on every command, so that acknowledged writes
    /// survive [`RedisServer::kill`].
    pub fn append_only(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "always")
    }

    /// Limits the memory (`"16mb"`) and says what is evicted then (`"allkeys-lru"`).
    pub fn eviction(self, maxmemory: &str, policy: &str) -> Self {
        self.config("maxmemory", maxmemory).config("maxmemory-policy", policy)
    }

    /// Makes it a replica, with the primary's credentials. It has not caught up yet when
    /// [`start`](Self::start) returns: wait until `INFO replication` says
    /// `master_link_status:up`.
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        self.replica_of_through(primary, primary.addr())
    }

    /// As [`replica_of`](Self::replica_of), by way of another address, such as that of a
    /// [`Proxy`](crate::Proxy) that can make the replica lag.
    pub fn replica_of_through(self, primary: &RedisServer, addr: SocketAddr) -> Self {
        let mut this = self.config("replicaof", &format!("{} {}", addr.ip(), addr.port()));
        if let Some(Login { user, password }) = &primary.inner.login {
            if !user.is_empty() {
                this = this.config("masteruser", user);
            }
            this = this.config("masterauth", &quoted(password));
        }
        this
    }

    /// Starts it and waits until it answers `PING`.
    ///
    /// # Panics
    ///
    /// If the server is not installed, with the command that installs it; if it does not come up
    /// within 30 s, with the end of its log.
    pub async fn start(self) -> RedisServer {
        blocking(move || RedisServer { inner: Arc::new(self.start_blocking()) }).await
    }

    fn start_blocking(self) -> Inner {
        let program = self.family.available().unwrap_or_else(|e| panic!("{e}"));
        let mut last_error = String::new();
        // The port was free a moment ago; if another program took it since, the server ends at
        // once and gets another port.
        for _ in 0..5 {
            let inner = Inner {
                family: self.family,
                program: program.clone(),
                login: self.login.clone(),
                process: Mutex::new(None),
                port: ReservedPort::reserve(),
                folder: TempDir::with_prefix("leasehold-redis-").expect("a temporary folder"),
            };
            inner.write_config(&self.config);
            match inner.start() {
                Ok(()) => return inner,
                Err(error) if error.contains("in use") => last_error = error,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{last_error}");
    }
}

#[derive(Debug)]
struct Inner {
    family: Family,
    program: PathBuf,
    login: Option<Login>,
    // Before the port and the folder: fields are dropped in this order, and the process must be
    // gone before its port is given away and its folder removed.
    process: Mutex<Option<Process>>,
    port: ReservedPort,
    folder: TempDir,
}

#[derive(Clone, Debug)]
struct Login {
    /// Empty for the default user.
    user: String,
    password: String,
}

impl Inner {
    fn write_config(&self, extra: &[(String, String)]) {
        let mut config = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsave \"\"\nappendonly no\ndaemonize no\n",
            self.port.port(),
            quoted(&self.folder.path().to_string_lossy()),
        );
        // A replica would wait 5 s for others to join the same transfer.
        config.push_str("repl-diskless-sync-delay 0\n");
        for (name, value) in extra {
            // Only `save ""` takes back an earlier save; of the others the last line counts.
            config.push_str(&format!("{name} {value}\n"));
        }
        fs::write(self.config(), config).expect("the temporary folder can be written");
    }

    fn start(&self) -> Result<(), String> {
        let mut running = lock(&self.process);
        let mut process = Process::spawn(
            &self.program,
            &[self.config().to_string_lossy().into_owned()],
            Owner::Caller,
            OnOrphaned::Kill,
            self.folder.path(),
            &self.log(),
        )
        .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let started = Instant::now();
        loop {
            let answer = self.answers(process.pid());
            if answer.is_ok() {
                *running = Some(process);
                return Ok(());
            }
            if process.has_ended() {
                let log = end_of_log(&self.log());
                return Err(format!("{} ended at once:\n{log}", self.name()));
            }
            if started.elapsed() > Duration::from_secs(30) {
                let log = end_of_log(&self.log());
                return Err(format!("{} did not come up ({answer:?}):\n{log}", self.name()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the server on the port is ready, and is this one: another program may have taken
    /// the port, and ours be about to end for that.
    fn answers(&self, pid: u32) -> std::io::Result<()> {
        let mut connection = self.connect(Duration::from_secs(1))?;
        // PING and not INFO decides: only PING is refused while a dataset is loading.
        connection.command(&["PING"])?;
        let info = connection.command(&["INFO", "server"])?;
        let own = format!("process_id:{pid}");
        if info.lines().any(|line| line.trim_end() == own) {
            Ok(())
        } else {
            Err(std::io::Error::other("another server has the port"))
        }
    }

    fn connect(&self, timeout: Duration) -> std::io::Result<Connection> {
        let mut connection = Connection::open(self.port.addr(), timeout)?;
        match &self.login {
            None => {}
            Some(Login { user, password }) if user.is_empty() => {
                connection.command(&["AUTH", password])?;
            }
            Some(Login { user, password }) => {
                connection.command(&["AUTH", user, password])?;
            }
        }
        Ok(connection)
    }

    fn stop(&self) {
        if let Some(process) = lock(&self.process).take() {
            let ended = process.stop(Signal::TERM, Duration::from_secs(10));
            assert!(ended, "{} did not end:\n{}", self.name(), end_of_log(&self.log()));
        }
    }

    fn signal(&self, signal: fn(u32) -> std::io::Result<()>) {
        // Under the lock, so that the id cannot become another process's meanwhile.
        let process = lock(&self.process);
        let process = process.as_ref();
        let process = process.unwrap_or_else(|| panic!("{} does not run", self.name()));
        signal(process.pid()).unwrap_or_else(|error| panic!("{}: {error}", self.name()));
    }

    fn name(&self) -> String {
        format!("{} on {}", self.program.display(), self.port.addr())
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("redis.conf")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

/// A value in quotes, as the configuration file wants it.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// For the user information of a URL (RFC 3986, 3.2.1); everything but unreserved is escaped.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}
