//! What a lease promises, on the in-memory store and on stepped time. What needs a real server is in the workspace's
//! `tests/`.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

mod cancellation;
mod every_fault;
mod fencing;
mod input;
mod leaves_nothing;
mod loss;
mod release;
mod renewal;
mod runtimes;
mod sharing;
mod support;
mod unknown_outcome;
mod waiting;
