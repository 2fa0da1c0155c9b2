use std::num::NonZeroUsize;
use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::Code;
use leasehold_core::idempotency::{Answer, Begin, Scope};
use tokio::time::{sleep, timeout};

use crate::support::{KEY, OPERATION, PAYLOAD, Rig, call, claimed, refused, replayed, seconds};

fn rig(entries: usize, at_most: Duration) -> Rig {
    let entries = NonZeroUsize::new(entries).unwrap();
    Rig::with(Plan::none(), |builder| builder.first_level(entries, at_most).record_ttl(seconds(100.0)))
}

#[tokio::test(start_paused = true)]
async fn a_replay_takes_no_trip_and_every_check_is_made() {
    let rig = rig(10, seconds(1_000.0));
    let _ = call(&rig.a).run(async || "done".to_owned()).await.unwrap();
    let trips = rig.trips();
    for _ in 0..5 {
        let again = call(&rig.a).run(async || String::new()).await.unwrap();
        assert_eq!(again, Answer { value: "done".to_owned(), replayed: true });
        assert_eq!(refused(rig.a.call("refund", KEY, PAYLOAD)).await.code(), Some(Code::NotReplayable));
        assert_eq!(refused(rig.a.call(OPERATION, KEY, "other")).await.code(), Some(Code::PayloadMismatch));
    }
    assert_eq!(rig.trips(), trips);
    assert!(call(&rig.a).tenant("t").begin().await.is_ok(), "another scope is another call");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_replays_is_kept_too() {
    let rig = rig(10, seconds(1_000.0));
    let _ = call(&rig.b).run(async || "done".to_owned()).await.unwrap();
    for _ in 0..5 {
        assert_eq!(replayed(call(&rig.a)).await, "done");
    }
    assert_eq!(rig.trips(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_never_outlives_the_record_nor_its_own_limit() {
    for at_most in [seconds(20.0), seconds(1_000.0)] {
        let rig = rig(10, at_most);
        let _ = call(&rig.b).run(async || 1).await.unwrap();
        sleep(seconds(50.0)).await;
        assert!(call(&rig.a).run(async || 2).await.unwrap().replayed);
        // A record that is 50 s old is kept for 50 s here, and not for 100.
        sleep(seconds(50.0)).await;
        assert!(!call(&rig.a).run(async || 3).await.unwrap().replayed, "at most {at_most:?}");
    }
    let rig = rig(10, seconds(20.0));
    let _ = call(&rig.a).run(async || 1).await.unwrap();
    let trips = rig.trips();
    sleep(seconds(20.0)).await;
    assert!(call(&rig.a).run(async || 2).await.unwrap().replayed);
    assert_eq!(rig.trips(), trips + 1, "the store was asked again");
}

#[tokio::test(start_paused = true)]
async fn it_takes_memory_for_what_it_keeps_only() {
    let rig = rig(usize::MAX, seconds(1_000.0));
    let _ = call(&rig.a).run(async || 1).await.unwrap();
    let trips = rig.trips();
    assert!(call(&rig.a).run(async || 2).await.unwrap().replayed);
    assert_eq!(rig.trips(), trips);
}

#[tokio::test(start_paused = true)]
async fn it_is_bounded_and_forgets_what_is_purged_here() {
    let rig = rig(2, seconds(1_000.0));
    for key in ["1", "2", "3"] {
        let _ = rig.a.call(OPERATION, key, PAYLOAD).run(async || 1).await.unwrap();
    }
    let trips = rig.trips();
    let _ = rig.a.call(OPERATION, "3", PAYLOAD).begin().await.unwrap();
    assert_eq!(rig.trips(), trips);
    let _ = rig.a.call(OPERATION, "1", PAYLOAD).begin().await.unwrap();
    assert_eq!(rig.trips(), trips + 1);
    assert!(rig.a.purge(&Scope::call("3")).await.unwrap().is_applied());
    assert!(!rig.a.call(OPERATION, "3", PAYLOAD).run(async || 1).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn its_answers_have_so_many_bytes_together_and_no_more() {
    let rig = Rig::with(Plan::none(), |builder| {
        builder.first_level(NonZeroUsize::MAX, seconds(1_000.0)).first_level_bytes(10_000)
    });
    let call = |key: &str| rig.a.call(OPERATION, key, PAYLOAD);
    let kept = async |key: &str| {
        let trips = rig.trips();
        assert!(call(key).begin().await.is_ok_and(|begin| matches!(begin, Begin::Replay(_))));
        rig.trips() == trips
    };
    // Two of these fit, and not three.
    for key in ["1", "2"] {
        let _ = call(key).run(async || "x".repeat(4_000)).await.unwrap();
    }
    assert!(kept("2").await && kept("1").await);
    let _ = call("3").run(async || "x".repeat(4_000)).await.unwrap();
    assert!(kept("3").await && kept("1").await, "what was of use last stays");
    assert!(!kept("2").await, "and the other made way");
    assert!(!kept("3").await, "as this did now, for what came from the store");
    // One that is forgotten makes way too, and one that alone is too large for it takes no place.
    assert!(rig.a.purge(&Scope::call("3")).await.unwrap().is_applied());
    let _ = call("large").run(async || "x".repeat(10_000)).await.unwrap();
    assert!(!kept("large").await);
    assert!(kept("2").await && !kept("1").await && kept("2").await);
}

/// The same key comes again, with an answer that is as long.
#[tokio::test(start_paused = true)]
async fn what_is_kept_anew_or_has_ended_is_not_counted_twice() {
    let rig = Rig::with(Plan::none(), |builder| {
        builder.first_level(NonZeroUsize::new(2).unwrap(), seconds(10.0)).first_level_bytes(10_000)
    });
    for number in 0..100 {
        for key in ["1", "2", "3"] {
            let _ = rig.a.call(OPERATION, key, PAYLOAD).run(async || "x".repeat(4_000)).await.unwrap();
        }
        if number % 10 == 0 {
            sleep(seconds(11.0)).await;
        }
    }
    for _ in 0..2 {
        for key in ["2", "3"] {
            let _ = rig.a.call(OPERATION, key, PAYLOAD).begin().await.unwrap();
        }
    }
    let trips = rig.trips();
    for key in ["2", "3"] {
        let _ = rig.a.call(OPERATION, key, PAYLOAD).begin().await.unwrap();
    }
    assert_eq!(rig.trips(), trips, "two fit, as at the beginning");
}

#[tokio::test(start_paused = true)]
async fn it_keeps_nothing_that_is_read_while_it_is_purged() {
    let rig = rig(10, seconds(1_000.0));
    let _ = call(&rig.b).run(async || 1).await.unwrap();
    rig.link.follow(Plan::none().nth(Operation::TryRemove, 1, Fault::DelayRequest(seconds(1.0))));
    let scope = Scope::call(KEY);
    let read = async {
        sleep(seconds(0.5)).await;
        assert!(call(&rig.a).run(async || 2).await.unwrap().replayed);
    };
    let (purged, ()) = tokio::join!(rig.a.purge(&scope), read);
    assert!(purged.unwrap().is_applied());
    assert!(!call(&rig.a).run(async || 3).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn it_keeps_nothing_of_a_purge_that_is_dropped_when_it_was_made() {
    let rig = rig(10, seconds(1_000.0));
    let _ = call(&rig.b).run(async || 1).await.unwrap();
    let slow = Plan::none().nth(Operation::Get, 1, Fault::DelayAnswer(seconds(1.0)));
    rig.link.follow(slow.nth(Operation::TryRemove, 1, Fault::ApplyAndHang));
    let read = async {
        sleep(seconds(0.5)).await;
        assert!(call(&rig.a).run(async || 2).await.unwrap().replayed);
    };
    let scope = Scope::call(KEY);
    let (purged, ()) = tokio::join!(timeout(seconds(2.0), rig.a.purge(&scope)), read);
    assert!(purged.is_err());
    assert!(!call(&rig.a).run(async || 3).await.unwrap().replayed);
}

/// The store answers late: it has answered before the purge, and is heard after it.
#[tokio::test(start_paused = true)]
async fn it_keeps_nothing_that_was_on_its_way_when_it_was_purged() {
    for (operation, is_replay) in [(Operation::TryAdd, true), (Operation::TryReplace, false)] {
        let rig = rig(10, seconds(1_000.0));
        if is_replay {
            let _ = call(&rig.b).run(async || 1).await.unwrap();
        }
        rig.link.follow(Plan::none().nth(operation, 1, Fault::DelayAnswer(seconds(1.0))));
        let purge = async {
            sleep(seconds(0.5)).await;
            assert!(rig.a.purge(&Scope::call(KEY)).await.unwrap().is_applied());
        };
        let (answer, ()) = tokio::join!(call(&rig.a).run(async || 1), purge);
        assert_eq!(answer.unwrap().replayed, is_replay);
        assert!(!call(&rig.a).run(async || 2).await.unwrap().replayed, "it was purged");
        assert!(call(&rig.a).run(async || 3).await.unwrap().replayed);
    }
}

/// The record lives from when it was written in the transaction, though the commit takes its time.
#[tokio::test(start_paused = true)]
async fn it_counts_from_before_the_answer_was_written_in_a_transaction() {
    let rig = rig(10, seconds(1_000.0));
    let recording = claimed(call(&rig.a)).await.recording("done").unwrap();
    let _ = recording.write_to(&rig.memory).await.unwrap();
    sleep(seconds(50.0)).await;
    recording.recorded();
    sleep(seconds(50.0)).await;
    assert!(call(&rig.a).begin().await.is_ok_and(|begin| matches!(begin, Begin::Claimed(_))));
}
