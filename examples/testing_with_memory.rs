//! How code that uses leases is tested: on the in-memory store, with a clock that the test steps. Expiry takes no time.
//!
//! Under a paused clock the two ways to let time pass differ as life does:
//!
//! - `sleep` lets everything that is due on the way happen, renewals among it: the process runs.
//! - `advance` jumps over it all at once: the process was frozen, and finds out when it wakes.

use std::time::Duration;

use leasehold::lock::{Attempt, Locks, Release};
use tokio::time::{advance, sleep};

const TTL: Duration = Duration::from_secs(30);

/// The code under test.
async fn close_month(locks: &Locks) -> Result<bool, leasehold::Error> {
    match locks.lock("ledger").ttl(TTL).try_acquire().await? {
        Attempt::Held(_) => Ok(false),
        Attempt::Acquired(lease) => Ok(lease.while_held(sleep(Duration::from_secs(3600))).await.is_ok()),
    }
}

// In a test this line reads #[tokio::test(start_paused = true)].
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), leasehold::Error> {
    // Two processes that share a store: two `Locks`.
    let store = leasehold::connect("memory://").await?;
    let (ours, theirs) = (Locks::new(store.clone()), Locks::new(store));

    // An hour of work under a lease of 30 s: it is renewed, as the process runs.
    assert!(close_month(&ours).await?);

    // Somebody else has it.
    let lease = theirs.lock("ledger").ttl(TTL).acquire().await?;
    assert!(!close_month(&ours).await?);

    // They are alive: however long we wait, it stays theirs.
    sleep(TTL * 10).await;
    assert!(!close_month(&ours).await?);

    // They freeze for longer than the ttl. Their first look says that it is lost, and it is ours to have.
    advance(TTL).await;
    assert!(lease.check().is_err());
    assert!(close_month(&ours).await?);
    assert_eq!(lease.release().await?, Release::AlreadyLost);

    println!("hours of leases, tested in no time");
    Ok(())
}
