mod connection;
mod trap;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::ReservedPort;
use crate::process::lock;
use connection::Connection;
use trap::{Action, Trap, Traps};

/// A TCP link to a server that fails the way the test tells it to.
///
/// Clients connect to [`addr`](Self::addr); bytes they send are *requests*, bytes the server
/// sends are *answers*. The [`Mode`] is switched at any time and counts from the moment the
/// switch returns, for new and existing connections: a byte sent after [`black_hole`] returned
/// never reaches the other side before the link is healed.
///
/// Beside the mode stand one-shot traps ([`swallow_next_answers`], [`swallow_answer_to`],
/// [`cut_after_request`], [`cut_after`]), which wait for a request and then hurt only its
/// connection. Those without a needle take the *next* request, which on a new connection is the
/// driver's handshake; warm the connection first, or name bytes that only your request has.
///
/// **A stream with a hole does not exist.** TCP never loses bytes out of the middle of a
/// connection, and a client that saw such a stream would read the next answer as the answer to an
/// earlier question. So a connection that has lost bytes here never carries that direction again,
/// not even after the link is healed: it stays silent until the client gives it up.
/// [`reset_connections`] ends such connections at once.
///
/// Delays are on tokio's clock. The tasks end when the proxy is dropped.
///
/// [`black_hole`]: Self::black_hole
/// [`swallow_next_answers`]: Self::swallow_next_answers
/// [`swallow_answer_to`]: Self::swallow_answer_to
/// [`cut_after_request`]: Self::cut_after_request
/// [`cut_after`]: Self::cut_after
/// [`reset_connections`]: Self::reset_connections
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    runtime: Handle,
    accepting: JoinHandle<()>,
}

/// What a [`Proxy`] does to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Everything is forwarded.
    Pass,
    /// Connects are refused, as by a machine where nothing listens, and existing connections
    /// were reset at the switch.
    Refuse,
    /// Requests reach the server this much later. Only latency: later requests do not queue up.
    DelayRequests(Duration),
    /// Answers reach the client this much later. Only latency: later answers do not queue up.
    DelayAnswers(Duration),
    /// Connections stay open and new ones are accepted, but nothing flows, not even the news that
    /// the other side has closed. Bytes are **held** (up to about 1,000 reads a direction), and
    /// flow on once the mode changes: late, in order, even if the client has left meanwhile.
    BlackHole,
    /// As [`BlackHole`](Self::BlackHole), but bytes are **lost**. A connection that lost some, or
    /// that was made meanwhile, stays dead after the mode changes; one that was idle survives.
    BlackHoleDropping,
    /// Requests are forwarded, answers are lost. A connection that made a request or lost an
    /// answer meanwhile never gets an answer again; later requests on it still reach the server.
    SwallowAnswers,
}

/// What has gone through a [`Proxy`] since its start. Bytes are counted in each direction twice:
/// when the proxy reads them and when the other side has taken them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections of those that are still there.
    pub open: u64,
    /// Bytes read from clients, forwarded or not.
    pub request_bytes_read: u64,
    /// Bytes handed to the server.
    pub request_bytes_forwarded: u64,
    /// Bytes read from the server, forwarded or not.
    pub answer_bytes_read: u64,
    /// Bytes handed to clients.
    pub answer_bytes_forwarded: u64,
}

impl Proxy {
    /// Starts a link to `upstream` on a free port of 127.0.0.1, in mode [`Mode::Pass`].
    ///
    /// The server need not be up: a connection that cannot be made is reset.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or if no port can be had.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let runtime = Handle::current();
        // Another program may take the port between the reservation and the bind; then take another.
        let (port, listener) = (0..10)
            .find_map(|_| {
                let port = ReservedPort::reserve();
                let listener = listen(&port).ok()?;
                Some((port, listener))
            })
            .expect("one of ten free ports can be listened on");
        let shared = Arc::new(Shared {
            port,
            door: Mutex::new(Door { listener: Some(listener), waiting: None }),
            setting: watch::Sender::new(Setting { mode: Mode::Pass, epoch: 0, upstream }),
            traps: Traps::default(),
            counters: Counters::default(),
        });
        let accepting = runtime.spawn(accept(Arc::clone(&shared)));
        Self { shared, runtime, accepting }
    }

    /// Where clients connect. It stays the same for the proxy's life.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.shared.port.addr()
    }

    /// The port of [`addr`](Self::addr).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.shared.port.port()
    }

    /// The mode that is set.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared.setting.borrow().mode
    }

    /// Heals the link: [`Mode::Pass`], and no trap is armed any more.
    pub fn pass(&self) {
        self.shared.traps.disarm();
        self.set(Mode::Pass);
    }

    /// Sets [`Mode::Refuse`].
    pub fn refuse(&self) {
        self.set(Mode::Refuse);
    }

    /// Sets [`Mode::DelayAnswers`].
    pub fn delay_answers(&self, delay: Duration) {
        self.set(Mode::DelayAnswers(delay));
    }

    /// Sets [`Mode::DelayRequests`].
    pub fn delay_requests(&self, delay: Duration) {
        self.set(Mode::DelayRequests(delay));
    }

    /// Sets [`Mode::BlackHole`]: what is sent meanwhile arrives late.
    pub fn black_hole(&self) {
        self.set(Mode::BlackHole);
    }

    /// Sets [`Mode::BlackHoleDropping`]: what is sent meanwhile never arrives.
    pub fn black_hole_dropping(&self) {
        self.set(Mode::BlackHoleDropping);
    }

    /// Sets [`Mode::SwallowAnswers`].
    pub fn swallow_answers(&self) {
        self.set(Mode::SwallowAnswers);
    }

    /// Sets a mode.
    ///
    /// # Panics
    ///
    /// If another program took the port while it was refused.
    pub fn set(&self, mode: Mode) {
        // The door stays locked over both changes, so that no connection comes in between them
        // with the old epoch and the new mode.
        let mut door = lock(&self.shared.door);
        if mode == Mode::Refuse {
            door.listener = None;
        } else if door.listener.is_none() {
            // Outside of the runtime (in a plain thread) a listener can only be made with this.
            let _runtime = self.runtime.enter();
            let listener = listen(&self.shared.port)
                .unwrap_or_else(|error| panic!("cannot listen on {} again: {error}", self.addr()));
            door.listener = Some(listener);
        }
        if let Some(waiting) = door.waiting.take() {
            waiting.wake();
        }
        self.shared.setting.send_modify(|setting| {
            setting.mode = mode;
            setting.epoch += u64::from(mode == Mode::Refuse);
        });
    }

    /// Resets every connection that exists now. New ones are treated as the mode says.
    pub fn reset_connections(&self) {
        let _door = lock(&self.shared.door);
        self.shared.setting.send_modify(|setting| setting.epoch += 1);
    }

    /// Leads connections that are made from now on to another server. Existing ones stay where
    /// they are; see [`reset_connections`](Self::reset_connections).
    pub fn redirect(&self, upstream: SocketAddr) {
        self.shared.setting.send_modify(|setting| setting.upstream = upstream);
    }

    /// Arms `count` traps: each forwards the next request and loses its answer, together with
    /// every later answer of that connection.
    ///
    /// A request is what one read gives (up to 64 KiB), so commands that the client sends in one
    /// packet are one. A request of a connection that is mute already springs none.
    pub fn swallow_next_answers(&self, count: usize) {
        for _ in 0..count {
            self.swallow_answer_to("");
        }
    }

    /// As [`swallow_next_answers`](Self::swallow_next_answers), once, for the next request that
    /// has `needle` in it. A needle that is torn over two reads is not seen.
    pub fn swallow_answer_to(&self, needle: impl AsRef<[u8]>) {
        self.shared.traps.arm(Trap::new(Action::Swallow, needle));
    }

    /// Arms a trap: the next request is forwarded, and then the client's connection is closed
    /// without an answer. The server's side is closed once it has answered (after 5 s at most),
    /// so it does carry out the request.
    pub fn cut_after_request(&self) {
        self.cut_after("");
    }

    /// As [`cut_after_request`](Self::cut_after_request), for the next request that has `needle`
    /// in it. A needle that is torn over two reads is not seen.
    pub fn cut_after(&self, needle: impl AsRef<[u8]>) {
        self.shared.traps.arm(Trap::new(Action::Cut, needle));
    }

    /// How many traps have sprung since the start: their requests were handed to the server.
    #[must_use]
    pub fn sprung(&self) -> u64 {
        self.shared.traps.sprung()
    }

    /// Waits until at least `count` traps have sprung since the start. Cancel safe; has no
    /// deadline of its own.
    pub async fn wait_for_sprung(&self, count: u64) {
        self.shared.traps.wait_for_sprung(count).await;
    }

    /// What has gone through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Counters { accepted, closed, requests, answers } = &self.shared.counters;
        // Closed first: one that closes between the two loads must not make `open` negative.
        let closed = closed.load(Ordering::Acquire);
        let accepted = accepted.load(Ordering::Acquire);
        Counts {
            accepted,
            open: accepted - closed,
            request_bytes_read: requests.read.load(Ordering::Acquire),
            request_bytes_forwarded: requests.forwarded.load(Ordering::Acquire),
            answer_bytes_read: answers.read.load(Ordering::Acquire),
            answer_bytes_forwarded: answers.forwarded.load(Ordering::Acquire),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections are in a set that the accepting task owns, and end with it.
        self.accepting.abort();
        // The abort takes effect when the runtime next runs; the port is closed now.
        lock(&self.shared.door).listener = None;
    }
}

#[derive(Debug)]
struct Shared {
    port: ReservedPort,
    door: Mutex<Door>,
    setting: watch::Sender<Setting>,
    traps: Traps,
    counters: Counters,
}

/// The listener, in a lock rather than in the accepting task, so that closing and reopening it
/// has happened when [`Proxy::set`] returns.
#[derive(Debug)]
struct Door {
    listener: Option<TcpListener>,
    waiting: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    mode: Mode,
    /// Rises when existing connections are to be reset. A number, not a mode, so that a connection
    /// that sleeps through "refuse, then pass" still learns that it is over.
    epoch: u64,
    upstream: SocketAddr,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    closed: AtomicU64,
    requests: Bytes,
    answers: Bytes,
}

#[derive(Debug, Default)]
struct Bytes {
    read: AtomicU64,
    forwarded: AtomicU64,
}

fn listen(port: &ReservedPort) -> io::Result<TcpListener> {
    // std sets SO_REUSEADDR, without which connections in TIME_WAIT would hold the port.
    let listener = std::net::TcpListener::bind(port.addr())?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept(shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, epoch) = next_client(&shared).await;
        shared.counters.accepted.fetch_add(1, Ordering::AcqRel);
        connections.spawn(Connection::new(Arc::clone(&shared), epoch).serve(client));
        while connections.try_join_next().is_some() {}
    }
}

async fn next_client(shared: &Shared) -> (TcpStream, u64) {
    poll_fn(|context| {
        let mut door = lock(&shared.door);
        door.waiting = Some(context.waker().clone());
        let Some(listener) = &door.listener else {
            return Poll::Pending;
        };
        match listener.poll_accept(context) {
            Poll::Ready(Ok((client, _))) => {
                let epoch = shared.setting.borrow().epoch;
                Poll::Ready((client, epoch))
            }
            // The client left before it was accepted, or the process is out of descriptors for now.
            Poll::Ready(Err(_)) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
