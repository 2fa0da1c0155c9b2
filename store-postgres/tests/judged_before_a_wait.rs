//! What the suite says of a store that many would write first: one statement an operation, which judges by `now()`. That
//! is the time at which the transaction began, so that an update which waits for a lock judges by a moment before its
//! wait.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_conformance::{Selection, Status, Suite};
use leasehold_core::{
    AddOutcome, AtomicStore, Capabilities, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome, Revision, Ttl,
};
use leasehold_postgres::sqlx::postgres::{PgPool, PgPoolOptions};
use leasehold_postgres::sqlx::{self, Row};
use leasehold_testkit::PostgresServer;

const CHECK: &str = "try_expire::a_late_renewal_does_not_revive";

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_judges_by_the_start_of_its_transaction_is_found_out() {
    // Who waits for whom is up to the scheduler. So one run can miss it, and hardly so many in a row.
    const RUNS: usize = 20;
    let server = PostgresServer::start().await;
    server.psql("CREATE TABLE naive (key bytea PRIMARY KEY, value bytea NOT NULL, ends timestamptz NOT NULL)").await;
    let status = async |judged_by: &'static str, set_by: &'static str| {
        let url = server.url("postgres");
        let suite = Suite::atomic("naive", move |namespace| Naive::open(url.clone(), namespace, judged_by, set_by));
        let only = Selection::default().with_filter(CHECK);
        let report = tokio::task::spawn_blocking(move || suite.report(&only)).await.unwrap();
        println!("{report}");
        report.checks[0].status
    };
    for set_by in ["now()", "clock_timestamp()"] {
        let mut runs = 0;
        while status("now()", set_by).await != Status::Failed {
            runs += 1;
            assert!(runs < RUNS, "a store that judges by now() and sets by {set_by} passed {RUNS} times");
        }
    }
    // All the rest is as it should be: the clock is the mistake.
    assert_eq!(status("clock_timestamp()", "clock_timestamp()").await, Status::Passed);
}

struct Naive {
    pool: PgPool,
    namespace: String,
    judged_by: &'static str,
    set_by: &'static str,
}

impl Naive {
    async fn open(
        url: String,
        namespace: String,
        judged_by: &'static str,
        set_by: &'static str,
    ) -> Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(4).connect(&url).await?;
        Ok(Self { pool, namespace, judged_by, set_by })
    }

    fn key(&self, key: &Key) -> Vec<u8> {
        format!("{}/{key}", self.namespace).into_bytes()
    }

    /// Runs a statement, and says whether it wrote a row.
    async fn writes(
        &self,
        operation: &'static str,
        text: &str,
        key: &Key,
        values: &[&[u8]],
        ttl: Ttl,
    ) -> Result<bool, Error> {
        let text = text.replace("$set_by", self.set_by).replace("$judged_by", self.judged_by);
        let ends = format!("{} milliseconds", ttl.as_millis());
        let mut query = sqlx::query(sqlx::AssertSqlSafe(text)).bind(self.key(key)).bind(ends);
        for value in values {
            query = query.bind(value.to_vec());
        }
        let done = query.execute(&self.pool).await.map_err(|error| failed(operation, error))?;
        Ok(done.rows_affected() == 1)
    }
}

fn failed(operation: &'static str, error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Other, operation, "the naive store failed").with_source(error)
}

#[async_trait]
impl AtomicStore for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        let add = "INSERT INTO naive VALUES ($1, $3, $set_by + $2::interval)";
        self.writes("try_add", add, key, &[&value], ttl).await?;
        Ok(AddOutcome::Added(Revision::new(1)?))
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        let replace = "UPDATE naive SET value = $4, ends = $set_by + $2::interval \
                       WHERE key = $1 AND value = $3 AND ends > $judged_by";
        Ok(match self.writes("try_replace", replace, key, &[expected, &value], ttl).await? {
            true => ReplaceOutcome::Applied(Revision::new(1)?),
            false => ReplaceOutcome::NotApplied,
        })
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let expire =
            "UPDATE naive SET ends = $set_by + $2::interval WHERE key = $1 AND value = $3 AND ends > $judged_by";
        Ok(Outcome::from_applied(self.writes("try_expire", expire, key, &[expected], ttl).await?))
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let found = sqlx::query("SELECT value FROM naive WHERE key = $1 AND ends > clock_timestamp()")
            .bind(self.key(key))
            .fetch_optional(&self.pool)
            .await;
        let found = found.map_err(|error| failed("get", error))?;
        Ok(found.map(|row| Entry { value: row.get::<Vec<u8>, _>(0).into(), time_left: None }))
    }

    async fn try_remove(&self, _: &Key, _: &[u8]) -> Result<Outcome, Error> {
        Err(Error::new(ErrorKind::Unsupported, "try_remove", "the check removes nothing"))
    }

    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        Err(Error::new(ErrorKind::Unsupported, "watch", "the check listens for nothing"))
    }
}
