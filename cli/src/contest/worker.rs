use std::io;
use std::time::Duration;

use leasehold::fence::FencingToken;
use leasehold::lock::{Lease, Locks, Release};
use leasehold::{Error, ErrorKind, Key};
use tokio_util::sync::CancellationToken;

use crate::contest::event::{Event, Link};
use crate::contest::scenario::Plan;
use crate::failure::Failure;

/// One contender: it asks for the lease, enters, writes, stays, writes, leaves, and asks again.
pub(crate) struct Worker<L> {
    plan: Plan,
    locks: Locks,
    /// What all fight for.
    resource: Key,
    link: L,
    /// Fires at the end of the contest.
    stop: CancellationToken,
    /// How often it was in.
    stays: u64,
}

/// A worker that is a task gives way in the middle of every so many stays: then all others come upon a lease that is
/// held, and not only the one that runs on another core. If it always did, there would be little but wake-ups.
const GIVES_WAY_EVERY: u64 = 8;

impl<L: Link> Worker<L> {
    /// A contender for `resource`, until `stop` fires.
    pub(crate) fn new(plan: Plan, locks: Locks, resource: Key, link: L, stop: CancellationToken) -> Self {
        Self { plan, locks, resource, link, stop, stays: 0 }
    }

    /// Fights until it is stopped. A store that fails is told to the referee, and asked again.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        while !self.stop.is_cancelled() {
            self.tell(Event::Seek).await?;
            match self.acquire().await {
                None => break,
                Some(Ok(lease)) => self.hold(lease).await?,
                // Somebody held it for as long as this waits. There is no news in that.
                Some(Err(error)) if error.kind() == ErrorKind::Conflict => {}
                Some(Err(error)) if is_for_good(&error) => return Err(error.into()),
                Some(Err(error)) => self.trouble(&error).await?,
            }
            // A store that answers at once would otherwise let a worker go on for ever without giving way, as no
            // process could: the scheduler of the machine would take its turn away.
            tokio::task::yield_now().await;
        }
        // What was in doubt when the contest ended is given back, if that is quickly done; the ttl ends it otherwise.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.locks.close()).await;
        Ok(())
    }

    /// The lease, or nothing when the contest has ended.
    async fn acquire(&self) -> Option<Result<Lease, Error>> {
        let Plan { scenario, workers: _, length, ttl, hold } = &self.plan;
        // To wait all through the contest is normal, so nobody gives up before it ends.
        let longer_than_the_contest = length.saturating_add(*ttl).saturating_add(*hold).saturating_mul(2);
        let request = self.locks.lock(self.resource.clone());
        let acquired =
            request.ttl(*ttl).wait(longer_than_the_contest).renewal(scenario.renewal()).require_fencing().acquire();
        tokio::select! {
            biased;
            acquired = acquired => Some(acquired),
            () = self.stop.cancelled() => None,
        }
    }

    async fn hold(&mut self, lease: Lease) -> Result<(), Failure> {
        let token = lease.fencing_token().expect("`require_fencing` refuses a store that gives none");
        let mut lost = false;
        // A grant that came when the contest was over is given back unused.
        if !self.stop.is_cancelled() {
            if self.plan.scenario.stops_when_lost() {
                match lease.while_held(self.work(token)).await {
                    Ok(worked) => worked?,
                    Err(_) => {
                        lost = true;
                        self.tell(Event::Leave).await?;
                    }
                }
            } else {
                self.work(token).await?;
            }
        }
        match lease.release().await {
            Ok(Release::AlreadyLost) => lost = true,
            Ok(Release::Released | Release::StillShared) => {}
            Err(error) => self.trouble(&error).await?,
        }
        if lost {
            self.tell(Event::Lost).await?;
        }
        Ok(())
    }

    /// The critical section.
    async fn work(&mut self, token: FencingToken) -> Result<(), Failure> {
        self.tell(Event::Enter { token }).await?;
        if self.stays.is_multiple_of(GIVES_WAY_EVERY) {
            tokio::task::yield_now().await;
        }
        self.stays += 1;
        self.pause(self.plan.hold).await;
        self.tell(Event::Write { token }).await?;
        self.tell(Event::Leave).await
    }

    async fn trouble(&mut self, error: &Error) -> Result<(), Failure> {
        const BEFORE_THE_NEXT_TRY: Duration = Duration::from_millis(100);
        self.tell(Event::Trouble { error: format!("{error:#}") }).await?;
        self.pause(BEFORE_THE_NEXT_TRY).await;
        Ok(())
    }

    /// Does nothing for so long, or until the contest ends.
    async fn pause(&self, duration: Duration) {
        if !duration.is_zero() {
            let _ = tokio::time::timeout(duration, self.stop.cancelled()).await;
        }
    }

    async fn tell(&mut self, event: Event) -> Result<(), Failure> {
        let told: io::Result<_> = self.link.tell(event).await;
        // Refused or not, the worker goes on, as one would that does not look.
        told.map(drop).map_err(|error| Failure::io("the referee is gone", error))
    }
}

/// Whether asking again cannot help.
fn is_for_good(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Unauthorized)
}
