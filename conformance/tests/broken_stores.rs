//! The suite is tested too: a store that is broken is caught by exactly the checks that are about its mistake, and each
//! check catches a store that is broken.

mod broken;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use broken::{Broken, Mistake, SINGLE_FAULTS, table};
use leasehold_conformance::{Selection, Status, Suite};

/// What needs a process that can be started once more is tested in `overclaiming.rs`, on a store that claims too much.
const TESTED_ELSEWHERE: [&str; 2] =
    ["shared::another_process_has_the_same_data", "durable::an_answered_write_outlives_its_process"];

/// The checks that have a table of their own.
const EVERY_SINGLE_FAULT: &str = "every_single_fault";

#[test]
fn every_broken_store_is_caught_by_exactly_its_checks() {
    let rows = Mutex::new(table());
    let wrong = Mutex::new(String::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((mistake, checks)) = rows.lock().unwrap().next() else { return };
                    let (wanted, found) = (
                        checks.split_whitespace().collect(),
                        caught(mistake, &Selection::default().without(EVERY_SINGLE_FAULT)),
                    );
                    let found: BTreeSet<_> = found.iter().map(String::as_str).collect();
                    if found != wanted {
                        let missed: Vec<_> = wanted.difference(&found).collect();
                        let unexpected: Vec<_> = found.difference(&wanted).collect();
                        let line = format!("{mistake:?}: not caught by {missed:?}, but by {unexpected:?}\n");
                        wrong.lock().unwrap().push_str(&line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn no_single_fault_hides_these_mistakes() {
    for &(mistake, checks) in SINGLE_FAULTS {
        let found = caught(mistake, &Selection::default().with_filter(EVERY_SINGLE_FAULT));
        assert_eq!(found, checks.split_whitespace().collect::<Vec<_>>(), "{mistake:?}");
    }
}

#[test]
fn every_check_catches_a_broken_store() {
    let caught: BTreeSet<_> =
        table().chain(SINGLE_FAULTS.iter().copied()).flat_map(|(_, checks)| checks.split_whitespace()).collect();
    let catches_nothing = |check: &&str| !caught.contains(check) && !TESTED_ELSEWHERE.contains(check);
    let idle: Vec<_> = Suite::checks().filter(catches_nothing).collect();
    assert!(idle.is_empty(), "these checks catch no broken store: {idle:?}");
}

#[test]
#[ignore = "real time: scripts/soak"]
fn who_runs_the_suite_in_real_time_finds_them_too() {
    const AT_ONCE: usize = 8;
    let rows = Mutex::new(table().filter(|(_, checks)| !checks.is_empty()));
    let missed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((mistake, checks)) = rows.lock().unwrap().next() else { return };
                    let suite = || {
                        let open = move |ns| async move { Broken::open(mistake, ns) };
                        Suite::new(format!("{mistake:?}"), open).deadline(Duration::from_secs(60))
                    };
                    let fails = |check: &str| {
                        suite().report(&Selection::default().with_filter(check)).count(Status::Failed) > 0
                    };
                    // One is enough to be told; which ones, depends on who meets whom.
                    if !checks.split_whitespace().any(fails) {
                        missed.lock().unwrap().push(mistake);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "no check finds these in real time: {missed:?}");
}

/// The checks that fail on the store with this mistake.
fn caught(mistake: Mistake, selection: &Selection) -> Vec<String> {
    let report = Suite::new(format!("{mistake:?}"), move |ns| async move { Broken::open(mistake, ns) })
        .stepped_time()
        .seed(7)
        .rounds(5)
        .deadline(Duration::from_secs(30))
        .report(&selection.clone().with_at_once(1));
    report.names(Status::Failed).map(str::to_owned).collect()
}
