use std::time::Duration;

use futures_util::FutureExt;
use leasehold_conformance::{Fault, Faulty, Operation, Plan};
use leasehold_core::lock::{Locks, Release, Stats};
use leasehold_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::support::{RESOURCE, Rig, seconds};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_rounds_leave_no_key_no_renewal_and_no_task() {
    let rig = Rig::new();
    for _ in 0..10_000 {
        let lease = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    sleep(seconds(9.0)).await;
    assert_eq!(rig.link.calls(Operation::TryExpire), 0);
    assert!(rig.memory.is_empty());
    assert_eq!(rig.a.stats(), Stats::default());
    assert_eq!(alive_tasks(), 0);
}

const ACQUISITIONS: u32 = 100_000;
const WORKERS: u32 = 64;

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_acquisitions_cancelled_at_random_leave_nothing() {
    let memory = MemoryStore::new();
    let link = Faulty::new(memory.clone());
    let ms = Duration::from_millis;
    let slow = |plan: Plan, operation| {
        let plan = plan.seeded(operation, 1, 8, Fault::DelayAnswer(ms(4))).seeded(operation, 2, 8, Fault::LoseAnswer);
        plan.seeded(operation, 3, 8, Fault::DelayRequest(ms(4))).seeded(operation, 4, 2, Fault::ApplyAndHang)
    };
    link.follow([Operation::TryAdd, Operation::TryRemove, Operation::TryExpire].into_iter().fold(Plan::none(), slow));
    let locks = Locks::builder(link).transport_gives_up_after(seconds(1.0)).build();

    let workers = (0..WORKERS).map(|worker| tokio::spawn(work(locks.clone(), worker)));
    let mut acquired = 0;
    for worker in workers.collect::<Vec<_>>() {
        acquired += worker.await.unwrap();
    }
    assert!(acquired > ACQUISITIONS / 4, "most of it is not mere cancelling: {acquired}");

    locks.close().await;
    sleep(seconds(1.0)).await;
    assert_eq!(locks.stats(), Stats::default());
    assert_eq!(alive_tasks(), 0);
    // One more operation per part of the store reclaims what had expired.
    sleep(seconds(9.0)).await;
    for _ in 0..16 {
        assert!(locks.inspect("resource:0").await.unwrap().is_none());
    }
    assert!(memory.is_empty(), "{memory:?}");
}

/// Acquires, is cancelled, holds, and lets go in every way there is.
async fn work(locks: Locks, worker: u32) -> u32 {
    let mut random = StdRng::seed_from_u64(u64::from(worker));
    let mut acquired = 0;
    for _ in 0..ACQUISITIONS / WORKERS {
        let resource = format!("resource:{}", random.random_range(0..40));
        let patience = Duration::from_micros(random.random_range(0..20_000));
        let request = locks.lock(resource).ttl(seconds(3.0)).acquire();
        let Ok(Ok(lease)) = timeout(patience, request).await else { continue };
        acquired += 1;
        sleep(Duration::from_micros(random.random_range(0..2_000))).await;
        match random.random_range(0..4) {
            0 => drop(lease),
            1 => drop(lease.release().now_or_never()),
            2 => drop(lease.release_no_sooner_than(Duration::from_millis(3)).await),
            _ => drop(lease.release().await),
        }
    }
    acquired
}
