use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::Code;
use leasehold_core::idempotency::{AfterError, Answer, CallError, RecordState};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::support::{KEY, OPERATION, PAYLOAD, Rig, Work, call, claimed, is_in_progress, refused, seconds};

#[tokio::test(start_paused = true)]
async fn the_first_call_is_two_trips_and_a_replay_one() {
    let (rig, work) = (Rig::new(), Work::default());
    let first = call(&rig.a).run(async || work.run()).await.unwrap();
    assert_eq!(first, Answer { value: 1, replayed: false });
    assert_eq!(rig.trips(), 2);
    let again = call(&rig.a).run(async || work.run()).await.unwrap();
    assert_eq!(again, Answer { value: 1, replayed: true });
    assert_eq!(rig.trips(), 3);
    assert_eq!(work.runs(), 1);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Charged {
    Receipt { number: u64, note: Option<String> },
    Declined,
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_business_is_an_answer() {
    let (rig, work) = (Rig::new(), Work::default());
    for (key, answer) in
        [("declined", Err(Charged::Declined)), ("charged", Ok(Charged::Receipt { number: u64::MAX, note: None }))]
    {
        for replayed in [false, true] {
            let charge = async || {
                work.run();
                answer.clone()
            };
            let got = rig.a.call(OPERATION, key, PAYLOAD).run(charge).await.unwrap();
            assert_eq!(got, Answer { value: answer.clone(), replayed });
        }
    }
    assert_eq!(work.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_frees_the_key_at_once() {
    let (rig, work) = (Rig::new(), Work::default());
    let failed = call(&rig.a)
        .try_run(async || {
            work.run();
            Err::<u32, _>("the provider is down")
        })
        .await;
    assert!(matches!(failed, Err(CallError::Work("the provider is down"))));
    assert_eq!(rig.record().await, None);
    let again = call(&rig.b).try_run(async || Ok::<_, &str>(work.run())).await.unwrap();
    assert_eq!(again, Answer { value: 2, replayed: false });
}

#[tokio::test(start_paused = true)]
async fn an_error_may_be_left_to_the_policy_for_crashes() {
    let rig = Rig::with(Plan::none(), |builder| builder.after_error(AfterError::AsAfterCrash));
    let failed = call(&rig.a).try_run(async || Err::<u32, _>("after the effect, perhaps")).await;
    assert!(matches!(failed, Err(CallError::Work(_))));
    assert!(is_in_progress(call(&rig.b)).await);
    sleep(seconds(60.0)).await;
    assert!(!call(&rig.b).run(async || 1).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_frees_the_key_before_it_goes_on() {
    let rig = Rig::new();
    let panicking = call(&rig.a).run(async || -> u32 { panic!("in the work") });
    let panic = AssertUnwindSafe(panicking).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the work"));
    assert_eq!(rig.record().await, None);
    assert_eq!(call(&rig.b).run(async || 1).await.unwrap(), Answer { value: 1, replayed: false });
}

/// A closure that answers with a future runs before that is polled.
#[tokio::test(start_paused = true)]
async fn a_panic_before_the_work_awaits_anything_frees_the_key_too() {
    let rig = Rig::new();
    let panicking = call(&rig.a).try_run(|| -> std::future::Ready<Result<u32, ()>> { panic!("in the work") });
    let panic = AssertUnwindSafe(panicking).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the work"));
    assert_eq!(rig.record().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_can_be_made_in_a_task_of_its_own() {
    let rig = Rig::new();
    let (once, work) = (rig.a.clone(), Work::default());
    let task = tokio::spawn(async move {
        let (order, work) = (KEY.to_owned(), &work);
        let answer = call(&once).run(async || format!("{order} {}", work.run())).await;
        let again = call(&once).try_run(async || Ok::<_, std::io::Error>(order.clone())).await;
        (answer.unwrap().value, again.unwrap().value)
    });
    assert_eq!(task.await.unwrap(), ("k-42 1".to_owned(), "k-42 1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_run_the_work_once() {
    let slow = Fault::DelayRequest(seconds(0.3));
    let plan = Plan::none().from(Operation::TryAdd, 1, slow).from(Operation::TryReplace, 1, slow);
    let (rig, work) = (Rig::with_plan(plan), Work::default());
    let answers = join_all((0..50).map(|_| {
        call(&rig.a).run(async || {
            sleep(seconds(1.0)).await;
            work.run()
        })
    }))
    .await;
    for answer in answers {
        match answer {
            Ok(answer) => assert_eq!(answer.value, 1),
            Err(error) => assert_eq!(error.code(), Some(Code::CallInProgress), "{error}"),
        }
    }
    assert_eq!(work.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_recorded_before_it_is_given() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryReplace, 1, Fault::DelayRequest(seconds(3.0))));
    assert!(!call(&rig.a).run(async || 1).await.unwrap().replayed);
    assert!(call(&rig.b).run(async || 2).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn tenants_principals_and_keys_do_not_meet() {
    let (rig, work) = (Rig::new(), Work::default());
    let calls = || {
        [
            rig.a.call(OPERATION, KEY, PAYLOAD),
            rig.a.call(OPERATION, "other", PAYLOAD),
            rig.a.call(OPERATION, KEY, PAYLOAD).tenant("t"),
            rig.a.call(OPERATION, KEY, PAYLOAD).tenant("-"),
            rig.a.call(OPERATION, KEY, PAYLOAD).principal("t"),
            rig.a.call(OPERATION, KEY, PAYLOAD).tenant("t").principal("p"),
            rig.a.call(OPERATION, KEY, PAYLOAD).tenant("t:p"),
        ]
    };
    for replayed in [false, true] {
        for (number, call) in (1..).zip(calls()) {
            assert_eq!(call.run(async || work.run()).await.unwrap(), Answer { value: number, replayed });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_keep_is_given_once_and_not_made_twice() {
    let (rig, work) = (Rig::new(), Work::default());
    let large = "x".repeat(1024 * 1024);
    let answer = call(&rig.a)
        .run(async || {
            work.run();
            large.clone()
        })
        .await
        .unwrap();
    assert_eq!((answer.value.len(), answer.replayed), (large.len(), false));
    assert_eq!(rig.record().await.unwrap().state, RecordState::AnswerNotKept);
    let error = refused(call(&rig.b)).await;
    assert_eq!(error.code(), Some(Code::NotReplayable));
    assert!(error.to_string().contains("too large to keep"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_written_is_given_once_and_not_made_twice() {
    let rig = Rig::new();
    let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = claimed(call(&rig.a)).await.complete(&unwritable).await.unwrap_err();
    assert_eq!(error.kind(), leasehold_core::ErrorKind::InvalidInput);
    assert_eq!(refused(call(&rig.b)).await.code(), Some(Code::NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn a_recorded_answer_of_another_type_is_refused() {
    let rig = Rig::new();
    let _ = call(&rig.a).run(async || "text".to_owned()).await.unwrap();
    let error = call(&rig.a).run(async || 1).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotReplayable));
    assert!(!format!("{error:#?}").contains("text"), "an error shows no answer: {error:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_lives_for_its_ttl_and_no_longer() {
    for ttl in [Duration::from_millis(1), seconds(10.0), Duration::from_secs(30 * 24 * 3600)] {
        let (rig, work) = (Rig::new(), Work::default());
        let call = || call(&rig.a).record_ttl(ttl);
        let _ = call().run(async || work.run()).await.unwrap();
        sleep(ttl - Duration::from_millis(1)).await;
        assert!(call().run(async || work.run()).await.unwrap().replayed, "{ttl:?}");
        sleep(Duration::from_millis(1)).await;
        assert!(!call().run(async || work.run()).await.unwrap().replayed, "{ttl:?}");
    }
}

#[cfg(feature = "encryption")]
#[tokio::test(start_paused = true)]
async fn an_encrypted_answer_is_replayed_and_not_to_be_read_in_the_store() {
    use leasehold_core::idempotency::{Idempotency, PayloadKeys, Scope};
    use leasehold_core::{AtomicStore, Key};

    let rig = Rig::new();
    let keyed = |keys| Idempotency::builder(rig.memory.clone()).encrypt(keys).build();
    let before = keyed(PayloadKeys::new(1, [1; 32]));
    let after = keyed(PayloadKeys::new(2, [2; 32]).with_former(1, [1; 32]));
    let _ = call(&before).run(async || "the secret".to_owned()).await.unwrap();
    let key: Key = Scope::call(KEY).stored_key().unwrap();
    let stored = rig.memory.get(&key).await.unwrap().unwrap().value;
    assert!(!stored.windows(6).any(|window| window == b"secret"));
    assert_eq!(call(&after).run(async || String::new()).await.unwrap().value, "the secret");
    for without in [&rig.a, &keyed(PayloadKeys::new(3, [3; 32]))] {
        assert_eq!(refused(call(without)).await.code(), Some(Code::NotReplayable));
    }
}
