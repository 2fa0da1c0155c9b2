//! The store contract of Leasehold, and what is built on it.
//!
//! Two readers come here:
//!
//! - who **uses** leases and idempotent calls wants [`lock`], [`fence`] and [`idempotency`], mostly through the
//!   `leasehold` facade;
//! - who **writes a store** wants [`store`]: implement [`AtomicStore`] (and [`CacheStore`] for a cache), then
//!   run the conformance suite against it.
//!
//! Everything above the store holds an `Arc<dyn AtomicStore>`, so it can call the primitives and nothing else:
//! a store that keeps the contract is all it needs.

pub mod clock;
mod error;
pub mod fence;
pub mod idempotency;
pub mod lock;
pub mod store;
pub mod wrap;

pub use error::{Code, Effect, Error, ErrorKind};
pub use store::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Expiry, Hint, HintHub, Hints, Key, KeyPrefix,
    Namespace, Outcome, Page, Part, ReplaceOutcome, Revision, Store, Ttl,
};
