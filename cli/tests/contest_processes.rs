//! Workers that are processes. On the memory store each holds a lease of its own, so that a referee who hears them all
//! has to see them in at once; what the processes themselves do is the same as on a store that they share.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One run of the command, whose processes are told from all others.
struct Contest {
    mark: String,
    command: Command,
}

impl Contest {
    fn new(arguments: &[&str]) -> Self {
        let mark = format!("CONTEST_OF_A_TEST={}-{:?}", std::process::id(), std::thread::current().id());
        let (name, value) = mark.split_once('=').expect("it has one");
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.env(name, value).args(["contest", "--json", "--unshared-processes"]).args(arguments);
        Self { mark, command }
    }

    fn run(mut self) -> (Value, Output) {
        let output = self.command.output().expect("the command was built for this test");
        self.wait_until("no worker is left", |workers| workers.is_empty());
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (json, output)
    }

    fn start(&mut self) -> Child {
        self.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command was built for this test")
    }

    /// The directories of its workers in `/proc`.
    fn workers(&self) -> Vec<PathBuf> {
        let processes = fs::read_dir("/proc").expect("there is one").flatten().map(|entry| entry.path());
        let is_worker = |process: &PathBuf| {
            let reads = |file: &str, wanted: &str| {
                fs::read(process.join(file))
                    .is_ok_and(|text| text.split(|&byte| byte == 0).any(|part| part == wanted.as_bytes()))
            };
            reads("cmdline", "contest-worker") && reads("environ", &self.mark)
        };
        processes.filter(is_worker).collect()
    }

    fn wait_until(&self, what: &str, mut is_so: impl FnMut(&[PathBuf]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let workers = self.workers();
            if is_so(&workers) {
                return;
            }
            assert!(Instant::now() < deadline, "not within 20 s: {what}; there are {workers:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} is a count in {report}"))
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a number");
    kill_process(pid, signal).expect("it runs");
}

fn is_stopped(process: &Path) -> bool {
    fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains("State:\tT"))
}

#[test]
fn the_referee_hears_all_processes_and_counts_their_overlaps() {
    let (report, output) =
        Contest::new(&["--scenario", "mutex", "--workers", "3", "--seconds", "1", "--hold", "5ms"]).run();
    assert_eq!(report["workers_are"], "processes");
    assert!(count(&report["acquisitions_by_worker"], "fewest") > 0, "{report}");
    assert!(count(&report, "overlaps") > 0 && count(&report, "stale_writes_rejected") > 0, "{report}");
    assert_eq!(count(&report, "stale_writes_accepted"), 0);
    assert_eq!(output.status.code(), Some(1), "two in at once is a failure");
}

#[test]
fn a_paused_worker_loses_its_lease_and_a_killed_one_is_replaced() {
    let arguments = ["--scenario", "renew", "--workers", "1", "--seconds", "4", "--pause", "--kill", "--seed", "3"];
    let (report, output) = Contest::new(&arguments).run();
    assert!(count(&report, "pauses") > 0 && count(&report, "kills") > 0, "{report}");
    assert!(count(&report, "leases_lost") > 0, "{report}");
    assert!(count(&report, "acquisitions") > count(&report, "kills"), "{report}");
    assert!(report["longest_wait_after_kill_ms"].as_f64().is_some_and(|wait| wait > 0.0), "{report}");
    assert_eq!((count(&report, "overlaps"), count(&report, "seed")), (0, 3));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn whom_a_fault_hits_is_whom_the_referee_takes_it_for() {
    // Were they mixed up, the end of a worker that was killed would be taken for that of one that was not.
    let (report, _) =
        Contest::new(&["--scenario", "mutex", "--workers", "6", "--seconds", "2", "--ttl", "100ms", "--kill"]).run();
    assert!(count(&report, "kills") > 3, "{report}");
    assert!(count(&report["acquisitions_by_worker"], "fewest") > 0, "{report}");
}

#[test]
fn no_worker_outlives_a_contest_that_is_told_to_end() {
    for (told, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut contest = Contest::new(&["--scenario", "mutex", "--workers", "4", "--seconds", "60"]);
        let mut child = contest.start();
        contest.wait_until("all workers run", |workers| workers.len() == 4);
        signal(&child, told);
        assert_eq!(child.wait().expect("it was started").code(), Some(status));
        contest.wait_until("no worker is left", |workers| workers.is_empty());
    }
}

#[test]
fn no_worker_outlives_a_contest_that_is_killed_though_it_is_stopped() {
    let mut contest =
        Contest::new(&["--scenario", "mutex", "--workers", "3", "--seconds", "60", "--pause", "--ttl", "5s"]);
    let mut child = contest.start();
    contest.wait_until("one worker is stopped", |workers| workers.iter().any(|worker| is_stopped(worker)));
    signal(&child, Signal::KILL);
    let _ = child.wait();
    contest.wait_until("no worker is left", |workers| workers.is_empty());
}

#[test]
fn the_url_is_on_no_command_line_of_a_worker() {
    let mut contest =
        Contest::new(&["--scenario", "mutex", "--workers", "2", "--seconds", "60", "--store", "memory://hunter2"]);
    let mut child = contest.start();
    contest.wait_until("all workers run", |workers| workers.len() == 2);
    for worker in contest.workers() {
        let command = fs::read_to_string(worker.join("cmdline")).expect("it runs");
        assert!(command.ends_with("contest-worker\0") && !command.contains("hunter2"), "{command:?}");
    }
    signal(&child, Signal::TERM);
    let _ = child.wait();
    contest.wait_until("no worker is left", |workers| workers.is_empty());
}

#[test]
fn what_a_worker_cannot_do_is_told_once() {
    let mut contest = Contest::new(&["--scenario", "mutex", "--ttl", "2ms"]);
    let output = contest.command.output().expect("the command was built for this test");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.matches("drift margin").count(), 1, "{stderr}");
    contest.wait_until("no worker is left", |workers| workers.is_empty());
}

#[test]
fn pauses_and_kills_need_processes_and_say_so() {
    for fault in ["--pause", "--kill"] {
        let command = [env!("CARGO_BIN_EXE_leasehold"), "contest", fault];
        let output =
            Command::new(command[0]).args(&command[1..]).output().expect("the command was built for this test");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("need workers that are processes") && stderr.contains("memory://"), "{stderr}");
    }
}

#[test]
fn a_server_is_started_for_the_contest_and_ends_with_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["contest", "--json", "--spawn-redis", "--scenario", "mutex", "--seconds", "2", "--workers", "3"]);
    let output = command.args(["--kill", "--hold", "20ms"]).output().expect("the command was built for this test");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(output.status.success(), "{json}");
    assert_eq!((&json["overlaps"], &json["stale_writes_accepted"]), (&Value::from(0), &Value::from(0)), "{json}");
    assert!(json["acquisitions"].as_u64() > Some(0) && json["kills"].as_u64() > Some(0), "{json}");
    let folder = json["store"].as_str().and_then(|url| Path::new(url.strip_prefix("redis+unix://")?).parent());
    let folder = folder.unwrap_or_else(|| panic!("it says where it was: {json}"));
    assert!(!folder.exists(), "what it lived in is gone");
}
