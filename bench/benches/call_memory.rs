//! What an idempotent call costs when the store costs nothing: in memory, one task.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use leasehold_core::idempotency::{Fingerprint, Idempotency};
use leasehold_core::{AtomicStore, Key, Store, Ttl};
use leasehold_memory::MemoryStore;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// A payload of the usual size and depth.
fn payload() -> impl serde::Serialize {
    ("tok_1234567890", 4_200_u64, "EUR", [("order", "42"), ("customer", "7")])
}

fn call(c: &mut Criterion) {
    let mut group = c.benchmark_group("call_memory");
    group.measurement_time(Duration::from_secs(3));
    let runtime = runtime();
    let store = Store::new(MemoryStore::new());

    let (key, ttl) = (Key::new("idem:-:-:k").expect("a key"), Ttl::from_millis(60_000).expect("a ttl"));
    let (marker, record) = (Bytes::from(vec![b'm'; 100]), Bytes::from(vec![b'r'; 100]));
    group.bench_function("the store alone: try_add, try_replace, try_remove", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let _ = black_box(store.try_add(&key, marker.clone(), ttl).await.expect("an answer"));
                let _ = black_box(store.try_replace(&key, &marker, record.clone(), ttl).await.expect("an answer"));
                assert!(store.try_remove(&key, &record).await.expect("an answer").is_applied());
            });
        });
    });

    group.bench_function("the fingerprint", |b| {
        let payload = payload();
        b.iter(|| black_box(Fingerprint::of(&payload).expect("a payload")));
    });

    // Records end at once, so that the store stays small.
    let brief = Idempotency::builder(store.clone()).record_ttl(Duration::from_millis(1)).build();
    let payload = payload();
    let mut number = 0_u64;
    group.bench_function("a first call", |b| {
        b.iter(|| {
            number += 1;
            let call = brief.call("charge", number.to_string(), &payload);
            runtime.block_on(async { black_box(call.run(async || 1_u32).await.expect("an answer")) })
        });
    });

    let once = Idempotency::new(store.clone());
    let entries = NonZeroUsize::new(1_000).expect("above zero");
    let cached = Idempotency::builder(store).first_level(entries, Duration::from_secs(3_600)).build();
    for (name, once) in [("a replay", &once), ("a replay from the first level", &cached)] {
        let key = name.replace(' ', "-");
        let run = || {
            let call = once.call("charge", key.as_str(), &payload);
            runtime.block_on(async { call.run(async || 1_u32).await.expect("an answer") })
        };
        run();
        group.bench_function(name, |b| b.iter(|| assert!(black_box(run()).replayed)));
    }
    group.finish();
}

criterion_group!(benches, call);
criterion_main!(benches);
