use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::trap::Action;
use super::{Bytes, Mode, Setting, Shared};

/// One client's connection.
///
/// In each direction a reader stamps what it reads and puts it in a queue, and a writer asks what
/// shall become of it. Reading goes on while writing is held up: a delay is latency and not a
/// slower link, and what a client sent before it gave up is not lost with its socket.
pub(super) struct Connection {
    shared: Arc<Shared>,
    epoch: u64,
    /// Answers were lost, so none may follow.
    mute: AtomicBool,
    /// Bytes were lost in a black hole, so nothing may follow in either direction.
    severed: AtomicBool,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, epoch: u64) -> Self {
        Self { shared, epoch, mute: AtomicBool::new(false), severed: AtomicBool::new(false) }
    }

    pub(super) async fn serve(self, mut client: TcpStream) {
        // Each chunk is passed on as it came; Nagle's algorithm would add delays of its own.
        let _ = client.set_nodelay(true);
        let mut server = None;
        let ending = tokio::select! {
            // Outdated first: after a reset nothing more may be forwarded.
            biased;
            () = self.outdated() => Ending::Reset,
            ending = self.relay(&mut client, &mut server) => ending,
        };
        match ending {
            Ending::Closed => {}
            // Closing with a linger of zero sends a reset instead of an orderly end. It fails only
            // on a socket that is closed already.
            Ending::Reset => {
                let _ = client.set_zero_linger();
            }
            Ending::Cut => {
                drop(client);
                if let Some(mut server) = server {
                    // A server that waits for a lock notices a client that left, and may drop its
                    // request. The one that was cut shall be carried out, so it answers first.
                    let _ = tokio::time::timeout(Duration::from_secs(5), server.read(&mut [0; 4096])).await;
                }
            }
        }
    }

    async fn outdated(&self) {
        let mut setting = self.shared.setting.subscribe();
        let outdated = setting.wait_for(|setting| setting.epoch != self.epoch);
        outdated.await.expect("self holds the sender");
    }

    async fn relay(&self, client: &mut TcpStream, server: &mut Option<TcpStream>) -> Ending {
        let (from_client, mut to_client) = client.split();
        let (requests, mut queued_requests) = mpsc::channel(QUEUE);
        let (answers, mut queued_answers) = mpsc::channel(QUEUE);
        let counters = &self.shared.counters;

        let relayed = tokio::try_join!(
            // Reading starts before there is a server, so that a request made in a black hole is
            // held here and not in the client's socket, which a client can take back.
            read(from_client, requests, &counters.requests),
            async {
                let server = server.insert(self.connect(&mut queued_requests).await?);
                let (from_server, mut to_server) = server.split();
                tokio::try_join!(
                    self.forward_requests(&mut queued_requests, &mut to_server),
                    read(from_server, answers, &counters.answers),
                    self.forward_answers(&mut queued_answers, &mut to_client),
                )
            }
        );
        match relayed {
            Ok(_) => Ending::Closed,
            Err(ending) => ending,
        }
    }

    async fn connect(&self, requests: &mut mpsc::Receiver<Chunk>) -> Result<TcpStream, Ending> {
        let mut setting = self.shared.setting.subscribe();
        loop {
            let Setting { mode, upstream, .. } = *setting.borrow_and_update();
            match mode {
                Mode::BlackHoleDropping => {
                    self.severed.store(true, Ordering::Release);
                    while let Some(chunk) = requests.recv().await {
                        if !matches!(chunk.content, Content::Bytes(_)) {
                            break;
                        }
                    }
                    return Err(self.closed_after_black_hole(&mut setting).await);
                }
                Mode::BlackHole | Mode::Refuse => changed(&mut setting).await,
                _ => {
                    let server = TcpStream::connect(upstream).await;
                    let server = server.map_err(|_| Ending::Reset)?;
                    let _ = server.set_nodelay(true);
                    return Ok(server);
                }
            }
        }
    }

    async fn forward_requests(
        &self,
        requests: &mut mpsc::Receiver<Chunk>,
        server: &mut WriteHalf<'_>,
    ) -> Result<(), Ending> {
        let mut setting = self.shared.setting.subscribe();
        while let Some(Chunk { content, read_at }) = requests.recv().await {
            let fate = self.fate(Direction::Requests, read_at, &mut setting).await;
            match (fate, content) {
                (Fate::Forward, Content::Bytes(bytes)) => {
                    let mute = self.mute.load(Ordering::Acquire);
                    let action = self.shared.traps.take(&bytes, mute);
                    if action.is_some() {
                        // Before the request goes out: its answer may be back at once.
                        self.mute.store(true, Ordering::Release);
                    }
                    let written = write(server, &bytes, &self.shared.counters.requests).await;
                    written.map_err(|_| Ending::Reset)?;
                    if action.is_some() {
                        self.shared.traps.mark_sprung();
                    }
                    if action == Some(Action::Cut) {
                        return Err(Ending::Cut);
                    }
                }
                // A client that crashed looks to the server like one that closed: the answers that
                // are under way are then read here, and the server is never reset while it works.
                (Fate::Forward, Content::End | Content::Broken) => {
                    let _ = server.shutdown().await;
                }
                (Fate::Lose, Content::Bytes(_)) => {}
                (Fate::Lose, Content::End | Content::Broken) => {
                    return Err(self.closed_after_black_hole(&mut setting).await);
                }
            }
        }
        Ok(())
    }

    async fn forward_answers(
        &self,
        answers: &mut mpsc::Receiver<Chunk>,
        client: &mut WriteHalf<'_>,
    ) -> Result<(), Ending> {
        let mut setting = self.shared.setting.subscribe();
        let mut client_left = false;
        while let Some(Chunk { content, read_at }) = answers.recv().await {
            let fate = self.fate(Direction::Answers, read_at, &mut setting).await;
            match (fate, content) {
                // Who left gets nothing, but the answers are still read: see `forward_requests`.
                (Fate::Forward, Content::Bytes(bytes)) if !client_left => {
                    let written = write(client, &bytes, &self.shared.counters.answers).await;
                    client_left = written.is_err();
                }
                (Fate::Forward, Content::End) => {
                    let _ = client.shutdown().await;
                }
                (Fate::Forward, Content::Broken) => return Err(Ending::Reset),
                // The server's end is no answer and is not swallowed, but an orderly end would
                // claim that every answer was passed on.
                (Fate::Lose, Content::End | Content::Broken) if !self.severed.load(Ordering::Acquire) => {
                    return Err(Ending::Reset);
                }
                (_, _) => {}
            }
        }
        Ok(())
    }

    /// What becomes of a chunk, asked when everything before it is dealt with. Waits for as long
    /// as it is held.
    async fn fate(&self, direction: Direction, read_at: Instant, setting: &mut watch::Receiver<Setting>) -> Fate {
        loop {
            if self.severed.load(Ordering::Acquire) {
                return Fate::Lose;
            }
            let Setting { mode, epoch, .. } = *setting.borrow_and_update();
            let until = match (mode, direction) {
                // The connection is over; `serve` is about to see it too.
                _ if epoch != self.epoch => None,
                (Mode::Refuse | Mode::BlackHole, _) => None,
                (Mode::BlackHoleDropping, _) => {
                    self.severed.store(true, Ordering::Release);
                    return Fate::Lose;
                }
                (Mode::SwallowAnswers, _) => {
                    // With the request already: the link may be healed before the answer comes.
                    self.mute.store(true, Ordering::Release);
                    Some(read_at)
                }
                (Mode::DelayRequests(delay), Direction::Requests) | (Mode::DelayAnswers(delay), Direction::Answers) => {
                    read_at.checked_add(delay)
                }
                (Mode::Pass | Mode::DelayRequests(_) | Mode::DelayAnswers(_), _) => Some(read_at),
            };
            match until {
                Some(until) if until <= Instant::now() => {
                    let lost = direction == Direction::Answers && self.mute.load(Ordering::Acquire);
                    return if lost { Fate::Lose } else { Fate::Forward };
                }
                Some(until) => tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = changed(setting) => {}
                },
                None => changed(setting).await,
            }
        }
    }

    /// The server must not learn in the black hole that its client has closed.
    async fn closed_after_black_hole(&self, setting: &mut watch::Receiver<Setting>) -> Ending {
        let healed = |setting: &Setting| !matches!(setting.mode, Mode::BlackHole | Mode::BlackHoleDropping);
        setting.wait_for(healed).await.expect("self holds the sender");
        Ending::Closed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.counters.closed.fetch_add(1, Ordering::AcqRel);
    }
}

/// How many reads are held in each direction before the sender feels it.
const QUEUE: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

enum Fate {
    Forward,
    Lose,
}

enum Ending {
    /// Both sides are closed in order.
    Closed,
    /// The client gets a reset.
    Reset,
    /// The client is closed, the server may still answer.
    Cut,
}

struct Chunk {
    content: Content,
    read_at: Instant,
}

enum Content {
    Bytes(Vec<u8>),
    End,
    Broken,
}

async fn read(mut from: ReadHalf<'_>, queue: mpsc::Sender<Chunk>, count: &Bytes) -> Result<(), Ending> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let content = match from.read(&mut buffer).await {
            Ok(0) => Content::End,
            Ok(length) => {
                count.read.fetch_add(length as u64, Ordering::AcqRel);
                Content::Bytes(buffer[..length].to_vec())
            }
            Err(_) => Content::Broken,
        };
        let last = !matches!(content, Content::Bytes(_));
        let read_at = Instant::now();
        // The writer stops listening only when the whole connection is over.
        let taken = queue.send(Chunk { content, read_at }).await;
        if last || taken.is_err() {
            return Ok(());
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], count: &Bytes) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    count.forwarded.fetch_add(bytes.len() as u64, Ordering::AcqRel);
    Ok(())
}

async fn changed(setting: &mut watch::Receiver<Setting>) {
    setting.changed().await.expect("self holds the sender");
}
