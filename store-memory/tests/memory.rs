//! What is special about this store; what all stores share is in the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Effect, Error, ErrorKind, Expiry, Key, KeyPrefix, ReplaceOutcome, Ttl,
};
use leasehold_memory::{MemoryConfig, MemoryStore};
use tokio::time::advance;

fn key(text: impl AsRef<str>) -> Key {
    Key::new(text).unwrap()
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

async fn add(store: &MemoryStore, name: impl AsRef<str>, ttl: Ttl) -> AddOutcome {
    store.try_add(&key(name), Bytes::from_static(b"value"), ttl).await.unwrap()
}

/// Any operation sweeps one part of sixteen and takes at most four entries. Every second key goes to the same eight
/// parts here, so that these hold 125 of the expired each, and 32 rounds take them.
async fn look_around(store: &MemoryStore, operations: usize) -> Result<(), Error> {
    for _ in 0..operations {
        store.get(&key("nothing")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_reclaimed_a_few_at_a_time_in_the_order_of_deadlines() {
    let store = MemoryStore::new();
    for number in 0..1000 {
        assert!(matches!(add(&store, format!("short:{number}"), ttl(10)).await, AddOutcome::Added(_)));
        assert!(matches!(add(&store, format!("long:{number}"), ttl(10_000)).await, AddOutcome::Added(_)));
    }
    advance(Duration::from_millis(10)).await;
    assert_eq!(store.len(), 2000, "nothing runs by itself");
    look_around(&store, 1).await.unwrap();
    assert!(store.len() >= 1996, "one operation takes at most four: {}", store.len());
    look_around(&store, 600).await.unwrap();
    assert_eq!(store.len(), 1000, "the expired are gone, and the live are not");
}

#[tokio::test(start_paused = true)]
async fn memory_follows_what_is_live() {
    let store = MemoryStore::new();
    let mut most = 0;
    for number in 0..100_000u32 {
        let _ = add(&store, format!("key:{number}"), ttl(100)).await;
        advance(Duration::from_millis(1)).await;
        most = most.max(store.len());
    }
    assert!(most < 200, "a hundred are live at a time, and at most {most} were kept");
}

#[tokio::test(start_paused = true)]
async fn removal_and_renewal_leave_no_deadlines_behind() {
    let store = MemoryStore::new();
    let lease = key("lease");
    let _ = add(&store, "lease", ttl(100)).await;
    for _ in 0..1000 {
        advance(Duration::from_millis(50)).await;
        assert!(store.try_expire(&lease, b"value", ttl(100)).await.unwrap().is_applied());
    }
    assert!(store.try_remove(&lease, b"value").await.unwrap().is_applied());
    for _ in 0..1000 {
        let _ = add(&store, "lease", Ttl::MAX).await;
        assert!(store.try_remove(&lease, b"value").await.unwrap().is_applied());
    }
    assert!(store.is_empty());
    assert_eq!(format!("{store:?}"), "MemoryStore { len: 0, deadlines: 0, .. }");
}

#[tokio::test(start_paused = true)]
async fn a_shortened_entry_is_reclaimed_at_its_new_end() {
    let store = MemoryStore::new();
    let _ = add(&store, "key", ttl(60_000)).await;
    assert!(store.try_expire(&key("key"), b"value", ttl(5)).await.unwrap().is_applied());
    advance(Duration::from_millis(5)).await;
    look_around(&store, 16).await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn clones_share_and_names_are_shared_in_the_process() {
    let store = MemoryStore::new();
    let _ = add(&store, "key", ttl(10)).await;
    assert_eq!(store.clone().len(), 1);
    assert!(MemoryStore::new().is_empty());

    let named = MemoryStore::named("shared");
    let _ = add(&named, "key", ttl(10)).await;
    assert_eq!(MemoryStore::named("shared").len(), 1);
    assert!(MemoryStore::named("other").is_empty());
    drop(named);
    assert!(MemoryStore::named("shared").is_empty(), "the last handle took it along");
}

#[tokio::test(start_paused = true)]
async fn a_value_over_the_limit_is_refused_before_anything_changes() {
    let store = MemoryStore::with_config(MemoryConfig::default().with_max_value_len(4));
    let (long, name) = (Bytes::from_static(b"12345"), key("key"));
    let refused = [
        store.try_add(&name, long.clone(), ttl(10)).await.map(drop),
        store.set(&name, long.clone(), Expiry::Never).await.map(drop),
        store.try_replace(&name, b"", long.clone(), ttl(10)).await.map(drop),
        store.set_many(vec![(key("fine"), "1234".into(), Expiry::Never), (name, long, Expiry::Never)]).await.map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
        assert!(error.to_string().contains("at most 4 bytes, and this one has 5"), "{error}");
    }
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_many_keys_is_a_few_pages() {
    let store = MemoryStore::new();
    for number in 0..20_000u32 {
        let _ = add(&store, format!("key:{number}"), ttl(10)).await;
    }
    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, None);
    loop {
        let page = store.scan(&KeyPrefix::new("key:").unwrap(), cursor).await.unwrap();
        found.extend(page.keys);
        pages += 1;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!((found.len(), pages), (20_000, 17));
}

// Many threads at one key: each replaces what it has read. A lost update would leave a smaller count.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_among_threads() {
    let store = MemoryStore::new();
    let counter = key("counter");
    store.set(&counter, Bytes::from_static(b"0"), Expiry::Never).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, counter) = (store.clone(), counter.clone());
            tokio::spawn(async move {
                for _ in 0..500 {
                    loop {
                        let read = store.get(&counter).await.unwrap().unwrap().value;
                        let next: u32 = std::str::from_utf8(&read).unwrap().parse::<u32>().unwrap() + 1;
                        let replaced = store.try_replace(&counter, &read, next.to_string().into(), Ttl::MAX).await;
                        if matches!(replaced.unwrap(), ReplaceOutcome::Applied(_)) {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.get(&counter).await.unwrap().unwrap().value, "4000");
}
