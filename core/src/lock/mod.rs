//! Leases: locks that end by themselves, know when they are lost, and carry a fencing token.
//!
//! [`Locks`] acquires, [`Lease`] is what is held. There is no half-held handle: what you hold is a `Lease`, or you hold
//! nothing.
//!
//! ```
//! # use leasehold_core::{lock::Locks, Error, Store};
//! # async fn ship(_order: u64, _token: Option<leasehold_core::fence::FencingToken>) {}
//! # async fn example(store: Store) -> Result<(), Error> {
//! let locks = Locks::new(store);
//!
//! let lease = locks.lock("orders:42").acquire().await?;
//! let token = lease.fencing_token();
//! lease.while_held(ship(42, token)).await?;
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A lease is a promise about time, so asking "is it held?" and then writing is a race: the lease can end between the
//! two. Where two writers at once would do harm, let the resource refuse the older one:
//!
//! ```
//! # use leasehold_core::{lock::Lease, fence::{FencedCell, FencePolicy}};
//! # fn wrong_and_right(lease: Lease, register: FencedCell<u64>) {
//! // Wrong: the process may be stopped for a minute right after the check.
//! if lease.check().is_ok() { /* write */ }
//!
//! // Right: the check is part of the write, and made by what is written to.
//! let token = lease.fencing_token().expect("the store mints revisions");
//! let written = register.write(token, FencePolicy::Repeatable, |value| *value += 1);
//! # drop(written);
//! # }
//! ```

mod acquire;
mod admin;
mod hold;
mod keeper;
mod lease;
mod locks;
mod owner;
mod pause;
mod place;
mod queue;
mod reclaim;
mod record;
mod request;
mod term;

pub use acquire::Attempt;
pub use lease::{Lease, Release};
pub use locks::{Locks, LocksBuilder, Stats};
pub use owner::Owner;
pub use record::{Holder, Nonce, NonceSource};
pub use request::{LockRequest, Renewal};
pub use term::{LossReason, Lost};

// A claim of the idempotency module is a lease on its marker.
pub(crate) use owner::process_label;
pub(crate) use pause::{Pauses, Wake, after_expiry, sleep_until_hinted};
pub(crate) use place::{Bid, Place, Placed};
pub(crate) use reclaim::Landed;
pub(crate) use request::plan;
pub(crate) use term::Plan;
