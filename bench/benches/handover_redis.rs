//! How long a lock is free between two processes on Redis, in round trips of their own link: from the call that releases
//! it to the lease of whoever waited.
//!
//! `cargo bench -p leasehold-bench --bench handover_redis`
//!
//! Two processes take turns on one lock. What is counted is the time between the moment before one calls `release` and
//! the moment after the other's `acquire` has come back. A round trip is a `get` over the same link, asked for while the
//! one holds the lease and the other sleeps on it. It is done on the machine itself, where waking up tasks and processes
//! counts for most, and over links whose answers, and with them the hints, take longer.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::lock::{Locks, Release};
use leasehold_core::{AtomicStore, Key};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::{Proxy, RedisServer};

const TURNS: usize = 200;
/// What tells the two processes of a run where the server is.
const URL: &str = "HANDOVER_URL";
const PAUSE: &str = "HANDOVER_PAUSE_MICROS";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if let Ok(url) = std::env::var(URL) {
        return take_turns(&url).await;
    }
    let server = RedisServer::start().await;
    for link in [0, 1, 5].map(Duration::from_millis) {
        let proxy = Proxy::start(server.addr());
        proxy.delay_answers(link);
        let url = if link.is_zero() { server.url() } else { server.url_through(proxy.addr()) };
        // Whoever has released lets the other have its turn, and waits before it asks for the next.
        let pause = (link * 6).max(Duration::from_millis(2));
        let events = tokio::task::spawn_blocking(move || run_two(&url, pause)).await.expect("a run");
        println!("handover_redis answers {} ms late: {}", link.as_millis(), summary(events));
    }
}

/// Runs the two processes, and answers what they say they have done.
fn run_two(url: &str, pause: Duration) -> Vec<Event> {
    let program = std::env::current_exe().expect("the path of this program");
    let one = || {
        Command::new(&program)
            .env(URL, url)
            .env(PAUSE, pause.as_micros().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process")
    };
    let both = [one(), one()];
    let mut events = Vec::new();
    for (process, child) in both.into_iter().enumerate() {
        let output = child.wait_with_output().expect("an end");
        assert!(output.status.success(), "a process failed");
        let said = String::from_utf8(output.stdout).expect("text");
        events.extend(said.lines().map(|line| Event::parse(process, line)));
    }
    events.sort_by_key(|event| event.at);
    events
}

fn summary(events: Vec<Event>) -> String {
    let trips = median(events.iter().filter(|event| event.what == What::Trip).map(|event| event.at));
    let turns: Vec<_> = events.iter().filter(|event| event.what != What::Trip).collect();
    let handovers = turns.windows(2).filter_map(|pair| match pair {
        [released, acquired]
            if released.what == What::Releases
                && acquired.what == What::Acquired
                && released.process != acquired.process =>
        {
            Some(acquired.at - released.at)
        }
        _ => None,
    });
    let mut handovers: Vec<_> = handovers.collect();
    handovers.sort_unstable();
    assert!(handovers.len() > TURNS, "most turns are handed over, and these were {}", handovers.len());
    let (p50, p99) = (handovers[handovers.len() / 2], handovers[handovers.len() * 99 / 100]);
    format!(
        "{} hand-overs, p50 {} us, p99 {} us; a round trip {trips} us; p50 in round trips {:.2}",
        handovers.len(),
        p50,
        p99,
        p50 as f64 / trips as f64
    )
}

/// What a process did, and when, in microseconds; of a trip, how long it took.
struct Event {
    process: usize,
    what: What,
    at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Acquired,
    Releases,
    Trip,
}

impl Event {
    fn parse(process: usize, line: &str) -> Self {
        let (what, at) = line.split_once(' ').expect("two words");
        let what = match what {
            "acquired" => What::Acquired,
            "releases" => What::Releases,
            _ => What::Trip,
        };
        Self { process, what, at: at.parse().expect("a number") }
    }
}

async fn take_turns(url: &str) {
    let pause = std::env::var(PAUSE).expect("a pause").parse().map(Duration::from_micros).expect("a number");
    let store = RedisStore::connect(RedisConfig::from_url(url).expect("a URL")).await.expect("a server");
    let (locks, other) = (Locks::new(store.clone()), Key::new("other").expect("a key"));
    let mut said = Vec::new();
    for _ in 0..TURNS {
        let lease = locks.lock("turn").acquire().await.expect("a turn");
        said.push(("acquired", micros()));
        // The other has asked for its turn by then, and listens.
        tokio::time::sleep(pause * 2).await;
        let asked = micros();
        store.get(&other).await.expect("an answer");
        said.push(("trip", micros() - asked));
        tokio::time::sleep(pause).await;
        said.push(("releases", micros()));
        assert_eq!(lease.release().await.expect("an answer"), Release::Released);
        tokio::time::sleep(pause).await;
    }
    let mut out = std::io::stdout().lock();
    for (what, at) in said {
        writeln!(out, "{what} {at}").expect("somebody who reads");
    }
}

/// The time that the processes of one machine share.
fn micros() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(time.as_micros()).expect("a clock of our time")
}

fn median(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}
