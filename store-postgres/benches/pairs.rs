//! Durable leases and bare `try_add` and `try_remove`, beside pgbench with the same statements.
//!
//! `cargo bench -p leasehold-postgres --bench pairs -- [rounds]`
//!
//! One server, which waits for its disk at each commit. All take turns in short rounds, so that whatever else the machine
//! does falls on all of them; what counts is the median of the ratios of neighbouring rounds. pgbench runs two scripts, each
//! with two statements a pair: `same` is the store's own statement for one item, as the server saw it, and `plain` is
//! the least that could be written by hand for a lease with a rising token. Each number of its clients is tried first, and
//! the best of them takes part in the rounds. The processor time of server and client together is what tells on a machine
//! that others use as well: there 64 processes of pgbench get more of it than a few connections.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_core::lock::{Locks, Release, Renewal};
use leasehold_core::{AddOutcome, AtomicStore, Key, Outcome, Ttl};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::PostgresServer;

const TASKS: usize = 64;
const CLIENTS: [usize; 5] = [4, 8, 16, 32, 64];
const ROUND: Duration = Duration::from_secs(1);
/// It counts from before it connects.
const LONG_ENOUGH: &[&str] = &["-T", "3"];
const TTL: Duration = Duration::from_secs(30);
/// As long as what a lease writes.
const VALUE: &str = "L1 0123456789abcdef0123456789abcdef 1764495000000 host-name/12345";

/// What is measured in each round, by name and the parameters of the store's URL.
const STORES: [(&str, Work, &str); 6] = [
    ("leases", Work::Leases, ""),
    ("leases, no hints", Work::Leases, "hints=false"),
    ("leases, no batching", Work::Leases, "max_batch=1&max_connections=16"),
    ("pairs", Work::Pairs, ""),
    ("pairs, no hints", Work::Pairs, "hints=false"),
    ("pairs, no batching", Work::Pairs, "max_batch=1&max_connections=16"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Leases,
    Pairs,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(7);
    let server = PostgresServer::builder()
        .fsync(true)
        .max_connections(300)
        // Long enough for a whole statement of ours.
        .setting("track_activity_query_size", "32768")
        .start()
        .await;
    let mut stores = Vec::new();
    for (name, work, parameters) in STORES {
        stores.push((name, work, connect(&server, parameters).await));
    }
    let scripts = Scripts::write(&server).await;
    let best = [&scripts.same, &scripts.plain].map(|script| script.best_clients(&server));
    let (mut rates, mut same, mut plain) = (vec![Vec::new(); stores.len()], Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut measured = Vec::new();
        for (_, work, store) in &stores {
            let before = processor_micros(&server);
            let (pairs, rate) = measure(*work, store).await;
            measured.push(Round { rate, micros: (processor_micros(&server) - before) / pairs });
        }
        let [of_same, of_plain] = [(&scripts.same, best[0]), (&scripts.plain, best[1])].map(|(script, clients)| {
            let before = processor_micros(&server);
            let (pairs, rate) = script.run(&server, clients, LONG_ENOUGH).expect("as it had at first");
            Round { rate, micros: (processor_micros(&server) - before) / pairs }
        });
        // The first round warms up.
        if round > 0 {
            rates.iter_mut().zip(measured).for_each(|(rates, rate)| rates.push(rate));
            same.push(of_same);
            plain.push(of_plain);
        }
    }
    let durable = server.psql("SHOW fsync; SHOW synchronous_commit").await.replace('\n', ", ");
    println!("postgres pairs: {TASKS} tasks, {rounds} rounds; fsync, synchronous_commit: {durable}");
    for (name, rounds, clients) in [("same", &same, best[0]), ("plain", &plain, best[1])] {
        println!("  pgbench {name:15} {} at {clients} clients", Round::median(rounds));
    }
    for ((name, _, _), rounds) in stores.iter().zip(&rates) {
        let (same, plain) = (Round::ratio(rounds, &same), Round::ratio(rounds, &plain));
        println!("  {name:23} {} to pgbench same {same:.2}, plain {plain:.2}", Round::median(rounds));
    }
    for (with, without) in [(0, 1), (3, 4)] {
        let ratio = Round::ratio(&rates[with], &rates[without]);
        println!("  {} to {}: {ratio:.2}", stores[with].0, stores[without].0);
    }
}

#[derive(Clone)]
struct Round {
    /// Pairs in a second.
    rate: f64,
    /// Processor time of a pair, of the server and its clients.
    micros: f64,
}

impl Round {
    fn median(rounds: &[Self]) -> String {
        let of = |of: fn(&Self) -> f64| median(rounds.iter().map(of));
        format!("{:8.0} pairs/s, {:6.0} us of processor time each,", of(|round| round.rate), of(|round| round.micros))
    }

    fn ratio(rounds: &[Self], to: &[Self]) -> f64 {
        median(rounds.iter().zip(to).map(|(round, to)| round.rate / to.rate))
    }
}

/// The processor time so far of this process, of pgbench where it has ended, and of the server with all its processes;
/// zero where there is no `/proc`.
fn processor_micros(server: &PostgresServer) -> f64 {
    const MICROS_A_TICK: f64 = 10_000.0;
    let stat = |process: &str| std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may have spaces and ends with a bracket.
    let fields = |stat: &str| -> Vec<f64> {
        stat.rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect()
    };
    let postmaster = server.pid().expect("it runs");
    let mut ticks = 0.0;
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let fields = fields(&stat(&process.file_name().to_string_lossy()));
        let [_, parent, ..] = fields[..] else { continue };
        let is = |id: u32| process.file_name().to_string_lossy() == id.to_string();
        if is(postmaster) || is(std::process::id()) {
            // With the children that have ended.
            ticks += fields.iter().skip(11).take(4).sum::<f64>();
        } else if parent == f64::from(postmaster) {
            ticks += fields.iter().skip(11).take(2).sum::<f64>();
        }
    }
    ticks * MICROS_A_TICK
}

async fn connect(server: &PostgresServer, parameters: &str) -> PostgresStore {
    let url = format!("{}?deadline=30s&sweep_interval=0s&{parameters}", server.url("postgres"));
    PostgresStore::connect(&url).await.expect("a server")
}

/// Pairs, and how many in a second.
async fn measure(work: Work, store: &PostgresStore) -> (f64, f64) {
    let locks = Locks::new(store.clone());
    let started = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| match work {
            Work::Leases => tokio::spawn(leases(locks.clone(), task)),
            Work::Pairs => tokio::spawn(pairs(store.clone(), task)),
        })
        .collect();
    let mut pairs = 0;
    for task in tasks {
        pairs += task.await.expect("a task that does not panic");
    }
    (f64::from(pairs), f64::from(pairs) / started.elapsed().as_secs_f64())
}

async fn leases(locks: Locks, task: usize) -> u32 {
    let resource = format!("orders:{task}");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let request = locks.lock(&resource).ttl(TTL).renewal(Renewal::Auto).require_fencing();
        let lease = request.acquire().await.expect("a free lock");
        assert_eq!(lease.release().await.expect("an answer"), Release::Released);
        pairs += 1;
    }
    pairs
}

async fn pairs(store: PostgresStore, task: usize) -> u32 {
    let key = Key::new(format!("pairs:orders:{task}")).expect("a key");
    let ttl = Ttl::try_from(TTL).expect("a ttl");
    let (started, mut pairs) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        let added = store.try_add(&key, VALUE.into(), ttl).await.expect("an answer");
        assert!(matches!(added, AddOutcome::Added(_)), "{added:?}");
        assert_eq!(store.try_remove(&key, VALUE.as_bytes()).await.expect("an answer"), Outcome::Applied);
        pairs += 1;
    }
    pairs
}

/// What pgbench runs.
struct Scripts {
    same: Script,
    plain: Script,
}

struct Script(PathBuf);

impl Scripts {
    async fn write(server: &PostgresServer) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let write = |name: &str, script: String| {
            let path = folder.join(name);
            std::fs::write(&path, script).expect("the folder for temporary files can be written");
            Script(path)
        };
        let same = write("same.sql", same_script(&statement(server).await));
        server.psql(PLAIN_TABLE).await;
        let plain = write("plain.sql", PLAIN_SCRIPT.to_owned());
        same.check(server, "leasehold_entries", "pgbench:%").await;
        plain.check(server, "plain", "%").await;
        Self { same, plain }
    }
}

impl Script {
    fn best_clients(&self, server: &PostgresServer) -> usize {
        let rate =
            |clients| median((0..3).map(|_| self.run(server, clients, LONG_ENOUGH).map_or(0.0, |(_, rate)| rate)));
        let rates = CLIENTS.map(|clients| (clients, rate(clients)));
        rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are some").0
    }

    /// Pairs, and how many in a second; nothing if the time was over before so many had connected.
    fn run(&self, server: &PostgresServer, clients: usize, length: &[&str]) -> Option<(f64, f64)> {
        let mut pgbench = Command::new(server.program("pgbench"));
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--jobs=2", &format!("--client={clients}")]);
        // As the store has them.
        pgbench.env("PGOPTIONS", "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off");
        pgbench.args(length).arg("--file").arg(&self.0).arg(server.url("postgres"));
        let output = pgbench.output().expect("pgbench is there");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("transactions actually processed"),
            "pgbench: {said}{complaint}"
        );
        let number = |name: &str| -> Option<f64> {
            said.lines().find_map(|line| line.strip_prefix(name)?.split([' ', '/']).next()?.parse().ok())
        };
        Some((number("number of transactions actually processed: ")?, number("tps = ")?))
    }

    /// One that did nothing would be fast: a pair has to write twice, and leave a tombstone each client.
    async fn check(&self, server: &PostgresServer, table: &str, keys: &str) {
        const PAIRS: u64 = 10;
        let tally = async || {
            // What a connection has done is told when it ends, and at once only when it is asked.
            let sql = format!(
                "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = '{table}'; \
                 SELECT count(*) FROM {table} WHERE value IS NULL AND convert_from(key, 'UTF8') LIKE '{keys}'"
            );
            let answer = server.psql(&sql).await;
            let (writes, tombstones) = answer.split_once('\n').expect("two answers");
            (writes.parse::<u64>().expect("a number"), tombstones.parse::<u64>().expect("a number"))
        };
        let (before, _) = tally().await;
        assert!(self.run(server, 4, &["-t", &PAIRS.to_string()]).is_some(), "it says how fast it was");
        leasehold_testkit::eventually(Duration::from_secs(10), async || tally().await == (before + 4 * PAIRS * 2, 4))
            .await;
    }
}

/// The statement for writes, as the server saw it last.
async fn statement(server: &PostgresServer) -> String {
    let store = connect(server, "application_name=the_statement&max_connections=1&hints=false").await;
    let key = Key::new("statement").expect("a key");
    let ttl = Ttl::try_from(TTL).expect("a ttl");
    let added = store.try_add(&key, VALUE.into(), ttl).await.expect("an answer");
    assert!(matches!(added, AddOutcome::Added(_)), "{added:?}");
    let seen = "SELECT query FROM pg_stat_activity WHERE application_name = 'the_statement'";
    let statement = server.psql(seen).await;
    assert!(statement.starts_with("WITH") && statement.contains("inserted"), "{statement}");
    statement
}

/// The two statements of a pair, each with the parameters for one item.
fn same_script(statement: &str) -> String {
    let add = 0;
    let remove = 2;
    let value = format!("convert_to('{VALUE}', 'UTF8')");
    let ttl = TTL.as_micros().to_string();
    let mut script = "\\set gate :client_id * 1000003 + 17\n".to_owned();
    for (kind, expected, value, ttl) in [(add, "NULL", &*value, &*ttl), (remove, &*value, "NULL", "NULL")] {
        let parameters = [
            "ARRAY[convert_to('pgbench:' || :client_id::text, 'UTF8')]".to_owned(),
            format!("ARRAY[{kind}]"),
            format!("ARRAY[{expected}]"),
            format!("ARRAY[{value}]"),
            format!("ARRAY[{ttl}]"),
            "ARRAY[NULL]".to_owned(),
            "ARRAY[NULL]".to_owned(),
            "ARRAY[:gate]".to_owned(),
        ];
        let text = parameters.iter().enumerate().fold(statement.to_owned(), |text, (place, parameter)| {
            text.replace(&format!("${}::", place + 1), &format!("{parameter}::"))
        });
        assert!(!text.contains('$'), "{text}");
        script.push_str(&text);
        script.push_str(";\n");
    }
    script
}

/// The store's table by the least that a lease needs.
const PLAIN_TABLE: &str = "CREATE TABLE plain (key bytea PRIMARY KEY, value bytea, revision bigint NOT NULL, \
    ends bigint NOT NULL) WITH (fillfactor = 60)";

const PLAIN_SCRIPT: &str = r"
INSERT INTO plain AS e (key, value, revision, ends)
    SELECT convert_to('orders:' || :client_id::text, 'UTF8'),
        convert_to('L1 0123456789abcdef0123456789abcdef 1764495000000 host-name/12345', 'UTF8'), now, now + 30000000
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS clock
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, ends = excluded.ends,
        revision = greatest(e.revision + 1, excluded.revision)
    WHERE e.value IS NULL OR e.ends <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    RETURNING revision;
UPDATE plain SET value = NULL, ends = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE key = convert_to('orders:' || :client_id::text, 'UTF8')
        AND value = convert_to('L1 0123456789abcdef0123456789abcdef 1764495000000 host-name/12345', 'UTF8')
        AND ends > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    RETURNING revision;
";

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
