//! A holder as a process of its own: this very program, run again for one test that is not one.

use std::process::Stdio;
use std::time::Duration;

use leasehold::connect;
use leasehold::lock::{Locks, Release};
use leasehold_testkit::{eventually, signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use crate::rig::{RESOURCE, Rig, slack};

const URL: &str = "LEASEHOLD_TEST_HOLDER_URL";
const TTL: Duration = Duration::from_secs(2);

/// Holds the lease in a process of its own, and tells what it sees line by line.
#[tokio::test]
#[ignore = "not a test: what the other process runs"]
async fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let locks = Locks::new(connect(&url).await.unwrap());
    let lease = locks.lock(RESOURCE).ttl(TTL).acquire().await.unwrap();
    println!("holding {}", lease.nonce());
    // In a tight loop, so that the first thing after a stop is a check.
    while lease.check().is_ok() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
    println!("lost");
    println!("released {:?}", lease.release().await.unwrap());
}

struct Holder {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(rig: &Rig) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "processes::holder", "--nocapture"])
            .env(URL, &rig.url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut holder = Self { process, lines };
        holder.line_with("holding").await;
        holder
    }

    fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    /// The next line with this word, of the many that a test program prints.
    async fn line_with(&mut self, word: &str) -> String {
        let told = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(word) {
                    return line;
                }
            }
            panic!("the holder ended without a word of {word:?}");
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.unwrap()
    }
}

pub(crate) async fn a_killed_holder_is_followed_though_hints_are_lost(rig: Rig) {
    let holder = Holder::start(&rig).await;
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).wait(Duration::from_secs(30)).acquire());
    eventually(Duration::from_secs(5), async || rig.a.stats().waiting == 1).await;
    sleep(TTL / 2).await;
    signal::kill(holder.pid()).unwrap();
    let killed = Instant::now();
    drop(waiter.await.unwrap().unwrap());
    // The ttl, and one interval of the waiter's.
    assert!(killed.elapsed() < TTL + slack(TTL) + Duration::from_millis(500), "{:?}", killed.elapsed());
}

pub(crate) async fn a_stopped_holder_finds_that_it_has_lost(rig: Rig) {
    let mut holder = Holder::start(&rig).await;
    signal::pause(holder.pid()).unwrap();
    let b = rig.b.lock(RESOURCE).wait(TTL * 3).acquire().await.unwrap();
    sleep(TTL).await;
    signal::resume(holder.pid()).unwrap();
    holder.line_with("lost").await;
    assert!(holder.line_with("released").await.contains("AlreadyLost"));
    assert_eq!(rig.holder().await.unwrap().nonce, b.nonce());
    assert_eq!(b.release().await.unwrap(), Release::Released);
}

pub(crate) async fn two_processes_are_two_owners(rig: Rig) {
    let holder = Holder::start(&rig).await;
    let seen = rig.holder().await.unwrap();
    assert!(seen.owner.ends_with(&format!(":{}", holder.pid())), "{seen}");
    let refused = rig.b.lock(RESOURCE).owner(seen.owner.as_str()).wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(refused.holder().unwrap().nonce, seen.nonce);
    // The same label does not make it ours: it outlives two ttls of tries.
    sleep(TTL * 2).await;
    assert_eq!(rig.holder().await.unwrap().nonce, seen.nonce);
}
