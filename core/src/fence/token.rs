use std::fmt;

use crate::error::{Effect, Error};
use crate::store::Revision;

/// The number of a lease: larger than that of every earlier lease on the same resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(Revision);

impl FencingToken {
    /// A token that came over a wire or out of a column.
    ///
    /// # Errors
    ///
    /// `Corrupt` for zero and from 2^53 on.
    pub fn new(number: u64) -> Result<Self, Error> {
        // Unlike a store's answer to a write, it is about nothing that was sent.
        Revision::new(number).map(Self).map_err(|error| error.with_effect(Effect::None))
    }

    /// The number, to send along with a write.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<Revision> for FencingToken {
    fn from(revision: Revision) -> Self {
        Self(revision)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Whether one holder may write more than once. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FencePolicy {
    /// `token > last`: one write a lease. One that is sent again because its outcome was unknown is refused for its own
    /// token, if it had been made.
    Strict,
    /// `token >= last`: the same holder may write again.
    Repeatable,
}

impl FencePolicy {
    /// Whether a write with `token` may go on after one with `last`.
    pub fn admits(self, token: FencingToken, last: Option<FencingToken>) -> bool {
        match (self, last) {
            (_, None) => true,
            (Self::Strict, Some(last)) => token > last,
            (Self::Repeatable, Some(last)) => token >= last,
        }
    }
}

/// What the resource says to a write. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the write may have been refused"]
pub enum Admission<T = ()> {
    /// It was made.
    Admitted(T),
    /// This one was refused, and changed nothing: a write with `highest` came before. With one's own token as `highest`
    /// that was a write of one's own.
    Stale {
        /// The highest token that the resource has seen.
        highest: FencingToken,
    },
}

impl<T> Admission<T> {
    /// Whether the write was made.
    pub fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_differ_in_the_same_holder_only() {
        let token = |number| FencingToken::new(number).unwrap();
        for policy in [FencePolicy::Strict, FencePolicy::Repeatable] {
            assert!(policy.admits(token(1), None));
            assert!(policy.admits(token(3), Some(token(2))));
            assert!(!policy.admits(token(1), Some(token(2))));
            assert_eq!(policy.admits(token(2), Some(token(2))), policy == FencePolicy::Repeatable);
        }
    }
}
