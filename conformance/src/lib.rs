//! What a store is held to.
//!
//! A test without a harness of its own is all that the author of a store writes:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! # use leasehold_memory::MemoryStore;
//! # struct MyStore;
//! # impl MyStore { async fn connect(_: &str, ns: String) -> std::io::Result<MemoryStore> { Ok(MemoryStore::named(&ns)) } }
//! fn main() -> std::process::ExitCode {
//!     leasehold_conformance::Suite::new("mystore", |ns| async move { MyStore::connect("my://localhost", ns).await }).run()
//! }
//! ```
//!
//! The suite owns the list of checks, so a new version brings new ones to everybody. See [`Suite`].

mod capability;
mod checks;
mod faulty;
mod handle;
pub mod history;
mod open;
mod other_process;
mod recorded;
mod report;
mod runner;
mod subject;
mod suite;
mod timing;
mod verdict;

pub use capability::{Capability, UnknownCapability};
pub use faulty::{Fault, Faulty, Operation, Plan};
pub use open::{ByResult, ByValue, IntoAtomicStore, IntoCacheStore};
pub use recorded::{Recorded, Recorder};
pub use report::{CheckReport, Report, Status};
pub use suite::{Selection, Suite};
