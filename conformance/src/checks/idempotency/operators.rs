//! What operators see of calls and do about them, and the outcomes that only they can tell.

use std::collections::BTreeMap;

use leasehold_core::idempotency::{AfterCrash, Completion, Idempotency, Inbox, RecordInfo, RecordState, Scope};
use leasehold_core::{CacheStore, Code, Key, Outcome};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{
    OPERATION, answered, call, claimed, claimed_in_time, ending, in_progress, recorded, refused, refused_until, service,
};
use crate::subject::{Subject, key, long, millis};
use crate::timing::{Round, Span, measured};
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

/// First it is in progress, then nobody knows, and when its record would have ended it is forgotten: none of it early or
/// late.
pub(crate) async fn the_outcome_is_unknown_after_a_crash_if_asked(subject: &Subject) -> Verdict {
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let record_ttl = millis(ttl.as_millis() * 5 / 2);
            let asking = ending(&subject.store, ttl).after_crash(AfterCrash::OutcomeUnknown);
            let asking = asking.record_ttl(record_ttl.as_duration()).build();
            let Some((asked, crashed)) = claimed_in_time(call(&asking, key)).await? else {
                return Ok(Round::Undecided);
            };
            drop(crashed);
            let in_progress = refused_until(subject, asked, ttl, Code::CallInProgress, || call(&others, key)).await?;
            subject.tolerance.past_the_end(asked, ttl).await;
            // The other policy, of one who comes later, does not change what the claimant has chosen.
            let unknown = refused_until(subject, asked, record_ttl, Code::NotReplayable, || call(&others, key)).await?;
            subject.tolerance.past_the_end(asked, record_ttl).await;
            recorded(claimed(call(&others, key)).await?, "the answer").await?;
            Ok(if unknown == Round::Decided { in_progress } else { unknown })
        })
        .await
}

/// Settled, freed or purged; or completed after all, by a claimant that was not dead.
pub(crate) async fn an_unknown_outcome_is_for_operators(subject: &Subject) -> Verdict {
    const HOW: [&str; 4] = ["settled", "freed", "purged", "completed"];
    let others = service(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let asking = ending(&subject.store, ttl).after_crash(AfterCrash::OutcomeUnknown).build();
            let (called, mut claims) = (Instant::now(), Vec::new());
            for how in HOW {
                let key = format!("{key}-{how}");
                let Some((_, claim)) = claimed_in_time(call(&asking, &key)).await? else {
                    return Ok(Round::Undecided);
                };
                claims.push((how, key, claim));
            }
            subject.tolerance.past_the_end(Span { called, returned: Instant::now() }, ttl).await;
            for (how, key, late) in claims {
                let (scope, nonce) = (Scope::call(key.as_str()), late.nonce());
                refused(call(&others, &key), Code::NotReplayable).await?;
                let record = others.inspect(&scope).await?;
                ensure!(record.as_ref().is_some_and(RecordInfo::is_stuck), "the outcome is unknown, and {record:?}");
                let outcome = match how {
                    "settled" => others.settle(&scope, nonce, "the operator's").await?,
                    "freed" => others.free(&scope, nonce).await?,
                    "purged" => others.purge(&scope).await?,
                    _ => {
                        recorded(late, "the answer after all").await?;
                        answered(call(&others, &key), "the answer after all").await?;
                        let settled = others.settle(&scope, nonce, "the operator's").await?;
                        ensure_matches!(settled, Outcome::NotApplied, "a call that is answered was settled");
                        continue;
                    }
                };
                ensure_matches!(outcome, Outcome::Applied, "a call of unknown outcome must be {how}");
                let next = if how == "settled" { None } else { Some(claimed(call(&others, &key)).await?) };
                let completion = late.complete("too late").await?;
                ensure_matches!(completion, Completion::Lost, "the call was {how}, and then completed all the same");
                let answer = match next {
                    None => "the operator's",
                    Some(next) => {
                        let freed = others.free(&scope, nonce).await?;
                        ensure_matches!(freed, Outcome::NotApplied, "a call was freed of a claim that is over");
                        recorded(next, "the next one's").await?;
                        "the next one's"
                    }
                };
                answered(call(&asking, &key), answer).await?;
            }
            Ok(Round::Decided)
        })
        .await
}

pub(crate) async fn tells_who_claimed_a_call(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), service(&subject.another_handle().await?));
    let scope = Scope::call("k").with_tenant("t:1").with_principal("p");
    let call = || call(&once, "k").tenant("t:1").principal("p");
    ensure!(others.inspect(&scope).await?.is_none(), "nobody has made the call");
    let (asked, claim) = measured(claimed(call())).await?;
    let (nonce, inspected) = (claim.nonce(), measured(async { Ok(others.inspect(&scope).await?) }).await?);
    let (read, Some(record)) = inspected else { return Stop::failed("a call is in progress, and has no record") };
    let is_of_the_claim =
        |record: &RecordInfo| (record.nonce, record.operation.as_str(), &record.scope) == (nonce, OPERATION, &scope);
    ensure!(is_of_the_claim(&record), "the record must be of the claim, and is {record:?}");
    ensure_matches!(record.state, RecordState::InProgress { .. }, "the call is in progress");
    subject.tolerance.ensure_time_left(Some(record.time_left), asked, in_progress(), read)?;
    recorded(claim, "the answer").await?;
    let record = others.inspect(&scope).await?;
    ensure!(
        record
            .as_ref()
            .is_some_and(|record| is_of_the_claim(record)
                && record.state == RecordState::Answered { bytes: "\"the answer\"".len() }),
        "the call was answered, and its record is {record:?}"
    );
    Ok(())
}

/// As operators list them, and what is none of them is left out.
pub(crate) async fn every_record_is_listed(subject: &Subject) -> Verdict {
    let (once, others) = (service(&subject.store), subject.another_handle().await?);
    let stray = key("idem:-:-:stray");
    subject.store.must_add(&stray, "no record", long()).await?;
    subject
        .rounds(async |key, ttl| {
            let asking = ending(&subject.store, ttl).after_crash(AfterCrash::OutcomeUnknown).build();
            let (called, mut wanted) = (Instant::now(), BTreeMap::new());
            for number in 0..9 {
                let scope = Scope::call(format!("k-{number}")).with_tenant(key.as_str());
                let state = [State::InProgress, State::Answered, State::Unknown][number % 3];
                let once = if state == State::Unknown { &asking } else { &once };
                let begun = call(once, scope.key()).tenant(key.as_str());
                // One that was too slow may be in the store for a while.
                let Some((_, claim)) = claimed_in_time(begun).await? else { return Ok(Round::Undecided) };
                if state == State::Answered {
                    recorded(claim, "the answer").await?;
                }
                wanted.insert(scope.stored_key()?, state);
            }
            let claimed = Span { called, returned: Instant::now() };
            let message = Scope::message(key.as_str(), "m");
            let _ = Inbox::new(once.clone(), key.as_str()).message("m").run(async || ()).await?;
            wanted.insert(message.stored_key()?, State::Answered);
            subject.tolerance.past_the_end(claimed, ttl).await;
            let listed = listed(others.cache(), key.as_str()).await?;
            ensure!(listed == wanted, "the records must be {wanted:?}, and these are listed: {listed:?}");
            Ok(Round::Decided)
        })
        .await
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    InProgress,
    Unknown,
    Answered,
    NotKept,
}

/// What is listed of a tenant, or of a consumer.
async fn listed(store: &dyn CacheStore, whose: &str) -> Verdict<BTreeMap<Key, State>> {
    let (mut listed, mut cursor) = (BTreeMap::new(), None);
    loop {
        let page = Idempotency::list(store, cursor).await?;
        for record in page.records {
            let state = match record.state {
                RecordState::InProgress { .. } => State::InProgress,
                RecordState::OutcomeUnknown { .. } => State::Unknown,
                RecordState::Answered { .. } => State::Answered,
                _ => State::NotKept,
            };
            if record.scope.tenant().or(record.scope.principal()) == Some(whose) {
                listed.insert(record.scope.stored_key()?, state);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(listed);
        }
        yield_now().await;
    }
}
