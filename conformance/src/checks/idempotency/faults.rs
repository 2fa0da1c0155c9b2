//! A client whose link to the store fails once, at any call and in any way, beside one whose link does not.

use std::cell::{Cell, RefCell};

use leasehold_core::idempotency::{AfterCrash, Begin, Call, Claim, Completion, Idempotency, RecordState, Scope};
use leasehold_core::lock::{Nonce, Release};
use leasehold_core::{Code, Error, ErrorKind};
use tokio::time::{Instant, sleep, timeout};

use super::super::single_faults::{Life, under_every_single_fault};
use super::{PATIENCE, call, claimed, says, service};
use crate::faulty::Operation;
use crate::subject::{Subject, long};
use crate::timing::Round;
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

/// The calls of a life, and how many of each it makes at least.
const CALLS: [(Operation, u32); 5] = [
    (Operation::TryAdd, 5),
    (Operation::Watch, 1),
    (Operation::TryExpire, 2),
    (Operation::TryReplace, 1),
    (Operation::TryRemove, 1),
];

pub(crate) async fn survives_every_single_fault(subject: &Subject) -> Verdict {
    let rival = service(&subject.another_handle().await?);
    let policies = [AfterCrash::RunAgain, AfterCrash::OutcomeUnknown];
    under_every_single_fault(subject, &CALLS, &policies, async |life, policy| {
        let builder = Idempotency::builder(life.link.clone()).record_ttl(long().as_duration()).after_crash(policy);
        let builder = builder.in_progress_ttl(life.ttl.as_duration()).transport_gives_up_after(life.longest_journey());
        let one = One { life, once: builder.build(), rival: &rival, policy, seen: Seen::default() };
        let before = claimed(call(&rival, &life.key)).await?;
        let (round, ()) = tokio::try_join!(one.lives(before), one.is_contested())?;
        // Some stores are slower the more there is.
        let _ = rival.purge(&Scope::call(life.key.as_str())).await?;
        Ok(round)
    })
    .await
}

/// The client behind the link: it waits for a call that its rival gives up, gives it up too, makes it after all, over
/// several renewals, and asks for its answer once more. Whatever fails it asks for again, as clients do.
struct One<'l> {
    life: &'l Life,
    once: Idempotency,
    rival: &'l Idempotency,
    policy: AfterCrash,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    /// The claim that the work runs under.
    working: RefCell<Option<Claim>>,
    /// The claim under which the work had its effect.
    effect: Cell<Option<Nonce>>,
    /// Whether its answer was recorded.
    recorded: Cell<bool>,
    /// Whether the claim ended before its time: the machine's fault, unless it goes on being so.
    lost: Cell<bool>,
    is_over: Cell<bool>,
}

const ANSWER: &str = "the answer";

impl One<'_> {
    async fn lives(&self, before: Claim) -> Verdict<Round> {
        let round = self.makes_the_call(before).await;
        self.seen.is_over.set(true);
        round
    }

    async fn makes_the_call(&self, before: Claim) -> Verdict<Round> {
        let Self { life, once, seen, .. } = self;
        let giving_up = async {
            let began = Instant::now();
            // It is to be waited for, which takes two calls.
            while life.link.calls(Operation::TryAdd) < 2 && began.elapsed() < life.tenths(5) {
                sleep(life.tenths(1)).await;
            }
            ensure_matches!(before.abandon().await?, Release::Released, "its rival had claimed the call");
            Ok(())
        };
        let (first, ()) = tokio::try_join!(self.insists(), giving_up)?;
        let Begin::Claimed(first) = first else { return Stop::failed("nobody has made the call, and it is replayed") };
        if let Some(Ok(Release::AlreadyLost)) = life.patiently(first.abandon()).await {
            return Ok(Round::Undecided);
        }
        let Begin::Claimed(claim) = self.insists().await? else {
            return Stop::failed("the call was given up, and is replayed");
        };
        let nonce = claim.nonce();
        *seen.working.borrow_mut() = Some(claim);
        let began = Instant::now();
        while began.elapsed() < life.tenths(10) || life.link.calls(Operation::TryExpire) < 2 {
            sleep(life.tenths(1)).await;
            if seen.working.borrow().as_ref().is_none_or(|claim| claim.check().is_err()) {
                return Ok(Round::Undecided);
            }
        }
        seen.effect.set(Some(nonce));
        let Some(claim) = seen.working.take() else { return Stop::failed("nobody else takes it") };
        match life.patiently(claim.complete(ANSWER)).await {
            Some(Ok(Completion::Recorded)) => seen.recorded.set(true),
            Some(Ok(Completion::Lost)) => return Ok(Round::Undecided),
            // Then it is recorded in the background.
            Some(Err(_)) | None => {}
        }
        match self.insists().await? {
            Begin::Replay(replay) => says(&replay, ANSWER)?,
            Begin::Claimed(claim) => self.is_too_late(claim).await?,
        }
        let closed = timeout(PATIENCE, once.close()).await;
        ensure!(closed.is_ok(), "what was in doubt is not settled after {PATIENCE:?}");
        life.after_late_requests().await;
        if seen.lost.get() {
            return Ok(Round::Undecided);
        }
        let record = self.rival.inspect(&Scope::call(life.key.as_str())).await?;
        ensure!(
            record
                .as_ref()
                .is_some_and(|record| record.nonce == nonce && matches!(record.state, RecordState::Answered { .. })),
            "the call was answered under {nonce}, and its record is {record:?}"
        );
        Ok(Round::Decided)
    }

    /// Asks all the while, and gives up at once what it may claim.
    async fn is_contested(&self) -> Verdict {
        let Self { life, seen, .. } = self;
        while !seen.is_over.get() {
            sleep(life.tenths(3)).await;
            match call(self.rival, &life.key).begin().await {
                Ok(Begin::Claimed(claim)) => self.is_too_late(claim).await?,
                Ok(Begin::Replay(replay)) => {
                    says(&replay, ANSWER)?;
                    ensure!(seen.effect.get() == Some(replay.nonce()), "an answer was replayed before its effect");
                }
                Err(error) => self.may_come_to_nothing(&error)?,
            }
        }
        Ok(())
    }

    /// Whether another may claim the call now. It gives the claim up.
    async fn is_too_late(&self, claim: Claim) -> Verdict {
        let Self { seen, policy, .. } = self;
        let holds = seen.working.borrow().as_ref().is_some_and(|claim| claim.check().is_ok());
        ensure!(!holds, "another claimed the call while its claimant may count on it");
        ensure!(!seen.recorded.get(), "the call was claimed again after its answer was recorded");
        if seen.effect.get().is_some() {
            ensure!(*policy == AfterCrash::RunAgain, "the call was claimed again after its effect");
            seen.lost.set(true);
        }
        let _ = claim.abandon().await;
        Ok(())
    }

    /// Asks until the store has answered.
    async fn insists(&self) -> Verdict<Begin> {
        let Self { life, once, .. } = self;
        let asked = || -> Call { call(once, &life.key).wait(life.tenths(15)) };
        let began = Instant::now();
        loop {
            match life.patiently(asked().begin()).await {
                Some(Ok(begin)) => return Ok(begin),
                Some(Err(error)) => self.may_come_to_nothing(&error)?,
                None => {}
            }
            ensure!(began.elapsed() < PATIENCE, "the call has come to nothing for {PATIENCE:?}");
            sleep(life.tenths(1)).await;
        }
    }

    /// Whether an attempt may end so, to be repeated.
    fn may_come_to_nothing(&self, error: &Error) -> Verdict {
        let expected = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout => true,
            _ => match error.code() {
                Some(Code::CallInProgress) => true,
                Some(Code::NotReplayable) => self.policy == AfterCrash::OutcomeUnknown,
                _ => false,
            },
        };
        ensure!(expected, "this must not come of a call: {error:#}");
        Ok(())
    }
}
