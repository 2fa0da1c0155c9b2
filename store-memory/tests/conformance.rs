//! The conformance suite, on stepped time. What wraps the memory store and what it does on the true clock is tested with
//! the suite itself.

use std::process::ExitCode;

use leasehold_conformance::Suite;
use leasehold_memory::MemoryStore;

fn main() -> ExitCode {
    Suite::new("memory", |namespace| async move { MemoryStore::named(&namespace) }).stepped_time().run()
}
