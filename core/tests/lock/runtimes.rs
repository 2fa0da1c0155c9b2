//! One `Locks` on several runtimes: such as a static that tests or threads share, each with a runtime of its own.

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::lock::{Lease, Locks, Release, Renewal};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::support::{RESOURCE, Rig, seconds};

/// A runtime on stepped time.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

async fn acquire(locks: &Locks, resource: &str) -> Lease {
    locks.lock(resource).ttl(seconds(3.0)).acquire().await.unwrap()
}

/// Holds a lease for some ttls, and then sees that it is told of its end.
async fn is_looked_after(rig: &Rig, lease: Lease) {
    let token = lease.cancellation_token();
    sleep(seconds(9.0)).await;
    lease.check().expect("it was renewed");
    rig.link.follow(Plan::none().from(Operation::TryExpire, 1, Fault::Refuse));
    timeout(seconds(3.0), token.cancelled()).await.expect("the token fires, though nobody asks the lease");
    rig.link.follow(Plan::none());
}

#[test]
fn a_runtime_that_ends_at_once_takes_no_later_lease_with_it() {
    let rig = Rig::new();
    let (first, second) = (runtime(), runtime());
    // Nothing here waits, so what it has spawned is never polled.
    first.block_on(async { assert_eq!(acquire(&rig.a, RESOURCE).await.release().await.unwrap(), Release::Released) });
    drop(first);
    second.block_on(async { is_looked_after(&rig, acquire(&rig.a, RESOURCE).await).await });
}

#[test]
fn a_lease_rests_on_no_other_runtime() {
    for ends in [true, false] {
        let rig = Rig::new();
        let (first, second) = (runtime(), runtime());
        let other = first.block_on(async {
            let other = acquire(&rig.a, "other").await;
            sleep(seconds(0.1)).await;
            other
        });
        let lease = second.block_on(acquire(&rig.a, RESOURCE));
        // It ends, or it is just not driven.
        let kept = (!ends).then_some(first);
        second.block_on(is_looked_after(&rig, lease));
        drop((other, kept));
    }
}

#[test]
fn a_lease_that_outlives_its_runtime_is_looked_after_by_another() {
    // One that has leases already, and one that comes to have some later.
    for known in [true, false] {
        let rig = Rig::new();
        let (first, second) = (runtime(), runtime());
        let lease = first.block_on(acquire(&rig.a, RESOURCE));
        let other = known.then(|| second.block_on(acquire(&rig.a, "other")));
        drop(first);
        assert_eq!(rig.a.stats().watched, if known { 2 } else { 1 });
        second.block_on(async {
            let other = match other {
                Some(other) => other,
                None => acquire(&rig.a, "other").await,
            };
            is_looked_after(&rig, lease).await;
            drop(other);
        });
    }
}

#[test]
fn a_signal_can_be_asked_for_where_the_lease_was_not_acquired() {
    let rig = Rig::new();
    let (first, second) = (runtime(), runtime());
    let lease = first.block_on(rig.a.lock(RESOURCE).ttl(seconds(3.0)).renewal(Renewal::Off).acquire()).unwrap();
    drop(first);
    second.block_on(async {
        let token = lease.cancellation_token();
        timeout(seconds(3.0), token.cancelled()).await.expect("the token fires, though nobody asks the lease");
    });
}

#[test]
fn a_lease_that_outlives_its_runtime_is_released_where_it_is_dropped() {
    let rig = Rig::new();
    let (first, second) = (runtime(), runtime());
    let lease = first.block_on(acquire(&rig.a, RESOURCE));
    drop(first);
    second.block_on(async {
        drop(lease);
        timeout(seconds(1.0), rig.a.close()).await.unwrap();
        assert!(rig.is_free().await);
    });
}

#[test]
fn a_renewal_that_its_runtime_has_dropped_is_sent_from_another() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, Fault::Hang));
    let (first, second) = (runtime(), runtime());
    let lease = first.block_on(async {
        let lease = acquire(&rig.a, RESOURCE).await;
        sleep(seconds(1.1)).await;
        assert_eq!(rig.link.calls(Operation::TryExpire), 1, "it hangs");
        lease
    });
    let other = second.block_on(async {
        // Both clocks stand where the first has got to.
        tokio::time::advance(seconds(1.1)).await;
        acquire(&rig.a, "other").await
    });
    drop(first);
    second.block_on(is_looked_after(&rig, lease));
    drop(other);
}

/// Panics at whatever is counted.
struct Panics;

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        panic!("{key}")
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("{key}")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_panics_hides_no_end() {
    let _recording = metrics::set_default_local_recorder(&Panics);
    let rig = Rig::new();
    let mut tokens = Vec::new();
    for resource in ["one", "two", "three"] {
        let request = rig.a.lock(resource).ttl(seconds(3.0)).renewal(Renewal::Off);
        let lease = request.acquire().await.unwrap();
        tokens.push(lease.cancellation_token());
        std::mem::forget(lease);
    }
    for token in tokens {
        timeout(seconds(4.0), token.cancelled()).await.expect("each fires");
    }
}

#[test]
fn leases_of_a_runtime_with_many_threads_go_over_all() {
    let rig = Rig::new();
    let many = || Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    let (first, second) = (many(), many());
    let acquire_many = |runtime: &Runtime, name: &str| {
        let acquired = (0..50).map(|number| {
            let request = rig.a.lock(format!("{name}:{number}")).ttl(seconds(2.0)).acquire();
            runtime.spawn(async { request.await.unwrap() })
        });
        runtime.block_on(futures_util::future::try_join_all(acquired.collect::<Vec<_>>())).unwrap()
    };
    let leases = acquire_many(&first, "first");
    let tokens: Vec<_> = leases.iter().map(Lease::cancellation_token).collect();
    let others = acquire_many(&second, "second");
    drop(first);
    second.block_on(async {
        sleep(seconds(2.5)).await;
        for lease in leases.iter().chain(&others) {
            lease.check().expect("it was renewed");
        }
        rig.link.follow(Plan::none().from(Operation::TryExpire, 1, Fault::Refuse));
        for token in tokens {
            timeout(seconds(5.0), token.cancelled()).await.expect("each fires");
        }
    });
}
