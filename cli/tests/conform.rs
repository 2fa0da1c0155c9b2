//! The real command, as the author of a store runs it.

use std::path::Path;
use std::process::{Command, Output};

use leasehold::memory::MemoryStore;
use leasehold::{AtomicStore, Key, Ttl};
use leasehold_conformance::Recorder;
use leasehold_conformance::history::Tolerance;
use leasehold_testkit::RedisServer;
use serde_json::Value;

fn conform(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("conform").args(arguments).output().expect("the command was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes text")
}

#[test]
fn the_memory_store_passes_and_the_last_line_counts() {
    let output = conform(&["memory://", "--filter", "try_"]);
    let told = text(&output.stdout);
    assert!(told.lines().last().is_some_and(|line| line.ends_with(" passed, 0 failed, 0 ignored")), "{told}");
    assert!(told.contains("try_add::exactly_one_of_many_wins"), "{told}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_is_all_that_is_on_stdout() {
    let output = conform(&["memory://named?namespace=app", "--filter", "get::", "--seed", "7", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!((&report["passed"], &report["failed"], &report["seed"]), (&4.into(), &0.into(), &7.into()));
    assert_eq!(report["checks"][0]["status"], "passed");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_store_that_processes_share_is_looked_at_by_another_one() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start());
    let url = format!("{}?namespace=app", server.url());
    let output = conform(&[&url, "--filter", "shared::", "--require", "shared"]);
    assert!(text(&output.stdout).ends_with("1 passed, 0 failed, 0 ignored\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_capability_that_is_required_and_missing_fails() {
    let output = conform(&["memory://", "--filter", "durable::", "--require", "all"]);
    assert!(text(&output.stdout).contains("`durable` is required"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn nothing_that_was_checked_is_no_success() {
    let output = conform(&["memory://", "--filter", "durable::"]);
    assert!(text(&output.stdout).ends_with("0 passed, 0 failed, 1 ignored\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_command_line_that_cannot_be_is_told_apart_from_a_store_that_cannot() {
    for (arguments, status, told) in [
        (&["memory://", "--filter", "no such check"][..], 2, "no check has"),
        (&["memory://", "--require", "hint"], 2, "shared, durable, hints, revisions"),
        (&["nowhere://here"], 2, "no store for nowhere://"),
        (&[], 2, "<URL>"),
        (&["redis://:hunter2@127.0.0.1:1"], 3, "unavailable"),
    ] {
        let output = conform(arguments);
        let complaint = text(&output.stderr);
        assert!(complaint.contains(told) && !complaint.contains("hunter2"), "{arguments:?}: {complaint}");
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complaint}");
    }
}

#[test]
fn a_history_that_was_kept_is_judged_again() {
    let folder = tempfile::tempdir().expect("a place for files");
    let (good, bad) = (folder.path().join("good.json"), folder.path().join("bad.json"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = MemoryStore::new();
        two_adds(store.clone(), store, &good).await;
        // Two handles that do not share: both are told that they were the first.
        two_adds(MemoryStore::new(), MemoryStore::new(), &bad).await;
    });

    let output = conform(&["--replay", good.to_str().expect("a path of text")]);
    assert!(text(&output.stdout).contains("some order explains"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));

    let output = conform(&["--json", "--replay", bad.to_str().expect("a path of text")]);
    let judged: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(judged["verdict"], "violation");
    assert_eq!(output.status.code(), Some(1));

    std::fs::write(&good, "{}").expect("a file that was written before");
    assert_eq!(conform(&["--replay", good.to_str().expect("a path of text")]).status.code(), Some(2));
}

/// Records that two clients add one key, one after the other.
async fn two_adds(one: MemoryStore, other: MemoryStore, path: &Path) {
    let recorder = Recorder::new();
    let (key, ttl) = (Key::new("k").expect("a key"), Ttl::from_millis(60_000).expect("a ttl"));
    for (client, store) in [(0, one), (1, other)] {
        let added = recorder.client(client, store).try_add(&key, format!("{client}").into(), ttl).await;
        drop(added.expect("a store in memory answers"));
    }
    recorder.history(Tolerance::default()).save(path).expect("a place for files");
}
