use leasehold_core::Error;
use leasehold_core::lock::Lost;

/// What a check comes to; a check that returns `Ok` has passed.
pub(crate) type Verdict<T = ()> = Result<T, Stop>;

/// Why a check went no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The store breaks the contract, or could not answer.
    Failed(String),
    /// The check has nothing to say about this store.
    Ignored(String),
}

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Stop::Failed(format!($($message)+)));
        }
    };
}

/// Fails the check unless the answer has this pattern.
macro_rules! ensure_matches {
    ($answer:expr, $pattern:pat $(if $guard:expr)?, $($message:tt)+) => {
        match $answer {
            $pattern $(if $guard)? => {}
            other => {
                return Err($crate::verdict::Stop::Failed(format!("{}: {other:?}", format_args!($($message)+))));
            }
        }
    };
}

pub(crate) use {ensure, ensure_matches};

impl Stop {
    pub(crate) fn failed<T>(message: impl Into<String>) -> Verdict<T> {
        Err(Self::Failed(message.into()))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("the store answered with an error: {error:#}"))
    }
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Self {
        Self::Failed(lost.to_string())
    }
}
