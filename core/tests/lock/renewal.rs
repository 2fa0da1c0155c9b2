use futures_util::FutureExt;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::ErrorKind;
use leasehold_core::lock::{LossReason, Renewal};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::{Instant, sleep};

use crate::support::{RESOURCE, Rig, seconds, try_once};

#[tokio::test(start_paused = true)]
async fn a_lease_renews_itself_as_long_as_it_is_held() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    let token = lease.fencing_token();
    for _ in 0..50 {
        sleep(seconds(1.0)).await;
        lease.check().unwrap();
        assert!(lease.remaining() <= seconds(3.0));
        assert!(try_once(&rig.b).await.is_none());
        assert_eq!(lease.fencing_token(), token);
    }
    let renewals = rig.link.calls(Operation::TryExpire);
    assert!((49..=51).contains(&renewals), "a renewal each third of the ttl, and not {renewals} in 50 s");
}

#[tokio::test(start_paused = true)]
async fn one_failed_renewal_is_not_a_loss_and_shows_as_a_metric() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang, Fault::ApplyAndHang, Fault::ApplyLate(seconds(2.0))] {
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 2, fault));
        let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
        for _ in 0..15 {
            sleep(seconds(1.0)).await;
            assert_eq!(lease.check(), Ok(()), "after {fault:?}");
            assert!(try_once(&rig.b).await.is_none(), "after {fault:?}");
        }
        let failures =
            snapshots.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
                (key.key().name() == "leasehold_renewal_failures_total").then_some(value)
            });
        assert_eq!(failures, Some(DebugValue::Counter(1)), "after {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_survives_an_outage_shorter_than_the_lease() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    sleep(seconds(0.5)).await;
    rig.link.follow(Plan::none().from(Operation::TryExpire, 1, Fault::Refuse));
    sleep(seconds(1.0)).await;
    let before = rig.holder().await.unwrap().time_left;
    rig.link.follow(Plan::none());
    sleep(seconds(0.5)).await;
    assert!(rig.holder().await.unwrap().time_left > before, "it was renewed again");
    sleep(seconds(15.0)).await;
    lease.check().unwrap();
    assert!(try_once(&rig.b).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_hung_renewal_delays_no_other() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, Fault::Hang));
    let hung = rig.a.lock("hung").ttl(seconds(3.0)).acquire().await.unwrap();
    // So that it is due before the others.
    sleep(seconds(0.01)).await;
    let others: Vec<_> =
        futures_util::future::join_all((0..20).map(|n| rig.a.lock(format!("n{n}")).ttl(seconds(3.0)).acquire()))
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
    // The first renewal of all hangs; each other is renewed in its turn.
    sleep(seconds(1.1)).await;
    assert!(hung.remaining() < seconds(2.0));
    for lease in &others {
        assert!(lease.remaining() > seconds(2.8), "{lease:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_can_be_off_or_by_hand() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).renewal(Renewal::Off).acquire().await.unwrap();
    sleep(seconds(2.0)).await;
    lease.renew().await.unwrap();
    assert!(lease.remaining() > seconds(2.9));
    sleep(seconds(3.0)).await;
    assert_eq!(lease.check().unwrap_err().reason(), LossReason::Expired);
    assert_eq!(rig.link.calls(Operation::TryExpire), 1);
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(rig.link.calls(Operation::TryExpire), 1, "what is lost is not asked for");
}

#[tokio::test(start_paused = true)]
async fn renewal_comes_at_the_interval_that_was_asked_for() {
    let rig = Rig::new();
    let every = Renewal::Every(seconds(0.25));
    let lease = rig.a.lock(RESOURCE).ttl(seconds(10.0)).renewal(every).acquire().await.unwrap();
    sleep(seconds(2.6)).await;
    assert_eq!(rig.link.calls(Operation::TryExpire), 10);
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_hold_ends_before_the_lease_does() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).max_hold(seconds(5.0)).acquire().await.unwrap();
    let started = Instant::now();
    let lost = lease.while_held(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(lost.reason(), LossReason::HoldLimit);
    assert!(started.elapsed() <= seconds(5.0), "{:?}", started.elapsed());
    assert!(!rig.is_free().await, "the signal comes before the lease ends");
    // The holder hangs and gives nothing back; renewal has stopped all the same.
    std::mem::forget(lease);
    let b = rig.b.lock(RESOURCE).wait(seconds(4.0)).acquire().await.unwrap();
    drop(b);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_renewals_can_be_bounded() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).max_renewals(2).acquire().await.unwrap();
    let lost = lease.lost().await;
    assert_eq!(lost.reason(), LossReason::HoldLimit);
    assert_eq!(rig.link.calls(Operation::TryExpire), 2);
    assert!(!rig.is_free().await, "the signal comes before the lease ends");
    let lease = rig.a.lock("other").ttl(seconds(3.0)).renewal(Renewal::Off).max_renewals(0).acquire().await.unwrap();
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Unsupported);
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_parked_renewal_that_lands_late_shortens_nothing() {
    let parked = Fault::ApplyLate(seconds(2.5));
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, parked));
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    for _ in 0..60 {
        sleep(seconds(0.1)).await;
        lease.check().unwrap();
        assert!(rig.holder().await.unwrap().time_left >= lease.remaining());
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_renewal_does_not_move_the_end_of_what_was_released_for_later() {
    let parked = Fault::ApplyLate(seconds(2.0));
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, parked));
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    sleep(seconds(1.1)).await;
    let released = lease.release_no_sooner_than(seconds(4.0)).await.unwrap();
    assert_eq!(released, leasehold_core::lock::Release::Released);
    sleep(seconds(2.8)).await;
    assert!(!rig.is_free().await);
    sleep(seconds(0.2)).await;
    assert!(rig.is_free().await, "the renewal that was parked found another value");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_by_hand_that_is_dropped_midway_takes_nothing_away() {
    for fault in [Fault::Hang, Fault::ApplyAndHang] {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, fault));
        let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).renewal(Renewal::Off).acquire().await.unwrap();
        sleep(seconds(1.0)).await;
        assert!(lease.renew().now_or_never().is_none());
        assert!(lease.remaining() <= seconds(2.0), "an unconfirmed renewal does not count");
        lease.renew().await.unwrap();
        lease.check().unwrap();
    }
}
