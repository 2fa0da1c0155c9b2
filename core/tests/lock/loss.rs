use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::clock::{Clock, Moment};
use leasehold_core::lock::{Locks, LossReason, Release, Renewal};
use leasehold_core::{CacheStore, ErrorKind, Key};
use tokio::time::{Instant, advance, sleep};

use crate::support::{RESOURCE, Rig, eventually, seconds, try_once};

/// Every call of A's hangs from here on.
fn black_hole() -> Plan {
    Operation::ALL.into_iter().fold(Plan::none(), |plan, operation| plan.from(operation, 1, Fault::Hang))
}

#[tokio::test(start_paused = true)]
async fn the_lost_signal_comes_in_time_though_every_call_hangs() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(2.0)).acquire().await.unwrap();
    sleep(seconds(3.0)).await;
    let last_renewal = Instant::now() - (seconds(2.0) - lease.remaining());
    rig.link.follow(black_hole());
    let token = lease.cancellation_token();
    let lost = lease.lost().await;
    assert_eq!(lost.reason(), LossReason::Expired);
    assert!(last_renewal.elapsed() <= seconds(2.0));
    assert!(!rig.is_free().await, "before anybody else can acquire it");
    assert!(token.is_cancelled());
    let b = rig.b.lock(RESOURCE).acquire().await.unwrap();
    assert!(lease.release().now_or_never().is_none(), "A's calls still hang");
    b.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_token_fires_for_a_lease_that_nobody_renews() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(2.0)).renewal(Renewal::Off).acquire().await.unwrap();
    let token = lease.cancellation_token();
    let started = Instant::now();
    token.cancelled().await;
    assert!(started.elapsed() <= seconds(2.0));
    assert_eq!(rig.a.stats().watched, 0, "what is over is not watched any more");
}

#[tokio::test(start_paused = true)]
async fn the_token_fires_on_release_and_cancelling_it_does_nothing_to_the_lease() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
    let (mine, other) = (lease.cancellation_token(), lease.cancellation_token());
    mine.cancel();
    assert!(lease.check().is_ok() && !other.is_cancelled());
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(other.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_lease_is_lost() {
    struct Noted(Arc<Mutex<Option<Instant>>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(2.0)).acquire().await.unwrap();
    rig.link.follow(black_hole());
    let dropped = Arc::new(Mutex::new(None));
    let work = Noted(dropped.clone());
    let started = Instant::now();
    let lost = lease
        .while_held(async move {
            let _work = work;
            loop {
                sleep(seconds(0.01)).await;
            }
        })
        .await;
    assert_eq!(lost.unwrap_err().reason(), LossReason::Expired);
    let dropped = dropped.lock().unwrap().expect("the work is dropped by then");
    assert!(dropped - started <= seconds(2.0));
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_while_the_lease_is_held_gives_its_answer() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(2.0)).acquire().await.unwrap();
    let done = lease.while_held(async {
        sleep(seconds(10.0)).await;
        42
    });
    assert_eq!(done.await, Ok(42));
    let ran = rig.b.lock("other").run(async |lease| lease.fencing_token().unwrap()).await.unwrap();
    assert!(ran > lease.fencing_token().unwrap());
    assert!(rig.b.inspect("other").await.unwrap().is_none(), "`run` has released");
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_very_first_check_says_lost() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    // `advance` jumps over the renewals, as a stopped process does.
    advance(seconds(6.0)).await;
    assert_eq!(lease.check().unwrap_err().reason(), LossReason::Expired);
    assert_eq!(lease.remaining(), Duration::ZERO);
    let mut polled = false;
    let work = async { polled = true };
    assert!(lease.while_held(work).await.is_err() && !polled, "the work is not polled at all");
}

/// A clock whose machine can be suspended: tokio's clock then stands still.
#[derive(Clone, Default)]
struct Laptop {
    slept: Arc<Mutex<Duration>>,
    origin: Arc<Mutex<Option<Instant>>>,
}

impl Clock for Laptop {
    fn now(&self) -> Moment {
        let now = Instant::now();
        let origin = *self.origin.lock().unwrap().get_or_insert(now);
        Moment::new(now).with_boot_time((now - origin) + *self.slept.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_counts_though_the_monotonic_clock_stood_still() {
    let laptop = Laptop::default();
    let locks = Locks::builder(leasehold_memory::MemoryStore::new()).clock(laptop.clone()).build();
    let lease = locks.lock(RESOURCE).ttl(seconds(30.0)).renewal(Renewal::Off).acquire().await.unwrap();
    let renewed = locks.lock("renewed").ttl(seconds(300.0)).acquire().await.unwrap();
    let token = lease.cancellation_token();
    sleep(seconds(5.0)).await;
    *laptop.slept.lock().unwrap() = seconds(25.0);
    assert_eq!(lease.check().unwrap_err().reason(), LossReason::Expired);
    // The background finds out within its nap, also of those that are due much later.
    *laptop.slept.lock().unwrap() = seconds(300.0);
    sleep(seconds(1.1)).await;
    assert!(token.is_cancelled());
    assert_eq!(renewed.check().unwrap_err().reason(), LossReason::Expired);
    assert_eq!(locks.stats().watched, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_never_retakes_what_nobody_took() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    advance(seconds(4.0)).await;
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(seconds(10.0)).await;
    assert!(rig.is_free().await);
    assert!(lease.cancellation_token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_never_retakes_what_another_took_and_released() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    advance(seconds(4.0)).await;
    let b = try_once(&rig.b).await.expect("A's lease has ended");
    assert_eq!(b.release().await.unwrap(), Release::Released);
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(seconds(10.0)).await;
    assert!(rig.is_free().await);
    assert_eq!(lease.lost().await.reason(), LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_store_denies_is_lost_at_once() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    let token = lease.cancellation_token();
    let removed = rig.memory.remove(&Key::new(format!("lock:{RESOURCE}")).unwrap()).await.unwrap();
    assert!(removed.is_applied());
    eventually(seconds(1.1), async || token.is_cancelled()).await;
    assert_eq!(lease.check().unwrap_err().reason(), LossReason::NotOurs);
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_comes_too_late_changes_nothing_and_is_released() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, Fault::DelayAnswer(seconds(0.6))));
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).renewal(Renewal::Every(seconds(2.5))).acquire().await.unwrap();
    sleep(seconds(3.0)).await;
    assert_eq!(lease.check().unwrap_err().reason(), LossReason::Expired);
    assert!(!rig.is_free().await, "the renewal was applied, and lives on in the store");
    eventually(seconds(0.5), async || rig.is_free().await).await;
    assert!(lease.check().is_err());
}
