use std::panic::AssertUnwindSafe;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::idempotency::{AfterCrash, Answer, Begin, Call, CallError, Claim, Completion, Idempotency, Inbox, Scope};
use leasehold::lock::{Release, Renewal};
use leasehold::{Code, ErrorKind, Store, connect};
use leasehold_testkit::{Proxy, eventually, signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::Rig;

const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "k";
const PAYLOAD: &str = "42.00 EUR";

fn call(once: &Idempotency) -> Call {
    once.call("charge", KEY, PAYLOAD)
}

/// Claims that end by themselves, after this.
const SHORT: Duration = Duration::from_millis(500);

fn short(store: &Store) -> Idempotency {
    Idempotency::builder(store.clone()).in_progress_ttl(SHORT).renewal(Renewal::Off).build()
}

async fn claimed(call: Call) -> Claim {
    match call.begin().await.unwrap() {
        Begin::Claimed(claim) => claim,
        Begin::Replay(replay) => panic!("it was made before: {replay:?}"),
    }
}

async fn code_of(call: Call) -> Option<Code> {
    match call.begin().await {
        Ok(begin) => panic!("it was not refused: {begin:?}"),
        Err(error) => error.code(),
    }
}

/// Work that counts how often it runs, and answers with that.
#[derive(Clone, Default)]
struct Work(Arc<AtomicU32>);

impl Work {
    fn run(&self) -> u32 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn runs(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) async fn late_ends_touch_nothing_of_the_next_claim(rig: Rig) {
    let (a, b) = (short(&rig.behind), Idempotency::new(rig.store.clone()));
    for number in 0..3 {
        let key = format!("k{number}");
        let call = |once: &Idempotency| once.call("charge", key.as_str(), PAYLOAD);
        let late = claimed(call(&a)).await;
        let next = claimed(call(&b).wait(SOON)).await;
        assert!(late.check().is_err(), "it was lost before another claimed the call");
        assert!(late.fencing_token() < next.fencing_token());
        match number {
            0 => assert_eq!(late.complete("late").await.unwrap(), Completion::Lost),
            1 => assert_eq!(late.abandon().await.unwrap(), Release::AlreadyLost),
            _ => assert_eq!(late.renew().await.unwrap_err().kind(), ErrorKind::Lost),
        }
        let record = b.inspect(&Scope::call(key.as_str())).await.unwrap().unwrap();
        assert_eq!(record.nonce, next.nonce());
        assert_eq!(code_of(call(&a)).await, Some(Code::CallInProgress));
        assert_eq!(next.complete("in time").await.unwrap(), Completion::Recorded);
        let answer = call(&a).run(async || String::new()).await.unwrap();
        assert_eq!(answer, Answer { value: "in time".to_owned(), replayed: true });
    }
}

pub(crate) async fn long_work_keeps_its_claim(rig: Rig) {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let once = |store: &Store| {
            Idempotency::builder(store.clone()).in_progress_ttl(Duration::from_secs(1)).after_crash(policy).build()
        };
        let (a, b, work) = (once(&rig.behind), once(&rig.store), Work::default());
        let key = format!("{policy:?}");
        let call = |once: &Idempotency| once.call("charge", key.as_str(), PAYLOAD);
        let running = tokio::spawn({
            let (call, work) = (call(&a), work.clone());
            async move {
                call.run(async || {
                    sleep(Duration::from_secs(3)).await;
                    work.run()
                })
                .await
            }
        });
        eventually(SOON, async || b.inspect(&Scope::call(key.as_str())).await.unwrap().is_some()).await;
        while !running.is_finished() {
            match call(&b).begin().await {
                Err(error) => assert_eq!(error.code(), Some(Code::CallInProgress)),
                Ok(Begin::Replay(_)) => {}
                Ok(Begin::Claimed(_)) => panic!("it was claimed again while its work ran"),
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(running.await.unwrap().unwrap(), Answer { value: 1, replayed: false });
        assert!(call(&b).run(async || work.run()).await.unwrap().replayed);
        assert_eq!(work.runs(), 1);
    }
}

const URL: &str = "LEASEHOLD_TEST_CLAIMANT_URL";
const POLICY: &str = "LEASEHOLD_TEST_CLAIMANT_POLICY";
const TTL: Duration = Duration::from_secs(2);

fn kept(store: Store, policy: AfterCrash) -> Idempotency {
    Idempotency::builder(store).in_progress_ttl(TTL).after_crash(policy).build()
}

/// Claims a call in a process of its own, and works on it for ever.
#[tokio::test]
#[ignore = "not a test: what the other process runs"]
async fn claimant() {
    let Ok(url) = std::env::var(URL) else { return };
    let policy = if std::env::var(POLICY).is_ok() { AfterCrash::OutcomeUnknown } else { AfterCrash::RunAgain };
    let once = kept(connect(&url).await.unwrap(), policy);
    let work = async || {
        println!("working");
        std::future::pending::<u32>().await
    };
    let _ = once.call("charge", format!("{policy:?}"), PAYLOAD).run(work).await;
}

pub(crate) async fn the_claim_of_a_killed_process_ends_with_its_ttl(rig: Rig) {
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "calls::claimant", "--nocapture"]).env(URL, &rig.url);
        if policy == AfterCrash::OutcomeUnknown {
            command.env(POLICY, "unknown");
        }
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        while !lines.next_line().await.unwrap().expect("it works").contains("working") {}

        let b = kept(rig.store.clone(), policy);
        let call = || b.call("charge", format!("{policy:?}"), PAYLOAD);
        assert_eq!(code_of(call()).await, Some(Code::CallInProgress));
        signal::kill(process.id().unwrap()).unwrap();
        let killed = Instant::now();
        match policy {
            AfterCrash::RunAgain => {
                let answer = call().wait(SOON).run(async || 1).await.unwrap();
                assert_eq!(answer, Answer { value: 1, replayed: false });
            }
            AfterCrash::OutcomeUnknown => {
                assert_eq!(code_of(call().wait(SOON)).await, Some(Code::NotReplayable));
                let scope = Scope::call(format!("{policy:?}"));
                let stuck = b.inspect(&scope).await.unwrap().unwrap();
                assert!(stuck.is_stuck());
                assert!(b.settle(&scope, stuck.nonce, &7).await.unwrap().is_applied());
                assert_eq!(call().run(async || 1).await.unwrap(), Answer { value: 7, replayed: true });
            }
        }
        // The in-progress ttl, and less than the 5 s after which one looks again who hears of nothing.
        assert!(killed.elapsed() < TTL + Duration::from_secs(4), "{:?}", killed.elapsed());
    }
}

pub(crate) async fn a_claim_whose_answer_is_lost_is_recognised(rig: Rig) {
    let (a, b, work) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()), Work::default());
    let _warm = rig.warm().await;
    rig.link.swallow_next_answers(1);
    let answer = call(&a).run(async || work.run()).await;
    assert_eq!(rig.link.sprung(), 1, "an answer was swallowed");
    assert_eq!(answer.unwrap(), Answer { value: 1, replayed: false });
    let again = call(&b).run(async || work.run()).await.unwrap();
    assert_eq!(again, Answer { value: 1, replayed: true });
}

pub(crate) async fn fifty_at_once_on_a_slow_link_run_the_work_once(rig: Rig) {
    let (a, work) = (Idempotency::new(connect(&rig.url_behind).await.unwrap()), Work::default());
    rig.link.delay_answers(Duration::from_millis(5));
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (call, work) = (call(&a), work.clone());
        calls.spawn(async move {
            call.run(async || {
                sleep(Duration::from_millis(300)).await;
                work.run()
            })
            .await
        });
    }
    for answer in calls.join_all().await {
        match answer {
            Ok(answer) => assert_eq!(answer.value, 1),
            Err(error) => assert_eq!(error.code(), Some(Code::CallInProgress), "{error:#}"),
        }
    }
    assert_eq!(work.runs(), 1);
}

pub(crate) async fn an_answer_that_the_store_cannot_take_is_given_and_recorded_later(rig: Rig) {
    let (a, b, work) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()), Work::default());
    let answer = call(&a)
        .run(async || {
            rig.link.refuse();
            work.run()
        })
        .await
        .unwrap();
    assert_eq!(answer, Answer { value: 1, replayed: false });
    assert_eq!(code_of(call(&b)).await, Some(Code::CallInProgress), "it is never free");
    rig.link.pass();
    eventually(SOON, async || match call(&b).run(async || work.run()).await {
        Ok(answer) => answer.replayed,
        Err(error) => {
            assert_eq!(error.code(), Some(Code::CallInProgress), "{error:#}");
            false
        }
    })
    .await;
    assert_eq!(work.runs(), 1);
    a.close().await;
}

/// The claim ends in the store, and its answer is recorded when the store is back all the same.
pub(crate) async fn an_answer_is_recorded_after_an_outage_longer_than_its_claim(rig: Rig) {
    let (b, work) = (Idempotency::new(rig.store.clone()), Work::default());
    let a = Idempotency::builder(rig.behind.clone()).in_progress_ttl(Duration::from_secs(2)).build();
    for (key, cut) in [("refuses", Proxy::refuse as fn(&Proxy)), ("swallows", Proxy::black_hole)] {
        let call = |once: &Idempotency| once.call("charge", key, PAYLOAD);
        let answer = call(&a)
            .run(async || {
                cut(&rig.link);
                work.run()
            })
            .await
            .unwrap();
        assert!(!answer.replayed);
        eventually(SOON, async || b.inspect(&Scope::call(key)).await.unwrap().is_none()).await;
        rig.link.pass();
        timeout(SOON, a.close()).await.expect("the answer is offered all the while");
        assert_eq!(call(&b).run(async || work.run()).await.unwrap(), Answer { replayed: true, ..answer });
    }
}

pub(crate) async fn a_panic_frees_the_key(rig: Rig) {
    let (a, b) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()));
    let panicking = call(&a).run(async || -> u32 { panic!("in the work") });
    assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
    assert!(!call(&b).run(async || 1).await.unwrap().replayed);
}

pub(crate) async fn an_answer_is_recorded_before_it_is_given(rig: Rig) {
    let (a, b) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()));
    for number in 0..50 {
        let call = |once: &Idempotency| once.call("charge", format!("k{number}"), PAYLOAD);
        let first = call(&a).run(async || number).await.unwrap();
        let again = call(&b).run(async || 99).await.unwrap();
        assert_eq!((first.replayed, again), (false, Answer { value: number, replayed: true }));
    }
}

pub(crate) async fn other_payloads_and_operations_are_refused_all_along(rig: Rig) {
    let (a, b) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()));
    let strangers = async |when| {
        assert_eq!(code_of(b.call("charge", KEY, "43.00 EUR")).await, Some(Code::PayloadMismatch), "{when}");
        assert_eq!(code_of(b.call("refund", KEY, PAYLOAD)).await, Some(Code::NotReplayable), "{when}");
    };
    let claim = claimed(call(&a)).await;
    strangers("in progress").await;
    assert_eq!(code_of(call(&b)).await, Some(Code::CallInProgress));
    let _ = claim.complete("done").await.unwrap();
    for _ in 0..2 {
        strangers("answered").await;
        assert!(call(&b).run(async || String::new()).await.unwrap().replayed);
    }
    // Nor do those of another tenant or principal meet.
    for other in [call(&b).tenant("t"), call(&b).principal("t"), call(&b).tenant("t").principal("t")] {
        assert!(!other.run(async || String::new()).await.unwrap().replayed);
    }
}

/// Neither is gone before its time by the clock of who wrote it, and both are gone some time after.
pub(crate) async fn both_ttls_end_by_one_rule(rig: Rig) {
    let (a, b) = (short(&rig.behind), Idempotency::new(rig.store.clone()));
    for answered in [false, true] {
        let call = |once: &Idempotency| once.call("charge", format!("{answered}"), PAYLOAD).record_ttl(SHORT);
        let mut called = Instant::now();
        let claim = claimed(call(&a)).await;
        if answered {
            called = Instant::now();
            let _ = claim.complete(&1).await.unwrap();
        } else {
            drop(claim);
        }
        loop {
            let begun = call(&b).begin().await;
            let returned = Instant::now();
            match begun {
                Ok(Begin::Claimed(claim)) => {
                    // Less what the clocks of two machines may differ in so short a time.
                    assert!(returned + Duration::from_millis(5) >= called + SHORT, "{:?}", returned - called);
                    let _ = claim.abandon().await.unwrap();
                    break;
                }
                Ok(Begin::Replay(_)) => assert!(answered),
                Err(error) => assert!(!answered && error.code() == Some(Code::CallInProgress), "{error:#}"),
            }
            assert!(called.elapsed() < SOON, "it never ends");
        }
    }
    // A long one is taken as it is.
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let _ = b.call("charge", "month", PAYLOAD).record_ttl(month).run(async || 1).await.unwrap();
    let left = b.inspect(&Scope::call("month")).await.unwrap().unwrap().time_left;
    assert!(left <= month && left > month - Duration::from_secs(60), "{left:?}");
}

pub(crate) async fn nothing_runs_while_the_store_is_away(rig: Rig) {
    let (a, b) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()));
    rig.link.refuse();
    let error = call(&a).run(async || -> u32 { panic!("it must not run") }).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::StoreUnavailable), "{error:#}");
    rig.link.pass();
    rig.link.black_hole();
    let error = call(&a).run(async || -> u32 { panic!("it must not run") }).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::StoreUnavailable), "{error:#}");
    rig.link.pass();
    // What was parked on the link lands now, and is reclaimed: nobody is shut out for the whole of its ttl.
    assert!(!call(&b).wait(SOON).run(async || 1).await.unwrap().replayed);
}

pub(crate) async fn a_message_is_handled_once_and_a_failed_one_again(rig: Rig) {
    let inbox = |store: &Store, consumer| Inbox::new(Idempotency::new(store.clone()), consumer);
    let (a, b, other) = (inbox(&rig.behind, "billing"), inbox(&rig.store, "billing"), inbox(&rig.store, "shipping"));
    let handled = Work::default();
    let failed = a.message("m-1").try_run(async || Err::<u32, _>("no")).await;
    assert!(matches!(failed, Err(CallError::Work("no"))));
    let running = claimed(a.message("m-1")).await;
    let duplicate = b.message("m-1").try_run(async || Ok::<_, &str>(handled.run())).await;
    assert_eq!(duplicate.unwrap_err().code(), Some(Code::CallInProgress), "not to be acknowledged");
    assert_eq!(running.abandon().await.unwrap(), Release::Released);
    for (inbox, answer) in [(&a, (1, false)), (&b, (1, true)), (&other, (2, false)), (&other, (2, true))] {
        let got = inbox.message("m-1").run(async || handled.run()).await.unwrap();
        assert_eq!((got.value, got.replayed), answer);
    }
}

pub(crate) async fn who_waits_hears_of_the_answer(rig: Rig) {
    let (a, b) = (Idempotency::new(rig.behind.clone()), Idempotency::new(rig.store.clone()));
    let claim = claimed(call(&b)).await;
    let waiting = tokio::spawn({
        let call = call(&a).wait(SOON);
        async move { call.run(async || String::new()).await }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    let _ = claim.complete("done").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Answer { value: "done".to_owned(), replayed: true });
}
