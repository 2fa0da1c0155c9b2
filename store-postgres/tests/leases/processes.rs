//! Many processes on one table: this very program, run again for one test that is not one.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::lock::{Locks, Release};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::PostgresServer;
use tokio::process::Command;
use tokio::time::Instant;

use crate::{MINUTE, is_soak, locks_on};

const URL: &str = "LEASEHOLD_TEST_WORKER_URL";
const SECONDS: &str = "LEASEHOLD_TEST_WORKER_SECONDS";
const KEYS: usize = 100;
const TASKS: usize = 8;

/// Acquires and releases for a while in a process of its own, and tells how often.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "not a test: what the other processes run"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    let end = Instant::now() + Duration::from_secs(std::env::var(SECONDS).unwrap().parse().unwrap());
    let locks = Locks::new(PostgresStore::connect(&url).await.unwrap());
    let work = async |_| {
        let mut done = 0;
        while Instant::now() < end {
            let resource = format!("key:{}", rand::random_range(0..KEYS));
            let lease = locks.lock(resource).wait(MINUTE).acquire().await.unwrap();
            assert_eq!(lease.release().await.unwrap(), Release::Released);
            done += 1;
        }
        done
    };
    let done: u64 = join_all((0..TASKS).map(work)).await.into_iter().sum();
    // Others are told of a release after it. What a process released just before its end they hear of by nobody, and
    // wait for the ttl.
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("\ndone {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_on_a_hundred_keys_meet_no_deadlock_and_no_error() {
    let (processes, seconds) = if is_soak() { (16, 60) } else { (4, 4) };
    let server = PostgresServer::builder().max_connections(300).start().await;
    let locks = locks_on(&server, "").await;
    let sizes = async || {
        server
            .psql(
                "SELECT pg_relation_size('leasehold_entries') / 1024, pg_relation_size('leasehold_entries_pkey') / 1024,
                 (SELECT count(*) FROM leasehold_entries)",
            )
            .await
    };
    for number in 0..KEYS {
        drop(locks.lock(format!("key:{number}")).acquire().await.unwrap());
    }
    locks.close().await;
    let before = sizes().await;

    let url = format!("{}?max_connections=4", server.url("postgres"));
    let children: Vec<_> = (0..processes)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "processes::worker", "--nocapture"])
                .env(URL, &url)
                .env(SECONDS, seconds.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap()
        })
        .collect();
    let mut done = 0;
    for output in join_all(children.into_iter().map(tokio::process::Child::wait_with_output)).await {
        let output = output.unwrap();
        let (told, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{told}\n{complaint}");
        let count = told.lines().find_map(|line| line.strip_prefix("done ")).unwrap();
        done += count.parse::<u64>().unwrap();
    }
    let after = sizes().await;
    println!(
        "{processes} processes of {TASKS} tasks, {seconds} s, {KEYS} keys: {done} leases, {} a second; \
         KiB of table and of index, and rows: {before} before, {after} after",
        done / seconds
    );
    assert!(done > 0);
    assert_eq!(server.psql("SELECT sum(deadlocks) FROM pg_stat_database").await, "0");
    let log = server.log();
    assert!(!log.contains("ERROR") && !log.contains("deadlock"), "{log}");
    let [table, index, rows] = after.split('|').collect::<Vec<_>>()[..] else { panic!("{after}") };
    // A hundred rows, and the sweeper's own. What their updates leave behind is taken up again, whatever their number.
    assert!(rows.parse::<usize>().unwrap() <= KEYS + 1);
    assert!(table.parse::<u32>().unwrap() <= 4096 && index.parse::<u32>().unwrap() <= 256, "{after}");
}
