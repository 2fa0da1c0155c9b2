//! The in-memory store with a million live keys beside an empty one, and what the expiry of many entries does to the
//! operations that come after it.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use leasehold_core::lock::{Locks, Renewal};
use leasehold_core::{AtomicStore, Key, Ttl};
use leasehold_memory::MemoryStore;
use tokio::runtime::{Builder, Runtime};

const MANY: u32 = 1_000_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

async fn fill(store: &MemoryStore, ttl: Ttl) {
    for number in 0..MANY {
        let key = Key::new(format!("key:{number}")).expect("a key");
        let _ = black_box(store.try_add(&key, Bytes::from_static(b"value"), ttl).await.expect("an answer"));
    }
}

fn million(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("memory_store");
    group.measurement_time(Duration::from_secs(3));
    let full = MemoryStore::new();
    runtime.block_on(fill(&full, Ttl::MAX));
    for (name, store) in [("lease beside nothing", MemoryStore::new()), ("lease beside a million keys", full)] {
        let locks = Locks::new(store);
        group.bench_function(name, |b| {
            b.iter(|| {
                runtime.block_on(async {
                    let lease = locks.lock("orders:42").renewal(Renewal::Off).acquire().await.expect("a free lock");
                    let _ = black_box(lease.release().await.expect("an answer"));
                });
            });
        });
    }
    group.finish();
}

/// Not a criterion bench: it is about the longest operation, and criterion tells the mean.
fn expiry(_: &mut Criterion) {
    runtime().block_on(async {
        let store = MemoryStore::new();
        fill(&store, Ttl::from_millis(5_000).expect("a ttl")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let key = Key::new("orders:42").expect("a key");
        let mut times = Vec::new();
        while store.len() > 1 {
            let started = Instant::now();
            let _ = black_box(store.try_add(&key, Bytes::new(), Ttl::MAX).await.expect("an answer"));
            times.push(started.elapsed());
        }
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "memory_store/a million expired entries reclaimed by {} operations: p50 {:?}, p99 {:?}, p99.99 {:?}, longest {:?}",
            times.len(),
            at(0.5),
            at(0.99),
            at(0.9999),
            at(1.0),
        );
    });
}

criterion_group!(benches, million, expiry);
criterion_main!(benches);
