use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::lock::Locks;
use leasehold::{Key, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::contest::event::{Event, Link, Verdict};
use crate::contest::referee::Referee;
use crate::contest::scenario::Plan;
use crate::contest::worker::Worker;
use crate::failure::Failure;

/// How long a worker may take to end once it is told to.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the workers as tasks of this process, until the contest is over. Each has a [`Locks`] of its own, so that they
/// meet in the store alone, as processes would.
pub(crate) async fn fight(plan: &Plan, store: &Store, resource: &Key, referee: &Arc<Referee>) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let mut workers = JoinSet::new();
    for worker in 0..plan.workers {
        let link = Desk { referee: referee.clone(), worker };
        let (plan, resource) = (plan.clone(), resource.clone());
        // A token each: all would otherwise meet at the lock of one.
        let stop = stop.child_token();
        workers.spawn(Worker::new(plan, Locks::new(store.clone()), resource, link, stop).run());
    }
    let ended_early = tokio::time::timeout(plan.length, first_to_end(&mut workers)).await;
    stop.cancel();
    if let Ok(failed) = ended_early {
        return failed;
    }
    // Who hangs in a call to the store is left there.
    let all_ended = async {
        while let Some(ended) = workers.join_next().await {
            settled(ended)?;
        }
        Ok(())
    };
    tokio::time::timeout(GRACE, all_ended).await.unwrap_or(Ok(()))
}

/// No worker ends by itself but by a failure.
async fn first_to_end(workers: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    match workers.join_next().await {
        Some(ended) => settled(ended),
        None => Ok(()),
    }
}

fn settled(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|error| Err(Failure::io("a worker broke down", io::Error::other(error))))
}

/// The referee sits in the same room.
struct Desk {
    referee: Arc<Referee>,
    worker: usize,
}

impl Link for Desk {
    async fn tell(&mut self, event: Event) -> io::Result<Verdict> {
        Ok(self.referee.hear(self.worker, event))
    }
}
