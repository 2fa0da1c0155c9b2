//! What a store is held to.

mod faulty;

pub use faulty::{Fault, Faulty, Operation, Plan};
