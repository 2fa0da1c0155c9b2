//! What a store is held to.

mod faulty;
pub mod history;
mod recorded;

pub use faulty::{Fault, Faulty, Operation, Plan};
pub use recorded::{Recorded, Recorder};
