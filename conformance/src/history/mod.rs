//! Concurrent histories: recorded, and searched for an order that explains every answer.
//!
//! A store keeps the contract if each operation can be thought to happen in one instant between its call and its
//! answer. [`Workload::run`] lets some clients loose on a few keys, [`Recorder`](crate::Recorder) writes down what each
//! saw, and [`judge`] looks for those instants, with expiry as an interval. What it finds wanting is shown as a small
//! timeline; the [`History`] can be saved and is judged again by [`replay`].
//!
//! ```
//! use leasehold_conformance::history::{Handles, Tolerance, Workload};
//! use leasehold_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let store = MemoryStore::new();
//! let summary = Workload::stepped(42).run(&Handles::cache([store.clone(), store]), Tolerance::EXACT).await;
//! assert!(summary.is_ok_and(|summary| summary.rounds == 20));
//! # }
//! ```

mod dice;
mod exchange;
mod judge;
mod model;
mod operation;
mod player;
mod run;
mod script;
mod search;
mod timeline;
mod tolerance;
mod value;
mod workload;

pub use exchange::{Answer, Call, Exchange, FoundEntry, History, Origin, SetItem, Stamp};
pub use judge::{Judgement, ReplayError, Undecided, Verdict, Violation, judge, replay};
pub use run::{Cause, Failure, Handles, Summary};
pub use tolerance::Tolerance;
pub use value::Value;
pub use workload::Workload;

pub(crate) use dice::Dice;
