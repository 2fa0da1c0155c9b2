use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::idempotency::{AfterCrash, Answer, Completion, RecordState};
use leasehold_core::lock::{Release, Renewal};
use leasehold_core::{Code, ErrorKind};
use tokio::time::sleep;

use crate::support::{Rig, Work, call, claimed, is_in_progress, refused, replayed, seconds};

/// Claims of 5 s that renew nothing by themselves.
fn without_renewal() -> Rig {
    Rig::with(Plan::none(), |builder| builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off))
}

#[tokio::test(start_paused = true)]
async fn a_late_success_does_not_overwrite() {
    let rig = without_renewal();
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    assert!(late.check().is_err());
    let next = claimed(call(&rig.b)).await;
    assert_eq!(late.complete("the late answer").await.unwrap(), Completion::Lost);
    assert!(is_in_progress(call(&rig.a)).await, "the claim of the next stands");
    assert_eq!(next.complete("the answer").await.unwrap(), Completion::Recorded);
    assert_eq!(replayed(call(&rig.a)).await, "the answer");
}

#[tokio::test(start_paused = true)]
async fn a_late_success_is_given_to_its_own_caller() {
    let rig = without_renewal();
    let slow = async {
        call(&rig.a)
            .run(async || {
                sleep(seconds(6.0)).await;
                1
            })
            .await
            .unwrap()
    };
    let next = async {
        sleep(seconds(5.5)).await;
        call(&rig.b)
            .run(async || {
                sleep(seconds(1.0)).await;
                2
            })
            .await
            .unwrap()
    };
    let (slow, next) = tokio::join!(slow, next);
    assert_eq!((slow.value, next.value), (1, 2));
    assert_eq!(call(&rig.a).run(async || 3).await.unwrap(), Answer { value: 2, replayed: true });
}

#[tokio::test(start_paused = true)]
async fn a_late_success_is_recorded_when_nobody_came_between() {
    let rig = Rig::with(Plan::none(), |builder| {
        builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).after_crash(AfterCrash::OutcomeUnknown)
    });
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    assert_eq!(refused(call(&rig.b)).await.code(), Some(Code::NotReplayable));
    assert_eq!(late.complete("the answer after all").await.unwrap(), Completion::Recorded);
    assert_eq!(replayed(call(&rig.b)).await, "the answer after all");
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_does_not_free() {
    let rig = without_renewal();
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    let next = claimed(call(&rig.b)).await;
    assert_eq!(late.abandon().await.unwrap(), Release::AlreadyLost);
    assert!(is_in_progress(call(&rig.a)).await);
    assert_eq!(next.complete("the answer").await.unwrap(), Completion::Recorded);
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_renew_the_next_claim() {
    let rig = without_renewal();
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    let next = claimed(call(&rig.b)).await;
    let before = rig.record().await.unwrap();
    assert_eq!(late.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    let after = rig.record().await.unwrap();
    assert_eq!((after.nonce, after.time_left), (next.nonce(), before.time_left));
    assert!(late.fencing_token() < next.fencing_token(), "what it writes to can tell the two apart");
}

/// The marker of a lost claim is what says that its work may still run, so nobody but its claimant takes it away.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_too_late_leaves_the_marker() {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let rig = Rig::with(Plan::none().nth(Operation::TryExpire, 1, Fault::DelayAnswer(seconds(0.5))), |builder| {
            builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).after_crash(policy)
        });
        let claim = claimed(call(&rig.a)).await;
        sleep(seconds(4.9)).await;
        assert_eq!(claim.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        sleep(seconds(1.0)).await;
        assert!(is_in_progress(call(&rig.b)).await, "the store has renewed it: {policy:?}");
        if policy == AfterCrash::OutcomeUnknown {
            sleep(seconds(10.0)).await;
            assert_eq!(refused(call(&rig.b)).await.code(), Some(Code::NotReplayable), "it never runs by itself");
        }
        assert_eq!(claim.complete("the answer").await.unwrap(), Completion::Recorded);
        assert_eq!(replayed(call(&rig.b)).await, "the answer");
    }
}

#[tokio::test(start_paused = true)]
async fn long_work_keeps_its_claim() {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let rig = Rig::with(Plan::none(), |builder| builder.in_progress_ttl(seconds(2.0)).after_crash(policy));
        let work = Work::default();
        let long = async {
            call(&rig.a)
                .run(async || {
                    sleep(seconds(10.0)).await;
                    work.run()
                })
                .await
                .unwrap()
        };
        let duplicates = async {
            for _ in 0..9 {
                sleep(seconds(1.0)).await;
                assert!(is_in_progress(call(&rig.b)).await);
            }
        };
        let (answer, ()) = tokio::join!(long, duplicates);
        assert_eq!(answer, Answer { value: 1, replayed: false });
        for _ in 0..3 {
            assert!(call(&rig.b).run(async || work.run()).await.unwrap().replayed);
        }
        assert_eq!(work.runs(), 1);
        assert!(rig.link.calls(Operation::TryExpire) >= 10, "it was renewed");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_work_runs_again_when_the_claim_has_ended() {
    let rig = without_renewal();
    std::mem::forget(claimed(call(&rig.a)).await);
    sleep(seconds(5.0) - Duration::from_millis(1)).await;
    assert!(is_in_progress(call(&rig.b)).await);
    sleep(Duration::from_millis(1)).await;
    assert!(!call(&rig.b).run(async || 1).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_outcome_may_be_unknown_until_the_record_would_have_ended() {
    let rig = Rig::with(Plan::none(), |builder| {
        builder
            .in_progress_ttl(seconds(5.0))
            .record_ttl(seconds(100.0))
            .renewal(Renewal::Off)
            .after_crash(AfterCrash::OutcomeUnknown)
    });
    std::mem::forget(claimed(call(&rig.a)).await);
    sleep(seconds(5.0) - Duration::from_millis(1)).await;
    assert!(is_in_progress(call(&rig.b)).await);
    assert!(!rig.record().await.unwrap().is_stuck());
    sleep(Duration::from_millis(1)).await;
    let error = refused(call(&rig.b)).await;
    assert_eq!(error.code(), Some(Code::NotReplayable));
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
    let record = rig.record().await.unwrap();
    assert!(record.is_stuck() && matches!(record.state, RecordState::OutcomeUnknown { .. }));
    sleep(seconds(95.0) - Duration::from_millis(1)).await;
    assert_eq!(refused(call(&rig.b)).await.code(), Some(Code::NotReplayable));
    sleep(Duration::from_millis(1)).await;
    assert!(!call(&rig.b).run(async || 1).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_too_late_frees_nothing() {
    let slow = Plan::none().nth(Operation::TryExpire, 1, Fault::DelayAnswer(seconds(0.1)));
    let rig = Rig::with(slow, |builder| {
        builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).after_crash(AfterCrash::OutcomeUnknown)
    });
    let claim = claimed(call(&rig.a)).await;
    let mut renewal = Box::pin(claim.renew());
    assert!(futures_util::poll!(&mut renewal).is_pending(), "it is sent");
    // The process stands still, and sees the answer when the claim has ended.
    sleep(seconds(6.0)).await;
    assert_eq!(renewal.await.unwrap_err().kind(), ErrorKind::Lost);
    rig.a.close().await;
    assert_eq!(refused(call(&rig.b)).await.code(), Some(Code::NotReplayable), "its work may still run");
}

/// The policy is the claimant's: one who comes later may have chosen another.
#[tokio::test(start_paused = true)]
async fn what_was_claimed_under_one_policy_is_judged_by_it() {
    let asking = Rig::with(Plan::none(), |builder| {
        builder.in_progress_ttl(seconds(5.0)).after_crash(AfterCrash::OutcomeUnknown).renewal(Renewal::Off)
    });
    let running = leasehold_core::idempotency::Idempotency::new(asking.memory.clone());
    std::mem::forget(claimed(call(&asking.a)).await);
    sleep(seconds(6.0)).await;
    assert_eq!(refused(call(&running)).await.code(), Some(Code::NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_claim_is_lost_only_if_asked() {
    let finished = Work::default();
    let lost = Rig::with(Plan::none(), |builder| {
        builder.in_progress_ttl(seconds(2.0)).renewal(Renewal::Off).drop_work_when_lost()
    });
    let error = call(&lost.a)
        .run(async || {
            sleep(seconds(3.0)).await;
            finished.run()
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(finished.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_claim_is_told_in_time() {
    let rig = without_renewal();
    let claim = claimed(call(&rig.a)).await;
    let signal = claim.cancellation_token();
    assert!(claim.remaining() > seconds(4.8));
    let _ = claim.lost().await;
    assert!(signal.is_cancelled());
    assert!(is_in_progress(call(&rig.b)).await, "it is told before another can claim the call");
}
