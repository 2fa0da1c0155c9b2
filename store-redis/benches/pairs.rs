//! Fenced `try_add` and `try_remove` beside bare `SET NX PX` and `DEL`, on the same driver and the same server.
//!
//! `cargo bench -p leasehold-redis --bench pairs -- [redis|valkey] [rounds]`
//!
//! The two take turns in short rounds, so that whatever else the machine does falls on both; what counts is the median
//! of the ratios of neighbouring rounds. The processor time of the server and of this process tell where it goes.

use std::time::{Duration, Instant};

use leasehold_core::{AddOutcome, AtomicStore, Key, Outcome, Ttl};
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, Value};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::{Family, RedisServer};

/// As long as what a lease writes.
const VALUE: &str = "L1 0123456789abcdef0123456789abcdef 1764495000000 host-name:12345";
const MILLIS: u64 = 30_000;
const ROUND: Duration = Duration::from_millis(400);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let named = |family: &Family| arguments.contains(&family.to_string());
    let families: Vec<_> = Family::ALL.into_iter().filter(named).collect();
    let families = if families.is_empty() { Family::ALL.to_vec() } else { families };
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(15);
    for family in families {
        let server = RedisServer::builder().family(family).start().await;
        for tasks in [1, 8, 64] {
            compare(&server, tasks, rounds).await;
        }
    }
}

async fn compare(server: &RedisServer, tasks: usize, rounds: usize) {
    let config = RedisConfig::from_url(&server.url()).expect("a URL").with_deadline(Duration::from_secs(30));
    let store = RedisStore::connect(config).await.expect("a server");
    let bare = connect(server).await;
    let (mut fenced_rounds, mut bare_rounds) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let fenced = measure(server, tasks, |task| fenced_pairs(store.clone(), task)).await;
        let bare = measure(server, tasks, |task| bare_pairs(bare.clone(), task)).await;
        // The first round warms up.
        if round > 0 {
            fenced_rounds.push(fenced);
            bare_rounds.push(bare);
        }
    }
    let ratios = fenced_rounds.iter().zip(&bare_rounds).map(|(fenced, bare)| fenced.rate / bare.rate);
    println!("{} tasks={tasks} ratio={:.2}", server.family(), median(ratios));
    for (name, rounds) in [("fenced", &fenced_rounds), ("bare", &bare_rounds)] {
        println!(
            "  {name:7} {:8.0} pairs/s, processor time a pair: server {:.1} us, client {:.1} us",
            median(rounds.iter().map(|round| round.rate)),
            median(rounds.iter().map(|round| round.server_micros)),
            median(rounds.iter().map(|round| round.client_micros)),
        );
    }
}

struct Round {
    rate: f64,
    server_micros: f64,
    client_micros: f64,
}

async fn measure<F>(server: &RedisServer, tasks: usize, pairs: impl Fn(usize) -> F) -> Round
where
    F: Future<Output = u64> + Send + 'static,
{
    let (started, server_before, client_before) = (Instant::now(), server_time(server).await, client_time());
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pairs(task))).collect();
    let mut pairs = 0;
    for task in running {
        pairs += task.await.expect("a task that does not panic");
    }
    let pairs = pairs as f64;
    Round {
        rate: pairs / started.elapsed().as_secs_f64(),
        server_micros: (server_time(server).await - server_before) * 1e6 / pairs,
        client_micros: (client_time() - client_before) * 1e6 / pairs,
    }
}

async fn fenced_pairs(store: RedisStore, task: usize) -> u64 {
    let key = Key::new(format!("lock:orders:{task}")).expect("a key");
    let ttl = Ttl::from_millis(MILLIS).expect("a ttl");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let added = store.try_add(&key, VALUE.into(), ttl).await.expect("an answer");
        assert!(matches!(added, AddOutcome::Added(_)), "{added:?}");
        assert_eq!(store.try_remove(&key, VALUE.as_bytes()).await.expect("an answer"), Outcome::Applied);
        pairs += 1;
    }
    pairs
}

async fn bare_pairs(mut connection: MultiplexedConnection, task: usize) -> u64 {
    let key = format!("bare:lock:orders:{task}");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(VALUE).arg("NX").arg("PX").arg(MILLIS);
        assert_eq!(connection.send_packed_command(&set).await.expect("an answer"), Value::Okay);
        let del = redis::cmd("DEL").arg(&key).take();
        assert_eq!(connection.send_packed_command(&del).await.expect("an answer"), Value::Int(1));
        pairs += 1;
    }
    pairs
}

/// A connection with the settings of the store's own.
async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let info: redis::ConnectionInfo = server.url().parse().expect("a URL");
    let login = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_redis_settings(login).set_tcp_settings(tcp)).expect("an address");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(512);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a server")
}

/// The processor time of the server so far, in seconds.
async fn server_time(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "cpu"]).await;
    let seconds = |name: &str| -> f64 {
        let field = info.lines().find_map(|line| line.strip_prefix(name));
        field.and_then(|seconds| seconds.trim().parse().ok()).expect("a field of INFO")
    };
    seconds("used_cpu_user:") + seconds("used_cpu_sys:")
}

/// The processor time of this process so far, in seconds; zero where there is no `/proc`.
fn client_time() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may have spaces and ends with a bracket, come the state and ten more fields before these.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_A_SECOND
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
