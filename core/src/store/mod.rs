//! The seam between Leasehold and a store.
//!
//! [`AtomicStore`] is what leases and idempotency need; [`CacheStore`] adds what a cache needs. Both are the whole
//! contract: nobody implements a convenience. The types that cross the seam ([`Key`], [`Ttl`], [`Expiry`]) are valid
//! when a store sees them, so that a driver stays small.

mod atomic;
mod cache;
mod capabilities;
mod entry;
mod handle;
mod hints;
mod key;
mod ttl;

pub use atomic::AtomicStore;
pub use cache::{CacheStore, Cursor, Page};
pub use capabilities::Capabilities;
pub use entry::{AddOutcome, Entry, Outcome, ReplaceOutcome, Revision};
pub use handle::Store;
pub use hints::{Hint, HintHub, Hints};
pub use key::{Key, KeyPrefix, Namespace, Part};
pub use ttl::{Expiry, Ttl};
