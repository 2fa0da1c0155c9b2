use std::collections::HashMap;

use leasehold_conformance::{Operation, Plan};
use leasehold_core::idempotency::{AfterCrash, Completion, Idempotency, Inbox, RecordState, Scope};
use leasehold_core::lock::{Nonce, Renewal};
use leasehold_core::{CacheStore, Code, Cursor, ErrorKind, Expiry, Key, Outcome};
use tokio::time::sleep;

use crate::support::{KEY, OPERATION, PAYLOAD, Rig, call, claimed, refused, replayed, seconds};

fn asking() -> Rig {
    Rig::with(Plan::none(), |builder| {
        builder.in_progress_ttl(seconds(5.0)).renewal(Renewal::Off).after_crash(AfterCrash::OutcomeUnknown)
    })
}

#[tokio::test(start_paused = true)]
async fn a_record_can_be_looked_at_and_shows_no_answer() {
    let rig = Rig::new();
    let scope = Scope::call(KEY);
    assert_eq!(rig.a.inspect(&scope).await.unwrap(), None);
    let claim = claimed(call(&rig.a)).await;
    let record = rig.a.inspect(&scope).await.unwrap().unwrap();
    assert_eq!((record.nonce, record.operation.as_str(), &record.scope), (claim.nonce(), OPERATION, &scope));
    assert!(matches!(&record.state, RecordState::InProgress { owner } if owner.contains(':')));
    assert_eq!(record.time_left, seconds(60.0));
    let _ = claim.complete("the secret").await.unwrap();
    let record = rig.a.inspect(&scope).await.unwrap().unwrap();
    assert_eq!(record.state, RecordState::Answered { bytes: "\"the secret\"".len() });
    assert!(!format!("{record:?}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_can_be_settled_with_an_answer() {
    let rig = asking();
    let crashed = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    let scope = Scope::call(KEY);
    let other = Nonce::from_bytes([0; 16]);
    assert_eq!(rig.b.settle(&scope, other, "x").await.unwrap(), Outcome::NotApplied, "of another claim");
    assert_eq!(rig.b.settle(&scope, crashed.nonce(), "as the provider says").await.unwrap(), Outcome::Applied);
    assert_eq!(replayed(call(&rig.b)).await, "as the provider says");
    assert_eq!(rig.b.settle(&scope, crashed.nonce(), "x").await.unwrap(), Outcome::NotApplied, "it is settled");
    assert_eq!(refused(rig.b.call(OPERATION, KEY, "other")).await.code(), Some(Code::PayloadMismatch));
    assert_eq!(crashed.complete("too late").await.unwrap(), Completion::Lost);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_can_be_freed() {
    let rig = asking();
    let crashed = claimed(call(&rig.a)).await;
    sleep(seconds(6.0)).await;
    let scope = Scope::call(KEY);
    assert_eq!(rig.b.free(&scope, Nonce::from_bytes([0; 16])).await.unwrap(), Outcome::NotApplied);
    assert_eq!(rig.b.free(&scope, crashed.nonce()).await.unwrap(), Outcome::Applied);
    let next = claimed(call(&rig.b)).await;
    assert_eq!(rig.b.free(&scope, crashed.nonce()).await.unwrap(), Outcome::NotApplied, "the next one's claim stands");
    assert_eq!(crashed.complete("too late").await.unwrap(), Completion::Lost);
    assert_eq!(next.complete("done").await.unwrap(), Completion::Recorded);
}

#[tokio::test(start_paused = true)]
async fn anything_can_be_purged_also_what_cannot_be_read() {
    let rig = Rig::new();
    let scope = Scope::call(KEY);
    assert_eq!(rig.a.purge(&scope).await.unwrap(), Outcome::NotApplied);
    let _ = call(&rig.a).run(async || 1).await.unwrap();
    assert_eq!(rig.a.purge(&scope).await.unwrap(), Outcome::Applied);
    rig.memory.set(&scope.stored_key().unwrap(), "idem9 unknown".into(), Expiry::Never).await.unwrap();
    assert_eq!(rig.a.inspect(&scope).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(rig.a.purge(&scope).await.unwrap(), Outcome::Applied);
    assert!(!call(&rig.a).run(async || 2).await.unwrap().replayed);
}

/// An answer is read to show what it is the answer of, and may be as large as the store takes.
#[tokio::test(start_paused = true)]
async fn a_listing_never_has_many_answers_in_memory() {
    let rig = Rig::new();
    let (large, records) = ("x".repeat(1024), 1_000);
    for number in 0..records {
        let call = rig.a.call(OPERATION, format!("k-{number}"), PAYLOAD);
        let _ = call.run(async || large.clone()).await.unwrap();
    }
    rig.link.follow(Plan::none());
    let (mut listed, mut cursor) = (0, None);
    loop {
        let page = Idempotency::list(&rig.link, cursor).await.unwrap();
        listed += page.records.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, records);
    let (pages, reads) = (rig.link.calls(Operation::Scan), rig.link.calls(Operation::GetMany));
    assert!(reads as usize >= records / 32, "{records} records were read in {reads} pieces");
    assert!(reads <= records as u32 / 32 + pages, "and not one by one: {reads}");
}

#[tokio::test(start_paused = true)]
async fn every_record_is_listed_and_the_stuck_ones_say_so() {
    let rig = asking();
    let mut wanted = HashMap::new();
    for number in 0..2_500 {
        let key = format!("k-{number}");
        let call = rig.a.call(OPERATION, key.as_str(), PAYLOAD).tenant("t:1");
        match number % 2 {
            0 => std::mem::forget(claimed(call).await),
            _ => drop(call.run(async || 1).await.unwrap()),
        }
        wanted.insert(Scope::call(key).with_tenant("t:1"), number % 2 == 0);
    }
    let inbox = Inbox::new(rig.a.clone(), "billing");
    let _ = inbox.message("m-1").run(async || ()).await.unwrap();
    wanted.insert(Scope::message("billing", "m-1"), false);
    // Neighbours that are no records.
    for stray in ["idem:stray", "idem:-:-:x", "idemx", "lock:x"] {
        rig.memory.set(&Key::new(stray).unwrap(), "stray".into(), Expiry::Never).await.unwrap();
    }
    sleep(seconds(6.0)).await;
    let (mut listed, mut unreadable, mut cursor) = (HashMap::new(), Vec::new(), None);
    loop {
        let page = Idempotency::list(&rig.memory, cursor).await.unwrap();
        listed.extend(page.records.into_iter().map(|record| (record.scope.clone(), record.is_stuck())));
        unreadable.extend(page.unreadable);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, wanted);
    assert_eq!(unreadable, [Scope::call("x")]);
    for foreign in [&b""[..], b"\x09"] {
        let error = Idempotency::list(&rig.memory, Some(Cursor::from_store(foreign.to_vec()))).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
