use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind};

use crate::store::NAME;

/// Why an operation has no answer. A statement that carried several callers' operations fails for each of them.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    effect: Effect,
    message: Cow<'static, str>,
    cause: Option<Cause>,
}

impl Failure {
    /// What went wrong before anything was sent.
    pub(crate) fn not_sent(error: &sqlx::Error) -> Self {
        let mut failure = Self::of(error);
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Self::no_connection();
        }
        failure.effect = Effect::None;
        if matches!(&failure.cause, Some(Cause::Server { code }) if code == "08P01") {
            failure.message = "what answers refuses how the connection starts, as a pooler does unless the URL says \
                               `pgbouncer=true` (for one in transaction mode) or `startup_settings=false`"
                .into();
        } else if failure.kind == ErrorKind::Unavailable {
            failure.message = "there is no connection to the server, and nothing was sent".into();
        }
        failure
    }

    /// The deadline came first.
    pub(crate) fn no_connection() -> Self {
        Self {
            kind: ErrorKind::Timeout,
            effect: Effect::None,
            message: "no connection could be had in time, and nothing was sent".into(),
            cause: None,
        }
    }

    /// Nobody is there.
    pub(crate) fn refused() -> Self {
        Self {
            kind: ErrorKind::Unavailable,
            effect: Effect::None,
            message: "the server refuses connections, and nothing was sent".into(),
            cause: Some(Cause::Link(std::io::ErrorKind::ConnectionRefused)),
        }
    }

    /// The deadline came while another transaction held the row.
    pub(crate) fn locked_out() -> Self {
        Self {
            kind: ErrorKind::Timeout,
            effect: Effect::None,
            message: "an open transaction held the row all the while".into(),
            cause: None,
        }
    }

    /// No answer came to what was sent.
    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self {
            kind: ErrorKind::Timeout,
            effect: Effect::Unknown,
            message: format!("no answer within {limit:?}").into(),
            cause: None,
        }
    }

    /// The task that had it in hand is gone, as when the runtime shuts down.
    pub(crate) fn abandoned() -> Self {
        Self {
            kind: ErrorKind::Other,
            effect: Effect::Unknown,
            message: "the task that sent it was ended".into(),
            cause: None,
        }
    }

    /// An answer that no statement of ours gives.
    pub(crate) fn unexpected() -> Self {
        Self {
            kind: ErrorKind::Corrupt,
            effect: Effect::Unknown,
            message: "the server's answer is not one of the statement's".into(),
            cause: None,
        }
    }

    /// What went wrong with a statement that was sent.
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        let (kind, effect, message, cause) = match error {
            sqlx::Error::Database(answer) => {
                let code: String =
                    answer.code().unwrap_or_default().chars().take(5).filter(char::is_ascii_alphanumeric).collect();
                let (kind, effect, message) = judge(&code);
                (kind, effect, message, Some(Cause::Server { code }))
            }
            sqlx::Error::Io(io) => {
                (ErrorKind::Unavailable, Effect::Unknown, "the connection broke", Some(Cause::Link(io.kind())))
            }
            sqlx::Error::Tls(_) => (ErrorKind::Unavailable, Effect::Unknown, "the encrypted link failed", None),
            sqlx::Error::PoolTimedOut => return Self::no_connection(),
            sqlx::Error::PoolClosed => (ErrorKind::Unavailable, Effect::None, "the pool is closed", None),
            sqlx::Error::Configuration(_) => {
                (ErrorKind::InvalidInput, Effect::None, "the driver refused the configuration", None)
            }
            sqlx::Error::Protocol(_) => {
                (ErrorKind::Unavailable, Effect::Unknown, "what answered does not speak the protocol", None)
            }
            sqlx::Error::Encode(_) => (ErrorKind::InvalidInput, Effect::None, "the driver cannot encode it", None),
            _ => (ErrorKind::Other, Effect::Unknown, "the driver failed", None),
        };
        Self { kind, effect, message: message.into(), cause }
    }

    /// The same, of a batch of which something was applied before.
    pub(crate) fn after_an_effect(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// Whether it is certain that nothing was applied.
    pub(crate) fn is_without_effect(&self) -> bool {
        self.effect == Effect::None
    }

    /// Whether it is an answer of the server, which leaves the connection as good as it was.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.cause, Some(Cause::Server { .. })) && self.is_without_effect()
    }

    /// Whether another transaction was in the way, so that it is worth another try.
    pub(crate) fn is_contention(&self) -> bool {
        matches!(&self.cause, Some(Cause::Server { code }) if matches!(code.as_str(), "40001" | "40P01" | "55P03"))
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        let Self { kind, effect, message, cause } = self;
        let error = Error::new(kind, operation, message).with_store(NAME).with_effect(effect);
        match cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}

/// What an error of the server says of the statement that it answers.
///
/// A statement that fails is rolled back whole, so nearly every such answer proves that nothing was applied. The
/// exceptions are those that end the session, as they can come after the commit: what the administrator did or a crash
/// (57P01, 57P02), a broken link as a pooler reports it (08…), a failing disk or server (58…, XX…), and what names the
/// doubt itself (40003). A code that is not listed proves nothing.
fn judge(code: &str) -> (ErrorKind, Effect, &'static str) {
    use Effect::{None, Unknown};
    use ErrorKind::{Conflict, Corrupt, Other, Unauthorized, Unavailable};
    match code {
        "40003" => (Unavailable, Unknown, "the server does not know whether the statement was completed"),
        "57P03" => (Unavailable, None, "the server starts or stops, and takes no connection"),
        "57014" => (Unavailable, None, "the statement was cancelled"),
        "42501" => (Unauthorized, None, "the user has no right to the table"),
        "42P01" | "3F000" => (Other, None, "the store's table is not there: run its migration first"),
        "42703" => (Other, None, "the store's table is of another layout"),
        "25006" => (Unavailable, None, "the server or the transaction is read-only"),
        "25P02" => (Conflict, None, "the transaction was aborted by an earlier statement"),
        _ => match code.get(..2).unwrap_or_default() {
            "28" => (Unauthorized, None, "the server refused the user or the password"),
            "3D" => (Unavailable, None, "there is no such database"),
            "40" | "55" => (Unavailable, None, "other transactions were in the way"),
            "53" => (Unavailable, None, "the server has run out of a resource"),
            "54" => (Unavailable, None, "the statement exceeds a limit of the server"),
            "22" | "23" => (Corrupt, None, "the server refused the values"),
            "0A" | "25" | "26" | "34" | "42" => (Other, None, "the server refused the statement"),
            "08" | "57" | "58" => (Unavailable, Unknown, "the server ended the connection"),
            _ => (Other, Unknown, "the server answered with an error"),
        },
    }
}

/// What is told of the cause. The server's own text is left out: it quotes keys and values.
#[derive(Debug, Clone)]
enum Cause {
    Server { code: String },
    Link(std::io::ErrorKind),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { code } => write!(f, "the server said SQLSTATE {code}"),
            Self::Link(kind) => write!(f, "{kind}"),
        }
    }
}

impl std::error::Error for Cause {}

/// A cursor that this store never gave.
pub(crate) fn foreign_cursor() -> Error {
    Error::new(ErrorKind::InvalidInput, "scan", "the cursor is not one of this store's").with_store(NAME)
}

/// Hints that are switched off, or cannot be.
pub(crate) fn no_hints(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, message).with_store(NAME)
}

/// A configuration that breaks a rule. The message must not show a password.
pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidInput, "connect", message).with_store(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rolls_back_proves_that_nothing_was_applied() {
        for code in ["40001", "40P01", "55P03", "23505", "22001", "42P01", "57014", "57P03", "53300", "28P01", "25006"]
        {
            assert_eq!(judge(code).1, Effect::None, "{code}");
        }
        for code in ["57P01", "57P02", "08006", "58030", "XX000", "40003", "P0001", "", "ü"] {
            assert_eq!(judge(code).1, Effect::Unknown, "{code}");
        }
    }
}
