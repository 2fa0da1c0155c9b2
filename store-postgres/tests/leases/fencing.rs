//! Fencing in the transaction that does the work.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::ErrorKind;
use leasehold_core::fence::{FencePolicy, FencingToken};
use leasehold_core::lock::{Locks, Renewal};
use leasehold_postgres::sqlx::{self, PgPool};
use leasehold_testkit::PostgresServer;
use tokio::time::sleep;

use crate::{MINUTE, RESOURCE, key_of, store_on};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_who_paused_past_its_ttl_loses_no_increment_of_another() {
    const WORKERS: u32 = 4;
    const EACH: u32 = 10;
    let ttl = Duration::from_millis(200);
    let server = PostgresServer::start().await;
    server.psql("CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0)").await;
    let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
    let store = store_on(&server, "").await;
    // Admitted in the same transaction as it reads or writes: whoever comes after has refused him by then.
    let admitted = async |token: FencingToken, new: Option<i64>| -> Option<i64> {
        let mut transaction = pool.begin().await.unwrap();
        let said = store.admit(&mut transaction, &key_of(RESOURCE), token, FencePolicy::Repeatable).await.unwrap();
        if !said.is_admitted() {
            transaction.rollback().await.unwrap();
            return None;
        }
        if let Some(new) = new {
            sqlx::query("UPDATE counter SET n = $1").bind(new).execute(&mut *transaction).await.unwrap();
        }
        let read = sqlx::query_scalar("SELECT n FROM counter").fetch_one(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        Some(read)
    };
    let work = async |worker: u32| {
        let locks = Locks::new(store.clone());
        let (mut done, mut refused) = (0, 0);
        while done < EACH {
            let lease = match locks.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).wait(MINUTE).acquire().await {
                Ok(lease) => lease,
                // A busy machine can grant too late what lives so shortly.
                Err(error) if error.kind() == ErrorKind::Timeout => continue,
                Err(error) => panic!("{error:#}"),
            };
            let token = lease.fencing_token().unwrap();
            let Some(read) = admitted(token, None).await else {
                refused += 1;
                continue;
            };
            // Every third pauses past its ttl, and checks nothing.
            if (done + refused + worker).is_multiple_of(3) {
                sleep(ttl.mul_f64(rand::random_range(0.5..3.0))).await;
            }
            match admitted(token, Some(read + 1)).await {
                Some(_) => done += 1,
                None => refused += 1,
            }
        }
        refused
    };
    let refused: u32 = join_all((0..WORKERS).map(work)).await.into_iter().sum();
    assert_eq!(server.psql("SELECT n FROM counter").await, (WORKERS * EACH).to_string());
    assert!(refused > 0, "somebody came too late");
}
