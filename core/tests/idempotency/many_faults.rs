//! Three clients whose links all fail again and again, by a seed: whatever comes together, a call has one record.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::{Fault, Faulty, Operation, Plan};
use leasehold_core::idempotency::{AfterCrash, Begin, Completion, Idempotency};
use leasehold_core::{Code, Error};
use leasehold_memory::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{call, seconds};

const TTL: Duration = Duration::from_millis(1_000);
const CLIENTS: u64 = 3;
const STEPS: u64 = 8;
const SEEDS: u64 = 150;

const FAULTS: [Fault; 8] = [
    Fault::Refuse,
    Fault::LoseAnswer,
    Fault::DelayRequest(Duration::from_millis(700)),
    Fault::DelayAnswer(Duration::from_millis(700)),
    Fault::ApplyLate(Duration::from_millis(300)),
    Fault::ApplyLate(Duration::from_millis(3_000)),
    Fault::Hang,
    Fault::ApplyAndHang,
];

#[derive(Default)]
struct Seen {
    /// Each record that a client was told of, by its claimant or as a replay, and when it was known.
    records: RefCell<Vec<(Instant, String)>>,
    /// When each claim was asked for.
    claims: RefCell<Vec<Instant>>,
    /// How often the work has ended.
    effects: Cell<u32>,
    lost: Cell<u32>,
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_record_whatever_faults_come_together() {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let (mut recorded, mut lost) = (0, 0);
        for seed in 0..SEEDS {
            let seen = history(policy, seed).await;
            let records = seen.records.borrow();
            if let Some((known, first)) = records.iter().min() {
                let others: Vec<_> = records.iter().filter(|(_, record)| record != first).collect();
                assert!(others.is_empty(), "{policy:?}, seed {seed}: {first:?} is the record, and {others:?} too");
                let claims = seen.claims.borrow();
                assert!(
                    claims.iter().all(|asked| asked <= known),
                    "{policy:?}, seed {seed}: it was claimed after that"
                );
                recorded += 1;
            }
            // Each answer is recorded in the end, or another is, or its claimant is told.
            let unanswered = seen.effects.get() > 0 && seen.lost.get() == 0 && records.is_empty();
            assert!(!unanswered, "{policy:?}, seed {seed}: {} effects, and no record", seen.effects.get());
            if policy == AfterCrash::OutcomeUnknown {
                assert!(seen.effects.get() <= 1, "seed {seed}: {} effects", seen.effects.get());
            }
            lost += u32::from(seen.lost.get() > 0);
        }
        // Histories in which nothing comes of the call, or nothing comes together, would prove nothing.
        assert!(recorded > SEEDS / 2, "{policy:?}: only {recorded} histories came to a record");
        assert!(policy == AfterCrash::OutcomeUnknown || lost > 0, "{policy:?}: no claim was ever lost");
    }
}

async fn history(policy: AfterCrash, seed: u64) -> Seen {
    let (memory, seen) = (MemoryStore::new(), Seen::default());
    join_all((0..CLIENTS).map(|client| {
        let (memory, seen) = (memory.clone(), &seen);
        async move {
            let link = Faulty::new(memory);
            link.follow(plan(seed * CLIENTS + client));
            let builder = Idempotency::builder(link.clone()).in_progress_ttl(TTL).after_crash(policy);
            let once = builder.transport_gives_up_after(TTL * 4).build();
            for step in 0..STEPS {
                let chosen = chosen(seed, client, step);
                let asked = Instant::now();
                match timeout(TTL * 3, call(&once).wait(TTL).begin()).await {
                    Ok(Ok(Begin::Replay(replay))) => {
                        seen.records.borrow_mut().push((Instant::now(), replay.value().unwrap()));
                    }
                    Ok(Ok(Begin::Claimed(claim))) => {
                        seen.claims.borrow_mut().push(asked);
                        sleep(TTL * (chosen % 25) as u32 / 10).await;
                        // It gives up before the effect, or has it.
                        if chosen.is_multiple_of(3) {
                            let _ = timeout(TTL * 3, claim.abandon()).await;
                            continue;
                        }
                        seen.effects.set(seen.effects.get() + 1);
                        let answer = format!("{client}.{step}");
                        match timeout(TTL * ((chosen % 4) as u32 + 1), claim.complete(&answer)).await {
                            Ok(Ok(Completion::Recorded)) => seen.records.borrow_mut().push((Instant::now(), answer)),
                            Ok(Ok(Completion::Lost)) => seen.lost.set(seen.lost.get() + 1),
                            // It goes on in the background.
                            Ok(Err(_)) | Err(_) => {}
                        }
                    }
                    Ok(Err(error)) => is_expected(&error),
                    Err(_) => {}
                }
                sleep(TTL * (chosen % 15) as u32 / 10).await;
            }
            timeout(seconds(700.0), once.close()).await.expect("nothing stays in doubt");
        }
    }))
    .await;
    // What is left of it is a record, or nothing.
    sleep(TTL * 4).await;
    match call(&Idempotency::new(memory)).begin().await {
        Ok(Begin::Replay(replay)) => seen.records.borrow_mut().push((Instant::now(), replay.value().unwrap())),
        Ok(Begin::Claimed(_)) => {}
        Err(error) => panic!("seed {seed}: {error}"),
    }
    seen
}

/// About a third of the calls fail.
fn plan(seed: u64) -> Plan {
    [Operation::TryAdd, Operation::TryReplace, Operation::TryRemove, Operation::TryExpire, Operation::Watch]
        .into_iter()
        .flat_map(|operation| FAULTS.into_iter().enumerate().map(move |(number, fault)| (operation, number, fault)))
        .fold(Plan::none(), |plan, (operation, number, fault)| {
            plan.seeded(operation, seed * FAULTS.len() as u64 + number as u64, 12, fault)
        })
}

/// What a client does at one step.
fn chosen(seed: u64, client: u64, step: u64) -> u64 {
    let number = ((seed * CLIENTS + client) * STEPS + step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number >> 40
}

fn is_expected(error: &Error) {
    let expected = [Code::CallInProgress, Code::NotReplayable, Code::StoreUnavailable];
    assert!(error.code().is_some_and(|code| expected.contains(&code)), "{error}");
}
