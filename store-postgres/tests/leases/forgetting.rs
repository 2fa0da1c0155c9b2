//! A table that forgets: tokens rise all the same, as the server's clock is past the last one.

use std::time::Duration;

use leasehold_core::fence::FencingToken;
use leasehold_core::lock::{Locks, Release};
use leasehold_testkit::{PostgresServer, eventually};

use crate::{RESOURCE, locks_on};

/// The token of one more lease.
async fn next_token(locks: &Locks) -> FencingToken {
    let lease = locks.lock(RESOURCE).require_fencing().acquire().await.unwrap();
    let token = lease.fencing_token().unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    token
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_after_the_table_was_emptied_or_set_back() {
    let server = PostgresServer::start().await;
    let locks = locks_on(&server, "").await;
    let first = next_token(&locks).await;
    server.psql("CREATE TABLE backup AS SELECT * FROM leasehold_entries").await;
    let mut last = next_token(&locks).await;
    assert!(last > first);
    let restore = "BEGIN; TRUNCATE leasehold_entries; INSERT INTO leasehold_entries SELECT * FROM backup; COMMIT";
    for forgets in ["TRUNCATE leasehold_entries", restore, "DROP TABLE leasehold_entries"] {
        server.psql(forgets).await;
        // As a process that starts after it.
        let next = next_token(&locks_on(&server, "").await).await;
        assert!(next > last, "{forgets}: {next} after {last}");
        last = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_after_a_failover_to_a_standby_that_missed_the_last_lease() {
    const SOON: Duration = Duration::from_secs(30);
    let primary = PostgresServer::start().await;
    let locks = locks_on(&primary, "").await;
    let first = next_token(&locks).await;
    let standby = primary.start_standby().await;

    // It hears no more of what is written, and does not know that.
    standby.psql("ALTER SYSTEM SET primary_conninfo = ''").await;
    standby.psql("SELECT pg_reload_conf()").await;
    eventually(SOON, async || standby.psql("SELECT count(*) FROM pg_stat_wal_receiver").await == "0").await;
    let missed = locks.lock(RESOURCE).require_fencing().acquire().await.unwrap();
    let token = missed.fencing_token().unwrap();
    assert!(token > first);
    primary.stop_immediate().await;
    assert_eq!(standby.psql("SELECT pg_promote()").await, "t");

    // Two believe that they hold it, and the token tells them apart.
    let next = locks_on(&standby, "").await.lock(RESOURCE).require_fencing().acquire().await.unwrap();
    missed.check().unwrap();
    assert!(next.fencing_token().unwrap() > token, "{next:?} after {missed:?}");
}
