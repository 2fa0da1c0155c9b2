//! The conformance suite on a private Redis.

use std::process::ExitCode;

#[path = "support/suite.rs"]
mod suite;

fn main() -> ExitCode {
    suite::run(leasehold_testkit::Family::Redis)
}
