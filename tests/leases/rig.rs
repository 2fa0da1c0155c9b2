use std::time::Duration;

use leasehold::lock::{Attempt, Holder, Lease, Locks};
use leasehold::{CacheStore, KeyPrefix, Store, connect};
use leasehold_testkit::{Family, Proxy, RedisServer};
use tokio::time::Instant;

pub(crate) const RESOURCE: &str = "orders:42";

/// "In time": a twentieth of the ttl, and at least 250 ms.
pub(crate) fn slack(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(250))
}

/// Two clients of one server of their own, A behind a link that can fail.
pub(crate) struct Rig {
    pub(crate) link: Proxy,
    pub(crate) a: Locks,
    pub(crate) b: Locks,
    /// B's own way to the store.
    pub(crate) store: Store,
    /// Where a process connects to.
    pub(crate) url: String,
    /// Dropped last, as it ends the server.
    _server: RedisServer,
}

impl Rig {
    /// A rig on Redis or Valkey.
    pub(crate) async fn redis(family: Family) -> Self {
        let server = RedisServer::builder().family(family).start().await;
        let link = Proxy::start(server.addr());
        // Leases are short here, and a store has to give up well within a third of one.
        let behind = format!("{}?deadline=400ms", server.url_through(link.addr()));
        let behind = connect(&behind).await.unwrap();
        let store = connect(&server.url()).await.unwrap();
        let rig = Self {
            link,
            a: Locks::new(behind),
            b: Locks::new(store.clone()),
            store,
            url: server.url(),
            _server: server,
        };
        // The connection is there, so that what fails later is not its handshake.
        assert!(rig.a.inspect(RESOURCE).await.unwrap().is_none());
        rig
    }

    /// Who holds the lease, by B.
    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.b.inspect(RESOURCE).await.unwrap()
    }

    /// Whether nothing of any lease is stored.
    pub(crate) async fn is_empty(&self) -> bool {
        let mut cursor = None;
        loop {
            let page = self.store.scan(&KeyPrefix::new("").unwrap(), cursor).await.unwrap();
            if !page.keys.is_empty() {
                return false;
            }
            cursor = page.next;
            if cursor.is_none() {
                return true;
            }
        }
    }
}

/// One try of a client, with a ttl of 30 s.
pub(crate) async fn try_once(locks: &Locks) -> Option<Lease> {
    match locks.lock(RESOURCE).try_acquire().await.unwrap() {
        Attempt::Acquired(lease) => Some(lease),
        Attempt::Held(_) => None,
    }
}

/// Looks at a condition often for as long as `length`, and fails when it does not hold once.
pub(crate) async fn always(length: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        assert!(condition().await, "the condition held no more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
