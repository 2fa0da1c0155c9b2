//! The caller's own pool: the store takes part in it, and takes nothing of it for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use leasehold_core::lock::{Locks, Release, Renewal};
use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Outcome, Ttl};
use leasehold_postgres::sqlx::postgres::PgPoolOptions;
use leasehold_postgres::sqlx::{self, PgConnection, PgPool};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::{PostgresServer, eventually};

use crate::{MINUTE, RESOURCE, SOON, key_of, locks_on};

const CONNECTIONS: u32 = 5;

/// A pool that the store and the work share, and a table of the work's.
async fn shared_pool(server: &PostgresServer, config: PostgresConfig) -> (PgPool, PostgresStore) {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&server.url("postgres")).await.unwrap();
    let store = PostgresStore::new(pool.clone(), config).unwrap();
    store.migrate().await.unwrap();
    server.psql("CREATE TABLE done (what text)").await;
    (pool, store)
}

async fn note(connection: &mut PgConnection, what: &str) {
    sqlx::query("INSERT INTO done VALUES ($1)").bind(what).execute(connection).await.unwrap();
}

async fn all_connections(pool: &PgPool) -> Vec<sqlx::pool::PoolConnection<sqlx::Postgres>> {
    let all = try_join_all((0..CONNECTIONS).map(|_| pool.acquire()));
    tokio::time::timeout(SOON, all).await.expect("nobody keeps a connection").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_shared_with_the_work_hangs_nobody() {
    let server = PostgresServer::start().await;
    let (pool, store) = shared_pool(&server, PostgresConfig::default()).await;
    let locks = Locks::new(store);
    // Work that wants more connections than there are, while leases are renewed and waited for.
    let work = async |number: usize| {
        let lease = locks.lock(format!("r{}", number % 4)).ttl(MINUTE / 10).wait(MINUTE).acquire().await.unwrap();
        let queries = (0..CONNECTIONS).map(|_| async {
            let mut transaction = pool.begin().await.unwrap();
            sqlx::query("SELECT pg_sleep(0.02)").execute(&mut *transaction).await.unwrap();
            note(&mut transaction, "work").await;
            transaction.commit().await.unwrap();
        });
        join_all(queries).await;
        lease.check().unwrap();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    };
    // Four hold, and twenty wait their turn.
    tokio::time::timeout(MINUTE, join_all((0..24).map(work))).await.expect("everybody came to his turn");
    assert_eq!(server.psql("SELECT count(*) FROM done").await, (24 * CONNECTIONS).to_string());
    assert_eq!(locks.stats().waiting, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_is_held_while_a_lease_is_held_or_waited_for() {
    let server = PostgresServer::start().await;
    let config = PostgresConfig::default().with_deadline(Duration::from_millis(500));
    let (pool, store) = shared_pool(&server, config).await;
    let locks = Locks::new(store);
    let request = |number: usize| locks.lock(format!("r{number}")).ttl(MINUTE * 5).wait(MINUTE);
    let held = try_join_all((0..4).map(|number| request(number).acquire())).await.unwrap();
    let wait = |number: usize| {
        let (locks, resource) = (locks.clone(), format!("r{}", number % 4));
        tokio::spawn(async move {
            loop {
                // Released by each himself, as they do not queue in the order of their numbers.
                match locks.lock(resource.as_str()).ttl(MINUTE * 5).wait(MINUTE).acquire().await {
                    Ok(lease) => return lease.release().await.unwrap(),
                    // Who comes first to a starved pool is told so, and asks again.
                    Err(error) if error.effect() == Effect::None && error.kind() == ErrorKind::Timeout => {}
                    Err(error) => panic!("{error:#}"),
                }
            }
        })
    };
    let waiting: Vec<_> = (0..20).map(wait).collect();
    eventually(SOON, async || locks.stats().waiting == 20).await;

    let all = all_connections(&pool).await;
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND state <> 'idle' AND pid <> pg_backend_pid()";
    eventually(SOON, async || server.psql(busy).await == "0").await;
    // Besides the pool there is the one that hints come by, and this one.
    let there = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres'";
    assert_eq!(server.psql(there).await, (CONNECTIONS + 2).to_string());
    assert_eq!(server.psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await, "0");

    // A pool without a connection is an answer, and nothing that hangs or loses a lease.
    let starved = held[0].renew().await.unwrap_err();
    assert_eq!((starved.kind(), starved.effect()), (ErrorKind::Timeout, Effect::None), "{starved}");
    held[0].check().unwrap();
    drop(all);
    held[0].renew().await.unwrap();
    for lease in held {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap(), Release::Released);
    }
}

/// More writers than there are connections keep the queue from ever being empty.
#[tokio::test(flavor = "multi_thread")]
async fn writers_without_end_leave_others_their_turn_of_a_small_pool() {
    let server = PostgresServer::start().await;
    for (connections, max_batch) in [(1, 64), (2, 64), (4, 1)] {
        let pool = PgPoolOptions::new().max_connections(connections).connect(&server.url("postgres")).await.unwrap();
        let config = PostgresConfig::default().with_deadline(Duration::from_secs(3)).with_max_batch(max_batch);
        let store = PostgresStore::new(pool.clone(), config).unwrap();
        store.migrate().await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..512).map(|number| {
            let (store, stop, key) = (store.clone(), stop.clone(), key_of(&format!("k{number}")));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let _ = store.set(&key, "v".into(), Expiry::Never).await;
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let case = format!("{connections} connections, {max_batch} in a statement");
        for number in 0..5 {
            store.get(&key_of(&format!("k{number}"))).await.expect(&case);
            let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await.expect(&case);
            assert_eq!(one, 1);
        }
        stop.store(true, Ordering::Relaxed);
        join_all(writers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_a_starved_pool() {
    let server = PostgresServer::start().await;
    let ttl = Duration::from_secs(3);
    let (pool, store) = shared_pool(&server, PostgresConfig::default().with_deadline(ttl / 10)).await;
    let locks = Locks::new(store);
    let lease = locks.lock(RESOURCE).ttl(ttl).acquire().await.unwrap();
    let other = locks_on(&server, "").await;
    let all = all_connections(&pool).await;
    // A renewal comes due, and finds no connection.
    eventually(ttl, async || lease.remaining() < ttl / 2).await;
    drop(all);
    eventually(ttl, async || lease.remaining() > ttl / 2).await;
    assert_eq!(other.inspect(RESOURCE).await.unwrap().unwrap().nonce, lease.nonce());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaked_lease_does_not_ride_back_into_the_pool() {
    let server = PostgresServer::start().await;
    let (pool, store) = shared_pool(&server, PostgresConfig::default()).await;
    let ttl = Duration::from_secs(2);
    let locks = Locks::new(store.clone());
    let other = locks_on(&server, "").await;
    let lease = locks.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).acquire().await.unwrap();
    let nonce = lease.nonce();
    std::mem::forget(lease);
    // Whoever has the connection next is not taken for the holder, and changes nothing for him.
    let try_add = async |connection: &mut PgConnection| {
        let ttl = Ttl::try_from(MINUTE).unwrap();
        store.within(connection).try_add(&key_of(RESOURCE), "next".into(), ttl).await.unwrap()
    };
    for mut connection in all_connections(&pool).await {
        assert!(matches!(try_add(&mut connection).await, AddOutcome::Exists(_)));
        assert_eq!(other.inspect(RESOURCE).await.unwrap().unwrap().nonce, nonce);
    }
    assert_eq!(server.psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await, "0");
    // It ends by its ttl, while every connection is still there.
    drop(other.lock(RESOURCE).wait(ttl * 3).acquire().await.unwrap());
    assert_eq!(pool.size(), CONNECTIONS);
}

#[tokio::test(flavor = "multi_thread")]
async fn contention_does_not_abort_a_callers_open_transaction() {
    let server = PostgresServer::start().await;
    let (pool, store) = shared_pool(&server, PostgresConfig::default()).await;
    let held = locks_on(&server, "").await.lock(RESOURCE).acquire().await.unwrap();
    let (key, ttl) = (key_of(RESOURCE), Ttl::try_from(MINUTE).unwrap());

    let mut transaction = pool.begin().await.unwrap();
    note(&mut transaction, "before").await;
    let within = store.within(&mut transaction);
    assert!(matches!(within.try_add(&key, "mine".into(), ttl).await.unwrap(), AddOutcome::Exists(_)));
    assert_eq!(within.try_expire(&key, b"mine", ttl).await.unwrap(), Outcome::NotApplied);
    assert_eq!(within.try_remove(&key, b"mine").await.unwrap(), Outcome::NotApplied);
    drop(within);
    note(&mut transaction, "after").await;
    transaction.commit().await.unwrap();
    assert_eq!(server.psql("SELECT string_agg(what, ' ') FROM done").await, "before after");
    held.check().unwrap();
    assert_eq!(held.release().await.unwrap(), Release::Released);

    // Many at once, each in a transaction of its own, waiting for the one that came first.
    for round in 0..10 {
        let key = key_of(&format!("round:{round}"));
        let contend = async |number: u32| {
            let mut transaction = pool.begin().await.unwrap();
            note(&mut transaction, "contender").await;
            let added = store.within(&mut transaction).try_add(&key, number.to_string().into(), ttl).await.unwrap();
            // Every other one changes his mind, and the next in line then finds the key free.
            let rolls_back = number.is_multiple_of(2);
            if rolls_back {
                transaction.rollback().await.unwrap()
            } else {
                transaction.commit().await.unwrap()
            }
            u32::from(matches!(added, AddOutcome::Added(_)) && !rolls_back)
        };
        let kept: u32 = join_all((0..10).map(contend)).await.into_iter().sum();
        assert_eq!(kept, 1, "round {round}");
    }
    assert_eq!(server.psql("SELECT count(*) FROM done WHERE what = 'contender'").await, "50");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}
