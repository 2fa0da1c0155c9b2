//! The real command, as a newcomer runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn leasehold(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().expect("the command was built for this test")
}

fn contest(arguments: &[&str]) -> (Value, Output) {
    let output = leasehold(&[&["contest", "--json"], arguments].concat());
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("stdout is JSON and nothing else: {error}\n{output:?}"));
    (json, output)
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} is a count in {report}"))
}

/// A place for a picture, gone with it.
fn place() -> tempfile::TempDir {
    tempfile::tempdir().expect("a place for files")
}

fn check_fields(report: &Value, scenario: &str) {
    assert_eq!(report["scenario"], scenario);
    assert_eq!(report["store"], "memory://");
    assert_eq!((count(report, "workers"), count(report, "seconds")), (4, 1));
    for field in ["acquisitions", "overlaps", "stale_writes_rejected", "stale_writes_accepted", "leases_lost"] {
        count(report, field);
    }
    for measured in ["handover_ms", "acquire_ms"] {
        let [p50, p99] = ["p50", "p99"].map(|place| report[measured][place].as_f64().expect("it was measured"));
        assert!((0.0..=p99).contains(&p50), "{measured}: {p50} and {p99}");
    }
    assert_eq!(count(report, "fresh_writes_rejected"), 0);
}

#[test]
fn mutex_lets_one_in_at_a_time() {
    let (report, output) = contest(&["--scenario", "mutex", "--workers", "4", "--seconds", "1"]);
    check_fields(&report, "mutex");
    assert!(count(&report, "acquisitions") > 100, "{report}");
    assert_eq!((count(&report, "overlaps"), count(&report, "stale_writes_accepted")), (0, 0));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_hold_beyond_its_lease_overlaps_and_the_fence_refuses_its_write() {
    let (report, output) = contest(&["--scenario", "expiry", "--workers", "4", "--seconds", "1"]);
    check_fields(&report, "expiry");
    assert!(count(&report, "overlaps") > 0 && count(&report, "leases_lost") > 0, "{report}");
    assert!(count(&report, "stale_writes_rejected") > 0, "{report}");
    assert_eq!(count(&report, "stale_writes_accepted"), 0);
    assert_eq!(output.status.code(), Some(0), "it is what the scenario is to show");
}

#[test]
fn a_lease_that_renews_itself_outlasts_its_ttl() {
    let arguments = ["--scenario", "renew", "--workers", "4", "--seconds", "1", "--ttl", "300ms", "--hold", "400ms"];
    let (report, output) = contest(&arguments);
    check_fields(&report, "renew");
    assert!(count(&report, "acquisitions") >= 2, "{report}");
    assert_eq!((count(&report, "overlaps"), count(&report, "stale_writes_accepted")), (0, 0));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn without_a_scenario_all_three_run_and_share_a_picture() {
    let place = place();
    let file = place.path().join("all.svg");
    let file = file.to_str().expect("a path in UTF-8");
    let (reports, output) = contest(&["--workers", "4", "--seconds", "1", "--timeline", file]);
    let scenarios: Vec<_> = reports.as_array().expect("an array").iter().map(|report| &report["scenario"]).collect();
    assert_eq!(scenarios, ["mutex", "expiry", "renew"]);
    assert_eq!(output.status.code(), Some(0));

    let text = text_of(Path::new(file));
    for name in ["mutex:", "expiry:", "renew:", "refused", "two are in at once"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    for worker in 1..=4 {
        assert_eq!(text.matches(&format!("worker {worker}")).count(), 3, "each section has a row for each worker");
    }
}

/// All text of a picture, which must be well-formed and need nothing from elsewhere.
fn text_of(file: &Path) -> String {
    let svg = std::fs::read_to_string(file).expect("the picture was written");
    assert!(svg.len() < 1_000_000, "{} bytes", svg.len());
    let svg = roxmltree::Document::parse(&svg).expect("well-formed XML");
    assert!(svg.descendants().all(|node| !node.has_tag_name("image") && node.attribute("href").is_none()));
    svg.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect()
}

#[test]
fn a_picture_of_many_stays_says_what_it_leaves_out() {
    let place = place();
    let file = place.path().join("mutex.svg");
    let arguments = ["--scenario", "mutex", "--seconds", "1", "--timeline", file.to_str().expect("a path in UTF-8")];
    let (report, _) = contest(&arguments);
    assert!(count(&report, "acquisitions") > 300, "{report}");
    let text = text_of(&file);
    assert!(text.contains("Shown: 300 of") && text.contains("merged"), "{text}");
}

#[test]
fn people_get_a_table_and_a_sentence() {
    let output = leasehold(&["contest", "--scenario", "mutex", "--seconds", "1"]);
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(stdout.contains("acquisitions") && stdout.contains("never were two in at once."), "{stdout}");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(stderr.lines().count(), 2, "a line at the start and one at the end: {stderr}");
    assert!(!stderr.contains('\r') && !stderr.contains('\x1b'), "{stderr:?}");
}

#[test]
fn what_cannot_be_is_refused_and_named() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--scenario", "chess"], &["chess", "mutex", "expiry", "renew"]),
        (&["--workers", "0"], &["'0'", "--workers"]),
        (&["--workers", "-3"], &["-3", "--workers"]),
        (&["--seconds", "0"], &["'0'", "--seconds"]),
        (&["--ttl", "0s"], &["'0s'", "--ttl", "1ms"]),
        (&["--ttl", "-5s"], &["'-5s'", "--ttl", "negative"]),
        (&["--ttl", "9000h"], &["'9000h'", "366 days"]),
        (&["--ttl", "99999999999999999999h"], &["'99999999999999999999h'", "--ttl"]),
        (&["--hold", "5"], &["'5'", "--hold", "200ms"]),
        (&["--hold", "-1ms"], &["'-1ms'", "--hold", "negative"]),
        (&["--store", "etcd://localhost"], &["etcd://", "memory://"]),
        (&["--timeline", "/nowhere/at/all.svg"], &["/nowhere/at/all.svg"]),
    ];
    for (arguments, named) in cases {
        let output = leasehold(&[&["contest"], *arguments].concat());
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
        for name in *named {
            assert!(stderr.contains(name), "{arguments:?} should name {name}: {stderr}");
        }
    }
}

#[test]
fn what_the_library_refuses_is_one_line() {
    // The margin for the drift of two clocks leaves nothing of it.
    let output = leasehold(&["contest", "--scenario", "mutex", "--ttl", "2ms"]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let error = stderr.lines().last().expect("an error");
    assert!(error.starts_with("error: ") && error.contains("drift margin"), "{stderr}");
}

#[test]
fn the_store_is_not_taken_from_the_environment() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env("LEASEHOLD_STORE", "etcd://production");
    let output =
        command.args(["contest", "--scenario", "mutex", "--seconds", "1", "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_password_is_never_shown() {
    let output = leasehold(&["contest", "--store", "etcd://admin:hunter2@db/0?password=hunter2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
}
