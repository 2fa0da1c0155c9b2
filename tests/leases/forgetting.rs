//! Servers that forget: tokens rise all the same, as the server's clock is past the last one.

use leasehold::connect;
use leasehold::fence::FencingToken;
use leasehold::lock::{Locks, Release};
use leasehold_testkit::{Family, Proxy, RedisServer, eventually};
use std::time::Duration;

use crate::rig::RESOURCE;

/// The token of one more lease.
async fn next_token(locks: &Locks) -> FencingToken {
    let lease = locks.lock(RESOURCE).require_fencing().acquire().await.unwrap();
    let token = lease.fencing_token().unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    token
}

async fn locks_of(server: &RedisServer) -> Locks {
    Locks::new(connect(&server.url()).await.unwrap())
}

async fn after_a_flush(family: Family) {
    let server = RedisServer::builder().family(family).start().await;
    let locks = locks_of(&server).await;
    let before = next_token(&locks).await;
    server.command(&["FLUSHALL"]).await;
    assert!(next_token(&locks).await > before);
}

async fn after_an_older_backup(family: Family) {
    let server = RedisServer::builder().family(family).start().await;
    let locks = locks_of(&server).await;
    let first = next_token(&locks).await;
    server.command(&["SAVE"]).await;
    let mut last = first;
    for _ in 0..10 {
        last = next_token(&locks).await;
    }
    // It comes up with what was saved, and knows nothing of the ten.
    server.kill().await;
    server.restart().await;
    let locks = locks_of(&server).await;
    assert!(next_token(&locks).await > last && last > first);
}

async fn after_a_failover_to_a_replica_that_missed_the_last_writes(family: Family) {
    let master = RedisServer::builder().family(family).start().await;
    let link = Proxy::start(master.addr());
    let replica = RedisServer::builder().family(family).replica_of_through(&master, link.addr()).start().await;
    let locks = locks_of(&master).await;
    let first = next_token(&locks).await;
    eventually(Duration::from_secs(20), async || {
        replica.command(&["INFO", "replication"]).await.contains("master_link_status:up")
            && replica.command(&["DBSIZE"]).await == master.command(&["DBSIZE"]).await
    })
    .await;
    link.black_hole();
    let held = locks.lock(RESOURCE).acquire().await.unwrap();
    let last = held.fencing_token().unwrap();
    assert!(last > first);
    master.kill().await;
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    // The replica does not know that it is held: two hold it now, and only the token tells them apart.
    assert!(next_token(&locks_of(&replica).await).await > last);
    drop(held);
}

macro_rules! tokens_rise {
    ($($family:ident: $variant:ident),+) => {$(
        mod $family {
            use leasehold_testkit::Family;

            #[tokio::test(flavor = "multi_thread")]
            async fn tokens_rise_after_a_flush() {
                super::after_a_flush(Family::$variant).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn tokens_rise_after_an_older_backup() {
                super::after_an_older_backup(Family::$variant).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn tokens_rise_after_a_failover_to_a_replica_that_missed_the_last_writes() {
                super::after_a_failover_to_a_replica_that_missed_the_last_writes(Family::$variant).await;
            }
        }
    )+};
}

tokens_rise!(redis: Redis, valkey: Valkey);
