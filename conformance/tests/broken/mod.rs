//! Stores that are broken on purpose: the memory store with one mistake each.

mod cache;
mod hints;
mod mistake;
mod primitives;
mod rules;
mod table;
mod universe;

pub(crate) use mistake::Mistake;
pub(crate) use table::{SINGLE_FAULTS, table};
pub(crate) use universe::Broken;
