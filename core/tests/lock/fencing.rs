use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_conformance::{Fault, Faulty, Operation, Plan};
use leasehold_core::fence::{Admission, FenceGate, FencePolicy, FencedCell, FencingToken};
use leasehold_core::lock::{Locks, Renewal};
use leasehold_core::{AtomicStore, CacheStore, Effect, ErrorKind, Key};
use leasehold_memory::MemoryStore;
use tokio::time::{advance, sleep};

use crate::support::{RESOURCE, Rig, seconds};

#[tokio::test(start_paused = true)]
async fn tokens_rise_across_release_expiry_and_an_operator() {
    let rig = Rig::new();
    let mut last = None;
    for round in 0..40 {
        let lease = rig.a.lock(RESOURCE).ttl(seconds(1.0)).renewal(Renewal::Off).acquire().await.unwrap();
        let token = lease.fencing_token();
        assert!(token > last, "round {round}");
        last = token;
        match round % 4 {
            0 => drop(lease.release().await.unwrap()),
            1 => advance(seconds(1.1)).await,
            2 => {
                let removed = rig.memory.remove(&Key::new(format!("lock:{RESOURCE}")).unwrap()).await.unwrap();
                assert!(removed.is_applied());
            }
            _ => drop(rig.b.force_release(RESOURCE).await.unwrap().unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_among_a_hundred_clients_in_the_order_of_their_holds() {
    let store = MemoryStore::new();
    let last = Arc::new(AtomicU64::new(0));
    let clients = (0..100).map(|_| {
        let (locks, last) = (Locks::new(store.clone()), last.clone());
        tokio::spawn(async move {
            let lease = locks.lock(RESOURCE).acquire().await.unwrap();
            let token = lease.fencing_token().unwrap().get();
            assert!(last.swap(token, Ordering::SeqCst) < token);
            lease.release().await.unwrap()
        })
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), leasehold_core::lock::Release::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_right_after_the_grant_is_fenced() {
    let rig = Rig::new();
    let register = FencedCell::new(0);
    let stale = rig.a.lock(RESOURCE).ttl(seconds(1.0)).acquire().await.unwrap();
    advance(seconds(5.0)).await;
    let fresh = rig.b.lock(RESOURCE).acquire().await.unwrap();
    let token = |lease: &leasehold_core::lock::Lease| lease.fencing_token().unwrap();
    assert!(register.write(token(&fresh), FencePolicy::Repeatable, |value| *value = 1).is_admitted());
    let late = register.write(token(&stale), FencePolicy::Repeatable, |value| *value = 2);
    assert_eq!(late, Admission::Stale { highest: token(&fresh) });
    assert_eq!(register.read(|value| *value), 1);
    let again = register.write(token(&fresh), FencePolicy::Strict, |value| *value = 3);
    assert!(!again.is_admitted(), "strict is one write a lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers_lose_no_increment_under_the_lease() {
    let store = MemoryStore::new();
    let counter = Key::new("counter").unwrap();
    let workers = (0..8).map(|_| {
        let (locks, store, counter) = (Locks::new(store.clone()), store.clone(), counter.clone());
        tokio::spawn(async move {
            for _ in 0..100 {
                let lease = locks.lock(RESOURCE).acquire().await.unwrap();
                // Read, yield, write: without mutual exclusion this loses updates.
                let read = store.get(&counter).await.unwrap();
                let count = read.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap());
                tokio::task::yield_now().await;
                let next: u64 = count + 1;
                store.set(&counter, next.to_string().into(), leasehold_core::Expiry::Never).await.unwrap();
                assert_eq!(lease.release().await.unwrap(), leasehold_core::lock::Release::Released);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(store.get(&counter).await.unwrap().unwrap().value, "800");
}

#[tokio::test(start_paused = true)]
async fn with_pauses_past_the_ttl_every_stale_write_is_refused() {
    let store = MemoryStore::new();
    let register = Arc::new(FencedCell::new(0u64));
    let workers = (0..8).map(|worker| {
        let (locks, register) = (Locks::new(store.clone()), register.clone());
        tokio::spawn(async move {
            let mut admitted = 0;
            for round in 0..100u64 {
                let request = locks.lock(RESOURCE).ttl(seconds(1.0)).renewal(Renewal::Off).wait(seconds(1e6));
                let lease = request.acquire().await.unwrap();
                let token = lease.fencing_token().unwrap();
                let Admission::Admitted(read) = register.write(token, FencePolicy::Repeatable, |value| *value) else {
                    panic!("the newest token is admitted");
                };
                // One in seven is stopped past its ttl and goes on with what it read.
                let pause = if (round * 8 + worker) % 7 == 0 { seconds(1.5) } else { seconds(0.01) };
                sleep(pause).await;
                if register.write(token, FencePolicy::Repeatable, |value| *value = read + 1).is_admitted() {
                    admitted += 1;
                }
            }
            admitted
        })
    });
    let mut admitted = 0;
    for worker in workers.collect::<Vec<_>>() {
        admitted += worker.await.unwrap();
    }
    assert_eq!(register.read(|value| *value), admitted, "each admitted increment counts, and none is lost");
    assert!((600..800).contains(&admitted), "some were stopped and refused: {admitted}");
}

#[tokio::test(start_paused = true)]
async fn a_gate_in_a_store_refuses_an_older_token() {
    let store = MemoryStore::new();
    let gate = FenceGate::new(store.clone());
    let token = |number| FencingToken::new(number).unwrap();
    assert_eq!(gate.read("account").await.unwrap(), None);
    assert!(gate.write("account", token(2), FencePolicy::Strict, "first").await.unwrap().is_admitted());
    let again = gate.write("account", token(2), FencePolicy::Strict, "again").await.unwrap();
    assert_eq!(again, Admission::Stale { highest: token(2) });
    assert!(gate.write("account", token(2), FencePolicy::Repeatable, "again").await.unwrap().is_admitted());
    assert!(!gate.write("account", token(1), FencePolicy::Repeatable, "late").await.unwrap().is_admitted());
    assert_eq!(gate.read("account").await.unwrap(), Some((token(2), "again".into())));

    store.set(&Key::new("fence:account").unwrap(), "junk".into(), leasehold_core::Expiry::Never).await.unwrap();
    let corrupt = gate.write("account", token(3), FencePolicy::Strict, "x").await.unwrap_err();
    assert_eq!((corrupt.kind(), corrupt.effect()), (ErrorKind::Corrupt, Effect::None));
    let corrupt = gate.read("account").await.unwrap_err();
    assert_eq!((corrupt.kind(), corrupt.effect()), (ErrorKind::Corrupt, Effect::None));
    for number in [0, 1 << 53] {
        let corrupt = FencingToken::new(number).unwrap_err();
        assert_eq!((corrupt.kind(), corrupt.effect()), (ErrorKind::Corrupt, Effect::None));
    }
}

#[tokio::test]
async fn a_write_of_unknown_outcome_is_settled_by_writing_again() {
    let token = |number| FencingToken::new(number).unwrap();
    for operation in [Operation::TryAdd, Operation::TryReplace] {
        for fault in [Fault::LoseAnswer, Fault::Refuse] {
            for policy in [FencePolicy::Strict, FencePolicy::Repeatable] {
                let store = Faulty::new(MemoryStore::new());
                let gate = FenceGate::new(store.clone());
                if operation == Operation::TryReplace {
                    assert!(gate.write("account", token(1), policy, "before").await.unwrap().is_admitted());
                }
                store.follow(Plan::none().nth(operation, 1, fault));
                gate.write("account", token(2), policy, "once").await.unwrap_err();
                let again = gate.write("account", token(2), policy, "once").await.unwrap();
                // Refused for its own token is as good as made.
                let made_before = policy == FencePolicy::Strict && fault == Fault::LoseAnswer;
                let settled =
                    if made_before { Admission::Stale { highest: token(2) } } else { Admission::Admitted(()) };
                assert_eq!(again, settled, "{policy:?} after {fault:?} of {operation}");
                assert_eq!(gate.read("account").await.unwrap(), Some((token(2), "once".into())));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_in_a_store_admits_in_rising_order_under_contention() {
    let gate = FenceGate::new(MemoryStore::new());
    let writers = (1..=64u64).map(|number| {
        let gate = gate.clone();
        tokio::spawn(async move {
            let token = FencingToken::new(number).unwrap();
            gate.write("account", token, FencePolicy::Strict, number.to_string()).await.unwrap().is_admitted()
        })
    });
    let mut admitted = 0;
    for writer in writers.collect::<Vec<_>>() {
        admitted += u32::from(writer.await.unwrap());
    }
    let (token, value) = gate.read("account").await.unwrap().unwrap();
    assert_eq!((token.get(), value), (64, "64".into()));
    assert!(admitted >= 1);
}
