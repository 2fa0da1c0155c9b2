//! Calls that have their effect once, on top of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::idempotency::{
    AfterCrash, Begin, Call, CallError, Claim, Completion, Idempotency, IdempotencyBuilder, Inbox, Replay, Scope,
};
use leasehold_core::lock::{Release, Renewal};
use leasehold_core::{Code, ErrorKind, Key, Outcome, Ttl};
use tokio::time::{Instant, sleep};

use super::values::longest_length;
use crate::faulty::{Faulty, Operation};
use crate::handle::{Handle, shown};
use crate::subject::{Subject, long, millis};
use crate::timing::{Round, Span, measured};
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

mod faults;
mod operators;

pub(super) use faults::survives_every_single_fault;
pub(super) use operators::{
    an_unknown_outcome_is_for_operators, every_record_is_listed, tells_who_claimed_a_call,
    the_outcome_is_unknown_after_a_crash_if_asked,
};

pub(super) async fn runs_the_work_once_among_many(subject: &Subject) -> Verdict {
    const TASKS: usize = 8;
    let services = [service(&subject.store), service(&subject.another_handle().await?)];
    for number in 0..5 {
        let (key, runs) = (format!("k-{number}"), Arc::new(AtomicU32::new(0)));
        let answers = subject
            .at_once(TASKS, |task| {
                let (call, runs) = (call(&services[task % 2], &key).wait(PATIENCE), runs.clone());
                async move {
                    let work = async || {
                        sleep(Duration::from_millis(1)).await;
                        runs.fetch_add(1, Ordering::AcqRel) + 1
                    };
                    Ok(call.run(work).await?)
                }
            })
            .await?;
        let runs = runs.load(Ordering::Acquire);
        ensure!(runs == 1, "{TASKS} calls at once under one key ran the work {runs} times");
        let first = answers.iter().filter(|answer| !answer.replayed).count();
        ensure!(first == 1, "of {TASKS} calls at once one is the first, and {first} say that they are");
        ensure!(answers.iter().all(|answer| answer.value == 1), "not all were answered the same: {answers:?}");
    }
    Ok(())
}

pub(super) async fn replays_the_first_answer(subject: &Subject) -> Verdict {
    let services = [service(&subject.store), service(&subject.another_handle().await?)];
    let answer: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    let claim = claimed(call(&services[0], "k")).await?;
    let nonce = claim.nonce();
    ensure_matches!(claim.complete_with(answer.clone()).await?, Completion::Recorded, "the claim was held");
    for once in services.iter().cycle().take(4) {
        let replay = replayed(call(once, "k")).await?;
        ensure!(replay.nonce() == nonce, "the replay must be of the claim that was completed");
        ensure!(
            *replay.as_bytes() == answer,
            "the answer must come back byte for byte, and this came: {}",
            shown(replay.as_bytes())
        );
    }
    Ok(())
}

/// The first call is two trips to the store, and each one after it is one.
pub(super) async fn takes_two_trips_and_a_replay_one(subject: &Subject) -> Verdict {
    let link = Faulty::new(subject.store.atomic());
    let once = Idempotency::builder(link.clone()).record_ttl(long().as_duration()).build();
    let trips = || Operation::ALL.map(|operation| link.calls(operation)).iter().sum::<u32>();
    ensure!(!call(&once, "k").run(async || 1).await?.replayed, "nobody has made the call before");
    ensure!(trips() == 2, "a first call is two trips, and took {}", trips());
    ensure!(call(&once, "k").run(async || 2).await?.replayed, "the call was made before");
    ensure!(trips() == 3, "a replay is one trip, and took {}", trips() - 2);
    Ok(())
}

pub(super) async fn another_operation_and_another_payload_are_refused(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    let strangers = || {
        [
            (others.call("refund", "k", PAYLOAD), Code::NotReplayable),
            (others.call(OPERATION, "k", "43.00 EUR"), Code::PayloadMismatch),
            (others.call("refund", "k", "43.00 EUR"), Code::NotReplayable),
        ]
    };
    let claim = claimed(call(&once, "k")).await?;
    for (stranger, code) in strangers() {
        refused(stranger, code).await?;
    }
    refused(call(&others, "k"), Code::CallInProgress).await?;
    recorded(claim, "the answer").await?;
    for (stranger, code) in strangers() {
        refused(stranger, code).await?;
    }
    answered(call(&others, "k"), "the answer").await
}

pub(super) async fn scopes_never_meet(subject: &Subject) -> Verdict {
    let services = [service(&subject.store), service(&subject.another_handle().await?)];
    let calls = |once: &Idempotency| {
        let of = |key: &str| call(once, key);
        let handled = |consumer: &str| Inbox::new(once.clone(), consumer).message("k");
        // As long as a key may be when the parts before it are absent.
        let longest = "k".repeat(Key::MAX_CHARS - "idem:-:-:".len() - 1);
        [
            of("k"),
            of("K"),
            of("k."),
            of("k*"),
            of("k:k"),
            of("é"),
            of("e\u{301}"),
            of(&format!("{longest}1")),
            of(&format!("{longest}2")),
            of("k").tenant("t"),
            of("k").tenant("T"),
            of("k").tenant("-"),
            of("k").tenant("t:-"),
            of("k").principal("t"),
            of("k").principal("-"),
            of("k").tenant("-").principal("-"),
            of("k").tenant("t").principal("t"),
            handled("t"),
            handled("-"),
            handled("t:k"),
        ]
    };
    for (pass, once) in services.iter().enumerate() {
        for (number, call) in calls(once).into_iter().enumerate() {
            let scope = format!("{call:?}");
            let answer = call.run(async || number).await?;
            ensure!(
                answer.value == number && answer.replayed == (pass > 0),
                "a call was answered with what another scope was answered, as number {}, and this is {number}: {scope}",
                answer.value
            );
        }
    }
    Ok(())
}

/// One who comes back after the claim has ended finds another at work, and leaves it alone.
pub(super) async fn a_late_completion_overwrites_nothing(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let ending = ending(&subject.store, ttl).build();
            let Some((asked, late)) = claimed_in_time(call(&ending, key)).await? else { return Ok(Round::Undecided) };
            subject.tolerance.past_the_end(asked, ttl).await;
            let next = claimed(call(&others, key)).await?;
            ensure!(late.check().is_err(), "another claimed the call while its claimant still counts on it");
            ensure_matches!(
                late.complete("the late answer").await?,
                Completion::Lost,
                "a claim that another has followed was completed"
            );
            refused(call(&ending, key), Code::CallInProgress).await?;
            recorded(next, "the answer").await?;
            answered(call(&ending, key), "the answer").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn a_late_failure_frees_nothing(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let ending = ending(&subject.store, ttl).build();
            let Some((asked, late)) = claimed_in_time(call(&ending, key)).await? else { return Ok(Round::Undecided) };
            subject.tolerance.past_the_end(asked, ttl).await;
            let next = claimed(call(&others, key)).await?;
            ensure_matches!(
                late.abandon().await?,
                Release::AlreadyLost,
                "a claim that another has followed was given back"
            );
            refused(call(&ending, key), Code::CallInProgress).await?;
            recorded(next, "the answer").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn a_late_renewal_renews_nothing(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let (ending, stored) = (ending(&subject.store, ttl).build(), stored(key)?);
            let Some((asked, late)) = claimed_in_time(call(&ending, key)).await? else { return Ok(Round::Undecided) };
            let marker = subject.store.get(&stored).await?;
            // Gone already: the machine's fault, unless it goes on being so.
            let Some(marker) = marker.map(|entry| entry.value) else { return Ok(Round::Undecided) };
            subject.tolerance.past_the_end(asked, ttl).await;
            // As one that was parked on its way.
            subject.store.must_not_expire(&stored, &marker, "the claim has ended").await?;
            let (claimed_at, next) = measured(claimed(call(&others, key))).await?;
            subject.store.must_not_expire(&stored, &marker, "another has claimed the call").await?;
            let renewal = late.renew().await;
            ensure!(
                renewal.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost),
                "who renews a claim that has ended must be told so, and was told {renewal:?}"
            );
            let (read, record) = measured(async { Ok(others.inspect(&Scope::call(key.as_str())).await?) }).await?;
            let Some(record) = record else { return Stop::failed("a call is in progress, and has no record") };
            ensure!(record.nonce == next.nonce(), "a late renewal put its own claim over the next one");
            subject.tolerance.ensure_time_left(Some(record.time_left), claimed_at, in_progress(), read)?;
            recorded(next, "the answer").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn long_work_keeps_its_claim(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    for policy in [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown] {
        let renewing = builder(&subject.store).after_crash(policy).build();
        subject
            .rounds(async |key, ttl| {
                let key = format!("{key}-{policy:?}");
                let call_of = |once: &Idempotency| call(once, &key).in_progress_ttl(ttl.as_duration());
                let Some((_, claim)) = claimed_in_time(call_of(&renewing)).await? else {
                    return Ok(Round::Undecided);
                };
                let until = Instant::now() + ttl.as_duration() * 3;
                while Instant::now() < until {
                    let begin = call_of(&others).begin().await;
                    // Lost by a renewal that came too late: the machine's fault, unless it goes on being so.
                    if claim.check().is_err() {
                        return Ok(Round::Undecided);
                    }
                    ensure_refused(begin, Code::CallInProgress)?;
                    sleep(ttl.as_duration() / 10).await;
                }
                let completion = claim.complete("the answer").await?;
                if completion == Completion::Lost {
                    return Ok(Round::Undecided);
                }
                answered(call_of(&others), "the answer").await?;
                Ok(Round::Decided)
            })
            .await?;
    }
    Ok(())
}

pub(super) async fn a_failed_call_runs_again_at_once(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    for _ in 0..3 {
        let failed = call(&once, "k").try_run(async || Err::<u32, _>("in the work")).await;
        ensure_matches!(failed, Err(CallError::Work("in the work")), "the work must run, and fail");
    }
    let again = call(&others, "k").run(async || 1).await?;
    ensure!(!again.replayed, "the work had failed, and was answered all the same");
    Ok(())
}

/// The first claimant is gone, and its claim is in nobody's way from its end on, and no sooner.
pub(super) async fn after_a_crash_the_work_runs_again(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let ending = ending(&subject.store, ttl).build();
            let Some((asked, crashed)) = claimed_in_time(call(&ending, key)).await? else {
                return Ok(Round::Undecided);
            };
            drop(crashed);
            let round = refused_until(subject, asked, ttl, Code::CallInProgress, || call(&others, key)).await?;
            subject.tolerance.past_the_end(asked, ttl).await;
            recorded(claimed(call(&others, key)).await?, "the answer").await?;
            Ok(round)
        })
        .await
}

/// A hint may be lost, and then who waits looks again some seconds later.
pub(super) async fn who_waits_replays_the_answer(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    let claim = claimed(call(&once, "k")).await?;
    let waiting = call(&others, "k").wait(PATIENCE).begin();
    let waiter = tokio::spawn(waiting);
    sleep(Duration::from_millis(100)).await;
    ensure!(!waiter.is_finished(), "who waits came to an end while the call is in progress");
    recorded(claim, "the answer").await?;
    match waiter.await {
        Ok(Ok(Begin::Replay(replay))) => says(&replay, "the answer"),
        Ok(begin) => Stop::failed(format!("who waits must replay the answer, and this came: {begin:?}")),
        Err(error) => Stop::failed(format!("who waits ended badly: {error}")),
    }
}

pub(super) async fn who_waits_claims_what_is_given_up(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    let claim = claimed(call(&once, "k")).await?;
    let waiter = tokio::spawn(call(&others, "k").wait(PATIENCE).begin());
    sleep(Duration::from_millis(100)).await;
    ensure!(!waiter.is_finished(), "who waits came to an end while the call is in progress");
    ensure_matches!(claim.abandon().await?, Release::Released, "the claim was held when it was given up");
    match waiter.await {
        Ok(Ok(Begin::Claimed(claim))) => recorded(claim, "the answer").await,
        Ok(begin) => Stop::failed(format!("who waits must get the claim, and this came: {begin:?}")),
        Err(error) => Stop::failed(format!("who waits ended badly: {error}")),
    }
}

pub(super) async fn an_answer_lives_for_its_ttl(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    subject
        .rounds(async |key, ttl| {
            let (stored, call_of) = (stored(key)?, |once: &Idempotency| call(once, key).record_ttl(ttl.as_duration()));
            let claim = claimed(call_of(&once)).await?;
            let (written, ()) = measured(recorded(claim, "the answer")).await?;
            let end = subject.tolerance.earliest_end(written, ttl);
            let begin = call_of(&others).begin().await;
            if Instant::now() < end {
                ensure_matches!(
                    begin,
                    Ok(Begin::Replay(_)),
                    "the answer must be replayed while its ttl has not passed"
                );
            } else {
                return Ok(Round::Undecided);
            }
            let round = subject.is_there_until(written.called, &stored, end).await?;
            subject.is_gone_after(written, &stored, ttl).await?;
            recorded(claimed(call_of(&others)).await?, "the next answer").await?;
            Ok(round)
        })
        .await
}

pub(super) async fn an_answer_outlives_its_claim(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let ending = ending(&subject.store, ttl).build();
            let Some((asked, claim)) = claimed_in_time(call(&ending, key)).await? else { return Ok(Round::Undecided) };
            if claim.complete("the answer").await? == Completion::Lost {
                return Ok(Round::Undecided);
            }
            subject.tolerance.well_past_the_end(asked, ttl).await;
            answered(call(&others, key), "the answer").await?;
            Ok(Round::Decided)
        })
        .await
}

/// One that fits is replayed; one that does not is not, and the call is not run again either.
pub(super) async fn an_answer_of_any_length_is_the_only_one(subject: &Subject) -> Verdict {
    longest_length(subject)?;
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    let around = {
        recorded(claimed(call(&once, "short")).await?, "").await?;
        let Some(stored) = subject.store.get(&stored("short")?).await? else {
            return Stop::failed("a call was answered, and has no record");
        };
        stored.value.len() - "\"\"".len()
    };
    let longest = longest_length(subject)?;
    let Some(longest) = longest.checked_sub(around) else {
        return Err(Stop::Ignored(format!("values of {longest} bytes are too short for any record")));
    };
    for (key, length, is_kept) in [("longest", longest, true), ("too long", longest + 1, false)] {
        let key = key.replace(' ', "-");
        let answer = vec![b'x'; length];
        let claim = claimed(call(&once, &key)).await?;
        ensure_matches!(claim.complete_with(answer.clone()).await?, Completion::Recorded, "the claim was held");
        if is_kept {
            let replay = replayed(call(&others, &key)).await?;
            ensure!(*replay.as_bytes() == answer, "the longest answer came back as another");
        } else {
            refused(call(&others, &key), Code::NotReplayable).await?;
        }
    }
    Ok(())
}

pub(super) async fn leaves_only_its_record_behind(subject: &Subject) -> Verdict {
    let (store, once) = (&subject.store, service(&subject.store));
    for key in ["given-up", "freed", "purged", "answered"] {
        let claim = claimed(call(&once, key)).await?;
        let (scope, nonce) = (Scope::call(key), claim.nonce());
        ensure!(store.get(&stored(key)?).await?.is_some(), "a call in progress must be in the store");
        match key {
            "given-up" => ensure_matches!(claim.abandon().await?, Release::Released, "it was held"),
            "freed" => {
                drop(claim);
                ensure_matches!(once.free(&scope, nonce).await?, Outcome::Applied, "it was in progress");
            }
            "purged" => {
                recorded(claim, "the answer").await?;
                ensure_matches!(once.purge(&scope).await?, Outcome::Applied, "it was answered");
            }
            _ => recorded(claim, "the answer").await?,
        }
        if key != "answered" {
            store.must_not_show(&stored(key)?, "the call is over and has no answer").await?;
        }
    }
    once.close().await;
    if store.has_cache() {
        let (left, wanted) = (store.scan_all("").await?, [stored("answered")?]);
        ensure!(left == wanted, "a call leaves its record {wanted:?} behind, and these left {left:?}");
    }
    Ok(())
}

pub(super) async fn a_begin_that_is_dropped_is_given_back(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    for polls in 1..=10_u32 {
        let (once, key) = (service(&subject.store), format!("k-{polls}"));
        let mut left = polls;
        {
            let mut begin = std::pin::pin!(call(&once, &key).begin());
            let claim = std::future::poll_fn(|cx| {
                left -= 1;
                match begin.as_mut().poll(cx) {
                    std::task::Poll::Pending if left > 0 => std::task::Poll::Pending,
                    std::task::Poll::Ready(Ok(Begin::Claimed(claim))) => std::task::Poll::Ready(Some(claim)),
                    // Dropped midway.
                    _ => std::task::Poll::Ready(None),
                }
            })
            .await;
            drop(claim.map(Claim::free_when_dropped));
        }
        // A request may still be on its way and granted late, so that this waits for its reclaim; not for its ttl.
        let claim = claimed_soon(|| call(&others, &key)).await?;
        recorded(claim, "the answer").await?;
        if left > 0 {
            break;
        }
    }
    Ok(())
}

pub(super) async fn claims_have_rising_tokens(subject: &Subject) -> Verdict {
    let services = [service(&subject.store), service(&subject.another_handle().await?)];
    let (scope, mut last) = (Scope::call("k"), None);
    for (turn, once) in services.iter().cycle().take(9).enumerate() {
        let claim = claimed(call(once, "k")).await?;
        let (token, nonce) = (claim.fencing_token(), claim.nonce());
        ensure!(token.is_some() && token > last, "tokens must rise, and {token:?} came after {last:?}");
        last = token;
        match turn % 3 {
            0 => ensure_matches!(claim.abandon().await?, Release::Released, "the claim was held"),
            1 => {
                drop(claim);
                ensure_matches!(once.free(&scope, nonce).await?, Outcome::Applied, "it was in progress");
            }
            _ => {
                recorded(claim, "the answer").await?;
                ensure_matches!(once.purge(&scope).await?, Outcome::Applied, "it was answered");
            }
        }
    }
    Ok(())
}

const OPERATION: &str = "charge";
const PAYLOAD: &str = "42.00 EUR";

/// How long an answer may take to come to who waits for it, where nothing but the store can hold it up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the claims live that are not to end.
fn in_progress() -> Ttl {
    millis(10 * 60 * 1000)
}

/// Answers and claims that outlive every check, unless another ttl is chosen.
fn builder(store: &Handle) -> IdempotencyBuilder {
    Idempotency::builder(store.atomic()).record_ttl(long().as_duration()).in_progress_ttl(in_progress().as_duration())
}

fn service(store: &Handle) -> Idempotency {
    builder(store).build()
}

/// Claims that end by themselves.
fn ending(store: &Handle, ttl: Ttl) -> IdempotencyBuilder {
    builder(store).in_progress_ttl(ttl.as_duration()).renewal(Renewal::Off)
}

fn call(once: &Idempotency, key: impl AsRef<str>) -> Call {
    once.call(OPERATION, key.as_ref(), PAYLOAD)
}

fn stored(key: impl AsRef<str>) -> Verdict<Key> {
    Ok(Scope::call(key.as_ref()).stored_key()?)
}

/// One try, which must claim the call.
async fn claimed(call: Call) -> Verdict<Claim> {
    match call.begin().await? {
        Begin::Claimed(claim) => Ok(claim),
        Begin::Replay(replay) => Stop::failed(format!("a call that nobody has made must be claimed, not {replay:?}")),
    }
}

/// One try, which must claim the call, or nothing when the claim came when it was over.
async fn claimed_in_time(call: Call) -> Verdict<Option<(Span, Claim)>> {
    let called = Instant::now();
    match call.begin().await {
        Ok(Begin::Claimed(claim)) => Ok(Some((Span { called, returned: Instant::now() }, claim))),
        Ok(Begin::Replay(replay)) => {
            Stop::failed(format!("a call that nobody has made must be claimed, not {replay:?}"))
        }
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a claim that will be to be had soon. Short waits one after the other, as a hint may be lost.
async fn claimed_soon(call: impl Fn() -> Call) -> Verdict<Claim> {
    let began = Instant::now();
    loop {
        match call().wait(Duration::from_millis(500)).begin().await {
            Ok(Begin::Claimed(claim)) => return Ok(claim),
            Ok(Begin::Replay(replay)) => {
                return Stop::failed(format!("nobody has made the call, and it is {replay:?}"));
            }
            Err(error) if error.code() == Some(Code::CallInProgress) && began.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn replayed(call: Call) -> Verdict<Replay> {
    match call.begin().await? {
        Begin::Replay(replay) => Ok(replay),
        Begin::Claimed(_) => Stop::failed("a call that was answered must be replayed, and was claimed once more"),
    }
}

async fn answered(call: Call, answer: &str) -> Verdict {
    says(&replayed(call).await?, answer)
}

fn says(replay: &Replay, answer: &str) -> Verdict {
    let value: String = replay.value()?;
    ensure!(value == answer, "the call must be answered with {answer:?}, and is with {value:?}");
    Ok(())
}

async fn recorded(claim: Claim, answer: &str) -> Verdict {
    let completion = claim.complete(answer).await?;
    ensure_matches!(completion, Completion::Recorded, "a claim that is held must be completed");
    Ok(())
}

async fn refused(call: Call, code: Code) -> Verdict {
    ensure_refused(call.begin().await, code)
}

fn ensure_refused(begin: Result<Begin, leasehold_core::Error>, code: Code) -> Verdict {
    match begin {
        Ok(begin) => Stop::failed(format!("the call must be refused with {code:?}, and this came: {begin:?}")),
        Err(error) => {
            ensure!(error.code() == Some(code), "the call must be refused with {code:?}, and this came: {error:#}");
            Ok(())
        }
    }
}

/// Asks until what was claimed may have ended: answers that come before that must be this refusal. The last quarter
/// decides.
async fn refused_until(
    subject: &Subject,
    claimed: Span,
    ttl: Ttl,
    code: Code,
    call: impl Fn() -> Call,
) -> Verdict<Round> {
    const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
    let end = subject.tolerance.earliest_end(claimed, ttl);
    let last_quarter = end - end.saturating_duration_since(claimed.called) / 4;
    let mut round = Round::Undecided;
    loop {
        let asked = Instant::now();
        let begin = call().begin().await;
        let answered = Instant::now();
        if answered >= end {
            if let Ok(Begin::Claimed(claim)) = begin {
                let _ = claim.abandon().await?;
            }
            return Ok(round);
        }
        ensure_refused(begin, code)?;
        if asked >= last_quarter {
            round = Round::Decided;
        }
        // Ever closer to the end, so that an end that comes only a little too early is seen.
        tokio::time::sleep_until(answered + ((end - answered) / 2).max(SHORTEST_PAUSE)).await;
    }
}
