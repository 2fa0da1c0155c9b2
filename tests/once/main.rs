//! What an idempotent call promises on real servers, through real faults. What needs no server is in
//! `core/tests/idempotency`, on stepped time.

#![cfg(feature = "full")]
#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

mod crowd;
