//! The memory store, and every handle and wrapper around it, keeps the contract: on stepped time and on the true clock.

use leasehold_conformance::{Selection, Suite};
use leasehold_memory::MemoryStore;

#[test]
fn memory_keeps_the_contract_on_stepped_time() {
    let report =
        Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }).stepped_time().report(&Selection::default());
    println!("{report}");
    assert!(report.is_success());
}

#[test]
fn memory_keeps_the_contract_on_the_true_clock() {
    let report = Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }).report(&Selection::default());
    println!("{report}");
    assert!(report.is_success());
}
