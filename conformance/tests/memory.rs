//! The memory store keeps the contract on stepped time and on the true clock, and so does every handle and wrapper
//! around it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fault, Faulty, Operation, Plan, Selection, Status, Suite};
use leasehold_core::wrap::{Prefixed, Traced, WithTimeout};
use leasehold_core::{AtomicStore, CacheStore, Error, KeyPrefix, Namespace, Store};
use leasehold_memory::{MemoryConfig, MemoryStore};

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

/// A suite for one memory store.
fn below_namespaces_of(store: &MemoryStore) -> Suite {
    let store = store.clone();
    let open = move |ns: String| {
        let store = store.clone();
        async move { Namespace::new(ns).map(|namespace| Prefixed::new(store, namespace)) }
    };
    Suite::new("memory", open).stepped_time()
}

/// One after the other: each check has a clock of its own, and one that is ahead would end what another has written.
fn one_by_one() -> Selection {
    Selection::default().with_at_once(1)
}

#[test]
fn without_a_limit_of_values() {
    let store = MemoryStore::with_config(MemoryConfig::default().with_max_value_len(usize::MAX));
    let report = below_namespaces_of(&store).report(&one_by_one());
    assert!(report.is_success(), "\n{report}");
    assert!(report.names(Status::Ignored).any(|check| check == "values::the_longest_comes_back"));
}

/// A machine that stalls for as long as a ttl costs a round.
#[test]
fn an_answer_that_comes_late_once_is_no_fault_of_the_store() {
    for check in [
        "get::does_not_prolong",
        "leases::are_released_by_their_holder_only",
        "leases::are_lost_before_another_gets_them",
        "leases::are_kept_by_renewal",
        "leases::go_to_who_waits_after_their_end",
    ] {
        let open = |ns: String| async move {
            let store = Faulty::new(MemoryStore::named(&ns));
            store.follow(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayAnswer(Duration::from_millis(400))));
            store
        };
        let report = Suite::new("late", open).stepped_time().report(&Selection::default().with_filter(check));
        assert!(report.is_success(), "\n{report}");
    }
}

#[test]
fn what_it_leaves_behind_ends() {
    let store = MemoryStore::new();
    let report = below_namespaces_of(&store).seed(7).report(&one_by_one());
    assert!(report.is_success(), "\n{report}");
    let endless = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let (mut endless, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.scan(&KeyPrefix::new("").unwrap(), cursor).await.unwrap();
            for (key, entry) in page.keys.iter().zip(store.get_many(&page.keys).await.unwrap()) {
                if entry.is_some_and(|entry| entry.time_left.is_none()) {
                    endless.push(key.to_string());
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return endless;
            }
        }
    });
    assert!(endless.is_empty(), "these never end: {endless:#?}");
}

#[test]
fn on_the_true_clock() {
    passes(Suite::new("memory", |ns| async move { MemoryStore::named(&ns) }));
}
