//! Doing a thing once: a retried request or a redelivered message gets the first answer, and has no second effect.
//!
//! [`Idempotency`] takes calls, each under a key that the caller chose; [`Inbox`] takes the messages of a consumer.
//!
//! ```
//! # use leasehold_core::{idempotency::Idempotency, Error, Store};
//! # #[derive(serde::Serialize)] struct Charge { cents: u64 }
//! # async fn charge_card(charge: &Charge) -> String { format!("receipt for {}", charge.cents) }
//! # async fn example(store: Store, idempotency_key: &str) -> Result<(), Error> {
//! let once = Idempotency::new(store);
//!
//! let charge = Charge { cents: 4_200 };
//! let receipt = once.call("charge", idempotency_key, &charge).run(async || charge_card(&charge).await).await?;
//! println!("{} (replayed: {})", receipt.value, receipt.replayed);
//! # Ok(())
//! # }
//! ```
//!
//! The first call costs two trips to the store, one that claims the key and one that records the answer; a replay costs
//! one.
//!
//! # When work can run twice
//!
//! A claim is a lease on its marker, and a lease is a promise about time. Work runs again after its process died, or
//! after it stood still, or had no store, for longer than the in-progress ttl, as nobody can tell these from outside.
//! Three things close that:
//!
//! - **The same transaction.** Where the effect is a write to the database that the store is in, complete the claim in
//!   the transaction of the effect: `commit` of `leasehold-postgres`. Then it is exactly once.
//! - **Fencing.** Send [`Claim::fencing_token`] along with the effect, to something that refuses an older one.
//! - **Asking.** [`AfterCrash::OutcomeUnknown`] never runs work again by itself once its process died: an operator says
//!   what became of it. With [`AfterError::AsAfterCrash`] the same goes for work that failed or panicked.
//!
//! ```
//! # use leasehold_core::{idempotency::{Begin, Idempotency}, Error, Store};
//! # async fn ship(_order: u64) {}
//! # async fn wrong_and_right(store: Store, once: Idempotency) -> Result<(), Error> {
//! // Wrong: between the check and the work another may have done both.
//! if store.get(&"shipped:42".try_into()?).await?.is_none() { ship(42).await; /* and then note it */ }
//!
//! // Right: the claim is the check.
//! match once.call("ship", "42", &()).begin().await? {
//!     Begin::Replay(_) => {}
//!     Begin::Claimed(claim) => {
//!         ship(42).await;
//!         claim.complete(&()).await?;
//!     }
//! }
//! # Ok(())
//! # }
//! # use leasehold_core::AtomicStore;
//! ```

mod admin;
mod answer;
mod begin;
mod call;
mod claim;
mod fingerprint;
mod first_level;
mod inbox;
mod record;
mod recording;
mod scope;
mod seal;
mod service;

pub use admin::{RecordInfo, RecordPage, RecordState};
pub use answer::{Answer, CallError, Replay};
pub use begin::Begin;
pub use call::Call;
pub use claim::Claim;
pub use fingerprint::Fingerprint;
pub use inbox::Inbox;
pub use recording::{Completion, Recording};
pub use scope::Scope;
#[cfg(feature = "encryption")]
pub use seal::PayloadKeys;
pub use service::{AfterCrash, AfterError, Idempotency, IdempotencyBuilder};
