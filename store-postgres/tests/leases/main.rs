//! Leases on a real Postgres where it is special: a pool that is shared with the work, connections that are ended, a
//! server that crashes, transactions of the caller's that stay open, and many processes. What every store goes through
//! is in `tests/leases` of the workspace.
//!
//! `LEASEHOLD_SOAK=1` (`scripts/soak`) makes the long ones long.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::time::Duration;

use leasehold_core::Key;
use leasehold_core::lock::Locks;
use leasehold_postgres::PostgresStore;
use leasehold_testkit::PostgresServer;

mod batches;
mod fencing;
mod forgetting;
mod outages;
mod pools;
mod processes;

const RESOURCE: &str = "orders:42";
const SOON: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

/// "In time": a twentieth of the ttl, and at least 250 ms.
fn slack(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(250))
}

fn is_soak() -> bool {
    std::env::var_os("LEASEHOLD_SOAK").is_some()
}

/// A store with a pool of its own, as another process has.
async fn store_on(server: &PostgresServer, parameters: &str) -> PostgresStore {
    PostgresStore::connect(&format!("{}?{parameters}", server.url("postgres"))).await.unwrap()
}

async fn locks_on(server: &PostgresServer, parameters: &str) -> Locks {
    Locks::new(store_on(server, parameters).await)
}

/// Where the lease on a resource is stored.
fn key_of(resource: &str) -> Key {
    Key::new(format!("lock:{resource}")).unwrap()
}
