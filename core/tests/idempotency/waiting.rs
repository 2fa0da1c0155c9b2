use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::Code;
use leasehold_core::idempotency::{AfterCrash, Answer};
use leasehold_core::lock::{Release, Renewal};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Rig, Work, call, claimed, refused, seconds};

#[tokio::test(start_paused = true)]
async fn who_waits_replays_the_answer_when_it_comes() {
    let (rig, work) = (Rig::new(), Work::default());
    let first = call(&rig.b).run(async || {
        sleep(seconds(3.0)).await;
        work.run()
    });
    let waiting = async {
        sleep(seconds(1.0)).await;
        let began = Instant::now();
        let answer = call(&rig.a).wait(seconds(30.0)).run(async || work.run()).await;
        (answer.unwrap(), began.elapsed())
    };
    let (first, (waited, took)) = tokio::join!(first, waiting);
    assert_eq!(first.unwrap(), Answer { value: 1, replayed: false });
    assert_eq!(waited, Answer { value: 1, replayed: true });
    assert!(took < seconds(2.1), "it was told of the answer, and waited {took:?}");
    assert!(rig.trips() <= 3, "one try, one that confirms, and one when it is told: {}", rig.trips());
}

#[tokio::test(start_paused = true)]
async fn who_waits_without_hints_finds_the_answer() {
    let plan = Plan::none().from(Operation::Watch, 1, Fault::Refuse);
    let rig = Rig::with_plan(plan);
    let first = call(&rig.b).run(async || {
        sleep(seconds(3.0)).await;
        1
    });
    let waiting = async {
        sleep(seconds(0.5)).await;
        call(&rig.a).wait(seconds(30.0)).run(async || 2).await.unwrap()
    };
    let (_, waited) = tokio::join!(first, waiting);
    assert_eq!(waited, Answer { value: 1, replayed: true });
}

#[tokio::test(start_paused = true)]
async fn who_waits_does_the_work_when_it_is_given_up_or_its_process_dies() {
    let rig = Rig::with(Plan::none(), |builder| builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off));
    for crash in [false, true] {
        let claim = claimed(call(&rig.b)).await;
        let giving_up = async {
            sleep(seconds(1.0)).await;
            match crash {
                true => std::mem::forget(claim),
                false => assert_eq!(claim.abandon().await.unwrap(), Release::Released),
            }
        };
        let (waited, ()) = tokio::join!(claimed(call(&rig.a).wait(seconds(30.0))), giving_up);
        let _ = waited.abandon().await.unwrap();
    }
}

/// Its marker lives on, and it is the end of the claim that is waited for.
#[tokio::test(start_paused = true)]
async fn who_waits_hears_of_a_crash_when_the_claim_has_ended() {
    for plan in [Plan::none(), Plan::none().from(Operation::Watch, 1, Fault::Refuse)] {
        for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
            let rig = Rig::with(plan.clone(), |builder| {
                builder.in_progress_ttl(seconds(4.0)).renewal(Renewal::Off).after_crash(policy)
            });
            std::mem::forget(claimed(call(&rig.b)).await);
            let crashed = Instant::now();
            let begin = call(&rig.a).wait(seconds(30.0)).begin().await;
            match policy {
                AfterCrash::RunAgain => assert!(begin.is_ok()),
                AfterCrash::OutcomeUnknown => assert_eq!(begin.unwrap_err().code(), Some(Code::NotReplayable)),
            }
            assert!(crashed.elapsed() < seconds(4.1), "{policy:?}: {:?}", crashed.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_touches_nothing() {
    let rig = Rig::new();
    let claim = claimed(call(&rig.b)).await;
    let began = Instant::now();
    let error = refused(call(&rig.a).wait(seconds(2.0))).await;
    assert_eq!(error.code(), Some(Code::CallInProgress));
    assert!(began.elapsed() >= seconds(2.0) && began.elapsed() < seconds(2.1));
    assert!(timeout(seconds(1.0), call(&rig.a).wait(seconds(30.0)).begin()).await.is_err());
    rig.a.close().await;
    assert_eq!(rig.record().await.unwrap().nonce, claim.nonce());
    let _ = claim.complete("done").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_wait_limit_holds_while_the_store_hangs() {
    for nth in 1..=3 {
        let rig = Rig::with_plan(Plan::none().from(Operation::TryAdd, nth, Fault::Hang));
        let claim = claimed(call(&rig.b)).await;
        let began = Instant::now();
        assert!(call(&rig.a).wait(seconds(2.0)).begin().await.is_err());
        assert!(began.elapsed() < seconds(2.1), "{:?}", began.elapsed());
        drop(claim);
    }
}

/// What it is told last is that the call is in progress, though the store is slow to say so once more.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_the_store_is_asked_is_a_conflict() {
    for fault in [Fault::DelayAnswer(seconds(0.3)), Fault::Hang] {
        let rig = Rig::with_plan(Plan::none().from(Operation::TryAdd, 2, fault));
        let claim = claimed(call(&rig.b)).await;
        let began = Instant::now();
        let error = refused(call(&rig.a).wait(seconds(0.2))).await;
        assert_eq!(error.code(), Some(Code::CallInProgress), "{error}");
        assert!(began.elapsed() < seconds(0.3));
        rig.a.close().await;
        assert_eq!(rig.record().await.unwrap().nonce, claim.nonce());
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_limit_holds_while_a_claim_is_adopted() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::LoseAnswer).nth(Operation::TryReplace, 1, Fault::Hang);
    let rig = Rig::with_plan(plan);
    let began = Instant::now();
    assert_eq!(refused(call(&rig.a).wait(seconds(2.0))).await.code(), Some(Code::StoreUnavailable));
    assert!(began.elapsed() < seconds(2.1), "{:?}", began.elapsed());
    rig.a.close().await;
    assert_eq!(rig.record().await, None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_survives_a_store_that_fails_for_a_while() {
    let plan = (2..6).fold(Plan::none(), |plan, nth| plan.nth(Operation::TryAdd, nth, Fault::Refuse));
    let rig = Rig::with_plan(plan);
    let claim = claimed(call(&rig.b)).await;
    let (waited, ()) = tokio::join!(call(&rig.a).wait(seconds(30.0)).run(async || "mine".to_owned()), async {
        sleep(seconds(1.0)).await;
        let _ = claim.complete("theirs").await.unwrap();
    });
    assert_eq!(waited.unwrap().value, "theirs");
}
