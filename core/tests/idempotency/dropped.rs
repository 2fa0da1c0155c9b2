use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::idempotency::{Answer, Completion};
use leasehold_core::lock::Renewal;
use tokio::time::{sleep, timeout};

use crate::support::{Rig, call, claimed, eventually, is_in_progress, replayed, seconds};

const ON_THE_WAY: [Fault; 4] = [
    Fault::Hang,
    Fault::ApplyAndHang,
    Fault::DelayRequest(std::time::Duration::from_secs(1)),
    Fault::DelayAnswer(std::time::Duration::from_secs(1)),
];

#[tokio::test(start_paused = true)]
async fn a_begin_that_is_dropped_midway_is_reclaimed() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryAdd, 1, fault));
        assert!(timeout(seconds(0.1), call(&rig.a).begin()).await.is_err());
        sleep(seconds(1.5)).await;
        eventually(seconds(2.0), async || rig.record().await.is_none()).await;
        let claim = claimed(call(&rig.b)).await;
        rig.a.close().await;
        claim.check().unwrap();
        assert_eq!(rig.record().await.unwrap().nonce, claim.nonce(), "after {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_in_its_work_is_left_as_after_a_crash() {
    let rig = Rig::new();
    let working = call(&rig.a).run(async || {
        sleep(seconds(100.0)).await;
        1
    });
    assert!(timeout(seconds(30.0), working).await.is_err());
    assert!(is_in_progress(call(&rig.b)).await, "its effect may have happened");
    // The last renewal was at most 20 s ago; none comes after.
    sleep(seconds(60.0)).await;
    assert_eq!(rig.record().await, None);
    rig.a.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_that_is_dropped_midway_goes_on() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryReplace, 1, fault));
        let claim = claimed(call(&rig.a)).await;
        assert!(timeout(seconds(0.1), claim.complete("done")).await.is_err());
        rig.a.close().await;
        assert_eq!(replayed(call(&rig.b)).await, "done", "after {fault:?}");
    }
}

/// Its marker has ended, so that it comes to the second of its two calls.
#[tokio::test(start_paused = true)]
async fn a_late_complete_that_is_dropped_midway_goes_on() {
    for fault in ON_THE_WAY {
        let rig = Rig::with(Plan::none().nth(Operation::TryAdd, 2, fault), |builder| {
            builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off)
        });
        let claim = claimed(call(&rig.a)).await;
        sleep(seconds(6.0)).await;
        assert!(timeout(seconds(0.1), claim.complete("done")).await.is_err());
        rig.a.close().await;
        assert_eq!(replayed(call(&rig.b)).await, "done", "after {fault:?}");
    }
}

/// Whether the transaction had recorded the answer or not, and at each of the calls that find it out.
#[tokio::test(start_paused = true)]
async fn finding_out_that_is_dropped_midway_frees_what_was_not_recorded() {
    for committed in [false, true] {
        for (operation, ended) in
            [(Operation::TryExpire, false), (Operation::TryExpire, true), (Operation::TryAdd, true)]
        {
            for fault in ON_THE_WAY {
                let case = format!("{operation}, {fault:?}, committed: {committed}, ended: {ended}");
                let rig = Rig::with(Plan::none(), |builder| {
                    builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).transport_gives_up_after(seconds(5.0))
                });
                let recording = claimed(call(&rig.a)).await.recording("done").unwrap();
                if committed {
                    assert_eq!(recording.write_to(&rig.memory).await.unwrap(), Completion::Recorded);
                }
                if ended {
                    sleep(seconds(6.0)).await;
                }
                rig.link.follow(Plan::none().nth(operation, 1, fault));
                let dropped = timeout(seconds(0.1), recording.find_out()).await.is_err();
                assert!(dropped, "{case}");
                rig.a.close().await;
                match committed {
                    true => assert_eq!(replayed(call(&rig.b)).await, "done", "{case}"),
                    false => assert_eq!(rig.record().await, None, "{case}"),
                }
            }
        }
    }
}

/// What asks about the transaction claims the key anew, and that may land when nobody waits for it any more.
#[tokio::test(start_paused = true)]
async fn finding_out_that_is_dropped_leaves_nothing_though_what_it_asked_lands_late() {
    let rig = Rig::with(Plan::none(), |builder| {
        builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).transport_gives_up_after(seconds(5.0))
    });
    let recording = claimed(call(&rig.a)).await.recording("never written").unwrap();
    sleep(seconds(6.0)).await;
    let late = Plan::none().nth(Operation::TryAdd, 1, Fault::ApplyLate(seconds(3.0)));
    rig.link.follow(late.nth(Operation::TryExpire, 2, Fault::Hang));
    assert!(timeout(seconds(1.0), recording.find_out()).await.is_err());
    sleep(seconds(3.5)).await;
    assert_eq!(rig.record().await, None, "it has landed, and was taken away");
    rig.a.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandon_that_is_dropped_midway_goes_on() {
    for fault in ON_THE_WAY {
        let rig = Rig::with_plan(Plan::none().nth(Operation::TryRemove, 1, fault));
        let claim = claimed(call(&rig.a)).await;
        assert!(timeout(seconds(0.1), claim.abandon()).await.is_err());
        rig.a.close().await;
        assert_eq!(rig.record().await, None, "after {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_says_what_dropping_it_means() {
    let rig = Rig::new();
    drop(claimed(call(&rig.a)).await.free_when_dropped());
    rig.a.close().await;
    assert_eq!(rig.record().await, None, "it had no effect");
    drop(claimed(call(&rig.a)).await);
    rig.a.close().await;
    assert!(is_in_progress(call(&rig.b)).await, "nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_recording_that_is_dropped_frees_its_key_unless_it_was_recorded() {
    let rig = Rig::new();
    drop(claimed(call(&rig.a)).await.recording("never written").unwrap());
    rig.a.close().await;
    assert_eq!(rig.record().await, None);

    let recording = claimed(call(&rig.a)).await.recording("written").unwrap();
    let _ = recording.write_to(&rig.memory).await.unwrap();
    drop(recording);
    rig.a.close().await;
    assert_eq!(replayed(call(&rig.b)).await, "written");
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_after_the_answer() {
    let rig = Rig::new();
    let _: Answer<u32> = call(&rig.a).run(async || 1).await.unwrap();
    let trips = rig.trips();
    sleep(seconds(1_000.0)).await;
    assert_eq!(rig.trips(), trips, "nothing is renewed any more");
    timeout(seconds(1.0), rig.a.close()).await.unwrap();
}

/// As in a `select!` whose other branch is ready at once.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_before_it_is_polled_goes_on_all_the_same() {
    let rig = Rig::new();
    drop(claimed(call(&rig.a)).await.abandon());
    rig.a.close().await;
    assert_eq!(rig.record().await, None);
    drop(claimed(call(&rig.a)).await.complete("done"));
    rig.a.close().await;
    assert_eq!(replayed(call(&rig.b)).await, "done");
}
