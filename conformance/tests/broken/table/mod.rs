//! Each mistake, and exactly the checks that find it, with white space between them.

mod beyond;
mod primitives;

use super::Mistake;

pub(crate) fn table() -> impl Iterator<Item = (Mistake, &'static str)> {
    [primitives::ROWS, beyond::ROWS].into_iter().flatten().copied()
}
