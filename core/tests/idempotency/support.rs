use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_conformance::{Faulty, Operation, Plan};
use leasehold_core::idempotency::{Begin, Call, Claim, Idempotency, RecordInfo, Scope};
use leasehold_core::{Code, Error};
use leasehold_memory::MemoryStore;
use tokio::time::Instant;

pub(crate) const KEY: &str = "k-42";
pub(crate) const OPERATION: &str = "charge";
pub(crate) const PAYLOAD: &str = "42.00 EUR";

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Two clients of one store, A behind a link that can fail.
pub(crate) struct Rig {
    pub(crate) memory: MemoryStore,
    pub(crate) link: Faulty<MemoryStore>,
    pub(crate) a: Idempotency,
    pub(crate) b: Idempotency,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Plan::none(), |builder| builder)
    }

    pub(crate) fn with_plan(plan: Plan) -> Self {
        Self::with(plan, |builder| builder)
    }

    /// A rig whose clients have both chosen the same.
    pub(crate) fn with(
        plan: Plan,
        choose: impl Fn(leasehold_core::idempotency::IdempotencyBuilder) -> leasehold_core::idempotency::IdempotencyBuilder,
    ) -> Self {
        let memory = MemoryStore::new();
        let link = Faulty::new(memory.clone());
        link.follow(plan);
        let a = choose(Idempotency::builder(link.clone())).build();
        let b = choose(Idempotency::builder(memory.clone())).build();
        Self { memory, link, a, b }
    }

    pub(crate) async fn record(&self) -> Option<RecordInfo> {
        self.b.inspect(&Scope::call(KEY)).await.unwrap()
    }

    /// How many trips A has made.
    pub(crate) fn trips(&self) -> u32 {
        [Operation::TryAdd, Operation::TryReplace, Operation::TryRemove, Operation::TryExpire, Operation::Get]
            .into_iter()
            .map(|operation| self.link.calls(operation))
            .sum()
    }
}

/// The call that the tests make.
pub(crate) fn call(once: &Idempotency) -> Call {
    once.call(OPERATION, KEY, PAYLOAD)
}

pub(crate) async fn claimed(call: Call) -> Claim {
    match call.begin().await.unwrap() {
        Begin::Claimed(claim) => claim,
        Begin::Replay(replay) => panic!("it was made before: {replay:?}"),
    }
}

pub(crate) async fn replayed(call: Call) -> String {
    match call.begin().await.unwrap() {
        Begin::Replay(replay) => replay.value().unwrap(),
        Begin::Claimed(claim) => panic!("it was not made before: {claim:?}"),
    }
}

pub(crate) async fn refused(call: Call) -> Error {
    match call.begin().await {
        Ok(begin) => panic!("it was not refused: {begin:?}"),
        Err(error) => error,
    }
}

pub(crate) async fn is_in_progress(call: Call) -> bool {
    refused(call).await.code() == Some(Code::CallInProgress)
}

/// Work that counts how often it runs, and answers with that.
#[derive(Clone, Default)]
pub(crate) struct Work(Arc<AtomicU32>);

impl Work {
    pub(crate) fn run(&self) -> u32 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn runs(&self) -> u32 {
        self.0.load(Ordering::Acquire)
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
