//! A store that is away for longer than a claim lives, from the end of the work on: the answer is offered all the while.

use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::idempotency::{AfterCrash, Answer, Completion, IdempotencyBuilder};
use leasehold_core::lock::{Release, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{Rig, Work, call, claimed, is_in_progress, replayed, seconds};

const TTL: Duration = Duration::from_secs(5);

fn rig(policy: AfterCrash) -> Rig {
    Rig::with(Plan::none(), short(policy))
}

fn short(policy: AfterCrash) -> impl Fn(IdempotencyBuilder) -> IdempotencyBuilder {
    move |builder| builder.in_progress_ttl(TTL).after_crash(policy).transport_gives_up_after(TTL * 6)
}

/// Everything fails from here on.
fn away(fault: Fault) -> Plan {
    Operation::ALL.into_iter().fold(Plan::none(), |plan, operation| plan.from(operation, 1, fault))
}

const AWAY: [Fault; 5] =
    [Fault::Refuse, Fault::Hang, Fault::LoseAnswer, Fault::ApplyAndHang, Fault::ApplyLate(Duration::from_secs(20))];

#[tokio::test(start_paused = true)]
async fn an_answer_is_recorded_after_an_outage_that_its_claim_did_not_live_through() {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        for fault in AWAY {
            let (rig, work) = (rig(policy), Work::default());
            let run = async || {
                rig.link.follow(away(fault));
                work.run()
            };
            assert_eq!(call(&rig.a).run(run).await.unwrap(), Answer { value: 1, replayed: false });
            sleep(TTL * 20).await;
            rig.link.follow(Plan::none());
            rig.a.close().await;
            let again = call(&rig.b).run(async || work.run()).await.unwrap();
            assert_eq!(again, Answer { value: 1, replayed: true }, "{policy:?}, {fault:?}");
        }
    }
}

/// Who comes first when the store is back has the key, and keeps it with an answer. Without one, that of before is as good
/// as ever, and better than to run the work once more.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_offered_after_another_claim_leaves_it_alone_and_follows_one_that_is_given_back() {
    for fault in [Fault::Refuse, Fault::Hang] {
        for answers in [true, false] {
            let rig = rig(AfterCrash::RunAgain);
            let first = claimed(call(&rig.a)).await;
            rig.link.follow(away(fault));
            assert!(first.complete("the first").await.is_err());
            sleep(TTL * 2).await;
            let next = claimed(call(&rig.b)).await;
            rig.link.follow(Plan::none());
            for _ in 0..10 {
                sleep(TTL / 2).await;
                assert!(is_in_progress(call(&rig.a)).await);
            }
            let answer = match answers {
                true => {
                    assert_eq!(next.complete("the next").await.unwrap(), Completion::Recorded);
                    "the next"
                }
                false => {
                    assert_eq!(next.abandon().await.unwrap(), Release::Released);
                    "the first"
                }
            };
            timeout(TTL, rig.a.close()).await.expect("it is settled soon");
            assert_eq!(replayed(call(&rig.a)).await, answer);
        }
    }
}

/// One who works for longer than an answer is offered.
#[tokio::test(start_paused = true)]
async fn an_answer_is_given_up_in_the_end_when_another_works_on() {
    let rig = Rig::with(Plan::none(), |builder| short(AfterCrash::RunAgain)(builder).settle_for(TTL * 10));
    let first = claimed(call(&rig.a)).await;
    rig.link.follow(away(Fault::Refuse));
    assert!(first.complete("the first").await.is_err());
    sleep(TTL * 2).await;
    let next = claimed(call(&rig.b)).await;
    rig.link.follow(Plan::none());
    timeout(TTL * 10, rig.a.close()).await.unwrap();
    assert_eq!(next.complete("the next").await.unwrap(), Completion::Recorded);
}

/// A process that stood still for longer than its claim lived.
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_recorded_when_nobody_has_come_or_whoever_came_has_given_up() {
    for somebody_came in [false, true] {
        let rig = Rig::with(Plan::none(), |builder| builder.in_progress_ttl(TTL).renewal(Renewal::Off));
        let late = claimed(call(&rig.a)).await;
        sleep(TTL * 2).await;
        if somebody_came {
            assert_eq!(claimed(call(&rig.b)).await.abandon().await.unwrap(), Release::Released);
        }
        let trips = rig.trips();
        assert_eq!(late.complete("late").await.unwrap(), Completion::Recorded);
        assert_eq!(rig.trips(), trips + 2, "one that finds no marker, and one that records");
        assert_eq!(replayed(call(&rig.b)).await, "late");
    }
}

/// In a transaction the effect is rolled back with its record, so there is nothing to be told late.
#[tokio::test(start_paused = true)]
async fn a_late_record_in_a_transaction_is_lost_though_nobody_came_between() {
    let rig = Rig::with(Plan::none(), |builder| builder.in_progress_ttl(TTL).renewal(Renewal::Off));
    let late = claimed(call(&rig.a)).await;
    sleep(TTL * 2).await;
    let recording = late.recording("late").unwrap();
    assert_eq!(recording.write_to(&rig.memory).await.unwrap(), Completion::Lost);
    drop(recording);
    rig.a.close().await;
    assert_eq!(rig.record().await, None);
}

/// The marker was sent twice, and the first sending lands after its claim has ended.
#[tokio::test(start_paused = true)]
async fn an_answer_is_recorded_over_a_marker_that_lands_again() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(20.0)));
    // It lands between the look for the marker and what puts the record where nothing is.
    let plan = plan.nth(Operation::TryAdd, 3, Fault::DelayRequest(seconds(2.0)));
    let rig = Rig::with(plan, |builder| builder.in_progress_ttl(TTL).renewal(Renewal::Off));
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(19.0)).await;
    assert_eq!(rig.record().await, None);
    assert_eq!(late.complete("late").await.unwrap(), Completion::Recorded);
    assert_eq!(replayed(call(&rig.b)).await, "late");
}

/// Nobody works under a marker that lands when its claim is lost, and it keeps nobody waiting.
#[tokio::test(start_paused = true)]
async fn a_marker_that_lands_after_its_claim_was_lost_is_taken_away() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(80.0)));
    let rig = Rig::with(plan, |builder| builder.in_progress_ttl(seconds(60.0)).renewal(Renewal::Off));
    let late = claimed(call(&rig.a)).await;
    sleep(seconds(65.0)).await;
    let next = claimed(call(&rig.b)).await;
    assert_eq!(late.complete("late").await.unwrap(), Completion::Lost);
    assert_eq!(next.abandon().await.unwrap(), Release::Released);
    // Where it was parked for so long, it is looked for every six seconds, and would stay for a minute.
    sleep(seconds(25.0)).await;
    assert_eq!(rig.record().await, None, "it has landed, and was taken away");
    rig.a.close().await;
}

/// Every single fault on the way back from an outage, at every call that offers the answer.
#[tokio::test(start_paused = true)]
async fn no_single_fault_after_an_outage_loses_the_answer_or_harms_another_claim() {
    let mut reached = 0;
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        for (operation, calls) in [(Operation::TryReplace, 3), (Operation::TryAdd, 3), (Operation::TryExpire, 2)] {
            for nth in 1..=calls {
                for fault in [
                    Fault::Refuse,
                    Fault::LoseAnswer,
                    Fault::DelayRequest(TTL * 2),
                    Fault::DelayAnswer(TTL * 2),
                    Fault::ApplyLate(TTL / 4),
                    Fault::ApplyLate(TTL * 2),
                    Fault::Hang,
                    Fault::ApplyAndHang,
                ] {
                    for comes_after in [None, Some(Duration::ZERO), Some(TTL / 2), Some(TTL)] {
                        let case = format!("{policy:?}, {operation} {nth}: {fault:?}, {comes_after:?}");
                        let plan = Plan::none().nth(operation, nth, fault);
                        reached += u32::from(comes_back(policy, plan, comes_after, (operation, nth), &case).await);
                    }
                }
            }
        }
    }
    assert!(reached > 100, "only {reached} of the faults were met");
}

/// A's answer after an outage, and B who makes the same call at some time after that. Says whether the fault was met.
async fn comes_back(
    policy: AfterCrash,
    plan: Plan,
    comes_after: Option<Duration>,
    (operation, nth): (Operation, u32),
    case: &str,
) -> bool {
    let rig = rig(policy);
    let first = claimed(call(&rig.a)).await;
    rig.link.follow(away(Fault::Refuse));
    assert!(first.complete("the first").await.is_err());
    sleep(TTL * 3).await;
    rig.link.follow(plan);
    let answer = match comes_after {
        None => "the first".to_owned(),
        Some(pause) => {
            sleep(pause).await;
            let answer = call(&rig.b).wait(TTL * 20).run(async || {
                assert_eq!(policy, AfterCrash::RunAgain, "{case}: it ran again");
                sleep(TTL * 4).await;
                "the next".to_owned()
            });
            match answer.await {
                Ok(answer) => answer.value,
                // It hears that the outcome is unknown, and then that it is known.
                Err(error) => {
                    assert_eq!(policy, AfterCrash::OutcomeUnknown, "{case}: {error}");
                    "the first".to_owned()
                }
            }
        }
    };
    rig.a.close().await;
    let met = rig.link.calls(operation) >= nth;
    rig.link.follow(Plan::none());
    // What was parked on its way has landed.
    sleep(TTL * 2).await;
    assert_eq!(replayed(call(&rig.b)).await, answer, "{case}");
    assert_eq!(replayed(call(&rig.a)).await, answer, "{case}");
    met
}

/// What is encrypted is the same bytes each time it is offered, so that it is recognised.
#[cfg(feature = "encryption")]
#[tokio::test(start_paused = true)]
async fn an_encrypted_answer_is_recorded_after_an_outage_too() {
    use leasehold_core::AtomicStore;
    use leasehold_core::idempotency::{Idempotency, PayloadKeys, Scope};

    let rig =
        Rig::with(Plan::none(), |builder| short(AfterCrash::RunAgain)(builder).encrypt(PayloadKeys::new(1, [1; 32])));
    for fault in AWAY {
        let key = format!("{fault:?}").replace(' ', "");
        let call = |once: &Idempotency| once.call("charge", key.as_str(), "42.00 EUR");
        let first = claimed(call(&rig.a)).await;
        rig.link.follow(away(fault));
        assert!(timeout(TTL, first.complete("the secret")).await.is_ok_and(|done| done.is_err()));
        sleep(TTL * 3).await;
        // The first that puts it there is not answered, and the second finds it.
        rig.link.follow(Plan::none().nth(Operation::TryAdd, 1, Fault::LoseAnswer));
        rig.a.close().await;
        assert_eq!(replayed(call(&rig.b)).await, "the secret", "{fault:?}");
        let stored = rig.memory.get(&Scope::call(key.as_str()).stored_key().unwrap()).await.unwrap().unwrap().value;
        assert!(!stored.windows(6).any(|window| window == b"secret"));
    }
}
