//! A manager whose link to the store fails once, at any call and in any way, beside one whose link does not.

use std::cell::{Cell, RefCell};

use leasehold_core::ErrorKind;
use leasehold_core::fence::FencingToken;
use leasehold_core::lock::{Attempt, Lease, Locks, Release};
use tokio::time::{Instant, sleep, timeout};

use super::super::single_faults::{Life, under_every_single_fault};
use super::{PATIENCE, acquired, managed};
use crate::faulty::Operation;
use crate::subject::Subject;
use crate::timing::Round;
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

/// The calls of a life, and how many of each it makes at least.
const CALLS: [(Operation, u32); 5] = [
    (Operation::TryAdd, 5),
    (Operation::Watch, 1),
    (Operation::TryExpire, 2),
    (Operation::TryReplace, 1),
    (Operation::TryRemove, 2),
];

pub(crate) async fn survive_every_single_fault(subject: &Subject) -> Verdict {
    let rival = managed(&subject.another_handle().await?);
    under_every_single_fault(subject, &CALLS, &["held three times"], async |life, _| {
        let locks = Locks::builder(life.link.clone()).transport_gives_up_after(life.longest_journey()).build();
        let one = One {
            life,
            locks,
            rival: &rival,
            held: RefCell::default(),
            last: Cell::new(None),
            is_over: Cell::new(false),
        };
        let before = acquired(rival.lock(&life.key)).await?;
        one.note(&before)?;
        let (round, ()) = tokio::try_join!(one.lives(before), one.is_contested())?;
        Ok(round)
    })
    .await
}

/// The manager behind the link: it waits for a lease that its rival releases, keeps it over several renewals, releases it
/// for later, gets it again and releases it, and then once more and drops it.
struct One<'l> {
    life: &'l Life,
    locks: Locks,
    rival: &'l Locks,
    held: RefCell<Option<Lease>>,
    /// The token of whoever held it last.
    last: Cell<Option<FencingToken>>,
    is_over: Cell<bool>,
}

impl One<'_> {
    async fn lives(&self, before: Lease) -> Verdict<Round> {
        let round = self.holds(before).await;
        self.is_over.set(true);
        round
    }

    async fn holds(&self, before: Lease) -> Verdict<Round> {
        let Self { life, locks, rival, .. } = self;
        let releasing = async {
            let began = Instant::now();
            // It is to be waited for, which takes two calls.
            while life.link.calls(Operation::TryAdd) < 2 && began.elapsed() < life.tenths(5) {
                sleep(life.tenths(1)).await;
            }
            ensure_matches!(before.release().await?, Release::Released, "its rival held the lease");
            Ok(())
        };
        tokio::try_join!(self.gets_it(), releasing)?;
        let began = Instant::now();
        while began.elapsed() < life.tenths(10) || life.link.calls(Operation::TryExpire) < 2 {
            sleep(life.tenths(1)).await;
            if self.is_lost() {
                return Ok(Round::Undecided);
            }
        }
        for time in 0..3 {
            let Some(lease) = self.held.take() else { return Stop::failed("nobody else takes it") };
            let release = match time {
                0 => life.patiently(lease.release_no_sooner_than(life.ttl.as_duration() * 2)).await,
                1 => life.patiently(lease.release()).await,
                _ => {
                    drop(lease);
                    break;
                }
            };
            if let Some(Ok(Release::AlreadyLost)) = release {
                return Ok(Round::Undecided);
            }
            self.gets_it().await?;
            if self.is_lost() {
                return Ok(Round::Undecided);
            }
        }
        let closed = timeout(PATIENCE, locks.close()).await;
        ensure!(closed.is_ok(), "what was in doubt is not settled after {PATIENCE:?}");
        life.after_late_requests().await;
        self.is_over.set(true);
        let began = Instant::now();
        // Its rival may be about to release it.
        while let Some(holder) = rival.inspect(&life.key).await? {
            ensure!(began.elapsed() < life.tenths(10), "nobody holds it any more, and it was left to {holder}");
            sleep(life.tenths(1)).await;
        }
        Ok(Round::Decided)
    }

    /// Asks until it has the lease.
    async fn gets_it(&self) -> Verdict {
        let Self { life, locks, .. } = self;
        let began = Instant::now();
        loop {
            let request = locks.lock(&life.key).ttl(life.ttl.into()).wait(life.tenths(15));
            match life.patiently(request.acquire()).await {
                Some(Ok(lease)) => {
                    self.note(&lease)?;
                    *self.held.borrow_mut() = Some(lease);
                    return Ok(());
                }
                Some(Err(error)) => ensure!(
                    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Timeout | ErrorKind::Unavailable),
                    "this must not come of an acquisition: {error:#}"
                ),
                None => {}
            }
            ensure!(began.elapsed() < PATIENCE, "the lease is not to be had for {PATIENCE:?}");
            sleep(life.tenths(1)).await;
        }
    }

    /// Tries all the while, and releases at once what it gets.
    async fn is_contested(&self) -> Verdict {
        let Self { life, rival, .. } = self;
        while !self.is_over.get() {
            if let Attempt::Acquired(lease) = rival.lock(&life.key).try_acquire().await? {
                ensure!(
                    self.held.borrow().as_ref().is_none_or(|held| held.check().is_err()),
                    "another got the lease while its holder may count on it"
                );
                self.note(&lease)?;
                ensure_matches!(lease.release().await?, Release::Released, "it was held");
            }
            sleep(life.tenths(3)).await;
        }
        Ok(())
    }

    /// Lost before its time: the machine's fault, unless it goes on being so.
    fn is_lost(&self) -> bool {
        self.held.borrow().as_ref().is_none_or(|lease| lease.check().is_err())
    }

    fn note(&self, lease: &Lease) -> Verdict {
        let (token, last) = (lease.fencing_token(), self.last.get());
        ensure!(token.is_none() || token > last, "tokens must rise, and {token:?} came after {last:?}");
        self.last.set(token);
        Ok(())
    }
}
