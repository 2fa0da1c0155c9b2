//! What an idempotent call promises, on the in-memory store and on stepped time. What needs a real server is in the
//! workspace's `tests/`.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

mod claims;
mod dropped;
mod every_fault;
mod first_level;
mod inbox;
mod many_faults;
mod once;
mod operators;
mod outage;
mod refusals;
mod support;
mod unknown_outcome;
mod waiting;
