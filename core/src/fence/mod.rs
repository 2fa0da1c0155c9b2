//! The resource's side of a fencing token: what is written to refuses an older one, in the same atomic step as the
//! write.
//!
//! A lease alone cannot keep a process that was stopped in the middle of a write from going on when another holds the
//! lease. What can is the resource itself, if it remembers the highest token it has seen. (The rule and the name are
//! Martin Kleppmann's, "How to do distributed locking", 2016.)
//!
//! - [`FencedCell`] guards a value of this process.
//! - [`FenceGate`] guards values in a store.
//! - For a table of your own, put the token in a column and the rule in the `WHERE` of the `UPDATE`.

mod cell;
mod gate;
mod token;

pub use cell::FencedCell;
pub use gate::FenceGate;
pub use token::{Admission, FencePolicy, FencingToken};
