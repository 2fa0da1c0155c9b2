use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::idempotency::{Answer, Completion};
use leasehold_core::lock::Release;
use leasehold_core::{Code, Effect, ErrorKind};
use tokio::time::{Instant, sleep};

use crate::support::{Rig, Work, call, claimed, eventually, is_in_progress, refused, replayed, seconds};

/// What lands late is reclaimed within a tenth of the time that a transport may hold it back, and a little.
const RECLAIMED_WITHIN: Duration = Duration::from_millis(6_100);

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_recognised() {
    for lost in 1..=2 {
        for fault in [Fault::LoseAnswer, Fault::ApplyLate(seconds(0.0)), Fault::ApplyLate(seconds(9.0)), Fault::Hang] {
            let plan = (1..=lost).fold(Plan::none(), |plan, nth| plan.nth(Operation::TryAdd, nth, fault));
            let (rig, work) = (Rig::with_plan(plan), Work::default());
            let answer = call(&rig.a).run(async || work.run()).await.unwrap();
            assert_eq!(answer, Answer { value: 1, replayed: false }, "{fault:?}");
            assert!(call(&rig.b).run(async || work.run()).await.unwrap().replayed);
            sleep(seconds(100.0)).await;
            assert!(call(&rig.b).run(async || work.run()).await.unwrap().replayed, "{fault:?} changed the record");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_runs_after_a_claim_that_stays_unknown_and_its_key_is_free_soon() {
    for fault in [Fault::LoseAnswer, Fault::ApplyLate(seconds(1.0))] {
        // The claim is sent three times, and what is adopted by replacing it fails as well.
        let plan = Plan::none().from(Operation::TryAdd, 1, fault).from(Operation::TryReplace, 1, fault);
        let rig = Rig::with_plan(plan);
        let error = call(&rig.a).run(async || -> u32 { panic!("it must not run") }).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
        assert_eq!(error.code(), Some(Code::StoreUnavailable), "never a conflict with itself");
        eventually(seconds(3.0), async || rig.record().await.is_none()).await;
        rig.a.close().await;
        assert_eq!(rig.record().await, None, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_runs_nothing() {
    let rig = Rig::with_plan(Plan::none().from(Operation::TryAdd, 1, Fault::Refuse));
    let error = call(&rig.a).run(async || -> u32 { panic!("it must not run") }).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert_eq!(error.code(), Some(Code::StoreUnavailable));
    assert_eq!(rig.trips(), 1, "what surely had no effect is the caller's to repeat");
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_twice_and_given_up_leaves_nothing_though_the_first_lands_late() {
    let late = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(20.0)));
    // The second is granted, or its grant is adopted by the third.
    for plan in [late.clone(), late.nth(Operation::TryAdd, 2, Fault::LoseAnswer)] {
        let rig = Rig::with_plan(plan);
        let _ = claimed(call(&rig.a)).await.abandon().await.unwrap();
        assert_eq!(rig.record().await, None);
        sleep(seconds(20.0) + RECLAIMED_WITHIN).await;
        assert_eq!(rig.record().await, None, "the first sending has landed, and was reclaimed");
        rig.a.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_twice_is_given_up_before_it_is_reclaimed() {
    // Were the reclaim to overtake the release, it would find the claim's own marker and look no further.
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(20.0)));
    let rig = Rig::with_plan(plan.nth(Operation::TryRemove, 1, Fault::DelayRequest(seconds(0.1))));
    assert_eq!(claimed(call(&rig.a)).await.abandon().await.unwrap(), Release::Released);
    sleep(seconds(20.0) + RECLAIMED_WITHIN).await;
    assert_eq!(rig.record().await, None, "the first sending has landed, and was reclaimed");
    rig.a.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_again_and_given_up_leaves_nothing_though_each_sending_lands_late() {
    let late = |after| Fault::ApplyLate(seconds(after));
    let plan = Plan::none().nth(Operation::TryAdd, 1, late(1.0)).nth(Operation::TryAdd, 2, late(10.0)).nth(
        Operation::TryAdd,
        3,
        late(20.0),
    );
    let rig = Rig::with_plan(plan);
    let sent = Instant::now();
    assert_eq!(refused(call(&rig.a)).await.effect(), Effect::Unknown);
    for landed in [1.0, 10.0, 20.0] {
        tokio::time::sleep_until(sent + seconds(landed) + RECLAIMED_WITHIN).await;
        assert_eq!(rig.record().await, None, "a sending has landed, and was reclaimed");
    }
    rig.a.close().await;
    assert_eq!(rig.record().await, None);
}

/// What is adopted is replaced under a fresh nonce, and an earlier sending of the first one may still be on its way.
#[tokio::test(start_paused = true)]
async fn what_was_adopted_and_given_up_leaves_nothing_though_the_first_lands_late() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(20.0))).nth(
        Operation::TryAdd,
        2,
        Fault::LoseAnswer,
    );
    let rig = Rig::with_plan(plan);
    let _ = claimed(call(&rig.a)).await.abandon().await.unwrap();
    assert_eq!(rig.record().await, None);
    sleep(seconds(20.0) + RECLAIMED_WITHIN).await;
    assert_eq!(rig.record().await, None, "the first sending has landed, and was reclaimed");
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_twice_and_dropped_leaves_nothing_though_the_first_lands_late() {
    let plan = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(20.0)));
    for in_a_transaction in [false, true] {
        let rig = Rig::with_plan(plan.clone());
        let claim = claimed(call(&rig.a)).await.free_when_dropped();
        match in_a_transaction {
            true => drop(claim.recording("rolled back").unwrap()),
            false => drop(claim),
        }
        eventually(seconds(1.0), async || rig.record().await.is_none()).await;
        sleep(seconds(20.0) + RECLAIMED_WITHIN).await;
        assert_eq!(rig.record().await, None, "the first sending has landed, and was reclaimed");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_after_a_sending_of_unknown_outcome_is_unknown() {
    let plan =
        Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(1.0))).nth(Operation::TryAdd, 2, Fault::Refuse);
    let rig = Rig::with_plan(plan);
    let error = refused(call(&rig.a)).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    sleep(seconds(1.0)).await;
    eventually(RECLAIMED_WITHIN, async || rig.record().await.is_none()).await;
}

/// The claim may be near its end when the work is done.
#[tokio::test(start_paused = true)]
async fn an_answer_on_its_way_keeps_a_claim_that_is_about_to_end() {
    use leasehold_core::lock::Renewal;

    let rig = Rig::with(Plan::none().from(Operation::TryReplace, 1, Fault::Refuse), |builder| {
        builder.in_progress_ttl(seconds(6.0)).renewal(Renewal::Off)
    });
    let answer = call(&rig.a).run(async || {
        sleep(seconds(5.5)).await;
        1
    });
    assert_eq!(answer.await.unwrap().value, 1);
    for _ in 0..10 {
        sleep(seconds(0.7)).await;
        assert!(is_in_progress(call(&rig.b)).await);
    }
    rig.link.follow(Plan::none());
    rig.a.close().await;
    assert!(call(&rig.b).run(async || 2).await.unwrap().replayed);
}

/// One that hangs is no reason to wait for a third of the ttl again.
#[tokio::test(start_paused = true)]
async fn an_answer_on_its_way_keeps_the_key_though_a_renewal_hangs() {
    let plan = Plan::none()
        .from(Operation::TryReplace, 1, Fault::Refuse)
        .nth(Operation::TryExpire, 1, Fault::Hang)
        .nth(Operation::TryExpire, 3, Fault::Hang);
    let rig = Rig::with(plan, |builder| builder.in_progress_ttl(seconds(6.0)));
    assert_eq!(call(&rig.a).run(async || 1).await.unwrap().value, 1);
    for _ in 0..20 {
        sleep(seconds(0.7)).await;
        assert!(is_in_progress(call(&rig.b)).await);
    }
    rig.link.follow(Plan::none());
    rig.a.close().await;
    assert!(call(&rig.b).run(async || 2).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_store_does_not_take_is_given_and_recorded_later() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::ApplyLate(seconds(0.5)), Fault::Hang, Fault::ApplyAndHang] {
        let plan = (1..=3).fold(Plan::none(), |plan, nth| plan.nth(Operation::TryReplace, nth, fault));
        let (rig, work) = (Rig::with_plan(plan), Work::default());
        let answer = call(&rig.a).run(async || work.run()).await.unwrap();
        assert_eq!(answer, Answer { value: 1, replayed: false });
        // Until it is recorded it is in progress, and it is never free.
        let record = rig.record().await.expect("the key stays taken");
        assert!(is_in_progress_or_replayed(&rig).await, "{fault:?}: {record:?}");
        eventually(
            seconds(60.0),
            async || matches!(call(&rig.b).run(async || work.run()).await, Ok(answer) if answer.replayed),
        )
        .await;
        rig.a.close().await;
        assert_eq!(work.runs(), 1);
    }
}

async fn is_in_progress_or_replayed(rig: &Rig) -> bool {
    match call(&rig.b).run(async || -> u32 { panic!("it must not run") }).await {
        Ok(answer) => answer.replayed,
        Err(error) => error.code() == Some(Code::CallInProgress),
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_stays_taken_while_its_answer_is_offered_and_no_longer() {
    let down = Plan::none().from(Operation::TryReplace, 1, Fault::Refuse);
    let rig = Rig::with(down, |builder| builder.in_progress_ttl(seconds(10.0)).settle_for(seconds(120.0)));
    let _ = call(&rig.a).run(async || 1).await.unwrap();
    for _ in 0..11 {
        sleep(seconds(10.0)).await;
        assert!(is_in_progress(call(&rig.b)).await);
    }
    sleep(seconds(40.0)).await;
    rig.a.close().await;
    assert!(!call(&rig.b).run(async || 2).await.unwrap().replayed, "given up, and left to expire");
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_is_lost_is_recognised() {
    let rig = Rig::with_plan(Plan::none().nth(Operation::TryReplace, 1, Fault::LoseAnswer));
    let error = claimed(call(&rig.a)).await.complete("done").await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(replayed(call(&rig.b)).await, "done");
    rig.a.close().await;
    assert_eq!(rig.link.calls(Operation::TryReplace), 2, "it was offered once more");
    assert_eq!(rig.link.calls(Operation::TryAdd), 2, "and found to be there");
}

/// That the store was surely not asked says nothing of the commit that it was to be asked about.
#[tokio::test(start_paused = true)]
async fn a_commit_that_cannot_be_found_out_about_is_of_unknown_effect() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang] {
        let rig = Rig::new();
        let recording = claimed(call(&rig.a)).await.recording("done").unwrap();
        assert_eq!(recording.write_to(&rig.memory).await.unwrap(), Completion::Recorded);
        rig.link.follow(Plan::none().from(Operation::TryExpire, 1, fault));
        let error = recording.find_out().await.unwrap_err();
        assert_eq!((error.effect(), error.code()), (Effect::Unknown, Some(Code::StoreUnavailable)), "{fault:?}");
        rig.a.close().await;
        assert_eq!(replayed(call(&rig.b)).await, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_sends_a_completion_twice_makes_no_loss() {
    use crate::support::{KEY, OPERATION, PAYLOAD};

    // The record is there when the answer comes from the second sending: what says so is the record itself.
    let rig = Rig::new();
    let twice = crate::unknown_outcome::twice::Twice(rig.memory.clone());
    let once = leasehold_core::idempotency::Idempotency::new(twice);
    let claim = claimed(once.call(OPERATION, KEY, PAYLOAD)).await;
    assert_eq!(claim.complete("done").await.unwrap(), Completion::Recorded);
}

/// A store that sends each write twice and passes on the second answer.
mod twice {
    use async_trait::async_trait;
    use bytes::Bytes;
    use leasehold_core::{
        AddOutcome, AtomicStore, Capabilities, Entry, Error, Hints, Key, Outcome, ReplaceOutcome, Ttl,
    };
    use leasehold_memory::MemoryStore;

    pub(super) struct Twice(pub(super) MemoryStore);

    #[async_trait]
    impl AtomicStore for Twice {
        fn name(&self) -> &'static str {
            "twice"
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
            let _ = self.0.try_add(key, value.clone(), ttl).await?;
            self.0.try_add(key, value, ttl).await
        }

        async fn try_replace(&self, key: &Key, old: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
            // What adopts a claim goes through as it is.
            let first = self.0.try_replace(key, old, value.clone(), ttl).await?;
            if value.get(6) == Some(&b'p') {
                return Ok(first);
            }
            self.0.try_replace(key, old, value, ttl).await
        }

        async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
            self.0.try_remove(key, expected).await
        }

        async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
            self.0.try_expire(key, expected, ttl).await
        }

        async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
            self.0.get(key).await
        }

        async fn watch(&self, key: &Key) -> Result<Hints, Error> {
            self.0.watch(key).await
        }
    }
}
