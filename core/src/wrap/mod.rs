//! Stores around a store: each adds one behaviour and hands the rest on.
//!
//! A wrapper that forgets a method does not compile (`clippy::missing_trait_methods` is denied on each), so a new
//! method of the contract cannot slip past one unseen.

mod prefixed;
mod timeout;
mod traced;

pub use prefixed::Prefixed;
pub use timeout::WithTimeout;
pub use traced::Traced;
