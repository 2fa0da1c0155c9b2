//! What the tests of Leasehold stand on: private servers that can be paused and
//! killed, and a link that can be cut, stalled and made to lose answers.
//!
//! | type | what it is |
//! |---|---|
//! | [`RedisServer`] | a private Redis or Valkey ([`Family`]) |
//! | [`PostgresServer`] | a private Postgres cluster |
//! | [`PgBouncer`] | a connection pooler before such a cluster |
//! | [`Proxy`] | a TCP link to any of them whose faults are switched by the test ([`Mode`]) |
//! | [`eventually`] | waits for a condition instead of sleeping |
//! | [`signal`] | pauses, resumes and kills a process by its id |
//!
//! Everything listens on 127.0.0.1 only, keeps its files in a temporary folder
//! and is gone once its value is dropped. If the test process itself is killed,
//! the kernel takes the servers with it; only the temporary folders stay.
//!
//! The kit is for tests, so what cannot be set up **panics** with the reason and
//! the end of the server's log. A server that is not installed is such a panic,
//! and it names `./scripts/install-servers`; nothing is ever skipped in silence.
//!
//! ```
//! use leasehold_testkit::{Proxy, RedisServer};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let redis = RedisServer::start().await;
//! let link = Proxy::start(redis.addr());
//! // … connect client A to `link.addr()`, client B to `redis.addr()` …
//!
//! link.black_hole(); // A's calls hang from here on, B's do not
//! link.pass();       // and what A sent meanwhile arrives late
//! # });
//! ```

// It holds ports by abstract sockets and ends its servers by what only this kernel does. Elsewhere it is empty, so that
// what has it for a dev-dependency still builds there.
#![cfg(target_os = "linux")]

mod eventually;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
pub mod signal;

pub use eventually::eventually;
pub use pgbouncer::{PgBouncer, PgBouncerBuilder, PoolMode};
pub use port::ReservedPort;
pub use postgres::{PostgresBuilder, PostgresServer};
pub use proxy::{Counts, Mode, Proxy};
pub use redis::{Family, MissingServer, RedisBuilder, RedisServer};
