//! A table that forgets: tokens rise all the same, as the server's clock is past the last one.

use leasehold_core::fence::FencingToken;
use leasehold_core::lock::{Locks, Release};
use leasehold_testkit::PostgresServer;

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
