use futures_util::FutureExt;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::lock::Release;
use tokio::time::{sleep, timeout};

use crate::support::{RESOURCE, Rig, eventually, seconds, try_once};

/// What an operation does with a request that is on its way when the future is dropped.
const ON_THE_WAY: [Fault; 4] = [
    Fault::Hang,
    Fault::ApplyAndHang,
    Fault::DelayRequest(std::time::Duration::from_secs(1)),
    Fault::DelayAnswer(std::time::Duration::from_secs(1)),
];

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_midway_is_reclaimed() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, fault));
        assert!(timeout(seconds(0.1), rig.a.lock(RESOURCE).acquire()).await.is_err());
        eventually(seconds(0.2), async || rig.is_free().await).await;
        let b = try_once(&rig.b).await.expect("nobody holds it");
        rig.a.close().await;
        b.check().unwrap();
        assert_eq!(rig.holder().await.unwrap().nonce, b.nonce(), "after {fault:?}");
        assert_eq!(rig.a.stats(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_can_be_dropped_at_every_point_of_its_wait() {
    for hung in [Operation::TryAdd, Operation::Watch] {
        for nth in 1..=2 {
            let rig = Rig::with_plan(Plan::none().nth(hung, nth, Fault::Hang));
            let b = try_once(&rig.b).await.unwrap();
            assert!(timeout(seconds(0.1), rig.a.lock(RESOURCE).acquire()).await.is_err());
            assert_eq!(rig.a.stats().waiting, 0);
            b.check().unwrap();
            assert_eq!(b.release().await.unwrap(), Release::Released);
            let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
            rig.a.close().await;
            lease.check().unwrap();
            assert_eq!(rig.holder().await.unwrap().nonce, lease.nonce());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_midway_goes_on() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, fault));
        let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
        assert!(lease.release().now_or_never().is_none());
        rig.a.close().await;
        assert!(rig.is_free().await, "after {fault:?}");
        assert_eq!(rig.a.stats(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_for_later_that_is_dropped_midway_frees_it_at_once_or_later() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryReplace, 1, fault));
        let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
        assert!(lease.release_no_sooner_than(seconds(5.0)).now_or_never().is_none());
        rig.a.close().await;
        let b = rig.b.lock(RESOURCE).wait(seconds(5.1)).acquire().await.unwrap();
        sleep(seconds(10.0)).await;
        b.check().unwrap();
        assert_eq!(rig.a.stats(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_midway_drops_the_work_and_releases() {
    let rig = Rig::new();
    let work = rig.a.lock(RESOURCE).run(async |lease| {
        lease.check().unwrap();
        std::future::pending::<()>().await;
    });
    assert!(timeout(seconds(1.0), work).await.is_err());
    rig.a.close().await;
    assert!(rig.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn close_and_the_lost_signal_can_be_dropped_midway() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, Fault::DelayRequest(seconds(1.0))));
    let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
    assert!(lease.lost().now_or_never().is_none());
    assert!(lease.while_held(std::future::pending::<()>()).now_or_never().is_none());
    lease.check().unwrap();
    drop(lease);
    assert!(rig.a.close().now_or_never().is_none());
    rig.a.close().await;
    assert!(rig.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn an_inspection_that_is_dropped_midway_changes_nothing() {
    let rig = Rig::with_plan(Plan::none().from(Operation::Get, 1, Fault::ApplyAndHang));
    let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
    assert!(rig.a.inspect(RESOURCE).now_or_never().is_none());
    assert!(rig.a.force_release(RESOURCE).now_or_never().is_none());
    assert!(rig.a.release_by_token(RESOURCE, lease.nonce()).now_or_never().is_none());
    lease.renew().await.unwrap();
}
