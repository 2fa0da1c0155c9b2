//! Whole leases on Redis, acquired and released, beside rslock (which has no fence) and bare `SET NX PX` and `DEL`.
//!
//! `cargo bench -p leasehold-bench --bench lease_redis`
//!
//! The three take turns in short rounds on one server, so that whatever else the machine does falls on all of them;
//! what counts is the median of the ratios of neighbouring rounds. Every task has a lock of its own: it is the locks
//! that are measured here, and not the waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::lock::{Locks, Release, Renewal};
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, Value};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::RedisServer;
use rslock::LockManager;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = RedisServer::start().await;
    let config = RedisConfig::from_url(&server.url()).expect("a URL").with_deadline(TTL);
    let locks = Locks::new(RedisStore::connect(config).await.expect("a server"));
    let peer = LockManager::new(vec![server.url()]);
    let client = redis::Client::open(server.url()).expect("an address");
    let bare = client.get_multiplexed_async_connection().await.expect("a server");
    for tasks in [1, 64] {
        let mut rounds: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            let rates = [
                measure(tasks, |task| leases(locks.clone(), task)).await,
                measure(tasks, |task| peers(peer.clone(), task)).await,
                measure(tasks, |task| bare_pairs(bare.clone(), task)).await,
            ];
            // The first round warms up.
            if round > 0 {
                rounds.iter_mut().zip(rates).for_each(|(rounds, rate)| rounds.push(rate));
            }
        }
        let [leases, peers, bare] = &rounds;
        let ratio = |to: &[f64]| median(leases.iter().zip(to).map(|(lease, to)| lease / to));
        println!(
            "lease_redis tasks={tasks}: leases {:.0}/s, rslock {:.0}/s, bare {:.0}/s; leases to rslock {:.2}, to bare {:.2}",
            median(leases.iter().copied()),
            median(peers.iter().copied()),
            median(bare.iter().copied()),
            ratio(peers),
            ratio(bare),
        );
    }
}

/// Pairs in a second, of so many tasks at once.
async fn measure<F>(tasks: usize, pairs: impl Fn(usize) -> F) -> f64
where
    F: Future<Output = u64> + Send + 'static,
{
    let started = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pairs(task))).collect();
    let mut pairs = 0;
    for task in running {
        pairs += task.await.expect("a task that does not panic");
    }
    pairs as f64 / started.elapsed().as_secs_f64()
}

async fn leases(locks: Locks, task: usize) -> u64 {
    let resource = format!("orders:{task}");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let lease = locks.lock(&resource).ttl(TTL).renewal(Renewal::Auto).acquire().await.expect("a free lock");
        assert_eq!(lease.release().await.expect("an answer"), Release::Released);
        pairs += 1;
    }
    pairs
}

async fn peers(manager: LockManager, task: usize) -> u64 {
    let resource = format!("peer:{task}");
    let manager = Arc::new(manager);
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let lock = manager.lock(resource.as_bytes(), TTL).await.expect("a free lock");
        manager.unlock(&lock).await;
        pairs += 1;
    }
    pairs
}

async fn bare_pairs(mut connection: MultiplexedConnection, task: usize) -> u64 {
    let key = format!("bare:{task}");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let mut set = redis::cmd("SET");
        set.arg(&key).arg("0123456789abcdef0123456789abcdef").arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        assert_eq!(connection.send_packed_command(&set).await.expect("an answer"), Value::Okay);
        let del = redis::cmd("DEL").arg(&key).take();
        assert_eq!(connection.send_packed_command(&del).await.expect("an answer"), Value::Int(1));
        pairs += 1;
    }
    pairs
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
