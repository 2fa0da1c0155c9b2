use std::time::Duration;

use leasehold_conformance::{Faulty, Plan};
use leasehold_core::lock::{Attempt, Holder, Lease, Locks};
use leasehold_core::{AtomicStore, Key};
use leasehold_memory::MemoryStore;
use tokio::time::Instant;

pub(crate) const RESOURCE: &str = "orders:42";

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Two clients of one store, A behind a link that can fail.
pub(crate) struct Rig {
    pub(crate) memory: MemoryStore,
    pub(crate) link: Faulty<MemoryStore>,
    pub(crate) a: Locks,
    pub(crate) b: Locks,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let memory = MemoryStore::new();
        let link = Faulty::new(memory.clone());
        Self { a: Locks::new(link.clone()), b: Locks::new(memory.clone()), memory, link }
    }

    pub(crate) fn with_plan(plan: Plan) -> Self {
        let rig = Self::new();
        rig.link.follow(plan);
        rig
    }

    /// Whether anything is stored for the resource.
    pub(crate) async fn is_free(&self) -> bool {
        self.memory.get(&Key::new(format!("lock:{RESOURCE}")).unwrap()).await.unwrap().is_none()
    }

    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.b.inspect(RESOURCE).await.unwrap()
    }
}

/// One try of a client, with a ttl of 30 s.
pub(crate) async fn try_once(locks: &Locks) -> Option<Lease> {
    match locks.lock(RESOURCE).try_acquire().await.unwrap() {
        Attempt::Acquired(lease) => Some(lease),
        Attempt::Held(_) => None,
    }
}

/// Waits for a condition on stepped time, and fails when it does not come within `limit`.
pub(crate) async fn eventually(limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "the condition did not come within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
