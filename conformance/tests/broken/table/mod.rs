//! Each mistake, and exactly the checks that find it, with white space between them.

mod beyond;
mod primitives;

use super::Mistake;

pub(crate) fn table() -> impl Iterator<Item = (Mistake, &'static str)> {
    [primitives::ROWS, beyond::ROWS].into_iter().flatten().copied()
}

/// What the checks of every single fault are to find. They are long, and on their way they meet much that other checks are
/// about, or miss it by a jitter, so that only what they must not miss is here.
pub(crate) const SINGLE_FAULTS: &[(Mistake, &str)] = &[
    (Mistake::AddOverwrites, "leases::survive_every_single_fault idempotency::survives_every_single_fault"),
    (Mistake::RemoveIgnoresExpected, "leases::survive_every_single_fault idempotency::survives_every_single_fault"),
    (Mistake::ExpireOnlyShortens, "leases::survive_every_single_fault idempotency::survives_every_single_fault"),
    (Mistake::LockStaysTakenWhenDropped, "leases::survive_every_single_fault idempotency::survives_every_single_fault"),
    (Mistake::RevisionsGoBackAfterRemoval, "leases::survive_every_single_fault"),
    (Mistake::ReplaceKeepsTheTtl, "idempotency::survives_every_single_fault"),
    (Mistake::ExpireIgnoresExpected, "idempotency::survives_every_single_fault"),
];
