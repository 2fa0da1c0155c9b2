use std::time::Duration;

use leasehold::lock::{Attempt, Holder, Lease, Locks, Renewal};
use leasehold::{CacheStore, KeyPrefix, Store, connect};
use leasehold_testkit::{Family, PostgresServer, Proxy, RedisServer, eventually};
use tokio::time::Instant;

pub(crate) const RESOURCE: &str = "orders:42";

/// "In time": a twentieth of the ttl, and at least 250 ms.
pub(crate) fn slack(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(250))
}

/// Leases are short here, and a store has to give up well within a third of one.
const IMPATIENT: &str = "deadline=400ms";

/// Two clients of one server of their own, A behind a link that can fail.
pub(crate) struct Rig {
    pub(crate) link: Proxy,
    pub(crate) a: Locks,
    pub(crate) b: Locks,
    /// A's way to the store, behind the link.
    #[allow(dead_code, reason = "leases need no more of it than A has")]
    pub(crate) behind: Store,
    /// B's own way to the store.
    pub(crate) store: Store,
    /// Where a process connects to.
    pub(crate) url: String,
    /// Where another client behind the link connects to.
    pub(crate) url_behind: String,
    /// Dropped last, as it ends the server.
    _server: Server,
}

#[expect(dead_code, reason = "it is only kept")]
enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
}

impl Rig {
    /// A rig on Redis or Valkey.
    pub(crate) async fn redis(family: Family) -> Self {
        let server = RedisServer::builder().family(family).start().await;
        let link = Proxy::start(server.addr());
        let through = server.url_through(link.addr());
        Self::on(server.url(), through.clone(), format!("{through}?{IMPATIENT}"), link, Server::Redis(server)).await
    }

    /// A rig on Postgres.
    pub(crate) async fn postgres() -> Self {
        let server = PostgresServer::builder().max_connections(400).start().await;
        let link = Proxy::start(server.addr());
        // Small pools, as a scenario may have a hundred clients. Nothing is swept, as a scenario may count bytes.
        let options = "max_connections=2&sweep_interval=0s";
        let direct = format!("{}?{options}", server.url("postgres"));
        let behind = format!("{}?{options}", server.url_through(link.addr(), "postgres"));
        Self::on(direct, behind.clone(), format!("{behind}&{IMPATIENT}"), link, Server::Postgres(server)).await
    }

    async fn on(url: String, url_behind: String, url_of_a: String, link: Proxy, server: Server) -> Self {
        let store = connect(&url).await.unwrap();
        let behind = connect(&url_of_a).await.unwrap();
        let (a, b) = (Locks::new(behind.clone()), Locks::new(store.clone()));
        let rig = Self { link, a, b, behind, store, url, url_behind, _server: server };
        // The connection is there, so that what fails later is not its handshake.
        assert!(rig.a.inspect(RESOURCE).await.unwrap().is_none());
        rig
    }

    /// Who holds the lease, by B.
    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.b.inspect(RESOURCE).await.unwrap()
    }

    /// Waits until nothing is under way on A's link, such as what a pool asks of a connection that comes back to it.
    pub(crate) async fn quiet(&self) {
        eventually(Duration::from_secs(20), async || {
            let before = self.link.counts();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let counts = self.link.counts();
            counts == before
                && counts.request_bytes_read == counts.request_bytes_forwarded
                && counts.answer_bytes_read == counts.answer_bytes_forwarded
        })
        .await;
    }

    /// Has every connection of A's idle, and the server know the statement or script of an acquire on it, so that the
    /// next costs one trip. The leases that this took are still held.
    pub(crate) async fn warm(&self) -> Vec<Lease> {
        self.warm_up(&self.a).await
    }

    /// The same for another client behind the link.
    pub(crate) async fn warm_up(&self, client: &Locks) -> Vec<Lease> {
        let mut held = Vec::new();
        // Connections take turns, and there are fewer.
        for number in 0..4 {
            self.quiet().await;
            let request = client.lock(format!("warm:{number}")).ttl(Duration::from_secs(300)).renewal(Renewal::Off);
            held.push(request.acquire().await.unwrap());
        }
        self.quiet().await;
        held
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
