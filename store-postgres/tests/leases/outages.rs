//! Connections that are ended, and a server that crashes and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::lock::{Locks, LossReason, Release, Renewal};
use leasehold_core::{AtomicStore, Effect};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::{PostgresServer, Proxy, eventually};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{MINUTE, RESOURCE, SOON, is_soak, key_of, locks_on, slack, store_on};

#[tokio::test(flavor = "multi_thread")]
async fn renewal_goes_on_while_every_connection_is_ended_each_second() {
    let length = Duration::from_secs(if is_soak() { 30 } else { 6 });
    let ttl = Duration::from_secs(3);
    let server = PostgresServer::start().await;
    let locks = locks_on(&server, "deadline=500ms").await;
    let leases = try_join_all((0..50).map(|number| locks.lock(format!("r{number}")).ttl(ttl).acquire())).await.unwrap();

    // Somebody works beside. His calls may fail, but nothing stays behind of one that did.
    let stop = Arc::new(AtomicBool::new(false));
    let working = tokio::spawn({
        let (store, stop) = (store_on(&server, "deadline=500ms").await, stop.clone());
        // What was sent over a connection that has ended is under way no more.
        let locks = Locks::builder(store).transport_gives_up_after(ttl / 3).build();
        async move {
            let (mut done, mut failed, mut last) = (0, 0, None);
            while !stop.load(Ordering::Relaxed) {
                match locks.lock(RESOURCE).ttl(ttl / 3).wait(ttl).acquire().await {
                    Ok(lease) => {
                        assert!(lease.fencing_token() > last, "{:?} after {last:?}", lease.fencing_token());
                        last = lease.fencing_token();
                        done += 1;
                        drop(lease);
                    }
                    Err(error) => {
                        assert!(error.holder().is_none(), "a connection that was ended is no contention: {error}");
                        failed += 1;
                    }
                }
            }
            locks.close().await;
            (done, failed)
        }
    });

    let (started, mut ended) = (Instant::now(), 0);
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < length {
        seconds.tick().await;
        let count = server
            .psql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            )
            .await;
        let count: u32 = count.parse().unwrap();
        assert!(count > 0, "somebody was connected");
        ended += count;
        for lease in &leases {
            lease.check().unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (done, failed) = working.await.unwrap();
    println!(
        "{ended} connections ended in {length:?}: {} leases of {ttl:?} held; beside, {done} acquired and released, {failed} failed",
        leases.len()
    );
    assert!(done > 0);
    // Renewed by the server's own account, and that all of them.
    eventually(ttl, async || leases.iter().all(|lease| lease.remaining() > ttl / 2)).await;
    for (number, lease) in leases.iter().enumerate() {
        let holder = locks.inspect(format!("r{number}")).await.unwrap().unwrap();
        assert_eq!(holder.nonce, lease.nonce());
    }
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
}

/// As what translates addresses and keeps state of connections does with one that is idle for some minutes.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_that_is_gone_without_a_word_fails_no_call() {
    let server = PostgresServer::start().await;
    let link = Proxy::start(server.addr());
    let url = format!("{}?deadline=4s&hints=false", server.url_through(link.addr(), "postgres"));
    let store = PostgresStore::connect(&url).await.unwrap();
    assert_eq!(store.get(&key_of(RESOURCE)).await.unwrap(), None);
    let open = link.counts().open;
    // One that was used within the last second is not asked.
    sleep(Duration::from_millis(1200)).await;
    link.swallow_next_answers(1);
    assert_eq!(store.get(&key_of(RESOURCE)).await.unwrap(), None);
    assert_eq!(link.sprung(), 1);
    eventually(SOON, async || link.counts().open == open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_server_loses_the_leases_that_are_shorter_than_it() {
    let server = PostgresServer::start().await;
    let locks = locks_on(&server, "deadline=300ms").await;
    let (short_ttl, long_ttl) = (Duration::from_secs(1), Duration::from_secs(30));
    let short = locks.lock("short").ttl(short_ttl).acquire().await.unwrap();
    // Its renewal comes due while the server is away.
    let long = locks.lock("long").ttl(long_ttl).renewal(Renewal::Every(short_ttl)).acquire().await.unwrap();
    let (short_token, long_token) = (short.fencing_token(), long.fencing_token());
    let cancelled = short.cancellation_token();

    server.stop_immediate().await;
    let last_renewal = Instant::now();
    let lost = short.lost().await;
    assert_eq!(lost.reason(), LossReason::Expired);
    assert!(cancelled.is_cancelled() && last_renewal.elapsed() < short_ttl + slack(short_ttl));
    let away = locks.lock("other").acquire().await.unwrap_err();
    assert_eq!(away.effect(), Effect::None, "{away}");
    long.check().unwrap();
    let before = long.remaining();
    server.start_again().await;

    eventually(SOON, async || long.remaining() > before).await;
    assert_eq!(long.fencing_token(), long_token);
    assert_eq!(locks.inspect("long").await.unwrap().unwrap().nonce, long.nonce());
    assert_eq!(long.release().await.unwrap(), Release::Released);
    assert_eq!(short.release().await.unwrap(), Release::AlreadyLost);
    // Work goes on, and tokens rise across it.
    for (resource, before) in [("short", short_token), ("long", long_token)] {
        let lease = locks.lock(resource).require_fencing().wait(MINUTE).acquire().await.unwrap();
        assert!(lease.fencing_token() > before);
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_is_shorter_than_the_patience_fails_no_call() {
    let server = PostgresServer::start().await;
    server.stop_fast().await;
    // A fifth of the deadline is the time that the server may refuse connections for.
    let url = format!("{}?deadline=100s", server.url("postgres"));
    let connecting = tokio::spawn(async move { PostgresStore::connect(&url).await });
    sleep(Duration::from_millis(300)).await;
    assert!(!connecting.is_finished());
    server.start_again().await;
    let locks = Locks::new(connecting.await.unwrap().unwrap());
    drop(locks.lock(RESOURCE).acquire().await.unwrap());
}
