use crate::error::{Code, Error, ErrorKind};
use crate::store::{Key, Part};

/// Whose call it is, and which: the key means nothing outside of its tenant and principal.
///
/// An absent tenant or principal is a scope of its own, and never the same as one that is named anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    tenant: Option<String>,
    principal: Option<String>,
    /// Of a message. It stands where the principal of a call does.
    consumer: Option<String>,
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
        Self { tenant: None, principal: None, consumer: None, key: key.into() }
    }

    /// The scope of a message for this consumer. Two consumers of one message are two scopes.
    pub fn message(consumer: impl Into<String>, id: impl Into<String>) -> Self {
        Self { tenant: None, principal: None, consumer: Some(consumer.into()), key: id.into() }
    }

    /// Whose customer's call it is.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Who calls, as authenticated. A message has a consumer, and with a principal too it has no key: whoever names one
    /// would otherwise have two inboxes meet, or one message handled twice.
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
        self.consumer.as_deref().or(self.principal.as_deref())
    }

    /// The idempotency key or the message's id.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key that its record is stored under. Different scopes have different ones.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with [`Code::InvalidKey`] when a part is empty, has white space or a control character, when the
    /// whole is longer than a [`Key`] may be, or when a message has a principal.
    pub fn stored_key(&self) -> Result<Key, Error> {
        let Self { tenant, principal, consumer, key } = self;
        let refused =
            |message: String| Err(Error::new(ErrorKind::InvalidInput, "begin", message).with_code(Code::InvalidKey));
        let (tenant, principal, consumer) = (tenant.as_deref(), principal.as_deref(), consumer.as_deref());
        for (part, text) in
            [("tenant", tenant), ("principal", principal), ("consumer", consumer), ("key", Some(key.as_str()))]
        {
            if text == Some("") {
                return refused(format!("the {part} of a call must not be empty"));
            }
        }
        let (kind, who) = match (consumer, principal) {
            (Some(_), Some(_)) => return refused("a message has a consumer, and no principal beside it".to_owned()),
            (Some(consumer), None) => (Kind::Message, Some(consumer)),
            (None, principal) => (Kind::Call, principal),
        };
        Key::compose([kind.module().into(), tenant.into(), who.into(), Part::from(key.as_str())])
    }

    /// The scope whose record is stored under this key, or nothing when it is none of ours.
    pub fn of_stored_key(key: &Key) -> Option<Self> {
        let [module, tenant, who, key]: [_; 4] = key.parts()?.try_into().ok()?;
        let (principal, consumer) = match Kind::ALL.into_iter().find(|kind| module.as_deref() == Some(kind.module()))? {
            Kind::Call => (who, None),
            Kind::Message => (None, Some(who?)),
        };
        let scope = Self { tenant, principal, consumer, key: key? };
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
        let who = prop_oneof![
            prop::option::of(part).prop_map(|principal| (principal, None)),
            part.prop_map(|consumer| (None, Some(consumer))),
        ];
        (prop::option::of(part), who, part).prop_map(|(tenant, (principal, consumer), key)| Scope {
            tenant,
            principal,
            consumer,
            key,
        })
    }

    proptest! {
        // That every scope can be read back from its key is what makes the encoding injective.
        #[test]
        fn a_scope_is_read_back_from_its_key(scope in scope()) {
            prop_assert_eq!(Scope::of_stored_key(&scope.stored_key().unwrap()), Some(scope));
        }

        #[test]
        fn no_text_panics(tenant in any::<Option<String>>(), key in any::<String>(), stored in any::<String>()) {
            let scope = Scope { tenant, principal: None, consumer: None, key };
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
        assert!(refused(Scope::message("", "k")).contains("the consumer of a call must not be empty"));
        assert!(refused(Scope::message("c", "k").with_principal("p")).contains("no principal"));
    }

    #[test]
    fn absent_and_named_dash_and_calls_and_messages_stay_apart() {
        let stored = |scope: Scope| scope.stored_key().unwrap();
        assert_ne!(stored(Scope::call("k")), stored(Scope::call("k").with_tenant("-")));
        assert_ne!(stored(Scope::call("k").with_tenant("t")), stored(Scope::call("k").with_principal("t")));
        assert_ne!(stored(Scope::call("k").with_principal("c")), stored(Scope::message("c", "k")));
        assert_eq!(stored(Scope::call("k").with_tenant("a:b")).as_str(), "idem:a%3Ab:-:k");
        let nobodys = Key::new("inbox:-:-:k").unwrap();
        assert_eq!(Scope::of_stored_key(&nobodys), None, "a message has a consumer");
    }
}
