use bytes::Bytes;
use leasehold_core::idempotency::{Idempotency, Scope};
use leasehold_core::{CacheStore, Code, Effect, ErrorKind, Expiry};

use crate::support::{KEY, OPERATION, PAYLOAD, Rig, call, claimed, refused, replayed};

/// The calls that differ from the one that was made, in one thing each, and what they are refused with.
fn strangers(once: &Idempotency) -> [(leasehold_core::idempotency::Call, Code); 3] {
    [
        (once.call("refund", KEY, PAYLOAD), Code::NotReplayable),
        (once.call(OPERATION, KEY, "43.00 EUR"), Code::PayloadMismatch),
        (once.call("refund", KEY, "43.00 EUR"), Code::NotReplayable),
    ]
}

#[tokio::test(start_paused = true)]
async fn another_operation_and_another_payload_are_refused_before_and_after_the_answer() {
    let rig = Rig::new();
    let claim = claimed(call(&rig.a)).await;
    for (stranger, code) in strangers(&rig.b) {
        assert_eq!(refused(stranger).await.code(), Some(code), "while it is in progress");
    }
    let in_progress = refused(call(&rig.b)).await;
    assert_eq!((in_progress.kind(), in_progress.code()), (ErrorKind::Conflict, Some(Code::CallInProgress)));
    assert!(in_progress.retry_after().is_some_and(|pause| !pause.is_zero()));
    let _ = claim.complete("done").await.unwrap();
    for (stranger, code) in strangers(&rig.b) {
        assert_eq!(refused(stranger).await.code(), Some(code), "after its answer");
    }
    for _ in 0..2 {
        assert_eq!(replayed(call(&rig.b)).await, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn what_breaks_a_rule_is_refused_by_rule_and_nothing_is_sent() {
    let rig = Rig::new();
    let small = Idempotency::builder(rig.link.clone()).max_payload_len(1_000).build();
    let long = "k".repeat(600);
    for (bad, rule) in [
        (rig.a.call(OPERATION, "", PAYLOAD), "must not be empty"),
        (rig.a.call(OPERATION, "two words", PAYLOAD), "white space"),
        (rig.a.call(OPERATION, long.as_str(), PAYLOAD), "at most 512 characters"),
        (rig.a.call(OPERATION, "k".repeat(400), PAYLOAD).tenant("t".repeat(200)), "at most 512 characters"),
        (rig.a.call(OPERATION, KEY, PAYLOAD).tenant("t\n"), "control character"),
        (rig.a.call("", KEY, PAYLOAD), "the name of an operation"),
        (rig.a.call("o".repeat(1025), KEY, PAYLOAD), "the name of an operation"),
        (small.call(OPERATION, KEY, &"p".repeat(1_001)), "at most 1000 bytes"),
        // The key comes first, whatever else is wrong.
        (small.call("", "two words", &"p".repeat(1_001)), "white space"),
    ] {
        let error = refused(bad).await;
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)), "{error}");
        assert_eq!(error.effect(), Effect::None);
        assert!(error.to_string().contains(rule), "{error}");
    }
    assert_eq!(rig.trips(), 0);
    assert!(call(&small).begin().await.is_ok(), "a payload within the limit");
}

#[tokio::test(start_paused = true)]
async fn ttls_that_make_no_claim_are_refused() {
    use std::time::Duration;

    use leasehold_core::idempotency::AfterCrash;

    let rig = Rig::new();
    let asking = Idempotency::builder(rig.link.clone()).after_crash(AfterCrash::OutcomeUnknown).build();
    for bad in [
        call(&rig.a).in_progress_ttl(Duration::ZERO),
        call(&rig.a).in_progress_ttl(Duration::from_millis(2)),
        call(&rig.a).record_ttl(Duration::ZERO),
        call(&rig.a).record_ttl(Duration::from_secs(367 * 24 * 3600)),
        call(&asking).record_ttl(Duration::from_secs(60)),
    ] {
        assert_eq!(refused(bad).await.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(rig.trips(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_refused_and_nothing_runs() {
    let rig = Rig::new();
    let key = Scope::call(KEY).stored_key().unwrap();
    for (stored, says) in [
        (&b"idem2 of a later version"[..], "a layout that this version cannot read"),
        (b"lease1 of a lock", "not a record of a call"),
        (b"", "not a record of a call"),
    ] {
        rig.memory.set(&key, Bytes::from_static(stored), Expiry::Never).await.unwrap();
        let error = call(&rig.a).run(async || -> u32 { panic!("it must not run") }).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, Some(Code::NotReplayable)));
        assert!(error.to_string().contains(says), "{error}");
    }
}
