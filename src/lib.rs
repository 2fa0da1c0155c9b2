//! Leases with fencing tokens, and calls that have their effect once, on the store that you have.
//!
//! ```
//! use leasehold::lock::Locks;
//!
//! # async fn ship(_order: u64, _token: Option<leasehold::fence::FencingToken>) -> std::io::Result<()> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = leasehold::connect("memory://").await?;
//! let locks = Locks::new(store);
//!
//! let lease = locks.lock("orders:42").acquire().await?;    // waits its turn, then renews itself
//! let token = lease.fencing_token();                       // what you write to can refuse an older one
//! lease.while_held(ship(42, token)).await??;               // dropped at its next await if the lease is lost
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | feature | store | URL |
//! |---|---|---|
//! | `memory` (default) | in this process, for unit tests and single processes | `memory://`, `memory://name` |
//! | `postgres` | in the Postgres database that you have | `postgres://`, `postgresql://` |
//! | `postgres-tls` | the same, over TLS | `postgres://…?sslmode=verify-full` |
//! | `redis` | Redis and Valkey, for many machines | `redis://`, `redis+unix://` |
//! | `redis-tls` | the same, over TLS | `rediss://` |
//! | `encryption` | none: recorded answers of idempotent calls can be encrypted | |
//! | `full` | all of them | |

mod connect;

pub use connect::connect;
pub use leasehold_core::*;
#[cfg(feature = "memory")]
pub use leasehold_memory as memory;
#[cfg(feature = "postgres")]
pub use leasehold_postgres as postgres;
#[cfg(feature = "redis")]
pub use leasehold_redis as redis;

// The examples of the documents compile and run as doc tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/leases.md")]
    mod leases {}
    #[doc = include_str!("../docs/idempotency.md")]
    mod idempotency {}
    #[doc = include_str!("../docs/writing-a-store.md")]
    mod writing_a_store {}
}
