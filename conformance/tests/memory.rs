//! The memory store keeps the contract on stepped time and on the true clock, and so does every handle and wrapper
//! around it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Faulty, Selection, Status, Suite};
use leasehold_core::wrap::{Prefixed, Traced, WithTimeout};
use leasehold_core::{AtomicStore, CacheStore, Error, Namespace, Store};
use leasehold_memory::MemoryStore;

fn passes(suite: Suite) {
    let report = suite.report(&Selection::default());
    assert!(report.is_success(), "\n{report}");
    // What another process sees of it, and what hints it does not give.
    let ignored: Vec<_> = report.names(Status::Ignored).collect();
    assert_eq!(ignored.len(), 4, "{ignored:?}");
}

/// The whole suite on stepped time, for a store made of the memory store.
macro_rules! keeps_the_contract {
    ($($test:ident: |$memory:ident| $store:expr;)+) => {
        $(#[test]
        fn $test() {
            let open = |ns: String| async move {
                let $memory = MemoryStore::named(&ns);
                $store
            };
            passes(Suite::new(stringify!($test), open).stepped_time());
        })+
    };
}

keeps_the_contract! {
    the_store_itself: |memory| memory;
    a_reference: |memory| &*Box::leak(Box::new(memory));
    a_box: |memory| Box::new(memory) as Box<dyn CacheStore>;
    an_arc: |memory| Arc::new(memory) as Arc<dyn CacheStore>;
    the_handle_of_any_store: |memory| Store::new(memory);
    below_a_namespace: |memory| Namespace::new("orders:%").map(|namespace| Prefixed::new(memory, namespace));
    with_a_timeout: |memory| WithTimeout::new(memory, Duration::from_secs(10));
    traced: |memory| Traced::new(memory).with_keys();
    with_a_plan_of_no_faults: |memory| Faulty::new(memory);
    wrapped_many_times_over: |memory| Ok::<_, Error>(Store::new(Traced::new(Faulty::new(WithTimeout::new(
        Prefixed::new(Arc::new(memory), Namespace::new("inner")?),
        Duration::from_secs(10),
    )))));
}

#[test]
fn the_primitives_alone() {
    let open = |ns: String| async move { Arc::new(MemoryStore::named(&ns)) as Arc<dyn AtomicStore> };
    let report = Suite::atomic("memory", open).stepped_time().report(&Selection::default());
    assert!(report.is_success(), "\n{report}");
    assert!(report.names(Status::Ignored).any(|check| check == "scan::finds_every_one_of_many"));
    assert!(report.names(Status::Passed).any(|check| check == "leases::have_one_holder_at_a_time"));
}

#[test]
fn on_the_true_clock() {
    passes(Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }));
}
