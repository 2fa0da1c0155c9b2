//! The conformance suite through a private pgbouncer in transaction mode.

use std::process::ExitCode;

#[path = "support/suite.rs"]
mod suite;

fn main() -> ExitCode {
    suite::run(suite::Way::PgBouncer)
}
