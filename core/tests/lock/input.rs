use std::time::Duration;

use leasehold_conformance::Operation;
use leasehold_core::CacheStore;
use leasehold_core::lock::{LockRequest, Locks, Nonce, Owner, Renewal};
use leasehold_core::{AtomicStore, Capabilities, Code, Effect, Error, ErrorKind, Expiry, Key, Outcome};
use proptest::prelude::*;

use crate::support::{RESOURCE, Rig, seconds};

async fn refused(change: impl FnOnce(LockRequest) -> LockRequest) -> String {
    let rig = Rig::new();
    let error = change(rig.a.lock(RESOURCE)).acquire().await.expect_err("an invalid request");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    for operation in Operation::ALL {
        assert_eq!(rig.link.calls(operation), 0, "nothing is sent");
    }
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn what_breaks_a_rule_is_refused_by_value_and_rule_before_anything_is_sent() {
    let ms = Duration::from_millis;
    for (message, parts) in [
        (refused(|lock| lock.ttl(Duration::ZERO)).await, ["0ns", "1 ms to 366 days"]),
        (refused(|lock| lock.ttl(seconds(367.0 * 86_400.0))).await, ["31708800s", "1 ms to 366 days"]),
        (refused(|lock| lock.ttl(Duration::MAX)).await, ["is not", "1 ms to 366 days"]),
        (refused(|lock| lock.ttl(ms(2))).await, ["2ms", "drift margin"]),
        (refused(|lock| lock.renewal(Renewal::Every(Duration::ZERO))).await, ["0ns", "above zero"]),
        (refused(|lock| lock.ttl(ms(1000)).renewal(Renewal::Every(ms(1000)))).await, ["1s", "below 988ms"]),
        (refused(|lock| lock.ttl(ms(1000)).renewal(Renewal::Every(ms(990)))).await, ["990ms", "below 988ms"]),
        (refused(|lock| lock.renewal(Renewal::Every(Duration::MAX))).await, ["is not", "above zero"]),
        (refused(|lock| lock.max_hold(Duration::ZERO)).await, ["0ns", "above zero"]),
        (refused(|lock| lock.owner("")).await, ["\"\"", "1 to 256 bytes"]),
        (refused(|lock| lock.owner("a\nb")).await, ["a\\nb", "control character"]),
        (refused(|lock| lock.owner(Owner::new("x".repeat(257)))).await, ["257 characters", "1 to 256 bytes"]),
    ] {
        for part in parts {
            assert!(message.contains(part), "{message} names {part}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_resource_is_refused_before_anything_is_sent() {
    let rig = Rig::new();
    let long = "x".repeat(508);
    for resource in ["", "two words", "a\tb", "a\u{0}b", long.as_str()] {
        let error = rig.a.lock(resource).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)));
        assert!(rig.a.inspect(resource).await.is_err());
        assert!(rig.a.force_release(resource).await.is_err());
        assert!(rig.a.release_by_token(resource, Nonce::from_bytes([1; 16])).await.is_err());
    }
    for operation in Operation::ALL {
        assert_eq!(rig.link.calls(operation), 0);
    }
    drop(rig.a.lock(&long[..507]).acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_another_wrote_there_is_corrupt_and_stays() {
    let rig = Rig::new();
    let key = Key::new(format!("lock:{RESOURCE}")).unwrap();
    rig.memory.set(&key, "not a lease".into(), Expiry::Never).await.unwrap();
    let error = rig.a.lock(RESOURCE).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::None));
    assert!(!format!("{error:?} {error:#}").contains("not a lease on"), "no stored value is shown");
    for error in [rig.a.inspect(RESOURCE).await.unwrap_err(), rig.a.force_release(RESOURCE).await.unwrap_err()] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::None));
    }
    assert!(!rig.is_free().await);
}

/// A store that mints no revisions, as a quorum of independent servers does not.
struct Unfenced(leasehold_memory::MemoryStore);

#[async_trait::async_trait]
impl AtomicStore for Unfenced {
    fn name(&self) -> &'static str {
        "unfenced"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_revisions(false)
    }

    async fn try_add(
        &self,
        key: &Key,
        value: bytes::Bytes,
        ttl: leasehold_core::Ttl,
    ) -> Result<leasehold_core::AddOutcome, Error> {
        self.0.try_add(key, value, ttl).await
    }

    async fn try_replace(
        &self,
        key: &Key,
        expected: &[u8],
        value: bytes::Bytes,
        ttl: leasehold_core::Ttl,
    ) -> Result<leasehold_core::ReplaceOutcome, Error> {
        self.0.try_replace(key, expected, value, ttl).await
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.0.try_remove(key, expected).await
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: leasehold_core::Ttl) -> Result<Outcome, Error> {
        self.0.try_expire(key, expected, ttl).await
    }

    async fn get(&self, key: &Key) -> Result<Option<leasehold_core::Entry>, Error> {
        self.0.get(key).await
    }

    async fn watch(&self, key: &Key) -> Result<leasehold_core::Hints, Error> {
        self.0.watch(key).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_without_revisions_gives_no_token_and_fencing_can_be_required() {
    let memory = leasehold_memory::MemoryStore::new();
    let locks = Locks::new(Unfenced(memory.clone()));
    let lease = locks.lock("plain").acquire().await.unwrap();
    assert_eq!(lease.fencing_token(), None);
    let error = locks.lock("fenced").require_fencing().acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.store()), (ErrorKind::Unsupported, Some("unfenced")));
    assert_eq!(memory.len(), 1, "nothing was sent");
    drop(Locks::new(memory).lock("fenced").require_fencing().acquire().await.unwrap());
}

proptest! {
    #[test]
    fn no_request_panics(resource: String, ttl: u64, every: u64, wait: u64, hold: u64, label: String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new();
            let _ = rig
                .a
                .lock(resource)
                .ttl(Duration::from_micros(ttl))
                .renewal(Renewal::Every(Duration::from_nanos(every)))
                .wait(Duration::from_micros(wait))
                .max_hold(Duration::from_micros(hold))
                .owner(label)
                .try_acquire()
                .await;
        });
    }
}
