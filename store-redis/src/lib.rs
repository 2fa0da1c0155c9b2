//! The Redis and Valkey store of Leasehold: leases, idempotency and a cache for many machines.
//!
//! It needs Redis 7.0 or Valkey 7.2 or newer, and speaks RESP3 over one connection, and one more once somebody waits
//! for hints.
//!
//! - **One script**, called by its hash, in one round trip. What is asked for at the same time goes together: while calls
//!   are under way others gather, and are sent as items of one call. Answers that are far away are not waited for: after
//!   5 ms what has gathered goes on its way.
//! - **Expiry** is the server's own: to the millisecond, never early, and less than a millisecond late.
//! - **Revisions** are `max(floor + 1, server clock in microseconds)`. The floor is a small key that all keys share (in a
//!   Cluster one for each of 1,024 tags); it never expires, so nothing has to be kept of a key that is gone, and a clock
//!   that steps back by any amount takes no revision back. After a flush, a restored backup, or a failover to a replica
//!   that missed the last writes, the floor is lost or old, and revisions still rise if the server's clock is past the
//!   last one.
//! - **Durability** is the server's: after a crash it has what it had persisted, and after a failover what it had
//!   replicated. Both can lose a lease that was granted; the fencing token of the next one is larger all the same, under
//!   the condition above.
//! - **Outages.** Each call has a deadline that also covers the wait for a connection. What may have been sent is never
//!   sent again by this store; [`Effect::None`](leasehold_core::Effect::None) says so where nothing can have happened.
//!   A connection is made anew when it breaks, when it stops answering, and when the server answers as a replica, as an
//!   old primary does behind a name that leads to the new one.

mod combine;
mod config;
mod connection;
mod error;
mod hints;
mod layout;
mod scripts;
mod store;

pub use config::{Address, RedisConfig};
/// The driver, for those who bring a client or a connection of their own.
pub use redis;
pub use store::RedisStore;
