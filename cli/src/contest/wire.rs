//! The socket between the referee's process and a worker's: a pair that nobody else can connect to, one JSON value a
//! line. It carries the store's URL as well, since a command line is there for all to see.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::contest::event::{Event, Link, Verdict};
use crate::contest::scenario::Plan;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToWorker {
    /// First: connect, and get ready.
    Join(Assignment),
    /// Second: fight.
    Start,
    /// The answer to an event, in the order of the events.
    Verdict(Verdict),
    /// The contest is over: tidy up, and end.
    Stop,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromWorker {
    /// It is connected.
    Ready,
    Event(Event),
    /// It cannot go on.
    Failed {
        reason: String,
        /// Another command line would have avoided it.
        usage: bool,
    },
}

/// What a worker is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The URL, with its credentials.
    pub(crate) store: String,
    pub(crate) resource: String,
    pub(crate) plan: Plan,
}

// Without the URL.
impl std::fmt::Debug for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assignment").field("resource", &self.resource).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// One end of the socket.
pub(crate) struct Wire {
    lines: Lines<BufReader<OwnedReadHalf>>,
    out: OwnedWriteHalf,
}

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (input, out) = stream.into_split();
        Self { lines: BufReader::new(input).lines(), out }
    }

    /// The next message, or nothing when the other end is closed.
    ///
    /// # Cancel safety
    ///
    /// No message is lost when the future is dropped.
    pub(crate) async fn read<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        match self.lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).map(Some).map_err(io::Error::other),
            Ok(None) => Ok(None),
            // What was written to the other end was not all read when it died.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a message. Dropped midway, it may have been sent in part: then the socket is of no more use.
    pub(crate) async fn write<M: Serialize>(&mut self, message: &M) -> io::Result<()> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
        line.push(b'\n');
        self.out.write_all(&line).await
    }
}

/// A worker's way to a referee in another process.
pub(crate) struct Phone(mpsc::Sender<(Event, oneshot::Sender<Verdict>)>);

impl Phone {
    /// A phone, and what has to run for it to work: until the other end is closed, or the phone is dropped. It fires
    /// `stop` when the referee says so.
    pub(crate) fn new(mut wire: Wire, stop: CancellationToken) -> (Self, impl Future<Output = io::Result<Wire>>) {
        let (events, mut told) = mpsc::channel::<(Event, oneshot::Sender<Verdict>)>(1);
        // A worker whose lease is lost hangs up before it is answered, and calls again. So neither reading nor writing
        // is done by who calls.
        let exchange = async move {
            let mut unanswered = std::collections::VecDeque::new();
            loop {
                tokio::select! {
                    call = told.recv() => match call {
                        Some((event, answer)) => {
                            wire.write(&FromWorker::Event(event)).await?;
                            unanswered.push_back(answer);
                        }
                        None => return Ok(wire),
                    },
                    message = wire.read::<ToWorker>() => match message? {
                        Some(ToWorker::Verdict(verdict)) => {
                            if let Some(answer) = unanswered.pop_front() {
                                let _ = answer.send(verdict);
                            }
                        }
                        Some(ToWorker::Stop) => stop.cancel(),
                        Some(ToWorker::Join(_) | ToWorker::Start) => {}
                        None => return Err(io::ErrorKind::UnexpectedEof.into()),
                    },
                }
            }
        };
        (Self(events), exchange)
    }
}

impl Link for Phone {
    async fn tell(&mut self, event: Event) -> io::Result<Verdict> {
        let (answer, answered) = oneshot::channel();
        let hung_up = |()| io::Error::from(io::ErrorKind::UnexpectedEof);
        self.0.send((event, answer)).await.map_err(|_| hung_up(()))?;
        answered.await.map_err(|_| hung_up(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_call_that_was_given_up_does_not_shift_the_answers() {
        let (here, there) = UnixStream::pair().unwrap();
        let stop = CancellationToken::new();
        let (mut phone, exchange) = Phone::new(Wire::new(here), stop.clone());
        let exchange = tokio::spawn(exchange);
        let mut referee = Wire::new(there);

        let given_up = tokio::time::timeout(Duration::from_millis(20), phone.tell(Event::Seek)).await;
        assert!(given_up.is_err(), "nobody answers yet");
        let told = async {
            for verdict in [Verdict::Refused, Verdict::Noted] {
                let heard = referee.read::<FromWorker>().await.unwrap();
                assert!(matches!(heard, Some(FromWorker::Event(_))));
                referee.write(&ToWorker::Verdict(verdict)).await.unwrap();
            }
            referee.write(&ToWorker::Stop).await.unwrap();
        };
        let (answer, ()) = tokio::join!(phone.tell(Event::Leave), told);
        assert_eq!(answer.unwrap(), Verdict::Noted, "the answer to the second call");
        stop.cancelled().await;

        drop(referee);
        assert!(exchange.await.unwrap().is_err());
        assert!(phone.tell(Event::Seek).await.is_err(), "the referee is gone");
    }
}
