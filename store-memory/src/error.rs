use leasehold_core::{Error, ErrorKind};

use crate::store::NAME;

/// A cursor that this store never gave.
pub(crate) fn foreign_cursor() -> Error {
    Error::new(ErrorKind::InvalidInput, "scan", "the cursor is not one of this store's").with_store(NAME)
}
