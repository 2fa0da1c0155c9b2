//! What workers and referee say to each other.
//!
//! Everything here can cross a socket, so that a worker may as well be a process of its own. The referee stamps an
//! event when it arrives: a worker that was stopped for a while cannot be wrong about the time.

use std::io;

use leasehold::fence::FencingToken;
use serde::{Deserialize, Serialize};

/// What a worker tells the referee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// It starts to ask for the lease.
    Seek,
    /// It has the lease and is in. This is its first write to the protected register, too.
    Enter {
        #[serde(with = "token_as_number")]
        token: FencingToken,
    },
    /// It writes to the register.
    Write {
        #[serde(with = "token_as_number")]
        token: FencingToken,
    },
    /// It is out. It gives the lease back only after this was answered.
    Leave,
    /// The lease that it had was lost before it was given back.
    Lost,
    /// The store did not answer one of its calls.
    Trouble { error: String },
}

/// What the referee answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It is noted.
    Noted,
    /// The write was made.
    Admitted,
    /// The write came under an older lease and was refused.
    Refused,
}

/// A worker's way to the referee.
pub(crate) trait Link: Send {
    /// Tells the referee, and waits for the answer.
    ///
    /// # Cancel safety
    ///
    /// The event may have been told when the future is dropped; the next one is answered all the same.
    fn tell(&mut self, event: Event) -> impl Future<Output = io::Result<Verdict>> + Send;
}

mod token_as_number {
    use super::FencingToken;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(token: &FencingToken, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(token.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FencingToken, D::Error> {
        FencingToken::new(u64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_crosses_a_socket_as_one_line() {
        let entered = Event::Enter { token: FencingToken::new(33).unwrap() };
        let line = serde_json::to_string(&entered).unwrap();
        assert_eq!(line, r#"{"enter":{"token":33}}"#);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), entered);
        assert!(serde_json::from_str::<Event>(r#"{"enter":{"token":0}}"#).is_err());
    }
}
