use std::time::Duration;

use leasehold::lock::{Locks, LossReason, Release, Renewal};
use leasehold::{AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Key, connect};
use leasehold_testkit::eventually;
use tokio::time::{Instant, sleep};

use crate::rig::{RESOURCE, Rig, always, slack, try_once};

pub(crate) async fn an_expired_holder_does_not_free_its_successor(rig: Rig) {
    let ttl = Duration::from_millis(500);
    for other in [&rig.b, &rig.a] {
        let a = rig.a.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).acquire().await.unwrap();
        sleep(ttl * 2).await;
        let b = other.lock(RESOURCE).acquire().await.unwrap();
        assert_eq!(a.release().await.unwrap(), Release::AlreadyLost);
        assert_eq!(rig.holder().await.unwrap().nonce, b.nonce());
        b.renew().await.unwrap();
        assert_eq!(b.release().await.unwrap(), Release::Released);
    }
}

pub(crate) async fn a_late_renewal_never_retakes(rig: Rig) {
    let ttl = Duration::from_secs(3);
    for taken_meanwhile in [false, true] {
        eventually(Duration::from_secs(10), async || rig.a.inspect(RESOURCE).await.is_ok()).await;
        let a = rig.a.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).acquire().await.unwrap();
        // The next is then one trip on any of its connections, which take turns.
        for _ in 0..4 {
            a.renew().await.unwrap();
            rig.quiet().await;
        }
        rig.link.black_hole();
        let error = a.renew().await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{error:#}");
        let counts = rig.link.counts();
        assert!(counts.request_bytes_read > counts.request_bytes_forwarded, "it is on its way");
        a.check().expect("it was sent in time");
        a.lost().await;
        eventually(ttl, async || rig.holder().await.is_none()).await;
        if taken_meanwhile {
            assert_eq!(try_once(&rig.b).await.unwrap().release().await.unwrap(), Release::Released);
        }
        // Now it lands.
        rig.link.pass();
        let sent = counts.request_bytes_read;
        eventually(ttl, async || rig.link.counts().request_bytes_forwarded >= sent).await;
        rig.quiet().await;
        always(ttl / 6, async || rig.is_empty().await).await;
        assert_eq!(a.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        drop(a);
        rig.a.close().await;
        assert!(rig.is_empty().await);
    }
}

pub(crate) async fn a_bounded_hold_ends_before_the_lease_does(rig: Rig) {
    let (ttl, limit) = (Duration::from_secs(1), Duration::from_millis(1500));
    let started = Instant::now();
    let lease = rig.a.lock(RESOURCE).ttl(ttl).max_hold(limit).acquire().await.unwrap();
    let lost = lease.while_held(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(lost.reason(), LossReason::HoldLimit);
    assert!(started.elapsed() < limit + slack(ttl));
    // The work hangs and gives nothing back. Renewal has stopped, so B gets in when the ttl is over.
    std::mem::forget(lease);
    drop(rig.b.lock(RESOURCE).wait(ttl * 3).acquire().await.unwrap());
}

pub(crate) async fn nothing_is_sent_and_nothing_is_left_after_release(rig: Rig) {
    let (ttl, renewal) = (Duration::from_secs(2), Duration::from_millis(200));
    // A patient client, as nothing fails here. No request is on its way for longer on this link, and a cancelled one is
    // reclaimed for as long.
    let behind = connect(&rig.url_behind).await.unwrap();
    let a = Locks::builder(behind).transport_gives_up_after(ttl / 2).build();
    let started = Instant::now();
    for round in 0..1_000 {
        // A slow store has shown it with fewer.
        if round >= 200 && started.elapsed() > ttl * 5 {
            break;
        }
        let acquire = a.lock(RESOURCE).ttl(ttl).renewal(Renewal::Every(renewal)).acquire();
        if round % 10 == 0 {
            // Cancelled at random: the timer and the answer race.
            let _ = tokio::time::timeout(Duration::from_micros(round * 2), acquire).await;
        } else {
            assert_eq!(acquire.await.unwrap().release().await.unwrap(), Release::Released);
        }
    }
    eventually(Duration::from_secs(30), async || a.stats().settling == 0).await;
    // Others are told of the last release after it.
    rig.quiet().await;
    let sent = rig.link.counts().request_bytes_read;
    sleep(renewal * 15).await;
    assert_eq!(a.stats(), leasehold::lock::Stats::default());
    assert!(rig.is_empty().await);
    // A keepalive of the driver's is no renewal, and a renewal would be more than this.
    assert!(rig.link.counts().request_bytes_read - sent < 100);
}

pub(crate) async fn eight_workers_lose_no_increment(rig: Rig) {
    let counter = Key::new("counter").unwrap();
    let mut workers = Vec::new();
    for _ in 0..8 {
        // A connection of its own, as a process has.
        let store = connect(&rig.url).await.unwrap();
        let counter = counter.clone();
        workers.push(tokio::spawn(async move {
            let locks = Locks::new(store.clone());
            for _ in 0..100 {
                let lease = locks.lock(RESOURCE).wait(Duration::from_secs(60)).acquire().await.unwrap();
                let read = store.get(&counter).await.unwrap();
                let count: u32 = read.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap());
                store.set(&counter, (count + 1).to_string().into(), Expiry::Never).await.unwrap();
                assert_eq!(lease.release().await.unwrap(), Release::Released);
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(rig.store.get(&counter).await.unwrap().unwrap().value, "800");
}

pub(crate) async fn a_waiter_hears_of_a_release(rig: Rig) {
    // The ttl is far away, so only a hint can wake the waiter so soon.
    let held = rig.b.lock(RESOURCE).ttl(Duration::from_secs(300)).acquire().await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).ttl(Duration::from_secs(300)).wait(Duration::from_secs(60)).acquire());
    eventually(Duration::from_secs(5), async || rig.a.stats().waiting == 1).await;
    sleep(Duration::from_secs(1)).await;
    let released = Instant::now();
    assert_eq!(held.release().await.unwrap(), Release::Released);
    drop(waiter.await.unwrap().unwrap());
    assert!(released.elapsed() < Duration::from_secs(5));
}
