//! A store that cannot be opened, hangs or panics is a store that fails, by the names of checks and in time: never a run
//! that hangs, and never a green one.

use std::future::pending;
use std::time::{Duration, Instant};

use leasehold_conformance::{Capability, Fault, Faulty, Operation, Plan, Report, Selection, Status, Suite};
use leasehold_core::Capabilities;
use leasehold_memory::MemoryStore;

#[path = "overclaiming/store.rs"]
mod store;

use store::Overclaiming;

/// For stores that hang. Those that do not are given the usual one, as a machine with much to do takes longer for them.
const DEADLINE: Duration = Duration::from_millis(300);

fn run(suite: Suite, filter: &str) -> Report {
    let began = Instant::now();
    let report = suite.report(&Selection::default().with_filter(filter));
    // Far longer than one deadline, and far shorter than one for each check.
    assert!(began.elapsed() < Duration::from_secs(20), "the run took {:?}", began.elapsed());
    assert!(!report.is_success());
    report
}

fn reasons(report: &Report) -> Vec<&str> {
    report.checks.iter().filter_map(|check| check.reason.as_deref()).collect()
}

#[test]
fn a_store_that_cannot_be_opened_fails_every_check() {
    let report =
        run(Suite::new("unreachable", |_| async { Err::<MemoryStore, _>(std::io::Error::other("link down")) }), "");
    assert_eq!(report.count(Status::Failed), Suite::checks().count());
    assert!(reasons(&report).iter().all(|reason| reason.contains("could not be opened: link down")));
}

#[test]
fn a_store_that_never_opens_fails_every_check_and_is_waited_for_once() {
    let report = run(Suite::new("silent", |_| pending::<MemoryStore>()).deadline(DEADLINE), "");
    assert_eq!(report.count(Status::Failed), Suite::checks().count());
    assert!(reasons(&report).iter().all(|reason| reason.contains("did not open within 300ms")));
}

#[test]
fn a_store_whose_opening_blocks_its_thread_fails_too() {
    let report = run(
        Suite::new("blocking", |_| async {
            std::thread::park();
            MemoryStore::new()
        })
        .deadline(DEADLINE),
        "values::",
    );
    assert_eq!(report.count(Status::Failed), report.checks.len());
}

#[test]
fn a_store_that_hangs_fails_the_checks_that_it_hangs_in() {
    let open = |ns: String| async move {
        let store = Faulty::new(MemoryStore::named(&ns));
        store.follow(Plan::none().from(Operation::TryReplace, 1, Fault::Hang));
        store
    };
    let report = run(Suite::new("hanging", open).deadline(DEADLINE), "try_re");
    let failed: Vec<_> = report.names(Status::Failed).collect();
    assert!(failed.contains(&"try_replace::applies_to_the_expected_value"), "{failed:?}");
    assert!(reasons(&report).iter().any(|reason| reason.contains("hangs")));
    assert!(report.names(Status::Passed).any(|check| check == "try_remove::removes_the_expected_value"));
}

#[test]
fn a_store_that_panics_fails_by_what_it_said() {
    let open = |_| async {
        assert!(Capabilities::minimal().shared, "this store is not made for tests");
        MemoryStore::new()
    };
    let report = run(Suite::new("panicking", open), "values::");
    assert_eq!(report.count(Status::Failed), report.checks.len());
    let reasons = reasons(&report);
    assert!(reasons.iter().all(|reason| reason.contains("panicked: this store is not made for tests")), "{reasons:?}");
}

#[test]
fn a_capability_that_is_required_and_missing_is_a_failure() {
    let suite = Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }).require([Capability::Shared]);
    let report = run(suite, "shared::");
    assert!(reasons(&report)[0].contains("`shared` is required"), "{report}");
}

#[test]
fn a_capability_that_is_required_and_cannot_be_asked_for_is_a_failure() {
    for (required, check) in [(Capability::Shared, "shared::"), (Capability::Durable, "durable::")] {
        let suite = Suite::atomic("memory", |ns| async move { Overclaiming(MemoryStore::named(&ns)) });
        let report = run(suite.require([required]), check);
        assert!(reasons(&report)[0].contains("no other process can be started"), "{report}");
    }
}

#[test]
fn a_known_failure_that_passes_is_an_error_and_so_is_one_of_no_check() {
    let suite = Suite::new("memory", |ns| async move { MemoryStore::named(&ns) })
        .known_failure("values::case_counts", "some day")
        .known_failure("values::no_such_check", "some day");
    let report = run(suite, "values::case");
    let failed: Vec<_> = report.names(Status::Failed).collect();
    assert_eq!(failed, ["values::case_counts", "values::no_such_check"]);
}

#[test]
fn a_known_failure_that_fails_is_ignored() {
    let open = |ns: String| async move {
        let store = Faulty::new(MemoryStore::named(&ns));
        store.follow(Plan::none().from(Operation::Get, 1, Fault::Refuse));
        store
    };
    let suite = Suite::new("refusing", open).known_failure("values::case_counts", "issue 7");
    let report = run(suite, "values::case_counts");
    assert_eq!(report.count(Status::Ignored), 1);
    assert!(reasons(&report)[0].contains("known to fail: issue 7"), "{report}");
}

#[test]
fn all_that_is_left_out_stays_out() {
    let selection = Selection::default().without("expiry::").without("leases::");
    assert!(selection.includes("get::sees_the_last_write"));
    assert!(!selection.includes("expiry::not_late") && !selection.includes("leases::leave_nothing_behind"));
}

#[test]
fn a_run_that_selects_nothing_is_no_success() {
    let report = run(Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }), "no such check");
    assert!(report.checks.is_empty());
}
