use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::lock::Holder;

/// What went wrong, whether the operation may have happened all the same, and where.
///
/// An error means that the question could not be answered. "Taken", "not mine" and "absent" are answers and never
/// come as errors from a store; a lease that was not got in time is one, of kind [`ErrorKind::Conflict`].
///
/// It has three faces: `{}` is one line for a log, `{:#}` adds the chain of sources, and the methods give the parts.
/// No rendering holds a stored value or a credential.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    effect: Effect,
    code: Option<Code>,
    operation: &'static str,
    store: Option<&'static str>,
    message: Cow<'static, str>,
    holder: Option<Holder>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], for code that decides what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached. It is never to be read as "not held" or "no record".
    Unavailable,
    /// No answer came within the limit.
    Timeout,
    /// The store refused the credentials, or the right to this operation.
    Unauthorized,
    /// An argument breaks a rule that the message names. Nothing was sent.
    InvalidInput,
    /// The store lacks the capability, and says so.
    Unsupported,
    /// What is stored there was not written by this library, or by a version that this one cannot read.
    Corrupt,
    /// Somebody else has it.
    Conflict,
    /// It was held, and is not any more.
    Lost,
    /// Anything else; the source tells more.
    Other,
}

/// Whether the operation that failed may have changed the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Surely not applied: it is safe to send again.
    None,
    /// It may have been applied, or may yet be: a request can be parked on its way and land later.
    Unknown,
}

/// A stable code for callers across a wire, and the HTTP status that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// `CACHING_CONFLICT_001`: the lock is held by someone else.
    LockHeld,
    /// `CACHING_CONFLICT_002`: a call with this idempotency key is in progress.
    CallInProgress,
    /// `CACHING_CONFLICT_003`: the record cannot be replayed for this call.
    NotReplayable,
    /// `CACHING_VALIDATION_001`: the key, or another part of the call, is not valid.
    InvalidKey,
    /// `CACHING_VALIDATION_002`: the key was used with another payload.
    PayloadMismatch,
    /// `CACHING_UNAVAILABLE_001`: the store cannot be reached.
    StoreUnavailable,
}

impl Code {
    /// The code as it goes over a wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LockHeld => "CACHING_CONFLICT_001",
            Self::CallInProgress => "CACHING_CONFLICT_002",
            Self::NotReplayable => "CACHING_CONFLICT_003",
            Self::InvalidKey => "CACHING_VALIDATION_001",
            Self::PayloadMismatch => "CACHING_VALIDATION_002",
            Self::StoreUnavailable => "CACHING_UNAVAILABLE_001",
        }
    }

    /// The HTTP status that a server answers with.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::LockHeld | Self::CallInProgress | Self::NotReplayable => 409,
            Self::InvalidKey => 400,
            Self::PayloadMismatch => 422,
            Self::StoreUnavailable => 503,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// An error of `operation` (a method's name, such as `try_add`). `message` names the value and the rule; it must
    /// hold neither a stored value nor a credential.
    ///
    /// The effect starts as `None` for the kinds that are decided before anything is sent (`InvalidInput`,
    /// `Unsupported`) and for `Conflict`, and as `Unknown` for all others: a store says `None` only where it can
    /// prove it. `Unavailable` and `Timeout` carry [`Code::StoreUnavailable`] from the start.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let effect = match kind {
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Conflict => Effect::None,
            _ => Effect::Unknown,
        };
        let code = match kind {
            ErrorKind::Unavailable | ErrorKind::Timeout => Some(Code::StoreUnavailable),
            _ => None,
        };
        Self(Box::new(Inner {
            kind,
            effect,
            code,
            operation,
            store: None,
            message: message.into(),
            holder: None,
            retry_after: None,
            source: None,
        }))
    }

    /// Says whether the operation may have been applied.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Adds the stable code.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.0.code = Some(code);
        self
    }

    /// Names the store that the operation ran on.
    #[must_use]
    pub fn with_store(mut self, store: &'static str) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Adds the cause. Its rendering must hold neither a stored value nor a credential.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says who holds what the caller wanted.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.0.holder = Some(holder);
        self
    }

    /// Says when it may be worth while to try again.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.0.retry_after = Some(pause);
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have been applied.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The stable code, where there is one.
    pub fn code(&self) -> Option<Code> {
        self.0.code
    }

    /// The operation that failed, such as `try_add` or `acquire`.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The store that it ran on, where one was asked.
    pub fn store(&self) -> Option<&'static str> {
        self.0.store
    }

    /// When it may be worth while to try again, for a call that is in progress.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Who held the lock, for a [`ErrorKind::Conflict`] of a lease.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::InvalidInput => "invalid input",
            Self::Unsupported => "unsupported",
            Self::Corrupt => "corrupt",
            Self::Conflict => "conflict",
            Self::Lost => "lost",
            Self::Other => "error",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, effect, code, operation, store, message, holder: _, retry_after: _, source: _ } = &*self.0;
        write!(f, "{operation}")?;
        if let Some(store) = store {
            write!(f, " on {store}")?;
        }
        write!(f, ": {kind}: {message}")?;
        if *effect == Effect::Unknown {
            f.write_str(" (it may have been applied)")?;
        }
        if let Some(code) = code {
            write!(f, " [{code}]")?;
        }
        if f.alternate() {
            let mut cause = self.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, effect, code, operation, store, message, holder, retry_after, source } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("effect", effect)
            .field("code", code)
            .field("operation", operation)
            .field("store", store)
            .field("message", message)
            .field("holder", holder)
            .field("retry_after", retry_after)
            .field("source", source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

// What cannot fail converts like what can, so that `impl TryInto<Key>` takes a `Key` as well as a `&str`.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Shows a value in an error message: quoted, escaped, and cut to a length that a log line bears.
pub(crate) fn shown(value: &str) -> String {
    const LONGEST: usize = 64;
    match value.char_indices().nth(LONGEST) {
        None => format!("{value:?}"),
        Some((cut, _)) => format!("{:?}… ({} characters)", &value[..cut], value.chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_operation_store_kind_effect_and_code() {
        let error = Error::new(ErrorKind::Timeout, "try_add", "no answer within 2s")
            .with_store("redis")
            .with_source(std::io::Error::other("link down"));
        assert_eq!(
            error.to_string(),
            "try_add on redis: timeout: no answer within 2s (it may have been applied) [CACHING_UNAVAILABLE_001]"
        );
        assert!(format!("{error:#}").ends_with(": link down"));
        assert_eq!(error.effect(), Effect::Unknown);
    }

    #[test]
    fn what_is_decided_before_sending_has_no_effect() {
        for kind in [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::Conflict] {
            assert_eq!(Error::new(kind, "x", "y").effect(), Effect::None);
        }
    }

    #[test]
    fn long_values_are_cut_and_control_characters_escaped() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        let long = shown(&"ü".repeat(600));
        assert!(long.ends_with("… (600 characters)") && long.len() < 200, "{long}");
    }
}
