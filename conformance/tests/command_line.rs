//! What a suite does as a test program: this one runs itself with the arguments that `cargo test` would give.

use std::path::Path;
use std::process::{Command, ExitCode, Output};

use leasehold_conformance::{CheckReport, Status, Suite};
use leasehold_memory::MemoryStore;
use libtest_mimic::{Arguments, Failed, Trial};

const VARIABLE: &str = "LEASEHOLD_TEST_SUITE";

fn main() -> ExitCode {
    match std::env::var(VARIABLE).as_deref() {
        Ok("down") => {
            return Suite::new("down", |_| async { Err::<MemoryStore, _>("the server is down") }).run();
        }
        Ok(_) => return Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }).stepped_time().run(),
        Err(_) => {}
    }
    let trials = vec![
        Trial::test("a_list_needs_no_server", a_list_needs_no_server),
        Trial::test("a_server_that_is_down_fails_by_name", a_server_that_is_down_fails_by_name),
        Trial::test("filters_select_by_name", filters_select_by_name),
        Trial::test("a_missing_capability_fails_when_it_is_required", a_missing_capability_fails_when_it_is_required),
        Trial::test("an_unknown_capability_is_told_the_others", an_unknown_capability_is_told_the_others),
        Trial::test("the_report_has_a_line_for_each_check", the_report_has_a_line_for_each_check),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn a_list_needs_no_server() -> Result<(), Failed> {
    let output = suite("down", &["--list", "--format", "terse"], &[])?;
    let listed = text(&output);
    for check in Suite::checks() {
        ensure(listed.contains(&format!("{check}: test")), check)?;
    }
    ensure(output.status.success(), &listed)
}

fn a_server_that_is_down_fails_by_name() -> Result<(), Failed> {
    let output = suite("down", &["get::"], &[])?;
    let said = text(&output);
    ensure(!output.status.success(), &said)?;
    ensure(said.contains("get::sees_the_last_write") && said.contains("the server is down"), &said)
}

fn filters_select_by_name() -> Result<(), Failed> {
    let output = suite("memory", &["--exact", "get::sees_the_last_write"], &[])?;
    let said = text(&output);
    ensure(output.status.success() && said.contains("1 passed") && said.contains("seed "), &said)
}

fn a_missing_capability_fails_when_it_is_required() -> Result<(), Failed> {
    let ignored = suite("memory", &["durable::"], &[])?;
    ensure(ignored.status.success() && text(&ignored).contains("1 ignored"), &text(&ignored))?;
    let required = suite("memory", &["durable::"], &[("CONFORMANCE_REQUIRE", Path::new("all"))])?;
    ensure(!required.status.success() && text(&required).contains("`durable` is required"), &text(&required))
}

fn an_unknown_capability_is_told_the_others() -> Result<(), Failed> {
    let output = suite("memory", &["durable::"], &[("CONFORMANCE_REQUIRE", Path::new("hint"))])?;
    let said = text(&output);
    ensure(output.status.code() == Some(2) && said.contains("shared, durable, hints, revisions"), &said)
}

fn the_report_has_a_line_for_each_check() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("leasehold-conformance-{}.jsonl", std::process::id()));
    for filter in ["get::", "shared::"] {
        suite("memory", &[filter], &[("CONFORMANCE_REPORT", &path)])?;
    }
    let lines = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let read = |line| serde_json::from_str::<CheckReport>(line).map_err(|error| format!("{error}: {line}"));
    let checks = lines.lines().map(read).collect::<Result<Vec<_>, _>>()?;
    ensure(lines.lines().all(|line| line.contains(r#""suite":"memory""#)), &lines)?;
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let passed = Suite::checks().filter(|check| check.starts_with("get::")).count();
    ensure((count(Status::Passed), count(Status::Ignored)) == (passed, 1), &lines)
}

fn suite(kind: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Result<Output, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, kind).env_remove("CONFORMANCE_REQUIRE").env_remove("CONFORMANCE_REPORT").args(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    Ok(command.output()?)
}

fn text(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat()
}

fn ensure(condition: bool, otherwise: &str) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}
