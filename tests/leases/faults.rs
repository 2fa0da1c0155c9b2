use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, Moment};
use leasehold::lock::{Locks, Release, Renewal};
use leasehold::{Effect, ErrorKind, connect};
use leasehold_testkit::{Counts, eventually};
use tokio::time::{Instant, sleep};

use crate::rig::{RESOURCE, Rig, always, slack, try_once};

pub(crate) async fn renewal_survives_an_outage_shorter_than_the_lease(rig: Rig) {
    let ttl = Duration::from_secs(3);
    let lease = rig.a.lock(RESOURCE).ttl(ttl).acquire().await.unwrap();
    sleep(ttl / 5).await;
    rig.link.refuse();
    sleep(ttl / 3).await;
    let before = rig.holder().await.unwrap().time_left;
    rig.link.pass();
    eventually(ttl, async || rig.holder().await.is_some_and(|holder| holder.time_left > before)).await;
    always(ttl * 2, async || lease.check().is_ok() && try_once(&rig.b).await.is_none()).await;
    assert_eq!(rig.holder().await.unwrap().nonce, lease.nonce());
}

pub(crate) async fn the_lost_signal_comes_in_time_though_the_store_hangs(rig: Rig) {
    let ttl = Duration::from_secs(2);
    let lease = rig.a.lock(RESOURCE).ttl(ttl).acquire().await.unwrap();
    let token = lease.cancellation_token();
    sleep(ttl).await;
    let last_renewal = Instant::now() - (ttl - lease.remaining());
    rig.link.black_hole();
    // B tries all the while; whenever it gets in, A must know already.
    let b = rig.b.clone();
    let taken = tokio::spawn(async move { b.lock(RESOURCE).wait(ttl * 4).acquire().await.map(|b| (Instant::now(), b)) });
    lease.lost().await;
    let fired = Instant::now();
    assert!(token.is_cancelled());
    // One more renewal may have been on its way when the link was cut, and been answered.
    assert!(fired <= last_renewal + ttl / 3 + ttl + slack(ttl));
    let (taken, b) = taken.await.unwrap().unwrap();
    assert!(fired <= taken, "A knew before B could enter");
    drop(b);
}

pub(crate) async fn one_failed_renewal_is_not_a_loss(rig: Rig) {
    let ttl = Duration::from_secs(2);
    let lease = rig.a.lock(RESOURCE).ttl(ttl).acquire().await.unwrap();
    for fault in 0..3 {
        let Counts { request_bytes_read: read, request_bytes_forwarded: forwarded, .. } = rig.link.counts();
        // Of all that goes over this link only a renewal names the resource.
        match fault {
            0 => rig.link.cut_after(RESOURCE),
            1 => rig.link.swallow_answer_to(RESOURCE),
            _ => rig.link.black_hole_dropping(),
        }
        let failed = async || match fault {
            0 | 1 => rig.link.sprung() > fault,
            _ => {
                let counts = rig.link.counts();
                counts.request_bytes_read - read > counts.request_bytes_forwarded - forwarded
            }
        };
        eventually(ttl, failed).await;
        rig.link.pass();
        always(ttl, async || lease.check().is_ok() && try_once(&rig.b).await.is_none()).await;
    }
    assert_eq!(rig.holder().await.unwrap().nonce, lease.nonce());
}

pub(crate) async fn a_lost_acquire_answer_is_reclaimed_and_nobody_enters(rig: Rig) {
    let ttl = Duration::from_secs(20);
    for resource in ["cut", "swallowed"] {
        // By its name: a reclaim of the round before may be on the same link.
        if resource == "cut" { rig.link.cut_after(resource) } else { rig.link.swallow_answer_to(resource) }
        let error = rig.a.lock(resource).ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{error:#}");
        assert_ne!(error.kind(), ErrorKind::Conflict);
        assert_eq!(rig.a.stats().held, 0);
        let asked = Instant::now();
        let b = rig.b.lock(resource).ttl(ttl).acquire().await.unwrap();
        assert!(asked.elapsed() < ttl / 2, "A reclaimed it by its nonce, well before the ttl");
        assert_eq!(b.release().await.unwrap(), Release::Released);
    }
}

pub(crate) async fn a_parked_acquire_that_lands_late_is_reclaimed(rig: Rig) {
    let ttl = Duration::from_secs(30);
    let _warm = rig.warm().await;
    rig.link.black_hole();
    let error = rig.a.lock(RESOURCE).ttl(ttl).wait(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error:#}");
    assert!(rig.holder().await.is_none(), "the request is on its way");
    // What the link held back it delivers now, whoever still waits for it.
    let forwarded = rig.link.counts().request_bytes_forwarded;
    rig.link.pass();
    eventually(ttl / 3, async || rig.link.counts().request_bytes_forwarded > forwarded).await;
    let b = rig.b.lock(RESOURCE).wait(ttl / 3).acquire().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(b.release().await.unwrap(), Release::Released, "and nothing of A's gets in its way");
}

pub(crate) async fn a_grant_that_comes_too_late_is_none(rig: Rig) {
    let (ttl, delay) = (Duration::from_secs(30), Duration::from_millis(1_500));
    // A patient client, whose machine may be suspended while an answer is on its way.
    let laptop = Laptop::default();
    let a = Locks::builder(connect(&rig.url_behind).await.unwrap()).clock(laptop.clone()).build();
    let warm = rig.warm_up(&a).await;
    rig.link.delay_answers(delay);
    let sent = Instant::now();
    let lease = a.lock("slow").ttl(ttl).renewal(Renewal::Off).acquire().await.unwrap();
    assert!(sent.elapsed() >= delay);
    assert!(lease.remaining() <= ttl.saturating_sub(sent.elapsed()), "counted from the send");

    // The same, but that the lease is over when its grant is read.
    rig.quiet().await;
    let acquiring = tokio::spawn(a.lock(RESOURCE).ttl(ttl).acquire());
    eventually(delay * 4, async || rig.holder().await.is_some()).await;
    laptop.sleep(ttl);
    assert!(!acquiring.is_finished(), "its answer is on its way");
    let error = acquiring.await.unwrap().unwrap_err();
    rig.link.pass();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:#}");
    assert_eq!(a.stats().held, warm.len() + 1, "those from before, and no other");
    let asked = Instant::now();
    let b = rig.b.lock(RESOURCE).acquire().await.unwrap();
    assert!(asked.elapsed() < ttl / 2, "A gave it back, well before the ttl");
    drop(b);
}

/// A clock that goes on while the machine sleeps and all else stands still.
#[derive(Clone)]
struct Laptop {
    started: Instant,
    slept: Arc<Mutex<Duration>>,
}

impl Default for Laptop {
    fn default() -> Self {
        Self { started: Instant::now(), slept: Arc::default() }
    }
}

impl Laptop {
    fn sleep(&self, length: Duration) {
        *self.slept.lock().unwrap() += length;
    }
}

impl Clock for Laptop {
    fn now(&self) -> Moment {
        let now = Instant::now();
        Moment::new(now).with_boot_time((now - self.started) + *self.slept.lock().unwrap())
    }
}

pub(crate) async fn a_parked_renewal_that_lands_late_shortens_nothing(rig: Rig) {
    let ttl = Duration::from_secs(3);
    let lease = rig.a.lock(RESOURCE).ttl(ttl).acquire().await.unwrap();
    sleep(ttl / 4).await;
    // The renewal at a third of the ttl is held back; the link heals before the lease ends.
    rig.link.black_hole();
    sleep(ttl / 3).await;
    let counts = rig.link.counts();
    assert!(counts.request_bytes_read > counts.request_bytes_forwarded, "it is on its way");
    rig.link.pass();
    always(ttl, async || {
        // Asked first: the store's time left can only have shrunk since.
        let remaining = lease.remaining();
        lease.check().is_ok() && rig.holder().await.unwrap().time_left + Duration::from_millis(500) >= remaining
    })
    .await;
    assert_eq!(rig.holder().await.unwrap().nonce, lease.nonce());
}

pub(crate) async fn timeout_contention_and_failure_are_told_apart(rig: Rig) {
    let held = try_once(&rig.b).await.unwrap();
    let conflict = rig.a.lock(RESOURCE).wait(Duration::from_millis(200)).acquire().await.unwrap_err();
    assert_eq!((conflict.kind(), conflict.effect()), (ErrorKind::Conflict, Effect::None));
    assert_eq!(conflict.holder().unwrap().nonce, held.nonce());

    rig.link.refuse();
    eventually(Duration::from_secs(5), async || {
        let refused = rig.a.lock(RESOURCE).wait(Duration::ZERO).acquire().await.unwrap_err();
        (refused.kind(), refused.effect()) == (ErrorKind::Unavailable, Effect::None)
    })
    .await;
    rig.link.pass();
    eventually(Duration::from_secs(10), async || rig.a.inspect(RESOURCE).await.is_ok()).await;

    rig.link.black_hole();
    let silent = rig.a.lock(RESOURCE).wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert_eq!((silent.kind(), silent.effect()), (ErrorKind::Timeout, Effect::Unknown));
    drop(held);
}

pub(crate) async fn the_wait_limit_holds_while_the_store_hangs(rig: Rig) {
    let held = try_once(&rig.b).await.unwrap();
    let limit = Duration::from_secs(2);
    let started = Instant::now();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).wait(limit).acquire());
    sleep(limit / 4).await;
    rig.link.black_hole();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Timeout), "{error}");
    assert!(started.elapsed() < limit + slack(limit));
    drop(held);
}
