//! How many statements a lease costs, as the server counts them (`pg_stat_statements`), and that they are planned once.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::time::Duration;

use leasehold_core::AtomicStore;
use leasehold_core::idempotency::Idempotency;
use leasehold_core::lock::{Lease, Locks, Release, Renewal};
use leasehold_postgres::sqlx::postgres::PgPoolOptions;
use leasehold_postgres::{PostgresConfig, PostgresStore, sqlx};
use leasehold_testkit::{PostgresServer, eventually};

const SOON: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

/// A server that counts the statements of each user.
struct Counting(PostgresServer);

/// What one user has sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    /// Statements on the store's table.
    on_entries: u64,
    listens: u64,
    notifies: u64,
    /// Everything else, such as the beginning and the end of a transaction.
    others: u64,
}

impl Counting {
    async fn start() -> Self {
        let server = PostgresServer::builder()
            .max_connections(100)
            .setting("shared_preload_libraries", "pg_stat_statements")
            .setting("pg_stat_statements.track_planning", "on")
            .start()
            .await;
        server.psql("CREATE EXTENSION pg_stat_statements").await;
        // Makes the tables, which the users of the tests then only use.
        drop(PostgresStore::connect(&server.url("postgres")).await.unwrap());
        Self(server)
    }

    /// The locks of a user of its own, with connections that are up.
    async fn locks(&self, user: &str, parameters: &str) -> Locks {
        Locks::new(self.store(user, parameters).await)
    }

    async fn store(&self, user: &str, parameters: &str) -> PostgresStore {
        self.0.psql(&format!("CREATE USER {user}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")).await;
        let url = self.0.url("postgres").replace("leasehold@", &format!("{user}@"));
        // The sweeper has statements of its own.
        let store = PostgresStore::connect(&format!("{url}?sweep_interval=0s&{parameters}")).await.unwrap();
        release(acquire(&Locks::new(store.clone()), "warm-up", 32).await).await;
        self.0.psql("SELECT pg_stat_statements_reset()").await;
        store
    }

    async fn sent(&self, user: &str) -> Sent {
        let rows = self
            .0
            .psql(&format!(
                "SELECT CASE WHEN query LIKE '%leasehold_entries%' THEN 'entries' WHEN query LIKE 'LISTEN%' THEN 'listen' \
                 WHEN query LIKE '%pg_notify%' THEN 'notify' ELSE 'other' END, sum(calls) \
                 FROM pg_stat_statements WHERE userid = '{user}'::regrole GROUP BY 1"
            ))
            .await;
        let mut sent = Sent::default();
        for row in rows.lines() {
            let (kind, calls) = row.split_once('|').unwrap();
            let counter = match kind {
                "entries" => &mut sent.on_entries,
                "listen" => &mut sent.listens,
                "notify" => &mut sent.notifies,
                _ => &mut sent.others,
            };
            *counter = calls.parse().unwrap();
        }
        sent
    }

    /// Waits until the server has counted what was answered just now: it counts a moment after it answers.
    async fn has_sent(&self, user: &str, on_entries: u64) -> Sent {
        eventually(SOON, async || self.sent(user).await.on_entries >= on_entries).await;
        self.sent(user).await
    }
}

/// So many leases, asked for at the same time.
async fn acquire(locks: &Locks, name: &str, count: usize) -> Vec<Lease> {
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let request = locks.lock(format!("{name}:{number}")).ttl(MINUTE).renewal(Renewal::Off);
            tokio::spawn(request.acquire())
        })
        .collect();
    let mut leases = Vec::new();
    for task in tasks {
        leases.push(task.await.unwrap().unwrap());
    }
    leases
}

async fn release(leases: Vec<Lease>) {
    let tasks: Vec<_> = leases.into_iter().map(|lease| tokio::spawn(lease.release())).collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Release::Released);
    }
}

fn only_on_entries(on_entries: u64) -> Sent {
    Sent { on_entries, ..Sent::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_renew_and_release_are_a_statement_each_and_no_transaction_around_it() {
    let server = Counting::start().await;
    for (user, batching) in [("together", ""), ("apart", "&max_batch=1")] {
        let locks = server.locks(user, &format!("hints=false{batching}")).await;
        let mut statements = 0;
        for round in 0..5 {
            let lease = locks.lock(format!("k{round}")).ttl(MINUTE).renewal(Renewal::Off).acquire().await.unwrap();
            statements += 1;
            assert_eq!(server.has_sent(user, statements).await, only_on_entries(statements), "{user}: acquire");
            lease.renew().await.unwrap();
            statements += 1;
            assert_eq!(server.has_sent(user, statements).await, only_on_entries(statements), "{user}: renew");
            release(vec![lease]).await;
            statements += 1;
            assert_eq!(server.has_sent(user, statements).await, only_on_entries(statements), "{user}: release");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_call_is_two_statements_and_a_replay_one() {
    let server = Counting::start().await;
    let store = server.store("calls", "hints=false").await;
    let once = Idempotency::new(store.clone());
    let mut statements = 0;
    for (trips, replayed) in [(2, false), (1, true), (1, true)] {
        let answer = once.call("charge", "k", &()).run(async || 1).await.unwrap();
        statements += trips;
        assert_eq!(answer.replayed, replayed);
        assert_eq!(server.has_sent("calls", statements).await, only_on_entries(statements));
    }
    // In the caller's own transaction: the claim, and the record before the commit.
    let answer = store.run_once(once.call("charge", "k2", &()), async |_| Ok::<_, sqlx::Error>(1)).await.unwrap();
    assert!(!answer.replayed);
    let sent = server.has_sent("calls", statements + 2).await;
    assert_eq!(sent, Sent { on_entries: statements + 2, others: 2, ..Sent::default() }, "BEGIN and COMMIT");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_come_together_share_statements_unless_batching_is_off() {
    const LEASES: u64 = 200;
    let server = Counting::start().await;
    for (user, batching) in [("together", ""), ("apart", "&max_batch=1")] {
        let locks = server.locks(user, &format!("hints=false{batching}")).await;
        let leases = acquire(&locks, "k", usize::try_from(LEASES).unwrap()).await;
        release(leases).await;
        if user == "apart" {
            assert_eq!(server.has_sent(user, 2 * LEASES).await, only_on_entries(2 * LEASES));
        } else {
            let sent = server.has_sent(user, 1).await;
            // At most 64 go in one, and four may be on the wire.
            assert!((2 * LEASES / 64..LEASES).contains(&sent.on_entries), "{sent:?} for {LEASES} leases");
            assert_eq!(sent, only_on_entries(sent.on_entries));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_for_one_is_not_planned_anew_each_time() {
    let server = PostgresServer::start().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&server.url("postgres")).await.unwrap();
    let store = PostgresStore::new(pool.clone(), PostgresConfig::default().with_hints(false)).unwrap();
    store.migrate().await.unwrap();
    let locks = Locks::new(store.clone());
    for _ in 0..50 {
        let lease = locks.lock("k").ttl(MINUTE).renewal(Renewal::Off).acquire().await.unwrap();
        store.get(lease.resource()).await.unwrap();
        release(vec![lease]).await;
    }
    let plans: Vec<(i64, i64)> =
        sqlx::query_as("SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE 'WITH%'")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(plans.len(), 2, "one for writes and one for reads");
    // The server plans five times before it decides.
    assert!(plans.iter().all(|(generic, custom)| *generic > 0 && *custom <= 5), "{plans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_is_one_for_many_on_a_pool_of_the_stores_own() {
    const ROUNDS: u64 = 30;
    let server = Counting::start().await;
    let locks = server.locks("planned", "hints=false&max_connections=2").await;
    for _ in 0..ROUNDS {
        release(acquire(&locks, "k", 8).await).await;
    }
    let sent = server.has_sent("planned", 2 * ROUNDS).await;
    let plans = server.0.psql("SELECT sum(plans) FROM pg_stat_statements WHERE userid = 'planned'::regrole").await;
    // Of two connections each plans the statement for one and that for many, if the warm-up had no need of it.
    assert!(plans.parse::<u64>().unwrap() <= 4, "{plans} plans for {sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_hints_a_release_is_told_in_at_most_one_statement_more_that_nobody_waits_for() {
    const LEASES: u64 = 10;
    let server = Counting::start().await;
    let locks = server.locks("teller", "hints=true").await;
    for _ in 0..LEASES {
        let lease = locks.lock("k").ttl(MINUTE).renewal(Renewal::Off).acquire().await.unwrap();
        lease.renew().await.unwrap();
        release(vec![lease]).await;
    }
    eventually(SOON, async || server.sent("teller").await.notifies > 0).await;
    let sent = server.has_sent("teller", 3 * LEASES).await;
    assert_eq!((sent.on_entries, sent.listens, sent.others), (3 * LEASES, 0, 0), "{sent:?}");
    // Of the warm-up, one may have been on its way and one to come.
    assert!(sent.notifies <= LEASES + 2, "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_with_hints_subscribes_once_and_confirms_once_and_then_sends_nothing() {
    let server = Counting::start().await;
    let waiting = server.locks("waiter", "").await;
    let others = server.locks("others", "").await;
    let held = others.lock("k").ttl(MINUTE).acquire().await.unwrap();
    let waiter = tokio::spawn(waiting.lock("k").ttl(MINUTE).renewal(Renewal::Off).wait(MINUTE).acquire());
    // The try that finds it taken, the subscription, and the try that confirms it.
    eventually(SOON, async || server.sent("waiter").await.on_entries == 2).await;
    // What happens elsewhere wakes nobody.
    for _ in 0..20 {
        release(acquire(&others, "other", 16).await).await;
    }
    let sent = server.sent("waiter").await;
    assert_eq!((sent.on_entries, sent.listens), (2, 1), "{sent:?} while it waits");
    release(vec![held]).await;
    let lease = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    let sent = server.has_sent("waiter", 3).await;
    assert_eq!((sent.on_entries, sent.listens), (3, 1), "{sent:?} when it was woken");
    release(vec![lease]).await;
}
