use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::error::{Code, Effect, Error, ErrorKind};
use crate::lock::Nonce;

/// What a call is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// What the work answered, now or when it ran.
    pub value: T,
    /// Whether it ran before, and not now.
    pub replayed: bool,
}

/// The answer of a call that was made before.
#[derive(Clone, PartialEq, Eq)]
pub struct Replay {
    pub(super) nonce: Nonce,
    pub(super) answer: Bytes,
}

impl Replay {
    /// The nonce of the claim that it was the answer of.
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The answer as it was recorded.
    pub fn as_bytes(&self) -> &Bytes {
        &self.answer
    }

    /// The answer as a value.
    ///
    /// # Errors
    ///
    /// `Corrupt` with [`Code::NotReplayable`] when it is not a value of this type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        // Serde's error names a place in the answer and may show a piece of it, so it is not passed on.
        serde_json::from_slice(&self.answer).map_err(|_| {
            Error::new(ErrorKind::Corrupt, "replay", "the recorded answer is not one of the type that was asked for")
                .with_code(Code::NotReplayable)
                .with_effect(Effect::None)
        })
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nonce, answer } = self;
        f.debug_struct("Replay").field("nonce", nonce).field("answer", &format_args!("{} bytes", answer.len())).finish()
    }
}

/// Why a call has no answer. This enum is closed.
#[derive(Debug)]
pub enum CallError<E> {
    /// The call could not begin, so the work did not run; or its claim was lost, and the work was dropped.
    Call(Error),
    /// The work ran and failed.
    Work(E),
}

impl<E> CallError<E> {
    /// The stable code, where there is one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call(error) => error.code(),
            Self::Work(_) => None,
        }
    }
}

impl<E> From<Error> for CallError<E> {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => fmt::Display::fmt(error, f),
            Self::Work(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl<E: StdError + 'static> StdError for CallError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::Work(error) => error.source(),
        }
    }
}
