//! The effect of a call and the record of it in one transaction.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::idempotency::{
    AfterCrash, AfterError, Answer, Begin, CallError, Claim, Completion, Idempotency, RecordState, Scope,
};
use leasehold_core::lock::Renewal;
use leasehold_core::{Code, Effect, Error, ErrorKind};
use leasehold_postgres::sqlx::postgres::PgPoolOptions;
use leasehold_postgres::sqlx::{self, PgConnection, PgPool};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::{PgBouncer, PoolMode, PostgresServer, Proxy, eventually};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(20);
/// As it is sent: a beginning may speak of what is committed, too.
const COMMIT: &str = "COMMIT\0";

/// A store, and a table of the user's that the effects of calls are rows of.
struct Rig {
    server: PostgresServer,
    store: PostgresStore,
    once: Idempotency,
    pool: PgPool,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with("").await
    }

    async fn start_with(parameters: &str) -> Self {
        let server = PostgresServer::start().await;
        let url = server.url("postgres");
        server.psql("CREATE TABLE orders (id bigserial PRIMARY KEY, item text NOT NULL)").await;
        let store = PostgresStore::connect(&format!("{url}?{parameters}")).await.unwrap();
        let once = Idempotency::new(store.clone());
        Self { store, once, pool: PgPool::connect(&url).await.unwrap(), server }
    }

    async fn claim(&self, key: &str) -> Claim {
        match self.once.call("order", key, "item").begin().await.unwrap() {
            Begin::Claimed(claim) => claim,
            Begin::Replay(_) => panic!("it was made before"),
        }
    }

    async fn replay(&self, key: &str) -> i64 {
        match self.once.call("order", key, "item").begin().await.unwrap() {
            Begin::Replay(replay) => replay.value().unwrap(),
            Begin::Claimed(_) => panic!("it was not made before"),
        }
    }

    async fn state(&self, key: &str) -> Option<RecordState> {
        self.once.inspect(&Scope::call(key)).await.unwrap().map(|record| record.state)
    }

    async fn orders(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&self.pool).await.unwrap()
    }
}

async fn order(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("INSERT INTO orders (item) VALUES ('item') RETURNING id").fetch_one(connection).await
}

fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost && error.effect() == Effect::None
}

#[tokio::test(flavor = "multi_thread")]
async fn the_effect_and_its_record_are_committed_together() {
    let rig = Rig::start().await;
    let claim = rig.claim("k").await;
    let mut transaction = rig.pool.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    assert!(matches!(rig.state("k").await, Some(RecordState::InProgress { .. })));
    rig.store.commit(claim, transaction, &id).await.unwrap();
    assert_eq!((rig.orders().await, rig.replay("k").await), (1, id));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_fails_leaves_no_effect_no_record_and_a_free_key() {
    let rig = Rig::start().await;
    let call = || rig.once.call("order", "k", "item");
    let failed = rig
        .store
        .run_once(call(), async |transaction| {
            order(transaction).await.unwrap();
            Err::<i64, _>("out of stock")
        })
        .await;
    assert!(matches!(failed, Err(CallError::Work("out of stock"))));
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None));
    for replayed in [false, true] {
        let answer = rig.store.run_once(call(), async |transaction| order(transaction).await).await.unwrap();
        assert_eq!(answer, Answer { value: 2, replayed });
    }
    assert_eq!(rig.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_on_the_way_frees_the_key_of_a_claim_that_says_so() {
    let rig = Rig::start().await;
    let on_the_way = async {
        let _claim = rig.claim("k").await.free_when_dropped();
        let mut transaction = rig.pool.begin().await?;
        order(&mut transaction).await?;
        sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await.map(drop)
    };
    assert!(on_the_way.await.is_err());
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_commits_nothing() {
    let rig = Rig::start().await;
    let short = Idempotency::builder(rig.store.clone()).renewal(Renewal::Off).build();
    let claim =
        match short.call("order", "k", "item").in_progress_ttl(Duration::from_millis(300)).begin().await.unwrap() {
            Begin::Claimed(claim) => claim,
            Begin::Replay(_) => panic!("it was made before"),
        };
    let mut transaction = rig.pool.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    eventually(SOON, async || rig.state("k").await.is_none()).await;
    let next = rig.claim("k").await;
    assert!(is_lost(&rig.store.commit(claim, transaction, &id).await.unwrap_err()));
    assert_eq!(rig.orders().await, 0);
    let mut transaction = rig.pool.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    rig.store.commit(next, transaction, &id).await.unwrap();
    assert_eq!((rig.orders().await, rig.replay("k").await), (1, id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_store_commits_nothing_and_is_called_so() {
    let rig = Rig::start().await;
    let other = PostgresStore::connect(&format!("{}?table_prefix=b_", rig.server.url("postgres"))).await.unwrap();
    let call = Idempotency::new(other).call("order", "k", "item");
    match rig.store.run_once(call, async |transaction| order(transaction).await).await {
        Err(CallError::Call(error)) => {
            assert!(is_lost(&error) && error.to_string().contains("another store"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.orders().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_error_commits_nothing() {
    let rig = Rig::start().await;
    let claim = rig.claim("k").await;
    let mut transaction = rig.pool.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    assert!(sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await.is_err());
    assert!(is_lost(&rig.store.commit(claim, transaction, &id).await.unwrap_err()));
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None), "and its key is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_at_the_commit_commits_nothing() {
    let rig = Rig::start().await;
    rig.server
        .psql("ALTER TABLE orders ADD CONSTRAINT one_a_customer UNIQUE (item) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let first = rig.store.run_once(rig.once.call("order", "k1", "item"), async |it| order(it).await).await;
    let again = rig.store.run_once(rig.once.call("order", "k2", "item"), async |it| order(it).await).await;
    assert!(first.is_ok());
    match again {
        Err(CallError::Call(error)) => assert_eq!(error.effect(), Effect::None, "{error}"),
        other => panic!("the constraint was not checked: {other:?}"),
    }
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("k2").await), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_is_refused() {
    use sqlx::Connection;

    let rig = Rig::start().await;
    let mut transaction = rig.pool.begin().await.unwrap();
    let mut savepoint = transaction.begin().await.unwrap();
    let id = order(&mut savepoint).await.unwrap();
    let error = rig.store.commit(rig.claim("k").await, savepoint, &id).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    transaction.commit().await.unwrap();
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None));
}

/// Whose commit is lost on the way there or back, and what the transaction came to.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let rig = Rig::start().await;
    let link = Proxy::start(rig.server.addr());
    let behind = PgPool::connect(&rig.server.url_through(link.addr(), "postgres")).await.unwrap();
    for number in 1..=2_u64 {
        let key = format!("k{number}");
        let claim = rig.claim(&key).await;
        let mut transaction = behind.begin().await.unwrap();
        let id = order(&mut transaction).await.unwrap();
        link.cut_after(COMMIT);
        rig.store.commit(claim, transaction, &id).await.unwrap();
        assert_eq!(link.sprung(), number, "the answer was lost");
        assert_eq!((rig.orders().await, rig.replay(&key).await), (number.cast_signed(), id));
    }
    // The link breaks before the commit is sent: nothing can have been committed.
    let claim = rig.claim("cut").await;
    let mut transaction = behind.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    link.reset_connections();
    let error = rig.store.commit(claim, transaction, &id).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None, "{error}");
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("cut").await), (2, None));
}

/// The same of a commit that is answered into the void, which breaks no connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_never_comes_is_found_out() {
    let rig = Rig::start_with("deadline=2s").await;
    let link = Proxy::start(rig.server.addr());
    let url = rig.server.url_through(link.addr(), "postgres");
    let behind = PgPool::connect(&url).await.unwrap();
    let claim = rig.claim("k1").await;
    let mut transaction = behind.begin().await.unwrap();
    let id = order(&mut transaction).await.unwrap();
    link.swallow_answer_to(COMMIT);
    tokio::time::timeout(SOON, rig.store.commit(claim, transaction, &id)).await.expect("it has a deadline").unwrap();
    assert_eq!((link.sprung(), rig.orders().await, rig.replay("k1").await), (1, 1, id));

    let store = PostgresStore::connect(&format!("{url}?deadline=2s&max_connections=2")).await.unwrap();
    let once = Idempotency::new(store.clone());
    for number in 2..=4_u64 {
        link.swallow_answer_to(COMMIT);
        let call = once.call("order", format!("k{number}"), "item");
        let run = store.run_once(call, async |transaction| order(transaction).await);
        let answer = tokio::time::timeout(SOON, run).await.expect("it has a deadline").unwrap();
        assert_eq!((answer.replayed, link.sprung()), (false, number));
        assert_eq!(rig.replay(&format!("k{number}")).await, answer.value);
    }
    // More often than there are connections: one that gave no answer is not waited for.
    assert_eq!(rig.orders().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beginning_that_is_not_answered_frees_the_key() {
    let rig = Rig::start().await;
    let link = Proxy::start(rig.server.addr());
    let url = format!("{}?deadline=2s&max_connections=1", rig.server.url_through(link.addr(), "postgres"));
    let store = PostgresStore::connect(&url).await.unwrap();
    let once = Idempotency::new(store.clone());
    let run = async || {
        let run = store.run_once(once.call("order", "k", "item"), async |transaction| order(transaction).await);
        tokio::time::timeout(SOON, run).await.expect("it has a deadline")
    };
    link.swallow_answer_to("BEGIN");
    match run().await {
        Err(CallError::Call(error)) => {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error}");
        }
        other => panic!("{other:?}"),
    }
    once.close().await;
    assert_eq!(rig.state("k").await, None);
    assert!(!run().await.unwrap().replayed);
}

/// The answer is written, its link is gone, and neither a commit nor a rollback ever arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_nobody_ends_does_not_keep_the_key() {
    let rig = Rig::start_with("deadline=2s").await;
    let link = Proxy::start(rig.server.addr());
    let behind = PgPool::connect(&rig.server.url_through(link.addr(), "postgres")).await.unwrap();
    let claim = rig.claim("k").await;
    let mut transaction = behind.begin().await.unwrap();
    order(&mut transaction).await.unwrap();
    link.swallow_answer_to("the-answer");
    let store = rig.store.clone();
    let commit = tokio::spawn(async move { store.commit(claim, transaction, "the-answer").await });
    link.wait_for_sprung(1).await;
    link.black_hole_dropping();
    let error = commit.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error}");
    eventually(SOON, async || rig.state("k").await.is_none()).await;
    assert!(rig.server.log().contains("idle-in-transaction timeout"), "{}", rig.server.log());
    assert_eq!(rig.orders().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_who_has_locked_the_marker_and_not_for_ever() {
    let rig = Rig::start_with("deadline=4s").await;
    for (key, ends) in [("k1", true), ("k2", false)] {
        let claim = rig.claim(key).await;
        let mut transaction = rig.pool.begin().await.unwrap();
        let id = order(&mut transaction).await.unwrap();
        let mut other = rig.pool.begin().await.unwrap();
        sqlx::query("SELECT 1 FROM leasehold_entries FOR UPDATE").execute(&mut *other).await.unwrap();
        let store = rig.store.clone();
        let commit = tokio::spawn(async move { store.commit(claim, transaction, &id).await });
        if ends {
            eventually(SOON, async || {
                let waits =
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idle_in%'";
                rig.server.psql(waits).await != "0"
            })
            .await;
            other.commit().await.unwrap();
            commit.await.unwrap().unwrap();
            assert_eq!(rig.replay(key).await, id);
        } else {
            let error = commit.await.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error}");
            other.commit().await.unwrap();
            rig.once.close().await;
            assert_eq!(rig.state(key).await, None);
        }
    }
    assert_eq!(rig.orders().await, 1);
}

/// Where the claim has ended meanwhile there is nothing to be seen in the store, and the transaction may yet commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_not_found_out_before_its_transaction_has_ended() {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

    let rig = Rig::start().await;
    let short = Idempotency::builder(rig.store.clone())
        .in_progress_ttl(Duration::from_millis(300))
        .renewal(Renewal::Off)
        .build();
    for (key, commits) in [("committed", true), ("rolled back", false)] {
        let key = key.replace(' ', "-");
        let claim = match short.call("order", key.as_str(), "item").begin().await.unwrap() {
            Begin::Claimed(claim) => claim,
            Begin::Replay(_) => panic!("it was made before"),
        };
        let mut transaction = rig.pool.begin().await.unwrap();
        let id = order(&mut transaction).await.unwrap();
        let recording = claim.recording(&id).unwrap();
        let written = recording.write_to(&rig.store.within(&mut transaction)).await.unwrap();
        assert_eq!(written, Completion::Recorded);
        eventually(SOON, async || rig.state(&key).await.is_none()).await;
        let finding_out = tokio::spawn(recording.find_out());
        eventually(SOON, async || {
            let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(&rig.pool).await.unwrap();
            waiting > 0 || finding_out.is_finished()
        })
        .await;
        assert!(!finding_out.is_finished(), "{key}: its transaction is still open");
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        let found_out = finding_out.await.unwrap().unwrap();
        short.close().await;
        match commits {
            true => assert_eq!((found_out, rig.replay(&key).await), (Completion::Recorded, id)),
            false => assert_eq!((found_out, rig.state(&key).await), (Completion::Lost, None)),
        }
    }
    assert_eq!(rig.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_dropped_midway_is_whole_or_nothing() {
    let rig = Rig::start().await;
    let link = Proxy::start(rig.server.addr());
    let behind = PgPool::connect(&rig.server.url_through(link.addr(), "postgres")).await.unwrap();
    let (mut committed, mut rolled_back) = (0, 0);
    for number in 0..40_u64 {
        let key = format!("k{number}");
        let claim = rig.claim(&key).await;
        let mut transaction = behind.begin().await.unwrap();
        let id = order(&mut transaction).await.unwrap();
        link.delay_answers(Duration::from_millis(5));
        let commit = rig.store.commit(claim, transaction, &id);
        let _ = tokio::time::timeout(Duration::from_micros(number * 500), commit).await;
        link.pass();
        // Until its transaction has ended, nobody can tell.
        rig.once.close().await;
        match rig.state(&key).await {
            None => rolled_back += 1,
            Some(_) => {
                assert_eq!(rig.replay(&key).await, id);
                committed += 1;
            }
        }
        assert_eq!(rig.orders().await, committed, "after {number}");
    }
    assert!(committed > 0 && rolled_back > 0, "{committed} committed, {rolled_back} rolled back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_in_its_work_is_rolled_back_and_frees_its_key() {
    let rig = Rig::start().await;
    let run = rig.store.run_once(rig.once.call("order", "k", "item"), async |transaction| {
        order(transaction).await?;
        std::future::pending::<Result<i64, sqlx::Error>>().await
    });
    assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());
    rig.once.close().await;
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None));
    assert!(
        !rig.store.run_once(rig.once.call("order", "k", "item"), async |it| order(it).await).await.unwrap().replayed
    );
}

/// Neither do they run with the settings that are right for the store's own statements only.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_read_committed_and_as_the_user_has_set_them_up() {
    let rig = Rig::start().await;
    rig.server
        .psql("ALTER ROLE leasehold SET default_transaction_isolation = 'repeatable read'; ALTER ROLE leasehold SET jit = off")
        .await;
    let ttl = Duration::from_secs(3);
    let call = rig.once.call("settings", "k", "").in_progress_ttl(ttl);
    let ends = async || -> i64 {
        let ends = "SELECT ends FROM leasehold_entries WHERE ends IS NOT NULL AND key LIKE 'idem:%'";
        sqlx::query_scalar(ends).fetch_one(&rig.pool).await.unwrap()
    };
    let answer = rig
        .store
        .run_once(call, async |transaction| {
            const SETTINGS: &str = "SELECT concat_ws(' ', current_setting('transaction_isolation'), \
                current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('jit'))";
            let settings = sqlx::query_scalar::<_, String>(SETTINGS).fetch_one(transaction).await?;
            // A renewal, which writes to what is replaced at the end.
            let before = ends().await;
            eventually(SOON, async || ends().await > before).await;
            Ok::<_, sqlx::Error>(settings)
        })
        .await
        .unwrap();
    assert_eq!(answer.value, "read committed auto on off");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_transactions_than_connections_leave_the_store_what_renews_their_claims() {
    const CALLS: i64 = 6;
    let rig = Rig::start().await;
    let url = format!("{}?max_connections=2&deadline=20s", rig.server.url("postgres"));
    let own = PostgresStore::connect(&url).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect(&rig.server.url("postgres")).await.unwrap();
    let shared = PostgresStore::new(pool, PostgresConfig::default().with_deadline(SOON)).unwrap();
    let ttl = Duration::from_millis(1500);
    for (name, store) in [("own", own), ("shared", shared)] {
        let once = Idempotency::new(store.clone());
        let before = rig.orders().await;
        let calls = (0..CALLS).map(|number| {
            let call = once.call("order", format!("{name}:{number}"), "item").in_progress_ttl(ttl);
            store.run_once(call, async |transaction| {
                let id = order(transaction).await?;
                // Work that takes longer than its claim would live by itself.
                tokio::time::sleep(ttl * 3 / 2).await;
                Ok::<_, sqlx::Error>(id)
            })
        });
        for answer in join_all(calls).await {
            assert!(!answer.unwrap().replayed, "{name}");
        }
        assert_eq!(rig.orders().await - before, CALLS, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_claim_is_lost_is_dropped_and_rolled_back() {
    let rig = Rig::start().await;
    let once = Idempotency::builder(rig.store.clone())
        .in_progress_ttl(Duration::from_millis(500))
        .renewal(Renewal::Off)
        .after_crash(AfterCrash::OutcomeUnknown)
        .after_error(AfterError::AsAfterCrash)
        .build();
    let run = rig.store.run_once(once.call("order", "k", "item"), async |transaction| {
        order(transaction).await?;
        sqlx::query("SELECT pg_sleep(3600)").execute(transaction).await?;
        Ok::<_, sqlx::Error>(1)
    });
    match tokio::time::timeout(SOON, run).await.expect("it ends with its claim") {
        Err(CallError::Call(error)) => assert!(is_lost(&error), "{error}"),
        other => panic!("{other:?}"),
    }
    once.close().await;
    assert_eq!((rig.orders().await, rig.state("k").await), (0, None), "its key is free under any policy");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_have_one_effect() {
    let rig = Rig::start().await;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (store, call) = (rig.store.clone(), rig.once.call("order", "k", "item").wait(SOON));
        calls.spawn(async move { store.run_once(call, async |transaction| order(transaction).await).await });
    }
    let mut first = 0;
    while let Some(answer) = calls.join_next().await {
        first += u32::from(!answer.unwrap().unwrap().replayed);
    }
    assert_eq!((first, rig.orders().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_behind_a_pooler() {
    let rig = Rig::start().await;
    let pooler = PgBouncer::start(&rig.server, PoolMode::Transaction).await;
    let url = format!("{}?pgbouncer=true", pooler.url("postgres"));
    let store = PostgresStore::connect(&url).await.unwrap();
    let once = Idempotency::new(store.clone());
    let calls = (0..32).map(|number| {
        let call = once.call("order", format!("k{}", number % 16), "item").wait(SOON);
        store.run_once(call, async |transaction| {
            let insert = sqlx::query_scalar("INSERT INTO orders (item) VALUES ($1) RETURNING id").bind("item");
            // A statement that is kept would be looked for on other connections of the server's.
            insert.persistent(false).fetch_one(transaction).await
        })
    });
    let answers: Vec<Answer<i64>> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|answer| answer.replayed).count(), 16);
    assert_eq!(rig.orders().await, 16);
    let other = once.call("order", "k1", "another").begin().await.unwrap_err();
    assert_eq!(other.code(), Some(Code::PayloadMismatch));
}
