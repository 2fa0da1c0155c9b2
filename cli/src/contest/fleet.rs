use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Key;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::contest::chaos::{Chaos, Fault};
use crate::contest::referee::Referee;
use crate::contest::scenario::Plan;
use crate::contest::wire::{Assignment, FromWorker, ToWorker, Wire};
use crate::failure::Failure;
use crate::store_url::StoreUrl;

/// The workers as processes. The referee stays in this one, and each worker has a socket to it.
///
/// Whatever happens, no process is left: [`disband`](Self::disband) ends and reaps them, dropping this ends them, and
/// each ends by itself when its socket is closed.
pub(crate) struct Fleet {
    plan: Plan,
    store: StoreUrl,
    resource: Key,
    members: Vec<Member>,
    /// The sockets of those that are ready and have not started.
    waiting: Vec<(usize, Wire)>,
}

/// Hears when this process is asked to end. It listens from the moment it is made, which should be before there is any
/// other process to end with it.
pub(crate) struct Interrupts {
    interrupt: Signals,
    terminate: Signals,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", error));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one, as the reason to end.
    async fn next(&mut self) -> Failure {
        tokio::select! {
            _ = self.interrupt.recv() => Failure::Interrupted(SignalKind::interrupt().as_raw_value()),
            _ = self.terminate.recv() => Failure::Interrupted(SignalKind::terminate().as_raw_value()),
        }
    }
}

/// One process.
struct Member {
    child: Child,
    killed: bool,
}

/// How long a process may take to start and to connect.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How long a worker may take to end once it is told to.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

impl Fleet {
    /// Starts the processes, and waits until all are connected.
    pub(crate) async fn gather(
        plan: &Plan,
        store: &StoreUrl,
        resource: &Key,
        interrupts: &mut Interrupts,
    ) -> Result<Self, Failure> {
        let mut fleet = Self {
            plan: plan.clone(),
            store: store.clone(),
            resource: resource.clone(),
            members: Vec::new(),
            waiting: Vec::new(),
        };
        let gathered = tokio::select! {
            gathered = fleet.gather_all() => gathered,
            interrupt = interrupts.next() => Err(interrupt),
        };
        match gathered {
            Ok(()) => Ok(fleet),
            Err(failure) => {
                fleet.disband().await;
                Err(failure)
            }
        }
    }

    /// Has them fight, and does to them what `chaos` says.
    pub(crate) async fn fight(
        mut self,
        referee: &Arc<Referee>,
        chaos: Option<Chaos>,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        let fought = tokio::select! {
            fought = self.fight_on(referee, chaos) => fought,
            interrupt = interrupts.next() => Err(interrupt),
        };
        self.disband().await;
        fought
    }

    async fn gather_all(&mut self) -> Result<(), Failure> {
        let mut joining = JoinSet::new();
        for worker in 0..self.plan.workers {
            let (member, wire) = self.start()?;
            self.members.push(member);
            let joined = join(wire, self.assignment());
            joining.spawn(async move { joined.await.map(|wire| (worker, wire)) });
        }
        // They come in any order, and each keeps the number of its process.
        while let Some(joined) = joining.join_next().await {
            self.waiting.push(joined.map_err(broke_down)??);
        }
        Ok(())
    }

    async fn fight_on(&mut self, referee: &Arc<Referee>, mut chaos: Option<Chaos>) -> Result<(), Failure> {
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        for (worker, wire) in std::mem::take(&mut self.waiting) {
            serving.spawn(serve(worker, wire, referee.clone(), stop.clone()));
        }
        let ends = Instant::now() + self.plan.length;
        let mut next_fault = chaos.as_mut().map(|chaos| Instant::now() + chaos.quiet());
        let mut pause: Option<(usize, Instant)> = None;
        loop {
            let wake = pause.map(|(_, until)| until).or(next_fault).unwrap_or(ends).min(ends);
            tokio::select! {
                Some(ended) = serving.join_next() => {
                    let (worker, ended) = ended.map_err(broke_down)?;
                    // What the last words of one that was killed were cut down to does not matter.
                    if !self.members[worker].killed {
                        ended?;
                        return Err(self.members[worker].ended_by_itself(worker).await);
                    }
                    self.replace(worker, referee, &mut serving, &stop).await?;
                }
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            if let Some((worker, until)) = pause
                && (now >= until || now >= ends)
            {
                self.resume(worker, referee);
                pause = None;
            }
            if now >= ends {
                break;
            }
            if let (Some(chaos), Some(at)) = (&mut chaos, next_fault)
                && now >= at
                && pause.is_none()
            {
                let candidates: Vec<_> =
                    (0..self.members.len()).filter(|&worker| !self.members[worker].killed).collect();
                match chaos.strike(referee.holder(), &candidates) {
                    Some(Fault::Pause(worker, length)) => {
                        self.pause(worker, referee);
                        pause = Some((worker, now + length));
                    }
                    Some(Fault::Kill(worker)) => self.kill(worker, referee),
                    None => {}
                }
                next_fault = Some(pause.map_or(now, |(_, until)| until) + chaos.quiet());
            }
        }
        stop.cancel();
        let all_ended = async { while serving.join_next().await.is_some() {} };
        // Who hangs in a call to the store is ended with the fleet.
        let _ = tokio::time::timeout(ENDS_WITHIN, all_ended).await;
        Ok(())
    }

    /// Starts a process. It must be done on the main thread: the system ends a worker with the thread that started it.
    fn start(&self) -> Result<(Member, Wire), Failure> {
        let cannot = |error| Failure::io("cannot start a worker", error);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(cannot)?;
        ours.set_nonblocking(true).map_err(cannot)?;
        let child = Command::new(std::env::current_exe().map_err(cannot)?)
            .arg("contest-worker")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let wire = Wire::new(UnixStream::from_std(ours).map_err(cannot)?);
        Ok((Member { child, killed: false }, wire))
    }

    fn assignment(&self) -> Assignment {
        let Self { plan, store, resource, .. } = self;
        Assignment { store: store.with_secrets().to_owned(), resource: resource.to_string(), plan: plan.clone() }
    }

    /// Puts a new process in the place of one that was killed.
    async fn replace(
        &mut self,
        worker: usize,
        referee: &Arc<Referee>,
        serving: &mut JoinSet<Served>,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let _ = self.members[worker].child.wait().await;
        let (member, wire) = self.start()?;
        self.members[worker] = member;
        let (assignment, referee, stop) = (self.assignment(), referee.clone(), stop.clone());
        serving.spawn(async move {
            match join(wire, assignment).await {
                Ok(wire) => serve(worker, wire, referee, stop).await,
                Err(failure) => {
                    referee.gone(worker);
                    (worker, Err(failure))
                }
            }
        });
        Ok(())
    }

    fn pause(&mut self, worker: usize, referee: &Referee) {
        // Noted first, and the resumption last: whatever it does while it is stopped falls in between.
        referee.paused(worker);
        self.members[worker].send(Signal::STOP);
    }

    fn resume(&mut self, worker: usize, referee: &Referee) {
        self.members[worker].send(Signal::CONT);
        referee.resumed(worker);
    }

    fn kill(&mut self, worker: usize, referee: &Referee) {
        self.members[worker].killed = true;
        referee.killed(worker);
        self.members[worker].send(Signal::KILL);
    }

    /// Ends all processes that are left, and reaps them.
    async fn disband(mut self) {
        for member in &mut self.members {
            let _ = member.child.kill().await;
        }
    }
}

impl Member {
    /// Why a worker is gone whose socket was closed though nobody had told it to end.
    async fn ended_by_itself(&mut self, worker: usize) -> Failure {
        const ENDS_SOON: Duration = Duration::from_secs(1);
        let status = match tokio::time::timeout(ENDS_SOON, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it hung up".to_owned(),
        };
        Failure::io(format!("worker {} ended by itself", worker + 1), io::Error::other(status))
    }

    fn send(&self, signal: Signal) {
        // The number is the process's own as long as it is not reaped, and then there is none.
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            // One that has ended by itself is found out about by its socket.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Which worker, and how it ended: well when its socket was closed.
type Served = (usize, Result<(), Failure>);

/// Gives a process its task, and waits until it is connected.
async fn join(mut wire: Wire, assignment: Assignment) -> Result<Wire, Failure> {
    let joined = async {
        wire.write(&ToWorker::Join(assignment)).await.map_err(lost_touch)?;
        match wire.read().await.map_err(lost_touch)? {
            Some(FromWorker::Ready) => Ok(()),
            Some(FromWorker::Failed { reason, usage }) => Err(Failure::Told { reason, usage }),
            Some(FromWorker::Event(_)) | None => Err(lost_touch(io::ErrorKind::UnexpectedEof.into())),
        }
    };
    match tokio::time::timeout(STARTS_WITHIN, joined).await {
        Ok(joined) => joined.map(|()| wire),
        Err(_) => Err(lost_touch(io::ErrorKind::TimedOut.into())),
    }
}

/// Hears one worker for the referee, until its socket is closed.
async fn serve(worker: usize, mut wire: Wire, referee: Arc<Referee>, stop: CancellationToken) -> Served {
    let heard = hear(worker, &mut wire, &referee, &stop).await;
    referee.gone(worker);
    match heard {
        // One that dies does not read what is written to it.
        Err(Failure::Io(_, error)) if error.kind() == io::ErrorKind::BrokenPipe => (worker, Ok(())),
        heard => (worker, heard),
    }
}

async fn hear(worker: usize, wire: &mut Wire, referee: &Referee, stop: &CancellationToken) -> Result<(), Failure> {
    wire.write(&ToWorker::Start).await.map_err(lost_touch)?;
    let mut told_to_stop = false;
    loop {
        let message = tokio::select! {
            message = wire.read::<FromWorker>() => message.map_err(lost_touch)?,
            () = stop.cancelled(), if !told_to_stop => {
                told_to_stop = true;
                wire.write(&ToWorker::Stop).await.map_err(lost_touch)?;
                continue;
            }
        };
        match message {
            Some(FromWorker::Event(event)) => {
                let verdict = referee.hear(worker, event);
                wire.write(&ToWorker::Verdict(verdict)).await.map_err(lost_touch)?;
            }
            Some(FromWorker::Failed { reason, usage }) => return Err(Failure::Told { reason, usage }),
            Some(FromWorker::Ready) => {}
            None => return Ok(()),
        }
    }
}

fn lost_touch(error: io::Error) -> Failure {
    Failure::io("lost touch with a worker", error)
}

fn broke_down(error: tokio::task::JoinError) -> Failure {
    Failure::io("the referee broke down", io::Error::other(error))
}
