//! The in-memory store of Leasehold: for unit tests, and for what stays within one process.
//!
//! It counts time on tokio's clock, so a test can `tokio::time::pause()` and step over an expiry in no time. It spawns
//! no task: what has expired is invisible at once, and the operations that follow reclaim it, in the order of
//! deadlines, a few entries at a time. So no operation pays for more than a few, and memory follows what is live.

mod config;
mod deadlines;
mod error;
mod store;

pub use config::MemoryConfig;
pub use store::MemoryStore;
