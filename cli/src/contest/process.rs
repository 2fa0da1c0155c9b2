//! `leasehold contest-worker`: a worker that is a process of its own. The contest starts it, with a socket as stdin.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net;
use std::process::ExitCode;

use leasehold::Key;
use leasehold::lock::Locks;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::contest::wire::{Assignment, FromWorker, Phone, ToWorker, Wire};
use crate::contest::worker::Worker;
use crate::failure::Failure;

/// Fights until the referee says stop, or is gone.
pub(crate) async fn run() -> Result<ExitCode, Failure> {
    let mut wire = Wire::new(socket().map_err(|_| {
        Failure::Usage("`contest-worker` is started by `leasehold contest`, and has nothing to do elsewhere".to_owned())
    })?);
    die_with_parent();
    // Ctrl-C reaches the whole group. The referee's process hears it too, and ends this one.
    let _interrupts = signal(SignalKind::interrupt()).map_err(|error| Failure::io("no signal handler", error))?;

    let gone = |error| Failure::io("the referee is gone", error);
    let Some(ToWorker::Join(assignment)) = wire.read().await.map_err(gone)? else { return Ok(ExitCode::FAILURE) };
    let stop = CancellationToken::new();
    let fought = match contender(assignment).await {
        Err(failure) => Err((failure, Some(wire))),
        Ok((plan, locks, resource)) => {
            wire.write(&FromWorker::Ready).await.map_err(gone)?;
            let Some(ToWorker::Start) = wire.read().await.map_err(gone)? else { return Ok(ExitCode::SUCCESS) };
            let (phone, exchange) = Phone::new(wire, stop.clone());
            let worker = Worker::new(plan, locks, resource, phone, stop);
            tokio::pin!(exchange);
            // Whatever the worker hangs in, it ends when the referee is gone.
            tokio::select! {
                fought = worker.run() => match fought {
                    Ok(()) => Ok(()),
                    Err(failure) => Err((failure, exchange.await.ok())),
                },
                _ = &mut exchange => return Ok(ExitCode::FAILURE),
            }
        }
    };
    match fought {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err((failure, Some(mut wire))) => {
            let failed = FromWorker::Failed { reason: failure.to_string(), usage: failure.is_usage() };
            // The referee tells the user.
            let _ = wire.write(&failed).await;
            Ok(ExitCode::FAILURE)
        }
        Err((_, None)) => Ok(ExitCode::FAILURE),
    }
}

async fn contender(assignment: Assignment) -> Result<(crate::contest::scenario::Plan, Locks, Key), Failure> {
    let Assignment { store, resource, plan } = assignment;
    let store = leasehold::connect(&store).await?;
    Ok((plan, Locks::new(store), Key::new(resource)?))
}

/// Stdin, if that is a socket.
fn socket() -> io::Result<UnixStream> {
    let stream = net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.peer_addr()?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Ends this process when its parent ends: a worker that is stopped does not notice that its socket is closed.
pub(super) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};

        // Elsewhere, and where this fails, the socket does for all who run.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}
