mod cluster;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ReservedPort;
use crate::process::{OnOrphaned, Owner, Process, blocking, end_of_log, lock, run, run_with_input};
use crate::signal;
use cluster::Programs;

/// A private Postgres cluster on 127.0.0.1, with its files in a temporary folder.
///
/// The superuser is `leasehold`, without a password, and the database to begin with is
/// `postgres`. It keeps its port and its data over [`stop_immediate`](Self::stop_immediate),
/// [`stop_fast`](Self::stop_fast) and [`start_again`](Self::start_again), and is shut down when
/// this value is dropped. It does not wait for the disk (`fsync` is off) unless told to.
///
/// Postgres refuses to run as root: then it runs as the user `postgres`, who must be able to
/// reach the folder for temporary files.
///
/// A cluster is about a thousand small files. ext4 gets slow at making so many where as many were
/// removed in the last seconds, so a suite that starts cluster after cluster runs several times
/// faster with `TMPDIR` on a tmpfs with some GiB to spare.
///
/// The methods take `&self`, so a server can be shared by the tasks of a test. A future that is
/// dropped midway leaves its work to finish in the background.
#[derive(Debug)]
pub struct PostgresServer {
    inner: Arc<Inner>,
}

impl PostgresServer {
    /// Starts a cluster with the defaults of [`builder`](Self::builder).
    ///
    /// # Panics
    ///
    /// As [`PostgresBuilder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A cluster that is yet to be configured and started.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// The URL of a database: `postgres://leasehold@127.0.0.1:12345/postgres`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.addr(), database)
    }

    /// The URL for the same server by way of another address, such as that of a
    /// [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn url_through(&self, addr: SocketAddr, database: &str) -> String {
        format!("postgres://{SUPERUSER}@{addr}/{database}")
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

    /// The path of a program that came with the server, such as `pgbench`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.inner.programs.program(name)
    }

    /// The id of the postmaster, the parent of all server processes, or nothing if it was stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        lock(&self.inner.process).as_ref().map(Process::pid)
    }

    /// Everything that the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.inner.log()).unwrap_or_default()
    }

    /// Makes an empty database and answers its URL.
    ///
    /// # Panics
    ///
    /// If there is one of that name.
    pub async fn create_database(&self, name: &str) -> String {
        let quoted = name.replace('"', "\"\"");
        self.psql(&format!("create database \"{quoted}\"")).await;
        self.url(name)
    }

    /// Runs statements in the database `postgres`, by the program `psql`, and answers what they
    /// gave: a line a row, columns parted by `|`, no headings. Each statement is a transaction.
    ///
    /// # Panics
    ///
    /// If a statement fails, with what `psql` says; see [`try_psql`](Self::try_psql).
    pub async fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql).await
    }

    /// As [`psql`](Self::psql), in another database.
    ///
    /// # Panics
    ///
    /// If a statement fails.
    pub async fn psql_in(&self, database: &str, sql: &str) -> String {
        self.try_psql(&self.url(database), sql).await.unwrap_or_else(|complaint| panic!("psql: {sql}: {complaint}"))
    }

    /// Runs statements at any URL, such as that of a [`PgBouncer`](crate::PgBouncer) or through a
    /// [`Proxy`](crate::Proxy). It gives up connecting after 10 s.
    ///
    /// # Errors
    ///
    /// What `psql` said about the first statement that failed, or about the connection.
    pub async fn try_psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let psql = self.inner.psql(url);
        let sql = sql.to_owned();
        let answer = blocking(move || run_with_input(psql, &sql)).await?;
        Ok(answer.trim_end_matches('\n').to_owned())
    }

    /// Stops the postmaster and all its children in their tracks (`SIGSTOP`): connections stay
    /// open and hang, as do new ones.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self) {
        self.inner.with_pid(|postmaster| {
            // The postmaster first: then no child can come while the children are counted.
            signal::pause(postmaster)?;
            for child in signal::children(postmaster) {
                // One that was about to end anyway is as good as paused.
                let _ = signal::pause(child);
            }
            Ok(())
        });
    }

    /// Lets all of it go on (`SIGCONT`). It then serves the requests that came meanwhile.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self) {
        self.inner.with_pid(resume_all);
    }

    /// Ends it as a crash would: connections are dropped, nothing is flushed, and the next start
    /// recovers from the log. (`pg_ctl stop -m immediate`.) Does nothing if it does not run.
    ///
    /// # Panics
    ///
    /// If it has not ended within 20 s.
    pub async fn stop_immediate(&self) {
        self.stop(Signal::QUIT).await;
    }

    /// Ends it in order, aborting open transactions. (`pg_ctl stop -m fast`.) Does nothing if it
    /// does not run.
    ///
    /// # Panics
    ///
    /// If it has not ended within 20 s.
    pub async fn stop_fast(&self) {
        self.stop(Signal::INT).await;
    }

    /// Starts it on the same port with the same data, and waits until it takes connections. One
    /// that still runs is stopped first, as by [`stop_fast`](Self::stop_fast).
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn start_again(&self) {
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            inner.stop(Signal::INT);
            inner.start().unwrap_or_else(|error| panic!("{error}"));
        })
        .await;
    }

    /// Starts a standby that follows this server, and waits until it can be read from.
    ///
    /// `SELECT pg_promote()` makes a server of its own of it. It misses what is written after an
    /// `ALTER SYSTEM SET primary_conninfo = ''` and a `SELECT pg_reload_conf()`.
    ///
    /// # Panics
    ///
    /// If this server does not run, and as [`PostgresBuilder::start`].
    pub async fn start_standby(&self) -> Self {
        let primary = Arc::clone(&self.inner);
        blocking(move || Self { inner: Arc::new(Inner::start_new(&[], |standby| standby.copy(&primary))) }).await
    }

    async fn stop(&self, how: Signal) {
        let inner = Arc::clone(&self.inner);
        blocking(move || inner.stop(how)).await;
    }
}

/// Configures a [`PostgresServer`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start`"]
pub struct PostgresBuilder {
    settings: Vec<(String, String)>,
}

impl Default for PostgresBuilder {
    fn default() -> Self {
        let this = Self { settings: Vec::new() };
        this.fsync(false)
    }
}

impl PostgresBuilder {
    /// Whether it waits until the disk has what it wrote. Off by default, which loses nothing when
    /// the server crashes, only when the machine does. Measurements of durable writes need it on.
    pub fn fsync(self, on: bool) -> Self {
        self.setting("fsync", if on { "on" } else { "off" })
    }

    /// Whether a commit waits for its log record to be written. On by default; if off,
    /// [`PostgresServer::stop_immediate`] can lose commits that were acknowledged.
    pub fn synchronous_commit(self, on: bool) -> Self {
        self.setting("synchronous_commit", if on { "on" } else { "off" })
    }

    /// How many connections it takes. 100 by default.
    pub fn max_connections(self, count: u32) -> Self {
        self.setting("max_connections", &count.to_string())
    }

    /// Sets anything else in `postgresql.conf`, such as `shared_preload_libraries` to
    /// `pg_stat_statements`. Of two for one name the later counts.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the cluster, starts it, and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If Postgres is not installed, with the command that installs it; if it does not come up
    /// within 60 s, with the end of its log.
    pub async fn start(self) -> PostgresServer {
        let make = |inner: &Inner| cluster::unpack(&inner.programs, inner.owner, &inner.data());
        blocking(move || PostgresServer { inner: Arc::new(Inner::start_new(&self.settings, make)) }).await
    }
}

const SUPERUSER: &str = "leasehold";

#[derive(Debug)]
struct Inner {
    programs: Programs,
    owner: Owner,
    // Before the port and the folder: fields are dropped in this order, and the process must be
    // gone before its port is given away and its folder removed.
    process: Mutex<Option<Process>>,
    port: ReservedPort,
    folder: TempDir,
}

impl Inner {
    /// Starts a server on the data that `make` makes.
    fn start_new(settings: &[(String, String)], make: impl Fn(&Self)) -> Self {
        let programs = Programs::find();
        let owner = Owner::unprivileged();
        let mut last_error = String::new();
        // The port was free a moment ago; if another program took it since, the server ends at
        // once and gets another port.
        for _ in 0..5 {
            let folder = TempDir::with_prefix("leasehold-postgres-").expect("a temporary folder");
            owner.take(folder.path());
            let inner = Self {
                programs: programs.clone(),
                owner,
                process: Mutex::new(None),
                port: ReservedPort::reserve(),
                folder,
            };
            make(&inner);
            inner.write_settings(settings);
            match inner.start() {
                Ok(()) => return inner,
                Err(error) if error.contains("in use") => last_error = error,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{last_error}");
    }

    /// Copies the data of a server that runs, to follow it.
    fn copy(&self, primary: &Self) {
        let mut copy = self.owner.command(&self.programs.program("pg_basebackup"), None);
        copy.current_dir(self.folder.path())
            .args(["--pgdata=data", "--write-recovery-conf", "--checkpoint=fast"])
            .args([
                "--no-sync",
                "--host=127.0.0.1",
                &format!("--port={}", primary.port.port()),
                &format!("--username={SUPERUSER}"),
            ]);
        run(copy).unwrap_or_else(|error| panic!("cannot copy {}: {error}", primary.name()));
    }

    fn write_settings(&self, extra: &[(String, String)]) {
        let mut settings =
            format!("listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n", self.port.port());
        for (name, value) in extra {
            settings.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("initdb wrote it");
        // Last, because the last of two lines for one name counts. Writing in place keeps the owner.
        fs::write(&file, before + "\n" + &settings).expect("the temporary folder can be written");
    }

    fn start(&self) -> Result<(), String> {
        let mut running = lock(&self.process);
        let data = self.data();
        let mut process = Process::spawn(
            &self.programs.postgres(),
            &["-D".into(), data.to_string_lossy().into_owned()],
            self.owner,
            OnOrphaned::Quit,
            &data,
            &self.log(),
        )
        .map_err(|error| format!("cannot start Postgres: {error}"))?;
        let started = Instant::now();
        loop {
            if self.is_ready(process.pid()) {
                *running = Some(process);
                return Ok(());
            }
            if process.has_ended() {
                let log = end_of_log(&self.log());
                return Err(format!("{} ended at once:\n{log}", self.name()));
            }
            if started.elapsed() > Duration::from_secs(60) {
                let log = end_of_log(&self.log());
                return Err(format!("{} did not come up:\n{log}", self.name()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The postmaster writes its id in the first line of its lock file and its state in the eighth
    /// (`miscadmin.h`). Unlike a connection to the port, this cannot be another server's answer.
    fn is_ready(&self, pid: u32) -> bool {
        let lock_file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<_> = lock_file.lines().map(str::trim).collect();
        lines.first() == Some(&pid.to_string().as_str()) && matches!(lines.get(7), Some(&("ready" | "standby")))
    }

    fn stop(&self, how: Signal) {
        if let Some(process) = lock(&self.process).take() {
            let ended = stop(process, how);
            assert!(ended, "{} did not end:\n{}", self.name(), end_of_log(&self.log()));
        }
    }

    fn with_pid(&self, act: impl FnOnce(u32) -> std::io::Result<()>) {
        // Under the lock, so that the id cannot become another process's meanwhile.
        let process = lock(&self.process);
        let process = process.as_ref();
        let process = process.unwrap_or_else(|| panic!("{} does not run", self.name()));
        act(process.pid()).unwrap_or_else(|error| panic!("{}: {error}", self.name()));
    }

    fn psql(&self, url: &str) -> Command {
        let mut psql = Owner::Caller.command(&self.programs.psql(), None);
        psql.env("PGCONNECT_TIMEOUT", "10").args([
            "--no-psqlrc",
            "--no-password",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            // Given by `--command`, several statements would be one transaction.
            "--file=-",
            "--dbname",
            url,
        ]);
        psql
    }

    fn name(&self) -> String {
        format!("Postgres on {}", self.port.addr())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A killed postmaster would leave its children for a moment and its shared memory for good.
        if let Some(process) = lock(&self.process).take() {
            stop(process, Signal::QUIT);
        }
    }
}

/// Answers whether it ended by itself; it has ended in any case, and its children too.
fn stop(process: Process, how: Signal) -> bool {
    let postmaster = process.pid();
    let children = signal::children(postmaster);
    // Paused children do not hear the postmaster. It kills them after 5 s, but why wait?
    let _ = resume_all(postmaster);
    let ended = process.stop(how, Duration::from_secs(20));
    if !ended {
        for child in children {
            let _ = signal::kill(child);
        }
    }
    ended
}

fn resume_all(postmaster: u32) -> std::io::Result<()> {
    for child in signal::children(postmaster) {
        let _ = signal::resume(child);
    }
    signal::resume(postmaster)
}
