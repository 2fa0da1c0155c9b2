use async_trait::async_trait;
use bytes::Bytes;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::lock::{Locks, Renewal};
use leasehold_core::{
    AddOutcome, AtomicStore, Capabilities, Effect, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome, Ttl,
};
use leasehold_memory::MemoryStore;
use tokio::time::{Instant, sleep};

use crate::support::{RESOURCE, Rig, eventually, seconds, try_once};

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_neither_busy_nor_held_and_is_reclaimed() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::LoseAnswer));
    let error = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
    assert_eq!(rig.a.stats().held, 0);
    let started = Instant::now();
    let b = rig.b.lock(RESOURCE).acquire().await.unwrap();
    assert!(started.elapsed() < seconds(0.3), "well before the ttl: {:?}", started.elapsed());
    rig.a.close().await;
    b.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_lands_after_its_reclaim_is_reclaimed_again() {
    for parked in [0.01, 0.3, 2.0, 20.0] {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(parked))));
        let error = rig.a.lock(RESOURCE).acquire().await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown);
        assert!(rig.is_free().await);
        sleep(seconds(parked + 0.001)).await;
        let removals = rig.link.calls(Operation::TryRemove);
        // About as long again as it was parked, and at most a tenth of what a transport may take.
        eventually(seconds((parked * 2.0 + 0.2).min(6.0)), async || rig.is_free().await).await;
        rig.a.close().await;
        assert!(removals > 0 && rig.is_free().await, "parked for {parked} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_gives_up_when_nothing_can_land_any_more() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayRequest(seconds(1e6))));
    let started = Instant::now();
    drop(rig.a.lock(RESOURCE).ttl(seconds(3.0)).wait(seconds(1.0)).acquire().await.unwrap_err());
    assert_eq!(rig.a.stats().settling, 1);
    rig.a.close().await;
    let removals = rig.link.calls(Operation::TryRemove);
    assert!((10..=30).contains(&removals), "a doubt costs a few trips, and not {removals}");
    assert!(started.elapsed() < seconds(1.0 + 3.0 + 60.0 + 2.0), "the ttl, and as long as a transport holds back");
    assert_eq!(rig.a.stats().settling, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_goes_on_while_the_store_refuses() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::LoseAnswer).from(Operation::TryRemove, 1, Fault::Refuse);
    let rig = Rig::with_plan(plan);
    drop(rig.a.lock(RESOURCE).acquire().await.unwrap_err());
    sleep(seconds(10.0)).await;
    assert!(!rig.is_free().await);
    rig.link.follow(Plan::none());
    eventually(seconds(1.1), async || rig.is_free().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_only_a_grant_while_it_lives() {
    let ttl = seconds(2.0);
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayAnswer(seconds(3.0))));
    let error = rig.a.lock(RESOURCE).ttl(ttl).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
    assert_eq!(rig.a.stats().held, 0);

    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayAnswer(seconds(1.5))));
    let sent = Instant::now();
    let lease = rig.a.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).acquire().await.unwrap();
    assert!(lease.remaining() <= ttl.saturating_sub(sent.elapsed()), "counted from the send");
    sleep(lease.remaining()).await;
    assert!(lease.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_surely_not_applied_is_not_reclaimed() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, Fault::Refuse));
    let error = rig.a.lock(RESOURCE).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert_eq!(rig.a.stats().settling, 0);
    assert_eq!(rig.link.calls(Operation::TryRemove), 0);
}

/// A layer that sends each add twice and passes on the second answer, as a proxy that retries does.
struct Twice(MemoryStore);

#[async_trait]
impl AtomicStore for Twice {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        let _first = self.0.try_add(key, value.clone(), ttl).await?;
        self.0.try_add(key, value, ttl).await
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.0.try_replace(key, expected, value, ttl).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.0.try_remove(key, expected).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.0.try_expire(key, expected, ttl).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.0.get(key).await
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.0.watch(key).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_token_was_lost_on_the_way_starts_anew() {
    let memory = MemoryStore::new();
    let (twice, plain) = (Locks::new(Twice(memory.clone())), Locks::new(memory.clone()));
    let earlier = try_once(&plain).await.unwrap();
    let token = earlier.fencing_token();
    assert_eq!(earlier.release().await.unwrap(), leasehold_core::lock::Release::Released);
    let lease = twice.lock(RESOURCE).acquire().await.unwrap();
    assert!(lease.fencing_token() > token);
    assert_eq!(plain.inspect(RESOURCE).await.unwrap().unwrap().nonce, lease.nonce());
    lease.renew().await.unwrap();
    drop(lease);
    twice.close().await;
    assert!(memory.is_empty() && twice.stats() == Default::default());
}
