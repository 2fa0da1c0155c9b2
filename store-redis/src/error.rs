use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind};
use redis::{ErrorKind as DriverKind, RedisError, ServerError};

use crate::store::NAME;

/// The answers of a server that prove that nothing was written, by their code, each with its kind and what it means.
/// After every other one a write may have been applied.
///
/// Those that the commands of a script raise (`OOM`, `READONLY`, `NOPERM`, `WRONGTYPE` and the like) prove it because each
/// item of a script reads first, and its first write is refused before any is done.
const REFUSALS: &[(&str, ErrorKind, &str)] = &[
    // Refused before the command is looked at.
    ("NOAUTH", ErrorKind::Unauthorized, "the connection is not authenticated"),
    ("WRONGPASS", ErrorKind::Unauthorized, "the user or the password is wrong"),
    ("LOADING", ErrorKind::Unavailable, "the server is still loading its data"),
    ("BUSY", ErrorKind::Unavailable, "the server is busy with somebody's long script"),
    ("MASTERDOWN", ErrorKind::Unavailable, "the replica has lost its primary"),
    ("NOREPLICAS", ErrorKind::Unavailable, "the server has fewer replicas than it wants for a write"),
    ("MISCONF", ErrorKind::Unavailable, "the server cannot persist, and so takes no writes"),
    // The script is looked up before it runs; it was sent again as text, and yet was not known.
    ("NOSCRIPT", ErrorKind::Other, "the server does not keep the script"),
    // Where a key belongs is looked up before the command runs.
    ("MOVED", ErrorKind::Unavailable, "the key is on another node of the cluster"),
    ("ASK", ErrorKind::Unavailable, "the key is on its way to another node of the cluster"),
    ("TRYAGAIN", ErrorKind::Unavailable, "the key is on its way to another node of the cluster"),
    ("CLUSTERDOWN", ErrorKind::Unavailable, "the cluster is down"),
    ("CROSSSLOT", ErrorKind::Other, "the keys are not in one slot of the cluster"),
    // Refused before the command, or before the first write of a script.
    ("NOPERM", ErrorKind::Unauthorized, "the user has no right to this operation"),
    ("READONLY", ErrorKind::Unavailable, "the server is a replica, and takes no writes"),
    ("OOM", ErrorKind::Unavailable, "the server's memory is full, and it evicts nothing"),
    // A script reads a key before it writes it, or overwrites whatever there is.
    ("WRONGTYPE", ErrorKind::Corrupt, "what is stored there is not of this library"),
    // Our scripts' own word, for a floor that is no number.
    ("CORRUPT", ErrorKind::Corrupt, "what is stored there is not of this library"),
];

/// The same for answers whose code is the plain `ERR`, which stands before much else: by how their text begins.
const PLAIN_REFUSALS: &[(&str, ErrorKind, &str)] = &[
    // The command is looked up before it runs.
    ("unknown command", ErrorKind::Unsupported, "the server has no such command"),
    // Redis and Valkey, when a script calls a command that its user may not. The rights to the keys are those of the
    // whole script, and no item writes by two kinds of commands, so the first write is refused or none.
    ("The user executing the script can't", ErrorKind::Unauthorized, "the user has no right to what the script does"),
    ("ACL failure in script", ErrorKind::Unauthorized, "the user has no right to what the script does"),
];

/// A server refused an operation, or it failed there.
///
/// Its text is left out: it can quote what was sent, keys and values included.
pub(crate) fn refused(operation: &'static str, error: &ServerError) -> Error {
    let cause = Refusal { code: shown(error.code()) };
    match refusal(error.code(), error.details()) {
        Some((kind, message)) => of_no_effect(kind, operation, message).with_source(cause),
        None => Error::new(ErrorKind::Other, operation, "the server answered with an error")
            .with_store(NAME)
            .with_source(cause),
    }
}

/// What an answer of a server means that proves that nothing was written.
fn refusal(code: &str, details: Option<&str>) -> Option<(ErrorKind, &'static str)> {
    let details = details.unwrap_or_default();
    let by_code = REFUSALS.iter().find(|(known, ..)| *known == code);
    let by_text = || PLAIN_REFUSALS.iter().find(|(text, ..)| code == "ERR" && details.starts_with(text));
    by_code.or_else(by_text).map(|(_, kind, message)| (*kind, *message))
}

/// As much of a server's code as is shown, whoever answered there.
fn shown(code: &str) -> String {
    code.chars().take(32).filter(char::is_ascii_graphic).collect()
}

/// Why there is no answer at all.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection broke after the request may have been sent.
    Broken(Failure),
    /// No answer came to what was sent.
    TimedOut(Duration),
    /// The deadline came while there was no connection.
    Unreachable(Option<Failure>),
    /// The server refused to tell of changes, over a connection that works.
    NotHeard(Failure),
    /// Whoever sent it was stopped before the answer came, with the runtime that it ran on.
    Abandoned,
}

impl Fault {
    /// The error of an operation that gets no answer for this.
    pub(crate) fn of(self, operation: &'static str) -> Error {
        const UNREACHABLE: &str = "there is no connection to the server, and nothing was sent";
        match self {
            Self::Broken(failure) => {
                Error::new(ErrorKind::Unavailable, operation, "the connection broke before the answer came")
                    .with_store(NAME)
                    .with_source(failure)
            }
            Self::TimedOut(limit) => {
                Error::new(ErrorKind::Timeout, operation, format!("no answer within {limit:?}")).with_store(NAME)
            }
            Self::Unreachable(Some(failure)) => of_no_effect(failure.kind, operation, UNREACHABLE).with_source(failure),
            Self::Unreachable(None) => of_no_effect(ErrorKind::Unavailable, operation, UNREACHABLE),
            Self::NotHeard(failure) => {
                of_no_effect(failure.kind, operation, "the server refused to tell of changes").with_source(failure)
            }
            Self::Abandoned => Error::new(
                ErrorKind::Unavailable,
                operation,
                "the runtime that it was sent on ended before the answer came",
            )
            .with_store(NAME),
        }
    }
}

/// An answer that no script of ours gives.
pub(crate) fn unexpected(operation: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, operation, "the server's answer is not one of the script's").with_store(NAME)
}

/// A cursor that this store never gave.
pub(crate) fn foreign_cursor() -> Error {
    Error::new(ErrorKind::InvalidInput, "scan", "the cursor is not one of this store's").with_store(NAME)
}

/// What cannot be watched over a connection that somebody else made.
pub(crate) fn no_hints(operation: &'static str) -> Error {
    let message = "a store over one given connection has no other for hints; give it a client or a URL";
    Error::new(ErrorKind::Unsupported, operation, message).with_store(NAME)
}

/// A configuration that breaks a rule. The message must not show a password.
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidInput, "connect", message).with_store(NAME)
}

fn of_no_effect(kind: ErrorKind, operation: &'static str, message: &'static str) -> Error {
    Error::new(kind, operation, message).with_store(NAME).with_effect(Effect::None)
}

/// The code of a server's error.
#[derive(Debug)]
struct Refusal {
    code: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server said {}", self.code)
    }
}

impl std::error::Error for Refusal {}

/// Why there is no connection, or a connection does not do something, without what the driver would add to it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    what: &'static str,
    io: Option<io::ErrorKind>,
    code: Option<String>,
}

impl Failure {
    pub(crate) const TIMED_OUT: Self =
        Self { kind: ErrorKind::Timeout, what: "connecting took too long", io: None, code: None };

    pub(crate) const SILENT: Self =
        Self { kind: ErrorKind::Timeout, what: "the server stopped answering", io: None, code: None };

    pub(crate) const CLOSED: Self = Self {
        kind: ErrorKind::Unavailable,
        what: "the connection that the store was given is closed",
        io: None,
        code: None,
    };

    pub(crate) fn of(error: &RedisError) -> Self {
        // The driver keeps it behind an `Arc`, and hands out the `Arc` itself as the source.
        let source = std::error::Error::source(error);
        let shared = source.and_then(|source| source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
        let io = shared.and_then(|shared| shared.downcast_ref::<io::Error>()).map(io::Error::kind);
        let code = error.code().map(shown);
        let (kind, what) = match (error.kind(), code.as_deref()) {
            (DriverKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH" | "NOPERM")) => {
                (ErrorKind::Unauthorized, "the server refused the user or the password")
            }
            (DriverKind::RESP3NotSupported, _) | (_, Some("NOPROTO")) => {
                (ErrorKind::Unsupported, "the server does not speak RESP3")
            }
            (DriverKind::InvalidClientConfig, _) => (ErrorKind::InvalidInput, "the driver refused the configuration"),
            (DriverKind::Parse, _) => (ErrorKind::Unavailable, "what answered does not speak the protocol"),
            (_, Some(_)) => (ErrorKind::Unavailable, "the server refused the connection's set-up"),
            _ if error.is_connection_refusal() => (ErrorKind::Unavailable, "nothing listens there"),
            _ => (ErrorKind::Unavailable, "the link failed"),
        };
        Self { kind, what, io, code }
    }

    /// What a server said to one request of a connection that goes on; nothing if it is the connection that failed.
    pub(crate) fn refusal(error: &RedisError) -> Option<Self> {
        let code = error.code()?;
        let (kind, what) =
            refusal(code, error.detail()).unwrap_or((ErrorKind::Unavailable, "the server answered with an error"));
        Some(Self { kind, what, io: None, code: Some(shown(code)) })
    }

    /// Whether another attempt would fail the same way until somebody changes something.
    pub(crate) fn is_final(&self) -> bool {
        // The connection that a store was given is not made anew.
        !matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Timeout) || self.what == Self::CLOSED.what
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind: _, what, io, code } = self;
        f.write_str(what)?;
        if let Some(io) = io {
            write!(f, " ({io})")?;
        }
        if let Some(code) = code {
            write!(f, " (it said {code})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
