//! The judge of histories is judged: a store that works is never blamed, and one with a mistake is.

use std::time::Duration;

use leasehold_conformance::history::{
    Answer, Cause, Failure, Handles, History, Stamp, Summary, Tolerance, Verdict, Workload, judge, replay,
};
use leasehold_conformance::{Fault, Faulty, Operation, Plan, Recorder};
use leasehold_core::{AtomicStore, CacheStore, Key, Ttl};
use leasehold_memory::MemoryStore;

mod planted;

use planted::{Mistake, Planted};

const MILLISECOND: Duration = Duration::from_millis(1);

/// How many histories a store that works is judged by: 1,000, or what `CONFORMANCE_ROUNDS` says.
fn rounds() -> u32 {
    from_env("CONFORMANCE_ROUNDS").unwrap_or(1_000)
}

fn seed() -> u64 {
    from_env("CONFORMANCE_SEED").unwrap_or(42)
}

fn from_env<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, and {text:?} is none")))
}

/// Two handles, so that clients share a store and not a handle.
fn cache<S: CacheStore + Clone + 'static>(store: S) -> Handles {
    Handles::cache([store.clone(), store])
}

#[track_caller]
fn blameless(run: Result<Summary, Box<Failure>>) -> Summary {
    match run {
        Ok(summary) => {
            let each = summary.judging / summary.rounds;
            println!("{summary:?}, {each:?} to judge each");
            summary
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_is_never_blamed_on_stepped_time() {
    let workload = Workload::stepped(seed()).with_rounds(rounds());
    let summary = blameless(workload.run(&cache(MemoryStore::new()), Tolerance::EXACT).await);
    assert_eq!((summary.rounds, summary.operations), (rounds(), rounds() as usize * 48));
}

#[tokio::test(start_paused = true)]
async fn the_primitives_alone_are_never_blamed_on_stepped_time() {
    let workload = Workload::stepped(seed()).with_rounds(rounds() / 2);
    let store = MemoryStore::new();
    blameless(workload.run(&Handles::atomic([store.clone(), store]), Tolerance::EXACT).await);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_on_one_key_is_never_blamed() {
    let workload = Workload::stepped(seed()).with_clients(6).with_keys(1).with_rounds(rounds() / 4);
    blameless(workload.run(&cache(MemoryStore::new()), Tolerance::EXACT).await);
}

/// Loses answers, applies late, refuses, delays and hangs, as the seed decides.
fn trouble(seed: u64) -> Plan {
    Operation::ALL.into_iter().fold(Plan::none(), |plan, operation| {
        plan.seeded(operation, seed, 10, Fault::LoseAnswer)
            .seeded(operation, seed + 1, 10, Fault::ApplyLate(15 * MILLISECOND))
            .seeded(operation, seed + 2, 10, Fault::Refuse)
            .seeded(operation, seed + 3, 20, Fault::DelayRequest(10 * MILLISECOND))
            .seeded(operation, seed + 4, 20, Fault::DelayAnswer(10 * MILLISECOND))
            .seeded(operation, seed + 5, 3, Fault::Hang)
            .seeded(operation, seed + 6, 3, Fault::ApplyAndHang)
    })
}

#[tokio::test(start_paused = true)]
async fn a_link_that_fails_is_not_the_stores_fault() {
    let store = Faulty::new(MemoryStore::new());
    store.follow(trouble(seed()));
    let workload = Workload::stepped(seed()).with_rounds(rounds()).with_patience(100 * MILLISECOND).expecting_errors();
    let summary = blameless(workload.run(&cache(store), Tolerance::EXACT).await);
    assert!(summary.failed > summary.operations / 20, "the faults came: {summary:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_within_the_tolerance_is_no_fault() {
    let workload = Workload::stepped(seed()).with_rounds(rounds());
    let imprecise = || cache(Planted::new(Mistake::Imprecise));
    let tolerance = Tolerance { early: 5 * MILLISECOND, late: 50 * MILLISECOND };
    blameless(workload.run(&imprecise(), tolerance).await);
    let stricter = Tolerance { early: 4 * MILLISECOND, late: 50 * MILLISECOND };
    workload.run(&imprecise(), stricter).await.expect_err("5 ms early are more than 4");
    let stricter = Tolerance { early: 5 * MILLISECOND, late: 49 * MILLISECOND };
    workload.run(&imprecise(), stricter).await.expect_err("50 ms late are more than 49");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_is_never_blamed_in_real_time_on_many_threads() {
    let workload = Workload::new(seed()).with_rounds(rounds() / 5).with_tempo(5 * MILLISECOND).with_rounds_at_once(10);
    blameless(workload.run(&cache(MemoryStore::new()), Tolerance::EXACT).await);
    let workload = workload.with_journeys(Some(2 * MILLISECOND));
    blameless(workload.run(&cache(MemoryStore::new()), Tolerance::EXACT).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_link_that_fails_is_not_the_stores_fault_in_real_time_either() {
    let store = Faulty::new(MemoryStore::new());
    store.follow(trouble(seed()));
    let workload = Workload::new(seed())
        .with_rounds(rounds() / 10)
        .with_tempo(5 * MILLISECOND)
        .with_patience(50 * MILLISECOND)
        .expecting_errors();
    let summary = blameless(workload.run(&cache(store), Tolerance::EXACT).await);
    assert!(summary.failed > 0);
}

/// Of so many histories, how many show the mistake, in percent.
async fn found_percent(mistake: Mistake, histories: u32) -> u32 {
    let (workload, handles) = (Workload::stepped(seed()), cache(Planted::new(mistake)));
    let mut found = 0;
    for round in 0..histories {
        match judge(&workload.record(round, &handles, Tolerance::EXACT).await).verdict {
            Verdict::Ok => {}
            Verdict::Violation(_) => found += 1,
            Verdict::Undecided(undecided) => panic!("{undecided}"),
        }
    }
    found * 100 / histories
}

#[tokio::test(start_paused = true)]
async fn planted_mistakes_are_found_within_the_default_rounds() {
    for mistake in [
        Mistake::ExpiresEarly(6 * MILLISECOND),
        Mistake::ExpiresLate(6 * MILLISECOND),
        Mistake::AddsBlindly,
        Mistake::ReplacesBlindly,
        Mistake::RemovesAny,
        Mistake::ExpiresNothing,
        Mistake::Revives,
        Mistake::ReadsStale(5 * MILLISECOND),
        Mistake::KeepsOldEnd,
        Mistake::NeverSlides,
        Mistake::SlidesPastTheEnd,
        Mistake::RevisionsBeginAnew,
        Mistake::MixesUpBatches,
        Mistake::DoublesTimeLeft,
    ] {
        let mut runs = 0;
        for seed in 0..10 {
            match Workload::stepped(seed).run(&cache(Planted::new(mistake)), Tolerance::EXACT).await {
                Ok(_) => {}
                Err(failure) if matches!(failure.cause, Cause::Violation(_)) => runs += 1,
                Err(failure) => panic!("{failure}"),
            }
        }
        let histories = found_percent(mistake, 300).await;
        println!("{mistake:?}: in {histories}% of histories, in {runs} of 10 runs");
        // So rare a finding would be a workload that no longer provokes it; one run in 83 misses what is in 20%.
        assert!(histories >= 12 && runs >= 9, "{mistake:?}: in {histories}% of histories, in {runs} of 10 runs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn planted_mistakes_are_found_in_real_time_and_with_the_default_tolerance() {
    for mistake in [
        Mistake::ExpiresEarly(30 * MILLISECOND),
        Mistake::ExpiresLate(600 * MILLISECOND),
        Mistake::AddsBlindly,
        Mistake::ReplacesBlindly,
        Mistake::RemovesAny,
        Mistake::RevisionsBeginAnew,
    ] {
        // How the clients meet is up to the scheduler, so a run that missed it is no failure, but ten are.
        let mut found = None;
        for seed in seed()..seed() + 10 {
            let run = Workload::new(seed).run(&cache(Planted::new(mistake)), Tolerance::default()).await;
            found = run.err();
            if found.is_some() {
                break;
            }
        }
        let failure = found.unwrap_or_else(|| panic!("{mistake:?} passed ten times"));
        assert!(matches!(failure.cause, Cause::Violation(_)), "{failure}");
        println!("{mistake:?}: {failure}\n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_seed_tells_the_same_story_again() {
    let story = async |seed, round| {
        // Revisions follow the wall clock.
        let store = Planted::new(Mistake::NoRevisions);
        Workload::stepped(seed).record(round, &cache(store), Tolerance::EXACT).await
    };
    for round in 0..4 {
        assert_eq!(story(1, round).await, story(1, round).await);
        assert_ne!(story(1, round).await.exchanges, story(2, round).await.exchanges);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_no_pass() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang] {
        let store = Faulty::new(MemoryStore::new());
        store.follow(Plan::none().nth(Operation::Get, 30, fault));
        let run = Workload::stepped(seed()).run(&cache(store), Tolerance::EXACT).await;
        let failure = run.expect_err("one failed operation");
        assert!(matches!(failure.cause, Cause::Failed { operations: 1, .. }), "{failure}");
        assert!(failure.to_string().contains("get -> "), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_violation_is_judged_again_from_its_file() {
    let store = Planted::new(Mistake::DoublesTimeLeft);
    let failure = Workload::stepped(seed()).run(&cache(store), Tolerance::EXACT).await.expect_err("a violation");
    let Cause::Violation(violation) = &failure.cause else { panic!("{failure}") };
    let text = failure.to_string();
    for part in [violation.key.as_str(), "client", " ms left", &format!("(seed {}, round ", seed())] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.json");
    failure.history.save(&file).unwrap();
    let again = replay(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(again.verdict, Verdict::Violation(violation.clone()));
    // The prefix alone shows it too.
    let prefix = replay(&violation.prefix.to_json()).unwrap();
    assert!(matches!(prefix.verdict, Verdict::Violation(_)));
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_midway_stays_in_the_record() {
    let store = Faulty::new(MemoryStore::new());
    store.follow(Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyAndHang));
    let recorder = Recorder::new();
    let (key, ttl) = (Key::new("k").unwrap(), Ttl::from_millis(100).unwrap());
    let client = recorder.client(0, store.clone());
    tokio::time::timeout(MILLISECOND, client.try_add(&key, "a".into(), ttl)).await.expect_err("no answer");
    assert_eq!(recorder.client(1, store).get(&key).await.unwrap().unwrap().value, "a");

    let history = recorder.history(Tolerance::EXACT);
    let [dropped, get] = &history.exchanges[..] else { panic!("{history:?}") };
    assert_eq!((dropped.client, dropped.returned, &dropped.answer), (0, None, &Answer::Missing));
    assert_eq!((get.client, get.called.nanos), (1, 1_000_000));
    assert!(get.called.order < get.returned.unwrap().order);
    assert_eq!(judge(&history).verdict, Verdict::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_file_whose_moments_cannot_be_is_unreadable() {
    let store = Planted::new(Mistake::DoublesTimeLeft);
    let failure = Workload::stepped(seed()).run(&cache(store), Tolerance::EXACT).await.expect_err("a violation");
    let orders = |history: &History, place: usize| {
        let exchange = &history.exchanges[place];
        (exchange.called.order, exchange.returned.expect("an answer").order)
    };
    let mut backwards = failure.history.clone();
    let (called, returned) = orders(&backwards, 5);
    let swapped = &mut backwards.exchanges[5];
    swapped.called.order = returned;
    swapped.returned = swapped.returned.map(|stamp| Stamp { order: called, ..stamp });
    let mut twice = failure.history.clone();
    twice.exchanges[5].called.order = orders(&twice, 4).0;
    for history in [backwards, twice] {
        let error = replay(&history.to_json()).expect_err("no history");
        assert!(error.to_string().contains("order"), "{error}");
    }
}
