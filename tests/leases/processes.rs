//! A holder as a process of its own: this very program, run again for one test that is not one.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use leasehold::lock::{Attempt, Locks, Release, Renewal};
use leasehold::{Outcome, connect};
use leasehold_testkit::{Counts, eventually, signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use crate::rig::{RESOURCE, Rig, slack};

const URL: &str = "LEASEHOLD_TEST_HOLDER_URL";
/// The label of its owner; that of the process, if it is not set.
const OWNER: &str = "LEASEHOLD_TEST_HOLDER_OWNER";
const TTL: Duration = Duration::from_secs(2);

/// Holds the lease in a process of its own, and tells what it sees line by line.
#[tokio::test]
#[ignore = "not a test: what the other process runs"]
async fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let locks = Locks::new(connect(&url).await.unwrap());
    let request = match std::env::var(OWNER) {
        Ok(owner) => locks.lock(RESOURCE).owner(owner),
        Err(_) => locks.lock(RESOURCE),
    };
    let lease = request.ttl(TTL).acquire().await.unwrap();
    println!("holding {}", lease.nonce());
    // Looked at often, so that the first thing after a stop is a check.
    while lease.check().is_ok() {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        println!("wall {}", wall.as_secs());
        sleep(Duration::from_millis(5)).await;
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
        Self::start_with(rig, &[]).await
    }

    async fn start_with(rig: &Rig, environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "processes::holder", "--nocapture"])
            .env(URL, &rig.url)
            .envs(environment.iter().copied())
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
    sleep(TTL / 4).await;
    rig.quiet().await;
    // Nothing comes of the end of a lease but its ttl, so that a hint is lost of one that an operator frees.
    let Counts { answer_bytes_read: read, answer_bytes_forwarded: forwarded, .. } = rig.link.counts();
    rig.link.black_hole_dropping();
    signal::kill(holder.pid()).unwrap();
    let killed = Instant::now();
    rig.b.force_release(RESOURCE).await.unwrap();
    eventually(TTL / 4, async || {
        let counts = rig.link.counts();
        counts.answer_bytes_read - read > counts.answer_bytes_forwarded - forwarded
    })
    .await;
    rig.link.pass();
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

pub(crate) async fn a_wall_clock_that_steps_changes_nothing(rig: Rig) {
    let folder = tempfile::tempdir().unwrap();
    let offset = folder.path().join("offset");
    let step = |by: &str| {
        // Written beside and moved there, so that no half of it is read.
        std::fs::write(folder.path().join("next"), by).unwrap();
        std::fs::rename(folder.path().join("next"), &offset).unwrap();
    };
    step("+0");
    let library = faketime();
    let environment = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut holder = Holder::start_with(&rig, &environment).await;
    let nonce = rig.holder().await.unwrap().nonce;
    for (by, seconds) in [("+1h", 3600), ("-1h", -3600)] {
        step(by);
        let stepped = async {
            loop {
                let wall: i64 = holder.line_with("wall").await.rsplit(' ').next().unwrap().parse().unwrap();
                let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
                if (wall - here - seconds).abs() < 60 {
                    return;
                }
            }
        };
        // The clock of the holder alone has really moved.
        tokio::time::timeout(Duration::from_secs(10), stepped).await.unwrap();
        crate::rig::always(TTL * 2, async || rig.holder().await.is_some_and(|holder| holder.nonce == nonce)).await;
    }
}

/// The library that fakes the time of one process.
fn faketime() -> String {
    let mut found = Vec::new();
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"] {
        found.push(format!("{folder}/faketime/libfaketimeMT.so.1"));
    }
    let there = found.iter().find(|library| std::path::Path::new(library).exists());
    there.expect("libfaketime is missing: ./scripts/install-servers").clone()
}

pub(crate) async fn two_processes_are_two_owners(rig: Rig) {
    let holder = Holder::start(&rig).await;
    let seen = rig.holder().await.unwrap();
    assert!(seen.owner.ends_with(&format!(":{}", holder.pid())), "{seen}");
    let refused = rig.b.lock(RESOURCE).owner(seen.owner.as_str()).wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(refused.holder().unwrap().nonce, seen.nonce);
    // The same label does not make it ours: it outlives two ttls of tries.
    crate::rig::always(TTL * 2, async || {
        let attempt = rig.b.lock(RESOURCE).owner(seen.owner.as_str()).try_acquire().await.unwrap();
        matches!(attempt, Attempt::Held(holder) if holder.nonce == seen.nonce)
    })
    .await;
    signal::kill(holder.pid()).unwrap();

    // Nor can one of them give back, or free by its own nonce, what the other took after it.
    let owner = "worker";
    let request = rig.b.lock(RESOURCE).owner(owner).ttl(TTL).renewal(Renewal::Off).wait(TTL * 3);
    let ours = request.acquire().await.unwrap();
    let nonce = ours.nonce();
    let mut holder = Holder::start_with(&rig, &[(OWNER, owner)]).await;
    let theirs = rig.holder().await.unwrap();
    assert_eq!(theirs.owner, owner);
    assert_ne!(theirs.nonce, nonce);
    assert_eq!(ours.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(rig.b.release_by_token(RESOURCE, nonce).await.unwrap(), Outcome::NotApplied);
    crate::rig::always(TTL, async || rig.holder().await.is_some_and(|holder| holder.nonce == theirs.nonce)).await;

    // And the other way round: theirs is freed, and we take it before they know.
    signal::pause(holder.pid()).unwrap();
    assert!(rig.b.release_by_token(RESOURCE, theirs.nonce).await.unwrap().is_applied());
    let ours = rig.b.lock(RESOURCE).owner(owner).acquire().await.unwrap();
    signal::resume(holder.pid()).unwrap();
    assert!(holder.line_with("released").await.contains("AlreadyLost"));
    assert_eq!(rig.holder().await.unwrap().nonce, ours.nonce());
    assert_eq!(ours.release().await.unwrap(), Release::Released);
}
