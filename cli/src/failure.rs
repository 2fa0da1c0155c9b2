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
}

impl Failure {
    /// What was tried, and the error that came of it.
    pub(crate) fn io(tried: impl Into<String>, error: io::Error) -> Self {
        Self::Io(tried.into(), error)
    }

    /// Tells the user, in one line, and gives the exit status: 2 for what another command line would have avoided, 3
    /// for the rest.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("error: {self}");
        ExitCode::from(if self.is_usage() { 2 } else { 3 })
    }

    fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Store(error) => matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported),
            Self::Io(..) => false,
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
        }
    }
}
