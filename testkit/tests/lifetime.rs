//! Servers end with the test process and not with the thread that asked for them.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use leasehold_testkit::{Family, PgBouncer, PoolMode, PostgresServer, RedisServer, eventually, signal};
use support::DEADLINE;

/// Not a property: what the killed process below runs. It prints ids and waits to be killed.
#[tokio::test]
#[ignore = "run by servers_end_with_a_test_process_that_is_killed"]
async fn process_that_will_be_killed() {
    let redis = RedisServer::start().await;
    let valkey = RedisServer::builder().family(Family::Valkey).start().await;
    let postgres = PostgresServer::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Session).await;
    let paused = RedisServer::start().await;
    paused.pause();
    let mut pids = postgres.psql("select pid from pg_stat_activity where backend_type <> 'client backend'").await;
    for pid in
        [redis.pid().unwrap(), valkey.pid().unwrap(), postgres.pid().unwrap(), pooler.pid(), paused.pid().unwrap()]
    {
        pids.push_str(&format!("\n{pid}"));
    }
    println!("\npids {}", pids.replace('\n', " "));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn servers_end_with_a_test_process_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    // Its folders stay behind, so they go into one that does not. Postgres must get through it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(temporary.path(), open).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_will_be_killed", "--ignored", "--nocapture"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let pids: Vec<u32> = output
        .lines()
        .find_map(|line| Some(line.unwrap().strip_prefix("pids ")?.to_owned()))
        .expect("the process prints the ids")
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert!(pids.len() > 8, "{pids:?}");
    assert!(pids.iter().all(|pid| signal::is_running(*pid)));

    process.kill().unwrap();
    process.wait().unwrap();
    eventually(DEADLINE, async || !pids.iter().any(|pid| signal::is_running(*pid))).await;
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(RedisServer::start())
    })
    .join()
    .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(server.command(&["PING"])), "PONG");
}

#[tokio::test]
async fn many_servers_at_once_get_ports_of_their_own() {
    let starting: Vec<_> = (0..12).map(|_| tokio::spawn(RedisServer::start())).collect();
    let mut servers = Vec::new();
    for server in starting {
        servers.push(server.await.unwrap());
    }
    let mut ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), servers.len());
}

#[tokio::test]
async fn a_start_that_is_dropped_midway_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let builder = RedisServer::builder().config("pidfile", pid_file.to_str().unwrap());
    let start = tokio::time::timeout(std::time::Duration::from_micros(100), builder.start());
    drop(start.await);
    // The server writes the file when it comes up, and leaves it behind when it is killed.
    let mut pid = None;
    eventually(DEADLINE, async || {
        let written = std::fs::read_to_string(&pid_file).unwrap_or_default();
        pid = written.trim().parse().ok();
        pid.is_some()
    })
    .await;
    eventually(DEADLINE, async || !signal::is_running(pid.unwrap())).await;
}
