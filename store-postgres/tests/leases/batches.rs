//! Operations of one process that share a statement do not share their fate.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use futures_util::{FutureExt, poll};
use leasehold_core::lock::{Attempt, Lease, Locks, Renewal};
use leasehold_core::{AddOutcome, AtomicStore, Effect, ErrorKind, Key, Outcome, Ttl};
use leasehold_postgres::sqlx::postgres::PgPoolOptions;
use leasehold_postgres::sqlx::{self, PgPool};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::{PostgresServer, eventually};
use tokio::time::{Instant, sleep};

use crate::{MINUTE, RESOURCE, SOON, key_of, locks_on, store_on};

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_delays_the_renewal_of_no_other_lease() {
    let ttl = Duration::from_millis(4500);
    let server = PostgresServer::start().await;
    let (here, elsewhere) = (locks_on(&server, "").await, locks_on(&server, "").await);
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let touched = here.lock(RESOURCE).ttl(ttl * 3).renewal(Renewal::Every(ttl / 5)).acquire().await.unwrap();
    let many = async |locks: &Locks, name: &str| -> Vec<Lease> {
        try_join_all((0..50).map(|number| locks.lock(format!("{name}:{number}")).ttl(ttl).acquire())).await.unwrap()
    };
    let mut others = many(&here, "here").await;
    others.extend(many(&elsewhere, "elsewhere").await);

    let mut transaction = pool.begin().await.unwrap();
    let sql = "UPDATE leasehold_entries SET at_most = at_most WHERE key = $1";
    let changed = sqlx::query(sql).bind(key_of(RESOURCE).as_bytes()).execute(&mut *transaction).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
    let (opened, open_for) = (Instant::now(), Duration::from_secs(3));
    let mut waited = false;
    while opened.elapsed() < open_for {
        // Renewed at a third, so that two thirds are left, less what a renewal takes.
        let least = others.iter().map(Lease::remaining).min().unwrap();
        assert!(least > ttl / 2, "{least:?} left of {ttl:?} after {:?}", opened.elapsed());
        if !waited {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            waited = server.psql(count).await != "0";
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(waited, "the renewal of the lease that was touched waits for the transaction");
    transaction.commit().await.unwrap();
    touched.renew().await.unwrap();
    assert!(touched.remaining() > ttl * 2);
    for lease in others.iter().chain([&touched]) {
        lease.check().unwrap();
    }
}

/// There are few connections to wait for locks with, and a statement that failed for one of its items is sent again too.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_want_what_is_locked_are_in_nobody_elses_way() {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let server = PostgresServer::start().await;
    let store = store_on(&server, "deadline=6s").await;
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let ttl = Ttl::try_from(MINUTE).unwrap();
    let add = async |key: Key, value: &'static str| store.try_add(&key, value.into(), ttl).await;
    for name in ["one", "elsewhere"] {
        assert!(matches!(add(key_of(name), "v").await.unwrap(), AddOutcome::Added(_)));
    }
    server.psql("ALTER TABLE leasehold_entries ADD CHECK (length(value) < 5) NOT VALID").await;
    for kind in ["one", "many"] {
        let mut transaction = pool.begin().await.unwrap();
        let mut elsewhere = pool.begin().await.unwrap();
        let lock = "SELECT 1 FROM leasehold_entries WHERE key = $1 FOR UPDATE";
        sqlx::query(lock).bind(key_of("elsewhere").as_bytes()).execute(&mut *elsewhere).await.unwrap();
        let wanted: Vec<Key> = match kind {
            "one" => vec![key_of("wanted"); 60],
            _ => (0..60).map(|number| key_of(&format!("wanted:{number}"))).collect(),
        };
        let within = store.within(&mut transaction);
        for key in wanted.iter().collect::<HashSet<_>>() {
            assert!(matches!(within.try_add(key, "mine".into(), ttl).await.unwrap(), AddOutcome::Added(_)));
        }
        drop(within);
        let waiting = wanted.into_iter().map(|key| {
            let store = store.clone();
            tokio::spawn(async move { store.try_add(&key, "v".into(), ttl).await })
        });
        let waiting: Vec<_> = waiting.collect();
        eventually(SOON, async || server.psql(WAITING).await != "0").await;

        let tries = (0..40).map(|number| {
            let value = if number == 7 { "too long" } else { "v" };
            add(key_of(&format!("{kind}:{number}")), value)
        });
        // Locked for a moment only, by somebody else.
        let renewed = store.clone();
        let renewed = tokio::spawn(async move { renewed.try_expire(&key_of("elsewhere"), b"v", ttl).await });
        for (number, answer) in join_all(tries).await.into_iter().enumerate() {
            match number {
                7 => assert_eq!(answer.unwrap_err().effect(), Effect::None),
                _ => assert!(matches!(answer.unwrap(), AddOutcome::Added(_)), "{kind}:{number}"),
            }
        }
        elsewhere.rollback().await.unwrap();
        assert_eq!(renewed.await.unwrap().unwrap(), Outcome::Applied);
        assert!(waiting.iter().any(|task| !task.is_finished()), "{kind}: the transaction is still open");
        // Whoever still waits has his answer now.
        transaction.commit().await.unwrap();
        for task in waiting {
            match task.await.unwrap() {
                Ok(answer) => assert!(matches!(answer, AddOutcome::Exists(_))),
                Err(error) => assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None)),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tries_of_one_key_in_one_batch_both_get_their_answers() {
    let server = PostgresServer::builder().setting("shared_preload_libraries", "pg_stat_statements").start().await;
    server.psql("CREATE EXTENSION pg_stat_statements").await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&server.url("postgres")).await.unwrap();
    let store = PostgresStore::new(pool.clone(), PostgresConfig::default().with_hints(false)).unwrap();
    store.migrate().await.unwrap();
    // While the only connection is taken, what is asked for gathers.
    let taken = pool.acquire().await.unwrap();
    let ttl = Ttl::try_from(MINUTE).unwrap();
    let add = async |name: String, value: &'static str| store.try_add(&key_of(&name), value.into(), ttl).await.unwrap();
    let twice = ["one", "two"].map(|value| add("same".to_owned(), value));
    let mut tries: Vec<_> = twice.into_iter().map(FutureExt::boxed).collect();
    tries.extend((0..20).map(|number| add(format!("n{number}"), "v").boxed()));
    let (one, two) = (Locks::new(store.clone()), Locks::new(store.clone()));
    let mut attempts: Vec<_> =
        [&one, &two].map(|locks| locks.lock(RESOURCE).try_acquire().boxed()).into_iter().collect();
    for asked in &mut tries {
        assert!(poll!(asked).is_pending());
    }
    for asked in &mut attempts {
        assert!(poll!(asked).is_pending());
    }
    drop(taken);

    let (answers, attempts) = tokio::join!(join_all(tries), join_all(attempts));
    match &answers[..2] {
        [AddOutcome::Added(_), AddOutcome::Exists(entry)] => assert_eq!(entry.value, "one"),
        other => panic!("{other:?}"),
    }
    assert!(answers[2..].iter().all(|answer| matches!(answer, AddOutcome::Added(_))));
    let [Ok(Attempt::Acquired(lease)), Ok(Attempt::Held(holder))] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(holder.nonce, lease.nonce());
    // They did go together: one statement for the first of each key, and one for the second.
    let calls = server.psql("SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '%inserted AS%'").await;
    assert_eq!(calls, "2");
}
