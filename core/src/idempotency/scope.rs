use crate::error::{Code, Error, ErrorKind};
use crate::store::{Key, Part};

/// Whose call it is, and which: the key means nothing outside of its tenant and principal.
///
/// An absent tenant or principal is a scope of its own, and never the same as one that is named anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    kind: Kind,
    tenant: Option<String>,
    /// Of a message, its consumer.
    principal: Option<String>,
    key: String,
}

/// What a record is of. Calls and messages never meet, as their stored keys begin differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Call,
    Message,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Call, Self::Message];

    /// The first part of a stored key.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Call => "idem",
            Self::Message => "inbox",
        }
    }
}

impl Scope {
    /// The scope of a call with this idempotency key, of no tenant and no principal.
    pub fn call(key: impl Into<String>) -> Self {
        Self { kind: Kind::Call, tenant: None, principal: None, key: key.into() }
    }

    /// The scope of a message for this consumer. Two consumers of one message are two scopes.
    pub fn message(consumer: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: Kind::Message, tenant: None, principal: Some(consumer.into()), key: id.into() }
    }

    /// Whose customer's call it is.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Who calls, as authenticated. For a message, this is its consumer.
    #[must_use]
    pub fn with_principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// The tenant, if there is one.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The principal or the consumer, if there is one.
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// The idempotency key or the message's id.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key that its record is stored under. Different scopes have different ones.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with [`Code::InvalidKey`] when a part is empty, has white space or a control character, or when
    /// the whole is longer than a [`Key`] may be.
    pub fn stored_key(&self) -> Result<Key, Error> {
        let Self { kind, tenant, principal, key } = self;
        let (tenant, principal) = (tenant.as_deref(), principal.as_deref());
        for (part, text) in [("tenant", tenant), ("principal", principal), ("key", Some(key.as_str()))] {
            if text == Some("") {
                let message = format!("the {part} of a call must not be empty");
                return Err(Error::new(ErrorKind::InvalidInput, "begin", message).with_code(Code::InvalidKey));
            }
        }
        Key::compose([kind.module().into(), tenant.into(), principal.into(), Part::from(key.as_str())])
    }

    /// The scope whose record is stored under this key, or nothing when it is none of ours.
    pub fn of_stored_key(key: &Key) -> Option<Self> {
        let [module, tenant, principal, key]: [_; 4] = key.parts()?.try_into().ok()?;
        let kind = Kind::ALL.into_iter().find(|kind| module.as_deref() == Some(kind.module()))?;
        let scope = Self { kind, tenant, principal, key: key? };
        // What we would have refused to write is not ours.
        scope.stored_key().is_ok().then_some(scope)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope() -> impl Strategy<Value = Scope> {
        let part = "[a:%\\-2D3Aü]{1,6}";
        (any::<bool>(), prop::option::of(part), prop::option::of(part), part).prop_map(
            |(call, tenant, principal, key)| Scope {
                kind: if call { Kind::Call } else { Kind::Message },
                tenant,
                principal,
                key,
            },
        )
    }

    proptest! {
        // That every scope can be read back from its key is what makes the encoding injective.
        #[test]
        fn a_scope_is_read_back_from_its_key(scope in scope()) {
            prop_assert_eq!(Scope::of_stored_key(&scope.stored_key().unwrap()), Some(scope));
        }

        #[test]
        fn no_text_panics(tenant in any::<Option<String>>(), key in any::<String>(), stored in any::<String>()) {
            let scope = Scope { kind: Kind::Call, tenant, principal: None, key };
            if let Ok(stored) = scope.stored_key() {
                prop_assert_eq!(Scope::of_stored_key(&stored), Some(scope));
            }
            if let Ok(stored) = Key::new(stored) {
                let _ = Scope::of_stored_key(&stored);
            }
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_by_rule() {
        let refused = |scope: Scope| {
            let error = scope.stored_key().unwrap_err();
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)));
            error.to_string()
        };
        assert!(refused(Scope::call("")).contains("the key of a call must not be empty"));
        assert!(refused(Scope::call("k").with_tenant("")).contains("tenant"));
        assert!(refused(Scope::call("two words")).contains("white space"));
        assert!(refused(Scope::call("k").with_principal("p\n")).contains("control character"));
        assert!(refused(Scope::call("k".repeat(510))).contains("at most 512 characters"));
    }

    #[test]
    fn absent_and_named_dash_and_calls_and_messages_stay_apart() {
        let stored = |scope: Scope| scope.stored_key().unwrap();
        assert_ne!(stored(Scope::call("k")), stored(Scope::call("k").with_tenant("-")));
        assert_ne!(stored(Scope::call("k").with_tenant("t")), stored(Scope::call("k").with_principal("t")));
        assert_ne!(stored(Scope::call("k").with_principal("c")), stored(Scope::message("c", "k")));
        assert_eq!(stored(Scope::call("k").with_tenant("a:b")).as_str(), "idem:a%3Ab:-:k");
    }
}
