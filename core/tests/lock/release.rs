use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::lock::{Release, Renewal};
use leasehold_core::{Effect, Outcome};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::{advance, sleep};

use crate::support::{RESOURCE, Rig, eventually, seconds, try_once};

#[tokio::test(start_paused = true)]
async fn an_expired_holder_does_not_free_its_successor() {
    // Two clients, and one client with itself.
    for same_client in [false, true] {
        let rig = Rig::new();
        let other = if same_client { &rig.a } else { &rig.b };
        let a = rig.a.lock(RESOURCE).ttl(seconds(1.0)).renewal(Renewal::Off).acquire().await.unwrap();
        advance(seconds(2.0)).await;
        let b = other.lock(RESOURCE).ttl(seconds(9.0)).acquire().await.unwrap();
        assert_eq!(a.release().await.unwrap(), Release::AlreadyLost);
        assert_eq!(rig.holder().await.unwrap().nonce, b.nonce());
        b.check().unwrap();
        b.renew().await.unwrap();
        assert_eq!(b.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn no_renewal_after_release_and_no_renewal_in_flight_is_a_loss() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryExpire, 1, Fault::DelayRequest(seconds(0.5))));
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    let token = lease.cancellation_token();
    sleep(seconds(1.1)).await;
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(token.is_cancelled());
    sleep(seconds(9.0)).await;
    assert_eq!(rig.link.calls(Operation::TryExpire), 1, "the one under way, and none after");
    assert!(rig.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_goes_on_in_the_background() {
    for (fault, effect) in [(Fault::Refuse, Effect::None), (Fault::LoseAnswer, Effect::Unknown)] {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, fault));
        let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap_err().effect(), effect);
        rig.a.close().await;
        assert!(rig.is_free().await);
        assert_eq!(rig.link.calls(Operation::TryExpire), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_dropped_is_released_and_close_waits_for_it() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, Fault::DelayRequest(seconds(2.0))));
    let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
    drop(lease);
    assert!(!rig.is_free().await);
    rig.a.close().await;
    assert!(rig.is_free().await);
    assert_eq!(rig.a.stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_release_finds_out_is_counted() {
    for how in 0..4 {
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        for lost in [false, true] {
            let rig = Rig::new();
            let free = async || {
                if lost {
                    rig.b.force_release(RESOURCE).await.unwrap().unwrap();
                }
            };
            if how == 3 {
                let freed = rig.a.lock(RESOURCE).run(async |_| free().await).await;
                freed.expect("work that has ended is not turned into an error");
            } else {
                let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
                free().await;
                let expected = if lost { Release::AlreadyLost } else { Release::Released };
                match how {
                    0 => assert_eq!(lease.release().await.unwrap(), expected),
                    1 => assert_eq!(lease.release_no_sooner_than(seconds(5.0)).await.unwrap(), expected),
                    _ => drop(lease),
                }
            }
            rig.a.close().await;
            let losses =
                snapshots.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
                    (key.key().name() == "leasehold_leases_lost_total").then_some(value)
                });
            assert_eq!(losses, lost.then_some(DebugValue::Counter(1)), "by way {how}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_is_no_loss() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    for dropped in [false, true] {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, Fault::LoseAnswer));
        let lease = rig.a.lock(RESOURCE).acquire().await.unwrap();
        if dropped {
            drop(lease);
        } else {
            drop(lease.release().await.unwrap_err());
        }
        rig.a.close().await;
        assert_eq!(rig.link.calls(Operation::TryRemove), 2, "the second finds nothing");
    }
    let names = snapshots.snapshot().into_vec().into_iter().map(|(key, ..)| key.key().name().to_owned());
    assert!(!names.into_iter().any(|name| name == "leasehold_leases_lost_total"));
}

#[test]
fn a_lease_can_be_dropped_outside_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rig = Rig::new();
    let lease = runtime.block_on(rig.a.lock(RESOURCE).acquire()).unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    runtime.block_on(async {
        rig.a.close().await;
        assert!(rig.is_free().await);
    });
}

#[tokio::test(start_paused = true)]
async fn a_short_job_can_keep_the_lease_taken_for_a_while() {
    let rig = Rig::new();
    let lease = rig.a.lock(RESOURCE).ttl(seconds(30.0)).acquire().await.unwrap();
    sleep(seconds(1.0)).await;
    assert_eq!(lease.release_no_sooner_than(seconds(5.0)).await.unwrap(), Release::Released);
    sleep(seconds(3.9)).await;
    assert!(try_once(&rig.b).await.is_none());
    sleep(seconds(0.1)).await;
    assert!(try_once(&rig.b).await.is_some());
    assert_eq!(rig.a.stats(), Default::default());

    let late = rig.a.lock("other").acquire().await.unwrap();
    sleep(seconds(6.0)).await;
    assert_eq!(late.release_no_sooner_than(seconds(5.0)).await.unwrap(), Release::Released);
    assert!(rig.b.inspect("other").await.unwrap().is_none(), "it was held long enough");
}

#[tokio::test(start_paused = true)]
async fn operators_see_who_holds_it_and_can_free_it() {
    let rig = Rig::new();
    assert_eq!(rig.b.inspect(RESOURCE).await.unwrap(), None);
    assert_eq!(rig.b.force_release(RESOURCE).await.unwrap(), None);
    let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).owner("billing").acquire().await.unwrap();
    let holder = rig.holder().await.unwrap();
    assert_eq!((holder.owner.as_str(), holder.nonce), ("billing", lease.nonce()));
    assert!(holder.time_left <= seconds(3.0));

    let other = rig.a.lock("other").acquire().await.unwrap();
    let wrong = rig.b.release_by_token(RESOURCE, other.nonce()).await.unwrap();
    assert_eq!(wrong, Outcome::NotApplied);
    assert_eq!(rig.b.release_by_token(RESOURCE, lease.nonce()).await.unwrap(), Outcome::Applied);
    eventually(seconds(1.1), async || lease.check().is_err()).await;

    assert_eq!(rig.b.force_release("other").await.unwrap().unwrap().nonce, other.nonce());
    assert!(rig.b.inspect("other").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_label_are_two_owners() {
    let rig = Rig::new();
    let a = rig.a.lock(RESOURCE).owner("worker").acquire().await.unwrap();
    let refused = rig.b.lock(RESOURCE).owner("worker").wait(seconds(0.0)).acquire().await.unwrap_err();
    assert_eq!(refused.holder().unwrap().owner, "worker");
    assert_eq!(refused.holder().unwrap().nonce, a.nonce());
    let default = rig.b.lock("other").acquire().await.unwrap();
    let label = rig.a.inspect("other").await.unwrap().unwrap().owner;
    assert!(label.ends_with(&format!(":{}", std::process::id())), "{label}");
    drop(default);
}
