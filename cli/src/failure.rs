//! Why a command could not do what it was asked to.

use std::fmt;
use std::io;
use std::process::ExitCode;

use leasehold::{Error, ErrorKind};

/// Why a command could not do what it was asked to. What it found out by doing it is no failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked for something that cannot be.
    Usage(String),
    /// The store, or the library, refused.
    Store(Error),
    /// The machine did.
    Io(String, io::Error),
    /// Another process of this command says so.
    Told {
        reason: String,
        /// Another command line would have avoided it.
        usage: bool,
    },
    /// A signal asked this process to end.
    Interrupted(i32),
}

impl Failure {
    /// What was tried, and the error that came of it.
    pub(crate) fn io(tried: impl Into<String>, error: io::Error) -> Self {
        Self::Io(tried.into(), error)
    }

    /// Tells the user, in one line, and gives the exit status: 2 for what another command line would have avoided, 3
    /// for the rest. After a signal it is 128 and the signal's number, as a shell has it.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("error: {self}");
        ExitCode::from(match self {
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            failure if failure.is_usage() => 2,
            _ => 3,
        })
    }

    /// Whether another command line would have avoided it.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Store(error) => matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported),
            Self::Told { usage, .. } => *usage,
            Self::Io(..) | Self::Interrupted(_) => false,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Store(error) => write!(f, "{error:#}"),
            Self::Io(tried, error) => write!(f, "{tried}: {error}"),
            Self::Told { reason, usage: _ } => f.write_str(reason),
            Self::Interrupted(signal) => write!(f, "interrupted by signal {signal}"),
        }
    }
}
