//! Workers that are processes and fight over a lease in Postgres, on a private server.
#![cfg(target_os = "linux")]

use std::process::{Command, Output};

use leasehold_testkit::PostgresServer;
use serde_json::Value;

/// A contest of four on a server of its own: what it reports, and how it ended.
async fn contest(arguments: &'static [&'static str]) -> (Value, Output) {
    let server = PostgresServer::start().await;
    let url = server.url("postgres");
    let contest = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["contest", "--json", "--store", &url, "--workers", "4"]).args(arguments);
        command.output().expect("the command was built for this test")
    });
    let output = contest.await.expect("it does not panic");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (report, output)
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} is a count in {report}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stale_write_gets_through_though_holders_are_stopped_and_killed() {
    // Somebody is in nearly always, so that the faults find one.
    let (report, output) = contest(&[
        "--scenario",
        "mutex",
        "--seconds",
        "4",
        "--ttl",
        "300ms",
        "--hold",
        "200ms",
        "--pause",
        "--kill",
        "--seed",
        "7",
    ])
    .await;
    assert_eq!(report["workers_are"], "processes");
    assert_eq!((count(&report, "stale_writes_accepted"), count(&report, "fresh_writes_rejected")), (0, 0), "{report}");
    assert!(count(&report, "pauses") > 0 && count(&report, "kills") > 0, "{report}");
    assert!(count(&report, "leases_lost") + count(&report, "stale_writes_rejected") > 0, "no holder was hit: {report}");
    assert!(output.status.success(), "an overlap while somebody is stopped is no failure: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_overlap_while_nobody_is_stopped() {
    let (report, output) = contest(&["--scenario", "mutex", "--seconds", "2", "--kill"]).await;
    assert_eq!((count(&report, "overlaps"), count(&report, "stale_writes_accepted")), (0, 0), "{report}");
    assert!(count(&report["acquisitions_by_worker"], "fewest") > 0 && count(&report, "kills") > 0, "{report}");
    assert!(output.status.success(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_tell_those_whose_lease_has_run_out() {
    let (report, output) = contest(&["--scenario", "expiry", "--seconds", "2"]).await;
    assert!(count(&report, "overlaps") > 0 && count(&report, "stale_writes_rejected") > 0, "{report}");
    assert_eq!((count(&report, "stale_writes_accepted"), count(&report, "fresh_writes_rejected")), (0, 0), "{report}");
    assert!(output.status.success(), "{report}");
}
