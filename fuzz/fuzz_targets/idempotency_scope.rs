//! A scope is read back from the key that its record is stored under, so that no two scopes have the same; and no text
//! panics.

#![no_main]

use arbitrary::Arbitrary;
use leasehold_core::idempotency::Scope;
use leasehold_core::{Code, ErrorKind, Key};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    /// Of a message, or else of a call.
    consumer: Option<String>,
    tenant: Option<String>,
    principal: Option<String>,
    key: String,
    /// What somebody else may have stored.
    stored: String,
    is_ours: bool,
}

fuzz_target!(|input: Input| {
    let Input { consumer, tenant, principal, key, stored, is_ours } = input;
    let mut scope = match consumer {
        Some(consumer) => Scope::message(consumer, key),
        None => Scope::call(key),
    };
    if let Some(tenant) = tenant {
        scope = scope.with_tenant(tenant);
    }
    if let Some(principal) = principal {
        scope = scope.with_principal(principal);
    }
    match scope.stored_key() {
        Ok(stored) => assert_eq!(Scope::of_stored_key(&stored).as_ref(), Some(&scope), "{stored:?}"),
        Err(error) => {
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)), "{scope:?}");
        }
    }
    let stored = if is_ours { format!("idem:{stored}") } else { stored };
    if let Ok(stored) = Key::new(stored)
        && let Some(scope) = Scope::of_stored_key(&stored)
    {
        assert_eq!(scope.stored_key().ok().as_ref(), Some(&stored), "what is listed is found again: {scope:?}");
    }
});
