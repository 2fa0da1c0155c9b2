//! The conformance suite on a private server.

use std::process::ExitCode;

#[path = "support/suite.rs"]
mod suite;

fn main() -> ExitCode {
    suite::run(suite::Way::Direct)
}
