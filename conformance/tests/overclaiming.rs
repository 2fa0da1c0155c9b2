//! A store that lives in its process and declares that it is shared and durable is found out by another process: the two
//! checks that need one fail, or this fails.

use std::process::ExitCode;

use leasehold_conformance::{Capability, Suite};
use leasehold_memory::MemoryStore;

#[path = "overclaiming/store.rs"]
mod store;

use store::Overclaiming;

fn main() -> ExitCode {
    Suite::atomic("overclaiming", |ns| async move { Overclaiming(MemoryStore::named(&ns)) })
        .require([Capability::Shared, Capability::Durable])
        .known_failure("shared::another_process_has_the_same_data", "it lives in its process")
        .known_failure("durable::an_answered_write_outlives_its_process", "it lives in its process")
        .run()
}
