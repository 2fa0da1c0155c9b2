//! What is special about the Postgres store, on private servers.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::fence::{Admission, FencePolicy, FencingToken};
use leasehold_core::idempotency::{Idempotency, Scope};
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Hint, Key, KeyPrefix, Outcome, ReplaceOutcome, Ttl,
};
use leasehold_postgres::sqlx::postgres::PgPoolOptions;
use leasehold_postgres::sqlx::{self, PgConnection, PgPool};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::{PgBouncer, PoolMode, PostgresServer, Proxy, eventually};
use tracing_subscriber::fmt::MakeWriter;

const SOON: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn ttl(duration: Duration) -> Ttl {
    Ttl::try_from(duration).unwrap()
}

async fn store_on(server: &PostgresServer, parameters: &str) -> PostgresStore {
    PostgresStore::connect(&format!("{}?{parameters}", server.url("postgres"))).await.unwrap()
}

async fn add(store: &impl AtomicStore, name: &str, value: &'static str, lives: Duration) -> AddOutcome {
    store.try_add(&key(name), Bytes::from_static(value.as_bytes()), ttl(lives)).await.unwrap()
}

fn revision(outcome: AddOutcome) -> u64 {
    match outcome {
        AddOutcome::Added(revision) => revision.get(),
        AddOutcome::Exists(entry) => panic!("{entry:?} was there"),
    }
}

/// What is logged on this thread while the guard lives.
fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).with_ansi(false);
    (log, tracing::subscriber::set_default(subscriber.finish()))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_migrate_at_once_and_again() {
    let server = PostgresServer::start().await;
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let prefix = if number % 2 == 0 { "a_" } else { "z_" };
            let url = format!("{}?schema=app&table_prefix={prefix}&max_connections=1", server.url("postgres"));
            tokio::spawn(async move { PostgresStore::connect(&url).await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(server.psql("SELECT count(*) FROM app.a_entries").await, "0");
    // By hand, and twice.
    let text = PostgresConfig::default().with_table_prefix("b_").schema_sql().unwrap();
    server.psql(&format!("{text}{text}")).await;
    let by_hand = store_on(&server, "migrate=false&table_prefix=b_").await;
    revision(add(&by_hand, "k", "v", MINUTE).await);
    // A user without the right to make tables can use them.
    server.psql("CREATE USER guest; GRANT SELECT, INSERT, UPDATE, DELETE ON b_entries, b_fences TO guest").await;
    let guest = server.url("postgres").replace("leasehold@", "guest@");
    let store = PostgresStore::connect(&format!("{guest}?table_prefix=b_")).await.unwrap();
    assert!(store.get(&key("k")).await.unwrap().is_some());
    let refused = PostgresStore::connect(&format!("{guest}?table_prefix=c_")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Unauthorized, Effect::None));
    // Nor does one need the right to make a schema where somebody has made it for him.
    server.psql("CREATE SCHEMA given AUTHORIZATION guest").await;
    PostgresStore::connect(&format!("{guest}?schema=given")).await.unwrap();
    let refused = PostgresStore::connect(&format!("{guest}?schema=not_given")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Unauthorized, Effect::None));
    let store = store_on(&server, "migrate=false&table_prefix=none_").await;
    let missing = store.get(&key("k")).await.unwrap_err();
    assert!(missing.to_string().contains("migration") && missing.effect() == Effect::None, "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_add_one_wins_and_all_others_see_it() {
    let server = PostgresServer::start().await;
    // Several stores, as one puts its own in one lane.
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Arc::new(store_on(&server, "max_connections=4").await));
    }
    let mut highest = 0;
    for round in 0..50 {
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let store = stores[task % 4].clone();
                tokio::spawn(async move { store.try_add(&key("hot"), format!("{task}").into(), ttl(MINUTE)).await })
            })
            .collect();
        let (mut won, mut lost) = (Vec::new(), Vec::new());
        for (task, answer) in tasks.into_iter().enumerate() {
            match answer.await.unwrap().unwrap() {
                AddOutcome::Added(revision) => won.push((task.to_string(), revision.get())),
                AddOutcome::Exists(entry) => lost.push(entry.value),
            }
        }
        let [(winner, revision)] = &won[..] else { panic!("round {round}: {won:?} won") };
        assert!(lost.iter().all(|value| value == winner.as_bytes()), "{winner}: {lost:?}");
        assert!(*revision > highest, "round {round}");
        highest = *revision;
        let removed = stores[round % 4].try_remove(&key("hot"), winner.as_bytes()).await.unwrap();
        assert_eq!(removed, Outcome::Applied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_during_the_wait_for_its_lock_stays_dead() {
    let server = PostgresServer::start().await;
    let store = Arc::new(store_on(&server, "").await);
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let lives = Duration::from_secs(3);
    revision(add(&*store, "k", "v", lives).await);
    revision(add(&*store, "other", "v", MINUTE).await);
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM leasehold_entries WHERE key = 'k' FOR UPDATE").execute(&mut *holder).await.unwrap();
    let renewal = tokio::spawn({
        let store = store.clone();
        async move { store.try_expire(&key("k"), b"v", ttl(MINUTE)).await }
    });
    // In a transaction there is no limit to the wait, so this one waits for the lock until after the end.
    let renewal_within = tokio::spawn({
        let (store, pool) = (store.clone(), pool.clone());
        async move {
            let mut transaction = pool.begin().await.unwrap();
            let renewed = store.within(&mut transaction).try_expire(&key("k"), b"v", ttl(MINUTE)).await;
            transaction.commit().await.unwrap();
            renewed
        }
    });
    eventually(SOON, async || {
        let waits = "wait_event_type = 'Lock' AND query LIKE 'WITH limits AS MATERIALIZED (SELECT 1)%'";
        server.psql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {waits}")).await != "0"
    })
    .await;
    // Neither who reads nor who wants another key waits for it.
    assert_eq!(store.try_expire(&key("other"), b"v", ttl(MINUTE)).await.unwrap(), Outcome::Applied);
    eventually(SOON, async || store.get(&key("k")).await.unwrap().is_none()).await;
    assert!(!renewal_within.is_finished());
    holder.rollback().await.unwrap();
    assert_eq!(renewal.await.unwrap().unwrap(), Outcome::NotApplied);
    assert_eq!(renewal_within.await.unwrap().unwrap(), Outcome::NotApplied);
    assert_eq!(store.get(&key("k")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_stalls_nobody_else_and_is_not_aborted() {
    let server = PostgresServer::start().await;
    let store = Arc::new(store_on(&server, "deadline=20s").await);
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    revision(add(&*store, "there", "v", MINUTE).await);
    let mut transaction = pool.begin().await.unwrap();
    {
        let within = store.within(&mut transaction);
        revision(add(&within, "new", "mine", MINUTE).await);
        assert_eq!(within.try_remove(&key("there"), b"v").await.unwrap(), Outcome::Applied);
    }
    // What is uncommitted is not there for others, and who wants to add it waits for the outcome.
    assert!(store.get(&key("there")).await.unwrap().is_some());
    assert!(matches!(add(&*store, "there", "w", MINUTE).await, AddOutcome::Exists(_)));
    assert_eq!(store.get(&key("new")).await.unwrap(), None);
    let mut waiting = Vec::new();
    for name in ["new", "there"] {
        let store = store.clone();
        waiting.push(tokio::spawn(async move { store.set(&key(name), "set".into(), Expiry::Never).await }));
    }
    for number in 0..200 {
        let name = format!("n{number}");
        revision(add(&*store, &name, "v", MINUTE).await);
        assert_eq!(store.try_remove(&key(&name), b"v").await.unwrap(), Outcome::Applied);
    }
    assert!(waiting.iter().all(|task| !task.is_finished()));
    // What the waiting ones hold must not close a circle with the transaction.
    let within = store.within(&mut transaction);
    assert_eq!(within.try_expire(&key("new"), b"mine", ttl(MINUTE)).await.unwrap(), Outcome::Applied);
    revision(add(&within, "there", "back", MINUTE).await);
    drop(within);
    transaction.commit().await.unwrap();
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    for name in ["new", "there"] {
        assert_eq!(store.get(&key(name)).await.unwrap().unwrap().value, "set");
    }
    assert!(!server.log().contains("deadlock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stays_open_costs_a_timeout_of_no_effect() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "deadline=2s").await;
    revision(add(&store, "k", "v", MINUTE).await);
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM leasehold_entries FOR UPDATE").execute(&mut *holder).await.unwrap();
    let error = store.try_remove(&key("k"), b"v").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error}");
    holder.rollback().await.unwrap();
    assert!(store.get(&key("k")).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlogged_table_is_not_taken_for_a_durable_one() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "unlogged=true").await;
    assert!(!store.capabilities().durable);
    let first = revision(add(&store, "k", "v", MINUTE).await);
    let refused = PostgresStore::connect(&server.url("postgres")).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidInput && refused.to_string().contains("unlogged=true"), "{refused}");
    // A crash empties it, and revisions rise all the same.
    server.stop_immediate().await;
    server.start_again().await;
    eventually(SOON, async || store.get(&key("k")).await.is_ok_and(|entry| entry.is_none())).await;
    assert!(revision(add(&store, "k", "v", MINUTE).await) > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_rise_over_removal_expiry_and_purge() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "deadline=500ms&grace=1s&sweep_interval=0s").await;
    let mut last = 0;
    for round in 0..20 {
        let next = revision(add(&store, "k", "v", Duration::from_millis(5)).await);
        assert!(next > last, "{round}");
        last = next;
        if round % 2 == 0 {
            let _ = store.try_remove(&key("k"), b"v").await.unwrap();
        }
        eventually(SOON, async || store.get(&key("k")).await.unwrap().is_none()).await;
    }
    assert_eq!(store.purge().await.unwrap(), 0, "the tombstone is younger than the grace time");
    // The server's clock steps back an hour: the tombstone still knows.
    let ahead = last + 3_600_000_000;
    server.psql(&format!("UPDATE leasehold_entries SET revision = {ahead}")).await;
    assert_eq!(revision(add(&store, "k", "v", MINUTE).await), ahead + 1);
    assert_eq!(store.try_remove(&key("k"), b"v").await.unwrap(), Outcome::Applied);
    assert_eq!(store.purge().await.unwrap(), 0, "its revision is still ahead of the clock");
    server.psql("UPDATE leasehold_entries SET revision = 1").await;
    revision(add(&store, "lives", "v", MINUTE).await);
    let _ = store.set(&key("for-ever"), "v".into(), Expiry::Never).await.unwrap();
    eventually(SOON, async || store.purge().await.unwrap() == 1).await;
    assert_eq!(server.psql("SELECT count(*) FROM leasehold_entries").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_sweeps_by_itself_and_passes_over_what_is_locked() {
    let server = PostgresServer::start().await;
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(store_on(&server, "deadline=500ms&grace=1s&sweep_interval=100ms&max_connections=2").await);
    }
    let items = (0..2500).map(|number| (key(&format!("k{number:04}")), "v".into(), Expiry::After(Ttl::MIN)));
    let _ = stores[0].set_many(items.collect()).await.unwrap();
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM leasehold_entries WHERE key = 'k1234' FOR UPDATE").execute(&mut *holder).await.unwrap();
    for store in &stores {
        assert_eq!(store.get(&key("k0000")).await.unwrap(), None);
    }
    let mut writes = 0;
    // A store starts to sweep with its first write.
    eventually(SOON, async || {
        writes += 1;
        revision(add(&stores[1], &format!("z{writes}"), "v", MINUTE).await);
        server.psql("SELECT count(*) FROM leasehold_entries WHERE key >= 'k' AND key < 'l'").await == "1"
    })
    .await;
    holder.rollback().await.unwrap();
    eventually(SOON, async || {
        server.psql("SELECT count(*) FROM leasehold_entries WHERE key >= 'k' AND key < 'l'").await == "0"
    })
    .await;
    let page = stores[0].scan(&KeyPrefix::new("").unwrap(), None).await.unwrap();
    assert_eq!(page.keys.len(), writes, "what lives stays");
    assert!(page.keys.iter().all(|key| key.as_str().starts_with('z')), "the sweeper's own row is no key");
}

/// The walk is longer than a turn without its pages, and one of them fails.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_sweeps_until_the_end_and_goes_on_where_a_walk_has_failed() {
    let server = PostgresServer::start().await;
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(store_on(&server, "deadline=2s&grace=4s&sweep_interval=100ms&max_connections=2").await);
    }
    server
        .psql(
            r"INSERT INTO leasehold_entries SELECT convert_to('k' || lpad(n::text, 5, '0'), 'UTF8'), 'v', 1, 1
                FROM generate_series(0, 11999) AS n;
            CREATE TABLE walk (id bigserial, earlier_turn bigint, turn bigint, earlier bytea, last bytea);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO walk VALUES (DEFAULT, old.revision, new.revision, old.value, new.value); RETURN new; END $$;
            CREATE TRIGGER note AFTER UPDATE ON leasehold_entries FOR EACH ROW WHEN (new.key = '\x00')
                EXECUTE FUNCTION note();
            CREATE SEQUENCE tries;
            CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF old.key = 'k04500' AND nextval('tries') = 1 THEN RAISE EXCEPTION 'not this time'; END IF;
                IF convert_from(old.key, 'UTF8') LIKE '%000' THEN PERFORM pg_sleep(0.4); END IF; RETURN old; END $$;
            CREATE TRIGGER slow BEFORE DELETE ON leasehold_entries FOR EACH ROW EXECUTE FUNCTION slow();",
        )
        .await;
    for store in &stores {
        // A store starts to sweep with its first write.
        revision(add(store, &format!("z{}", server.psql("SELECT nextval('walk_id_seq')").await), "v", MINUTE).await);
    }
    eventually(MINUTE, async || server.psql("SELECT count(*) FROM leasehold_entries WHERE key LIKE 'k%'").await == "0")
        .await;
    let count = async |which: &str| server.psql(&format!("SELECT count(*) FROM walk WHERE {which}")).await;
    assert_eq!(count(r"turn <> earlier_turn AND earlier > '\x00'").await, "1", "turns that began amid a walk");
    assert_eq!(count(r"last <= earlier AND last <> '\x00' AND turn = earlier_turn").await, "0", "steps back");
    assert!(server.log().contains("not this time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_what_is_known_of_the_effect() {
    let server = PostgresServer::start().await;
    let link = Proxy::start(server.addr());
    let url = format!("{}?deadline=1s", server.url_through(link.addr(), "postgres"));
    let store = PostgresStore::connect(&url).await.unwrap();
    revision(add(&store, "warm", "v", MINUTE).await);

    // The request arrived, and the link broke before the answer came.
    link.cut_after("cut-value");
    let error = store.try_add(&key("cut"), "cut-value".into(), ttl(MINUTE)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    let direct = store_on(&server, "").await;
    eventually(SOON, async || direct.get(&key("cut")).await.unwrap().is_some()).await;

    // The answer got lost, and the connection is not used again.
    link.swallow_answer_to("swallowed-value");
    let error = store.try_add(&key("swallowed"), "swallowed-value".into(), ttl(MINUTE)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
    assert!(direct.get(&key("swallowed")).await.unwrap().is_some());
    revision(add(&store, "after", "v", MINUTE).await);

    // Nobody is there.
    link.refuse();
    let mut error = store.try_add(&key("refused"), "v".into(), ttl(MINUTE)).await.unwrap_err();
    if error.effect() == Effect::Unknown {
        // The first finds the connection broken only as it uses it.
        error = store.try_add(&key("refused"), "v".into(), ttl(MINUTE)).await.unwrap_err();
    }
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    let missing = PostgresStore::connect(&url).await.unwrap_err();
    assert_eq!((missing.kind(), missing.effect()), (ErrorKind::Unavailable, Effect::None), "{missing}");
    assert_eq!(direct.get(&key("refused")).await.unwrap(), None);
    link.pass();
    eventually(SOON, async || store.get(&key("after")).await.is_ok()).await;

    // The server refuses the statement.
    server.psql("ALTER TABLE leasehold_entries ADD CHECK (length(value) < 5) NOT VALID").await;
    let (short, long) = (store.clone(), store.clone());
    let neighbours = (0..20).map(|number| {
        let store = if number == 7 { long.clone() } else { short.clone() };
        tokio::spawn(async move {
            let value = if number == 7 { "stored-secret" } else { "v" };
            store.try_add(&key(&format!("check{number}")), value.into(), ttl(MINUTE)).await
        })
    });
    for (number, task) in neighbours.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = task.await.unwrap();
        if number == 7 {
            let error = answer.unwrap_err();
            assert_eq!(error.effect(), Effect::None);
            let shown = format!("{error} {error:#} {error:?}");
            assert!(shown.contains("23514") && !shown.contains("secret") && !shown.contains("check7"), "{shown}");
        } else {
            revision(answer.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rendering_shows_a_password() {
    let server = PostgresServer::start().await;
    let url = server.url("postgres").replace("leasehold@", "leasehold:hunter2@");
    let store = PostgresStore::connect(&url).await.unwrap();
    assert!(!format!("{store:?}").contains("hunter2"));
    let nobody = server.url("nowhere").replace("leasehold@", "leasehold:hunter2@");
    let error = PostgresStore::connect(&nobody).await.unwrap_err();
    let shown = format!("{error} {error:#} {error:?}");
    assert!(shown.contains("3D000") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(error.effect(), Effect::None);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_that_come_together_share_statements() {
    let server = PostgresServer::builder().setting("shared_preload_libraries", "pg_stat_statements").start().await;
    server.psql("CREATE EXTENSION pg_stat_statements").await;
    let store = store_on(&server, "").await;
    let round = async |value: &'static str| {
        let tasks: Vec<_> = (0..500)
            .map(|number| {
                let store = store.clone();
                tokio::spawn(async move {
                    let key = key(&format!("k{number}"));
                    let added = store.try_add(&key, value.into(), ttl(MINUTE)).await.unwrap();
                    revision(added);
                    store.try_remove(&key, value.as_bytes()).await.unwrap()
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Outcome::Applied);
        }
    };
    round("a").await;
    round("b").await;
    let calls = server.psql("SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '%inserted AS%'").await;
    let calls: u32 = calls.parse().unwrap();
    assert!(calls < 1000, "{calls} statements for 2,000 operations");
}

/// An insert holds a lock in a table of the whole server until its transaction ends, and the table has its limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_any_size_leaves_the_server_room_for_locks() {
    const ITEMS: usize = 20_000;
    let server = PostgresServer::start().await;
    let store = store_on(&server, "deadline=60s").await;
    let names = || (0..ITEMS).map(|number| key(&format!("k{number}")));
    let _ = store.set_many(names().map(|key| (key, "v".into(), Expiry::Never)).collect()).await.unwrap();
    assert_eq!(server.psql("SELECT count(*) FROM leasehold_entries").await, ITEMS.to_string());
    let keys: Vec<_> = names().collect();
    assert!(store.get_many(&keys).await.unwrap().iter().all(Option::is_some));
    assert!(!server.log().contains("out of shared memory"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_locked_out_in_part_tells_of_the_rest() {
    let server = PostgresServer::start().await;
    let (one, two) = (store_on(&server, "deadline=1s").await, store_on(&server, "").await);
    revision(add(&one, "a", "v", MINUTE).await);
    let mut hints = two.watch_prefix(&KeyPrefix::new("b").unwrap()).await.unwrap();
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM leasehold_entries FOR UPDATE").execute(&mut *holder).await.unwrap();
    let items = ["a", "b"].map(|name| (key(name), "w".into(), Expiry::Never));
    let error = one.set_many(items.into()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error}");
    assert_eq!(tokio::time::timeout(SOON, hints.next()).await.unwrap(), Some(Hint::Changed(key("b"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_goes_away_takes_nobody_along() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "max_connections=2").await;
    for round in 0..50 {
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let store = store.clone();
                tokio::spawn(async move {
                    store.try_add(&key(&format!("r{round}n{number}")), "v".into(), ttl(MINUTE)).await
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            if number % 2 == 0 {
                task.abort();
            } else {
                revision(task.await.unwrap().unwrap());
            }
        }
    }
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    assert_eq!(server.psql(idle).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_come_from_other_processes_and_a_reconnect_is_anything() {
    let server = PostgresServer::start().await;
    let (one, two) = (store_on(&server, "").await, store_on(&server, "").await);
    revision(add(&one, "k", "v", MINUTE).await);
    let mut hints = two.watch(&key("k")).await.unwrap();
    let mut below = two.watch_prefix(&KeyPrefix::new("k").unwrap()).await.unwrap();
    assert_eq!(one.try_remove(&key("k"), b"v").await.unwrap(), Outcome::Applied);
    for hints in [&mut hints, &mut below] {
        let hint = tokio::time::timeout(SOON, hints.next()).await.unwrap();
        assert_eq!(hint, Some(Hint::Changed(key("k"))));
    }
    server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").await;
    assert_eq!(tokio::time::timeout(SOON, hints.next()).await.unwrap(), Some(Hint::Anything));
    let _ = one.set(&key("k"), "w".into(), Expiry::Never).await.unwrap();
    eventually(SOON, async || hints.next().await == Some(Hint::Changed(key("k")))).await;
    // Many at once.
    let items = (0..5000).map(|number| (key(&format!("k{number}")), "v".into(), Expiry::Never)).collect();
    let _ = one.set_many(items).await.unwrap();
    eventually(SOON, async || below.next().await == Some(Hint::Anything)).await;

    let off = store_on(&server, "hints=false").await;
    assert!(!off.capabilities().hints);
    assert_eq!(off.watch(&key("k")).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_behind_a_pooler_in_transaction_mode() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Transaction).await;
    let store = PostgresStore::connect(&format!("{}?pgbouncer=true", pooler.url("postgres"))).await.unwrap();
    assert!(!store.capabilities().hints);
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..30 {
                    let key = key(&format!("k{}", (task + round) % 20));
                    if let AddOutcome::Added(_) =
                        store.try_add(&key, format!("{task}").into(), ttl(MINUTE)).await.unwrap()
                    {
                        let entry = store.get(&key).await.unwrap().unwrap();
                        let removed = store.try_remove(&key, &entry.value).await.unwrap();
                        assert_eq!(removed, Outcome::Applied);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Where a client keeps its connection to the server, statements are prepared and hints come.
#[tokio::test(flavor = "multi_thread")]
async fn it_works_behind_a_pooler_in_session_mode() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Session).await;
    let refused = PostgresStore::connect(&pooler.url("postgres")).await.unwrap_err();
    assert!(refused.to_string().contains("startup_settings=false"), "{refused}");
    assert_eq!(refused.effect(), Effect::None);
    let url = format!("{}?startup_settings=false", pooler.url("postgres"));
    let (one, two) = (PostgresStore::connect(&url).await.unwrap(), PostgresStore::connect(&url).await.unwrap());
    revision(add(&one, "k", "v", MINUTE).await);
    let mut hints = two.watch(&key("k")).await.unwrap();
    assert_eq!(one.try_remove(&key("k"), b"v").await.unwrap(), Outcome::Applied);
    assert_eq!(tokio::time::timeout(SOON, hints.next()).await.unwrap(), Some(Hint::Changed(key("k"))));
}

/// What the driver logs of a statement is its text, and that has the values behind a pooler.
#[tokio::test]
async fn no_log_shows_a_stored_value() {
    let server = PostgresServer::start().await;
    server.psql("CREATE TABLE loud (n int)").await;
    let pooler = PgBouncer::start(&server, PoolMode::Transaction).await;
    let (log, _guard) = logged();
    for url in [server.url("postgres"), format!("{}?pgbouncer=true", pooler.url("postgres"))] {
        let store = PostgresStore::connect(&url).await.unwrap();
        revision(add(&store, "logged-key", "stored-secret", MINUTE).await);
        let once = Idempotency::new(store.clone());
        let work = async |_: &mut PgConnection| Ok::<_, sqlx::Error>("stored-secret".to_owned());
        let _ = store.run_once(once.call("work", "logged-key", ""), work).await.unwrap();
        assert_eq!(store.try_remove(&key("logged-key"), b"stored-secret").await.unwrap(), Outcome::Applied);
        assert_eq!(once.purge(&Scope::call("logged-key")).await.unwrap(), Outcome::Applied);
    }
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    sqlx::raw_sql("INSERT INTO loud VALUES (42)").execute(&pool).await.unwrap();
    let log = log.text();
    assert!(log.contains("INSERT INTO loud"), "the log is the one that the driver writes: {log}");
    for told in ["stored-secret", "logged-key"] {
        let digits: String = told.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!log.contains(told) && !log.contains(&digits), "{told}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_carries_the_primitives_and_the_fence() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "").await;
    let pool = PgPoolOptions::new().max_connections(2).connect(&server.url("postgres")).await.unwrap();
    let token = |number| FencingToken::new(number).unwrap();

    let mut transaction = pool.begin().await.unwrap();
    revision(add(&store.within(&mut transaction), "k", "v", MINUTE).await);
    transaction.rollback().await.unwrap();
    assert_eq!(store.get(&key("k")).await.unwrap(), None);

    let mut transaction = pool.begin().await.unwrap();
    let within = store.within(&mut transaction);
    let first = revision(add(&within, "k", "v", MINUTE).await);
    assert!(matches!(add(&within, "k", "w", MINUTE).await, AddOutcome::Exists(entry) if entry.value == "v"));
    let replaced = within.try_replace(&key("k"), b"v", "w".into(), ttl(MINUTE)).await.unwrap();
    assert!(matches!(replaced, ReplaceOutcome::Applied(revision) if revision.get() > first));
    assert_eq!(within.get(&key("k")).await.unwrap().unwrap().value, "w");
    drop(within);
    let admitted = store.admit(&mut transaction, &key("r"), token(7), FencePolicy::Strict).await.unwrap();
    assert!(admitted.is_admitted());
    transaction.commit().await.unwrap();
    assert_eq!(store.get(&key("k")).await.unwrap().unwrap().value, "w");

    let mut transaction = pool.begin().await.unwrap();
    for (number, policy, expected) in [
        (6, FencePolicy::Repeatable, Admission::Stale { highest: token(7) }),
        (7, FencePolicy::Strict, Admission::Stale { highest: token(7) }),
        (7, FencePolicy::Repeatable, Admission::Admitted(())),
        (8, FencePolicy::Strict, Admission::Admitted(())),
        (7, FencePolicy::Repeatable, Admission::Stale { highest: token(8) }),
    ] {
        let said = store.admit(&mut transaction, &key("r"), token(number), policy).await.unwrap();
        assert_eq!(said, expected, "{number} {policy:?}");
    }
    transaction.rollback().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let said = store.admit(&mut transaction, &key("r"), token(7), FencePolicy::Repeatable).await.unwrap();
    assert!(said.is_admitted(), "a write that was rolled back was none");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_keeps_nobody_out() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "").await;
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let admit = async |transaction: &mut PgConnection, token| {
        let token = FencingToken::new(token).unwrap();
        store.admit(transaction, &key("r"), token, FencePolicy::Repeatable).await.unwrap()
    };
    let mut rightful = pool.begin().await.unwrap();
    assert!(admit(&mut rightful, 8).await.is_admitted());
    rightful.commit().await.unwrap();
    let mut past = pool.begin().await.unwrap();
    assert_eq!(admit(&mut past, 7).await, Admission::Stale { highest: FencingToken::new(8).unwrap() });
    // And goes on, instead of rolling back.
    let mut rightful = pool.begin().await.unwrap();
    let admitted = tokio::time::timeout(SOON, admit(&mut rightful, 8)).await.expect("nobody is in the way");
    assert!(admitted.is_admitted());
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_stay_within_their_page() {
    let server = PostgresServer::start().await;
    let store = store_on(&server, "").await;
    for _ in 0..300 {
        revision(add(&store, "k", "v", MINUTE).await);
        assert_eq!(store.try_expire(&key("k"), b"v", ttl(MINUTE)).await.unwrap(), Outcome::Applied);
        assert_eq!(store.try_remove(&key("k"), b"v").await.unwrap(), Outcome::Applied);
    }
    let pages = server.psql("SELECT pg_relation_size('leasehold_entries') / 8192").await;
    assert!(pages.parse::<u32>().unwrap() <= 2, "{pages} pages for one row");
}
