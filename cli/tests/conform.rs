//! `leasehold conform`, as it is called.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn conform(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("conform").args(arguments).output().expect("the command was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_store_that_keeps_the_contract_passes_and_the_counts_come_last() {
    let output = conform(&["memory://", "--filter", "try_", "--seed", "7"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("seed 7\n") && text.contains("try_add::exactly_one_of_many_wins"), "{text}");
    let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
    let counts: Vec<_> = last.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok()).collect();
    assert!(matches!(counts[..], [passed, 0, _] if passed > 20), "{last}");
}

#[test]
fn the_report_is_read_by_machines() {
    let output = conform(&["memory://", "--filter", "keys::", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let checks = report["checks"].as_array().expect("a list of checks");
    assert!(checks.len() > 5 && checks.iter().all(|check| check["status"] == "passed"), "{report}");
}

#[test]
fn a_capability_that_is_required_and_missing_is_a_failure() {
    let output = conform(&["memory://", "--filter", "shared::", "--require", "all"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("FAILED  shared::"), "{}", stdout(&output));
}

#[test]
fn a_store_that_cannot_be_reached_fails_by_name_and_in_time() {
    let started = Instant::now();
    let output = conform(&["redis://user:hunter2@127.0.0.1:1", "--filter", "try_add::"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("FAILED  try_add::") && stdout(&output).contains(" 0 passed"),
        "{}",
        stdout(&output)
    );
    assert!(!format!("{output:?}").contains("hunter2"));
    assert!(started.elapsed() < Duration::from_secs(120));
}

#[test]
fn what_cannot_be_judged_is_a_clear_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.json");
    std::fs::write(&file, "{\"version\": 99}").expect("it can be written");
    for arguments in [vec!["--replay", file.to_str().expect("it is text")], vec!["--replay", "nowhere.json"], vec![]] {
        let output = conform(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = conform(&["memory://", "--require", "speed"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("speed"), "{output:?}");
}
