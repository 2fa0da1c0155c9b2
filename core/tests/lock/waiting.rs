use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_conformance::{Fault, Faulty, Operation, Plan};
use leasehold_core::lock::{Locks, Release};
use leasehold_core::{
    AddOutcome, AtomicStore, Capabilities, Code, Effect, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome,
    Ttl,
};
use leasehold_memory::MemoryStore;
use tokio::time::{Instant, sleep};

use crate::support::{RESOURCE, Rig, seconds, try_once};

#[tokio::test(start_paused = true)]
async fn who_does_not_get_it_in_time_hears_who_has_it() {
    let rig = Rig::new();
    let b = rig.b.lock(RESOURCE).owner("billing").acquire().await.unwrap();
    let started = Instant::now();
    let error = rig.a.lock(RESOURCE).wait(seconds(2.0)).acquire().await.unwrap_err();
    assert_eq!(started.elapsed(), seconds(2.0));
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Conflict, Effect::None));
    assert_eq!(error.code(), Some(Code::LockHeld));
    assert_eq!(error.holder().unwrap().nonce, b.nonce());
    assert!(error.to_string().contains("billing"), "{error}");
    assert_eq!(rig.a.stats(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_makes_exactly_one_try() {
    let rig = Rig::new();
    let b = try_once(&rig.b).await.unwrap();
    let error = rig.a.lock(RESOURCE).wait(seconds(0.0)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!((rig.link.calls(Operation::TryAdd), rig.link.calls(Operation::Watch)), (1, 0));
    drop(b);
    // And it waits for the answer to that one.
    rig.link.follow(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayAnswer(seconds(1.0))));
    rig.b.close().await;
    drop(rig.a.lock(RESOURCE).wait(seconds(0.0)).acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_wait_limit_holds_while_the_store_hangs() {
    for operation in [Operation::TryAdd, Operation::Watch] {
        let rig = Rig::with_plan(Plan::none().from(operation, 1, Fault::Hang));
        let b = try_once(&rig.b).await.unwrap();
        let started = Instant::now();
        let error = rig.a.lock(RESOURCE).wait(seconds(2.0)).acquire().await.unwrap_err();
        assert_eq!(started.elapsed(), seconds(2.0));
        // A store that was asked and is silent is not one that says "held".
        let expected = if operation == Operation::TryAdd { ErrorKind::Timeout } else { ErrorKind::Conflict };
        assert_eq!(error.kind(), expected, "while {operation} hangs");
        drop(b);
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_contention_and_failure_are_told_apart() {
    let mut kinds = Vec::new();
    for fault in [Fault::Refuse, Fault::LoseAnswer] {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, fault));
        let error = rig.a.lock(RESOURCE).acquire().await.unwrap_err();
        kinds.push((error.kind(), error.effect()));
    }
    let rig = Rig::new();
    let _b = try_once(&rig.b).await.unwrap();
    let error = rig.a.lock(RESOURCE).wait(seconds(1.0)).acquire().await.unwrap_err();
    kinds.push((error.kind(), error.effect()));
    assert_eq!(
        kinds,
        [
            (ErrorKind::Unavailable, Effect::None),
            (ErrorKind::Timeout, Effect::Unknown),
            (ErrorKind::Conflict, Effect::None)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_it_the_moment_it_is_released() {
    let rig = Rig::new();
    let b = try_once(&rig.b).await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    sleep(seconds(20.0)).await;
    assert_eq!(rig.a.stats().waiting, 1);
    let released = Instant::now();
    assert_eq!(b.release().await.unwrap(), Release::Released);
    let lease = waiter.await.unwrap().unwrap();
    assert_eq!(released.elapsed(), seconds(0.0));
    lease.check().unwrap();
    assert_eq!(rig.a.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_costs_one_listener_and_one_confirming_try() {
    let rig = Rig::new();
    let b = rig.b.lock(RESOURCE).ttl(seconds(300.0)).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(tokio::spawn(rig.a.lock(RESOURCE).ttl(seconds(300.0)).wait(seconds(900.0)).acquire()));
        sleep(seconds(0.01)).await;
    }
    sleep(seconds(50.0)).await;
    // The first asks, listens and confirms; the nineteen behind it ask nobody.
    assert_eq!((rig.link.calls(Operation::TryAdd), rig.link.calls(Operation::Watch)), (2, 1));
    drop(b);
    for waiter in waiters {
        let lease = waiter.await.unwrap().unwrap();
        sleep(seconds(1.0)).await;
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    // Then one try for each that gets it.
    assert_eq!((rig.link.calls(Operation::TryAdd), rig.link.calls(Operation::Watch)), (22, 1));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_in_one_process_go_first_in_first_out() {
    let rig = Rig::new();
    let first = rig.a.lock(RESOURCE).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..10 {
        let (locks, order) = (rig.a.clone(), order.clone());
        waiters.push(tokio::spawn(async move {
            let lease = locks.lock(RESOURCE).acquire().await.unwrap();
            order.lock().unwrap().push(number);
            sleep(seconds(0.1)).await;
            drop(lease);
        }));
        sleep(seconds(0.01)).await;
    }
    drop(first);
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_overtake_those_who_wait() {
    let rig = Rig::new();
    let held = rig.a.lock(RESOURCE).acquire().await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    sleep(seconds(0.01)).await;
    drop(held);
    let newcomer = rig.a.lock(RESOURCE).wait(seconds(1.0)).acquire().await;
    assert_eq!(newcomer.unwrap_err().kind(), ErrorKind::Conflict);
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_gives_up_makes_way_for_the_next() {
    let rig = Rig::new();
    let b = try_once(&rig.b).await.unwrap();
    let head = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    sleep(seconds(0.01)).await;
    let next = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    sleep(seconds(0.01)).await;
    head.abort();
    drop(b);
    drop(next.await.unwrap().unwrap());
    assert_eq!(rig.a.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_survives_a_store_that_fails_for_a_while() {
    let rig = Rig::new();
    let b = rig.b.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).wait(seconds(60.0)).acquire());
    sleep(seconds(0.1)).await;
    rig.link.follow(Plan::none().from(Operation::TryAdd, 1, Fault::Refuse));
    drop(b);
    sleep(seconds(5.0)).await;
    assert!(!waiter.is_finished());
    rig.link.follow(Plan::none());
    let recovered = Instant::now();
    drop(waiter.await.unwrap().unwrap());
    assert!(recovered.elapsed() <= seconds(0.5));
}

#[tokio::test(start_paused = true)]
async fn the_try_that_confirms_may_fail_as_any_later_one() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 2, Fault::Refuse));
    let b = try_once(&rig.b).await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    sleep(seconds(1.0)).await;
    drop(b);
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_never_had_its_turn_hears_who_has_it_too() {
    let rig = Rig::new();
    let b = try_once(&rig.b).await.unwrap();
    let head = tokio::spawn(rig.a.lock(RESOURCE).owner("head").acquire());
    sleep(seconds(0.1)).await;
    let conflict = rig.a.lock(RESOURCE).wait(seconds(1.0)).acquire().await.unwrap_err();
    assert_eq!(conflict.holder().unwrap().nonce, b.nonce());
    // Nobody asks again while the head of the queue holds it; those behind hear of it all the same.
    let next = tokio::spawn(rig.a.lock(RESOURCE).acquire());
    assert_eq!(b.release().await.unwrap(), Release::Released);
    let lease = head.await.unwrap().unwrap();
    let conflict = rig.a.lock(RESOURCE).wait(seconds(1.0)).acquire().await.unwrap_err();
    let holder = conflict.holder().unwrap();
    assert_eq!((holder.nonce, holder.owner.as_str()), (lease.nonce(), "head"));
    drop(lease);
    drop(next.await.unwrap().unwrap());
}

/// A store whose hints are all lost, or that gives up on a listener at once.
struct Deaf {
    memory: MemoryStore,
    hints: fn() -> Hints,
    watches: Arc<AtomicU32>,
}

impl Deaf {
    fn new(memory: MemoryStore, hints: fn() -> Hints) -> Self {
        Self { memory, hints, watches: Arc::default() }
    }
}

#[async_trait]
impl AtomicStore for Deaf {
    fn name(&self) -> &'static str {
        self.memory.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.memory.try_add(key, value, ttl).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.memory.try_replace(key, expected, value, ttl).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.memory.try_remove(key, expected).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.memory.try_expire(key, expected, ttl).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.memory.get(key).await
    }

    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        Ok((self.hints)())
    }
}

#[tokio::test(start_paused = true)]
async fn lost_hints_and_a_crashed_holder_cost_the_ttl_and_one_interval() {
    let memory = MemoryStore::new();
    let silent = || Hints::new(futures_util::stream::pending());
    let (crashed, waiting) = (Locks::new(memory.clone()), Locks::new(Deaf::new(memory, silent)));
    let runtime_of_the_crashed = crashed.lock(RESOURCE).ttl(seconds(3.0));
    let held = runtime_of_the_crashed.renewal(leasehold_core::lock::Renewal::Off).acquire().await.unwrap();
    std::mem::forget(held);
    let started = Instant::now();
    drop(waiting.lock(RESOURCE).wait(seconds(30.0)).acquire().await.unwrap());
    assert!(started.elapsed() <= seconds(3.1), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_of_this_process_needs_no_hint() {
    let link = Faulty::new(Deaf::new(MemoryStore::new(), || Hints::new(futures_util::stream::pending())));
    let locks = Locks::new(link.clone());
    let held = locks.lock(RESOURCE).acquire().await.unwrap();
    let waiters: Vec<_> = (0..10).map(|_| tokio::spawn(locks.lock(RESOURCE).acquire())).collect();
    sleep(seconds(1.0)).await;
    let released = Instant::now();
    drop(held);
    for waiter in waiters {
        // Released in the background, or before the next of them was polled.
        let lease = waiter.await.unwrap().unwrap();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    assert_eq!(released.elapsed(), seconds(0.0));
    assert_eq!(link.calls(Operation::TryAdd), 1 + 2 + 10, "the holder, the first to wait twice, and each in its turn");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_hangs_costs_an_interval_and_not_the_wait() {
    let rig = Rig::with_plan(Plan::none().from(Operation::Watch, 1, Fault::Hang));
    let b = rig.b.lock(RESOURCE).ttl(seconds(300.0)).acquire().await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).wait(seconds(100.0)).acquire());
    sleep(seconds(20.0)).await;
    assert!(rig.link.calls(Operation::Watch) <= 5, "and it is not tried all the time");
    let released = Instant::now();
    drop(b);
    drop(waiter.await.unwrap().unwrap());
    assert!(released.elapsed() <= seconds(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_hangs_turns_no_conflict_into_a_doubt() {
    for wait in [0.1, 0.3, 0.6] {
        let slow = Fault::DelayAnswer(seconds(0.01));
        let plan = Plan::none().from(Operation::Watch, 1, Fault::Hang).nth(Operation::TryAdd, 2, slow);
        let rig = Rig::with_plan(plan);
        let b = try_once(&rig.b).await.unwrap();
        let started = Instant::now();
        let error = rig.a.lock(RESOURCE).wait(seconds(wait)).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Conflict, Effect::None), "within {wait} s");
        assert_eq!(started.elapsed(), seconds(wait));
        assert_eq!(rig.a.stats().settling, 0, "nothing is in doubt");
        assert_eq!(error.holder().unwrap().nonce, b.nonce());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_without_hints_is_asked_again_at_growing_pauses() {
    let rig = Rig::with_plan(Plan::none().from(Operation::Watch, 1, Fault::Refuse));
    let b = rig.b.lock(RESOURCE).ttl(seconds(300.0)).acquire().await.unwrap();
    let waiter = tokio::spawn(rig.a.lock(RESOURCE).wait(seconds(100.0)).acquire());
    sleep(seconds(30.0)).await;
    let tries = rig.link.calls(Operation::TryAdd);
    assert!((50..200).contains(&tries), "about three a second, and not {tries} in 30 s");
    let released = Instant::now();
    drop(b);
    drop(waiter.await.unwrap().unwrap());
    assert!(released.elapsed() <= seconds(0.5));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_ends_at_once_is_not_asked_for_all_the_time() {
    let memory = MemoryStore::new();
    let link = Faulty::new(Deaf::new(memory.clone(), || Hints::new(futures_util::stream::empty())));
    let (holding, waiting) = (Locks::new(memory), Locks::new(link.clone()));
    let held = holding.lock(RESOURCE).ttl(seconds(300.0)).acquire().await.unwrap();
    let waiter = tokio::spawn(waiting.lock(RESOURCE).wait(seconds(100.0)).acquire());
    sleep(seconds(20.0)).await;
    let watches = link.store().watches.load(Ordering::Relaxed);
    assert!((2..=5).contains(&watches), "once in a while, and not {watches} times in 20 s");
    let tries = link.calls(Operation::TryAdd);
    assert!(tries < 150, "about three a second, and not {tries} in 20 s");
    drop(held);
    drop(waiter.await.unwrap().unwrap());
}
