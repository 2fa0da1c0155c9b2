//! What a lease costs when the store costs nothing: acquire and release in memory, one task, and what the parts of it
//! cost.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use leasehold_core::lock::{Locks, Renewal};
use leasehold_core::{AtomicStore, Key, Store, Ttl};
use leasehold_memory::MemoryStore;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The least that a lock in memory can be behind a boxed async trait: a map, and a random nonce.
#[async_trait]
trait Bare: Send + Sync {
    async fn add(&self, key: &str, nonce: u128) -> bool;
    async fn remove(&self, key: &str, nonce: u128) -> bool;
}

#[async_trait]
impl Bare for DashMap<String, u128> {
    async fn add(&self, key: &str, nonce: u128) -> bool {
        match self.entry(key.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(nonce);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    async fn remove(&self, key: &str, nonce: u128) -> bool {
        self.remove_if(key, |_, held| *held == nonce).is_some()
    }
}

fn lease(c: &mut Criterion) {
    let mut group = c.benchmark_group("lease_memory");
    group.measurement_time(Duration::from_secs(3));
    let runtime = runtime();

    let bare: Box<dyn Bare> = Box::new(DashMap::<String, u128>::new());
    group.bench_function("a bare map and a nonce", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let nonce = rand::random();
                assert!(bare.add("orders:42", nonce).await && bare.remove("orders:42", nonce).await);
            });
        });
    });

    let store = Store::new(MemoryStore::new());
    let (key, ttl) = (Key::new("lock:orders:42").expect("a key"), Ttl::from_millis(30_000).expect("a ttl"));
    let value = Bytes::from_static(b"lease1 0123456789abcdef0123456789abcdef 1760000000000 host:12345");
    group.bench_function("the store alone: try_add and try_remove", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let _ = black_box(store.try_add(&key, value.clone(), ttl).await.expect("an answer"));
                assert!(store.try_remove(&key, &value).await.expect("an answer").is_applied());
            });
        });
    });

    for (name, renewal) in [("acquire and release", Renewal::Off), ("acquire and release, renewed", Renewal::Auto)] {
        let locks = Locks::new(store.clone());
        group.bench_function(name, |b| {
            b.iter(|| {
                runtime.block_on(async {
                    let lease = locks.lock("orders:42").renewal(renewal).acquire().await.expect("a free lock");
                    let _ = black_box(lease.release().await.expect("an answer"));
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lease);
criterion_main!(benches);
