//! Every single fault at every call that an idempotent call makes: enumerated, not sampled.

use std::cell::Cell;
use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::Code;
use leasehold_core::idempotency::{AfterCrash, CallError};
use tokio::time::{sleep, timeout};

use crate::support::{Rig, call, seconds};

const TTL: Duration = Duration::from_millis(1_000);

const FAULTS: [Fault; 10] = [
    Fault::Refuse,
    Fault::LoseAnswer,
    Fault::DelayRequest(Duration::from_millis(250)),
    Fault::DelayRequest(Duration::from_millis(2_000)),
    Fault::DelayAnswer(Duration::from_millis(250)),
    Fault::DelayAnswer(Duration::from_millis(2_000)),
    Fault::ApplyLate(Duration::from_millis(250)),
    Fault::ApplyLate(Duration::from_millis(2_000)),
    Fault::Hang,
    Fault::ApplyAndHang,
];

/// The calls of a life, and how many of each it makes at least.
const CALLS: [(Operation, u32); 5] = [
    (Operation::TryAdd, 3),
    (Operation::Watch, 1),
    (Operation::TryExpire, 3),
    (Operation::TryReplace, 1),
    (Operation::TryRemove, 1),
];

/// How the work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Answers,
    Fails,
    /// Its future is dropped midway.
    IsDropped,
}

#[tokio::test(start_paused = true)]
async fn no_single_fault_makes_a_second_effect_another_answer_or_a_leftover() {
    let mut reached = 0;
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        for end in [End::Answers, End::Fails, End::IsDropped] {
            for (operation, calls) in CALLS {
                for nth in 1..=calls {
                    for fault in FAULTS {
                        let plan = Plan::none().nth(operation, nth, fault);
                        let rig = Rig::with(plan, |builder| {
                            builder.in_progress_ttl(TTL).after_crash(policy).transport_gives_up_after(TTL * 4)
                        });
                        let case = format!("{policy:?}, {end:?}, {operation} {nth}: {fault:?}");
                        live(&rig, policy, end, &case).await;
                        reached += u32::from(rig.link.calls(operation) >= nth);
                    }
                }
            }
        }
    }
    // Some ends make fewer calls than others; a plan that never bites would prove nothing.
    assert!(reached > 400, "only {reached} of the faults were met");
}

/// A waits for a call that B gives up, and does it over several renewals, while B asks for it all the time.
async fn live(rig: &Rig, policy: AfterCrash, end: End, case: &str) {
    // How often the work had its effect, and how often it began.
    let (effects, begun) = (Cell::new(0), Cell::new(0));
    let first = crate::support::claimed(call(&rig.b)).await;
    let giving_up = async {
        sleep(TTL / 3).await;
        let _ = first.abandon().await.unwrap();
    };
    let work = async |outcome: Result<u32, &'static str>| {
        begun.set(begun.get() + 1);
        sleep(TTL * 2).await;
        if outcome.is_ok() {
            effects.set(effects.get() + 1);
        }
        outcome
    };
    let working = async {
        let patience = if end == End::IsDropped { TTL * 2 } else { TTL * 60 };
        let outcome = if end == End::Fails { Err("in the work") } else { Ok(1) };
        let a = call(&rig.a).wait(TTL * 3).try_run(async || work(outcome).await);
        match timeout(patience, a).await {
            Ok(Ok(answer)) => assert_eq!(answer.value, 1, "{case}"),
            Ok(Err(CallError::Work(_))) | Err(_) => {}
            Ok(Err(CallError::Call(error))) => {
                assert!(error.code().is_some_and(|code| code != Code::PayloadMismatch), "{case}: {error}");
            }
        }
    };
    let duplicates = async {
        for _ in 0..100 {
            sleep(TTL / 10).await;
            match call(&rig.b).try_run(async || Err::<u32, _>("claimed, and given up at once")).await {
                Ok(answer) => assert_eq!((answer.value, effects.get()), (1, 1), "{case}"),
                Err(CallError::Work(_)) => assert!(
                    begun.get() == 0 || effects.get() == 0 || policy == AfterCrash::RunAgain && end == End::IsDropped,
                    "{case}: it was claimed again after its effect"
                ),
                Err(CallError::Call(error)) => assert!(error.code().is_some(), "{case}: {error}"),
            }
        }
    };
    tokio::join!(giving_up, working, duplicates);
    timeout(seconds(700.0), rig.a.close()).await.unwrap_or_else(|_| panic!("{case}: not settled"));

    let left = rig.record().await;
    match left {
        // Nobody knows, and an operator says.
        Some(record) if record.is_stuck() => {
            assert_eq!(policy, AfterCrash::OutcomeUnknown, "{case}");
            assert!(end == End::IsDropped, "{case}: stuck");
        }
        Some(_) => assert_eq!(effects.get(), 1, "{case}: an answer without its effect"),
        None => assert_eq!(effects.get(), 0, "{case}: an effect without its answer"),
    }
    assert!(effects.get() <= 1, "{case}: {} effects", effects.get());
}
