//! Fifty clients in four processes who all make the same calls, many of them more than once. Some are cancelled at
//! random, and one process is killed in the middle. `scripts/soak` makes two thousand calls of each client.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use leasehold::idempotency::{AfterCrash, Begin, Completion, Idempotency};
use leasehold::postgres::PostgresStore;
use leasehold::postgres::sqlx::{self, PgPool};
use leasehold::{CacheStore, Code, ErrorKind, Expiry, Key, KeyPrefix, Store, connect};
use leasehold_testkit::{Family, PostgresServer, RedisServer, eventually, signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

const URL: &str = "LEASEHOLD_TEST_CROWD_URL";
const KEYS: &str = "LEASEHOLD_TEST_CROWD_KEYS";
const WAY: &str = "LEASEHOLD_TEST_CROWD_WAY";
const NUMBER: &str = "LEASEHOLD_TEST_CROWD_NUMBER";

const PROCESSES: usize = 4;
const CLIENTS: usize = 50;
const TTL: Duration = Duration::from_secs(1);

fn keys() -> usize {
    if std::env::var_os("LEASEHOLD_SOAK").is_some() { 2_000 } else { 200 }
}

/// What a process tells of one call, as a line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    what: What,
    key: String,
    /// Which run of the work it is about.
    run: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The work begins.
    Works,
    /// The caller has its answer, from a run of its own.
    Done,
    /// The caller has its answer, from another's run.
    Replayed,
    /// The work is done, and its claim was lost meanwhile.
    Lost,
    /// The caller went away while it worked.
    Cancelled,
    /// The store did not take the answer, and will be asked again.
    Delayed,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, key, run } = self;
        write!(f, "told {what:?} {key} {run}")
    }
}

impl Told {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_once("told ")?.1.split(' ');
        let what = match words.next()? {
            "Works" => What::Works,
            "Done" => What::Done,
            "Replayed" => What::Replayed,
            "Lost" => What::Lost,
            "Cancelled" => What::Cancelled,
            "Delayed" => What::Delayed,
            _ => return None,
        };
        Some(Self { what, key: words.next()?.to_owned(), run: words.next()?.to_owned() })
    }
}

fn tell(what: What, key: &str, run: &str) {
    // One line is one write, so that those of a process that is killed are whole.
    println!("{}", Told { what, key: key.to_owned(), run: run.to_owned() });
}

/// One of the processes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "not a test: what the other processes run"]
async fn clients() {
    let Ok(url) = std::env::var(URL) else { return };
    let number: usize = std::env::var(NUMBER).unwrap().parse().unwrap();
    let keys: usize = std::env::var(KEYS).unwrap().parse().unwrap();
    let way = Way::read(&std::env::var(WAY).unwrap());
    let effects = Effects::open(&url, way).await;
    let once = effects.once(way);
    let mut clients = tokio::task::JoinSet::new();
    for client in (0..CLIENTS).filter(|client| client % PROCESSES == number) {
        let (effects, once) = (effects.clone(), once.clone());
        clients.spawn(async move {
            for step in 0..keys {
                // Each goes its own way through the keys, so that all meet everywhere.
                let key = format!("k{}", (step * 7 + client * 13) % keys);
                let run = format!("{number}.{client}.{step}");
                let patience = Duration::from_micros(rand::random_range(0..8_000));
                let call = make(&effects, &once, &key, &run);
                // Some callers go away when their patience ends.
                if rand::random_range(0..32) == 0 {
                    let _ = timeout(patience, call).await;
                } else {
                    call.await;
                }
            }
        });
    }
    clients.join_all().await;
    once.close().await;
}

/// How the calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Run again after a crash.
    Again,
    /// Left to an operator after a crash.
    Ask,
    /// Effect and record in one transaction.
    Together,
}

impl Way {
    fn read(name: &str) -> Self {
        let named = |way: &Self| format!("{way:?}") == name;
        [Self::Again, Self::Ask, Self::Together].into_iter().find(named).unwrap()
    }
}

/// Where effects happen: what can be counted afterwards.
#[derive(Clone)]
enum Effects {
    /// As entries beside the records.
    Beside(Store),
    /// As rows of the transaction that completes the claim.
    Within(PostgresStore, PgPool),
}

impl Effects {
    async fn open(url: &str, way: Way) -> Self {
        match way {
            Way::Again | Way::Ask => Self::Beside(connect(url).await.unwrap()),
            Way::Together => {
                Self::Within(PostgresStore::connect(url).await.unwrap(), PgPool::connect(url).await.unwrap())
            }
        }
    }

    fn once(&self, way: Way) -> Idempotency {
        let policy = match way {
            Way::Again | Way::Together => AfterCrash::RunAgain,
            Way::Ask => AfterCrash::OutcomeUnknown,
        };
        let builder = match self {
            Self::Beside(store) => Idempotency::builder(store.clone()),
            Self::Within(store, _) => Idempotency::builder(store.clone()),
        };
        builder.in_progress_ttl(TTL).after_crash(policy).transport_gives_up_after(TTL).build()
    }

    /// How often each call has had its effect.
    async fn count(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        let mut count = |key: &str| *counts.entry(key.to_owned()).or_default() += 1;
        match self {
            Self::Beside(store) => {
                let mut cursor = None;
                // A key may come twice in one scan.
                let mut seen = HashSet::new();
                loop {
                    let page = store.scan(&KeyPrefix::new("effect:").unwrap(), cursor).await.unwrap();
                    seen.extend(page.keys);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                seen.iter().for_each(|key| count(key.as_str().split(':').nth(1).unwrap()));
            }
            Self::Within(_, pool) => {
                let keys: Vec<String> = sqlx::query_scalar("SELECT key FROM effects").fetch_all(pool).await.unwrap();
                keys.iter().for_each(|key| count(key));
            }
        }
        counts
    }
}

/// One call, and what becomes of it.
async fn make(effects: &Effects, once: &Idempotency, key: &str, run: &str) {
    let claim = match once.call("crowd", key, &()).wait(TTL * 4).begin().await {
        Ok(Begin::Claimed(claim)) => claim,
        Ok(Begin::Replay(replay)) => return tell(What::Replayed, key, &replay.value::<String>().unwrap()),
        Err(error) if matches!(error.code(), Some(Code::CallInProgress | Code::NotReplayable)) => return,
        // On a busy machine a claim of a second is over before its grant has come.
        Err(error) if error.kind() == ErrorKind::Timeout => return,
        Err(error) => panic!("{error:#}"),
    };
    let mut cancelled = OnDrop(Some((key, run)));
    tell(What::Works, key, run);
    let completed = match effects {
        Effects::Beside(store) => {
            let effect = Key::new(format!("effect:{key}:{run}")).unwrap();
            store.set(&effect, "done".into(), Expiry::Never).await.unwrap();
            sleep(Duration::from_millis(1)).await;
            claim.complete(run).await
        }
        Effects::Within(store, pool) => {
            let claim = claim.free_when_dropped();
            let mut transaction = pool.begin().await.unwrap();
            sqlx::query("INSERT INTO effects (key, run) VALUES ($1, $2)")
                .bind(key)
                .bind(run)
                .execute(&mut *transaction)
                .await
                .unwrap();
            store.commit(claim, transaction, run).await.map(|()| Completion::Recorded)
        }
    };
    cancelled.0 = None;
    tell(
        match completed {
            Ok(Completion::Recorded) => What::Done,
            Ok(Completion::Lost) => What::Lost,
            Err(_) => What::Delayed,
        },
        key,
        run,
    );
}

/// Tells of a caller that went away while it worked.
struct OnDrop<'a>(Option<(&'a str, &'a str)>);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if let Some((key, run)) = self.0 {
            tell(What::Cancelled, key, run);
        }
    }
}

/// Runs the crowd, kills one of its processes in the middle, and gives what all have told.
async fn run(url: &str, way: Way) -> Vec<Told> {
    let (sender, mut told) = mpsc::unbounded_channel();
    let mut processes: Vec<Child> = Vec::new();
    for number in 0..PROCESSES {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "crowd::clients", "--nocapture"])
            .envs([(URL, url), (WAY, &format!("{way:?}")), (KEYS, &keys().to_string()), (NUMBER, &number.to_string())])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(told) = Told::read(&line) {
                    let _ = sender.send((number, told));
                }
            }
        });
        processes.push(process);
    }
    drop(sender);
    let mut all = Vec::new();
    let mut killed = false;
    let limit = Instant::now() + Duration::from_millis(800) * keys() as u32;
    while let Some((number, line)) = tokio::time::timeout_at(limit, told.recv()).await.expect("the crowd hangs") {
        // In the midst of its own work, so that there is something to be found out about.
        if !killed && all.len() > keys() && number == 0 && line.what == What::Works {
            signal::kill(processes[0].id().unwrap()).unwrap();
            killed = true;
        }
        all.push(line);
    }
    assert!(killed, "a process was killed in the midst of its work");
    for mut process in processes.into_iter().skip(1) {
        assert!(process.wait().await.unwrap().success());
    }
    all
}

/// The runs whose caller went away, or died, between the beginning of the work and its answer.
fn interrupted(told: &[Told]) -> HashMap<&str, usize> {
    let ended: HashSet<_> = told.iter().filter(|told| told.what == What::Done).map(|told| &told.run).collect();
    let mut interrupted = HashMap::new();
    for told in told.iter().filter(|told| told.what == What::Works && !ended.contains(&told.run)) {
        *interrupted.entry(told.key.as_str()).or_default() += 1;
    }
    interrupted
}

/// Each call as it stands in the end, without the crowd.
async fn finally(effects: &Effects, way: Way) -> HashMap<String, Option<String>> {
    let once = effects.once(way);
    let mut answers = HashMap::new();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..keys() {
        let key = format!("k{number}");
        // Nothing is in progress for longer than a claim lives, and a moment.
        let call = once.call("crowd", key.as_str(), &()).wait(TTL * 3);
        calls.spawn(async move { (key, call.begin().await) });
    }
    for (key, begun) in calls.join_all().await {
        let answer = match begun {
            Ok(Begin::Replay(replay)) => Some(replay.value::<String>().unwrap()),
            Ok(Begin::Claimed(claim)) => {
                let _ = claim.abandon().await.unwrap();
                None
            }
            Err(error) => {
                assert_eq!(error.code(), Some(Code::NotReplayable), "{key} is stuck: {error}");
                assert!(error.to_string().contains("the outcome is unknown"), "{error}");
                None
            }
        };
        answers.insert(key, answer);
    }
    answers
}

/// All who were answered for one key were answered the same, and as it is replayed in the end.
fn one_answer_each(told: &[Told], finally: &HashMap<String, Option<String>>) {
    for told in told.iter().filter(|told| matches!(told.what, What::Done | What::Replayed)) {
        assert_eq!(finally[&told.key].as_deref(), Some(told.run.as_str()), "{told}");
    }
    let answered = finally.values().filter(|answer| answer.is_some()).count();
    assert!(answered * 10 > finally.len() * 8, "only {answered} of {} calls were answered", finally.len());
}

/// Calls whose effect is beside their record, under both policies.
async fn beside(url: &str) {
    // At least once: a second effect is that of a run whose caller went away, died, or lost its claim.
    let again = format!("{url}?namespace=again");
    let told = run(&again, Way::Again).await;
    let effects = Effects::open(&again, Way::Again).await;
    let finally_ = finally(&effects, Way::Again).await;
    one_answer_each(&told, &finally_);
    let interrupted = interrupted(&told);
    for (key, count) in effects.count().await {
        let allowed = 1 + interrupted.get(key.as_str()).copied().unwrap_or(0);
        assert!(count <= allowed, "{key} had {count} effects, and {allowed} are allowed");
    }

    // At most once, whatever happens.
    let ask = format!("{url}?namespace=ask");
    let told = run(&ask, Way::Ask).await;
    let effects = Effects::open(&ask, Way::Ask).await;
    let finally_ = finally(&effects, Way::Ask).await;
    for told in told.iter().filter(|told| matches!(told.what, What::Done | What::Replayed)) {
        assert_eq!(finally_[&told.key].as_deref(), Some(told.run.as_str()), "{told}");
    }
    let counts = effects.count().await;
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    let answered = finally_.values().flatten().count();
    println!("{} calls, {} effects, {answered} answered", finally_.len(), counts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_the_effects_of_each_call_are_what_the_policy_allows() {
    let server = RedisServer::builder().family(Family::Redis).start().await;
    beside(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_valkey_the_effects_of_each_call_are_what_the_policy_allows() {
    let server = RedisServer::builder().family(Family::Valkey).start().await;
    beside(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_the_effects_of_each_call_are_what_the_policy_allows() {
    let server = PostgresServer::builder().max_connections(200).start().await;
    beside(&server.url("postgres")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_each_call_has_its_effect_once_in_one_transaction() {
    let server = PostgresServer::builder().max_connections(200).start().await;
    server.psql("CREATE TABLE effects (key text NOT NULL, run text NOT NULL)").await;
    let url = server.url("postgres");
    let told = run(&url, Way::Together).await;
    let effects = Effects::open(&url, Way::Together).await;
    // The transactions of the process that was killed have ended.
    eventually(Duration::from_secs(30), async || {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        server.psql(open).await == "0"
    })
    .await;
    let finally = finally(&effects, Way::Together).await;
    one_answer_each(&told, &finally);
    let counts = effects.count().await;
    for (key, answer) in &finally {
        let wanted = usize::from(answer.is_some());
        assert_eq!(counts.get(key).copied().unwrap_or(0), wanted, "{key}");
    }
}
