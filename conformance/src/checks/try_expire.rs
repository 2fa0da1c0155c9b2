use std::time::Duration;

use leasehold_core::Outcome;
use tokio::time::{Instant, sleep, sleep_until};

use crate::subject::{Subject, base, key, long, millis};
use crate::timing::{Round, measured};
use crate::verdict::{Verdict, ensure};

pub(super) async fn lengthens(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "mine", ttl)).await?;
            let answer = store.try_expire(key, b"mine", long()).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(answer == Outcome::Applied, "try_expire must apply to the expected value");
            subject.tolerance.well_past_the_end(written, ttl).await;
            store.must_show(key, "mine").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn shortens(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .lives_its_ttl(async |key, ttl| {
            store.must_add(key, "mine", long()).await?;
            Ok(measured(store.must_expire(key, "mine", ttl)).await?.0)
        })
        .await
}

pub(super) async fn refuses_another_value(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "mine", ttl)).await?;
            store.must_not_expire(key, "other", "another value is there").await?;
            // Nor may it have moved the end all the same.
            subject.is_gone_after(written, key, ttl).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn refuses_an_absent_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_not_expire(&key, "mine", "nothing is there").await?;
    store.must_not_expire(&key, "", "nothing is there").await?;
    store.must_not_show(&key, "a try_expire writes nothing").await
}

pub(super) async fn never_revives(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_not_expire(&key, "mine", "it has expired").await?;
    store.must_not_show(&key, "it has expired").await?;
    store.must_add(&key, "another's", long()).await?;
    Ok(())
}

pub(super) async fn changes_no_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_expire(&key, "mine", millis(60_000)).await?;
    store.must_show(&key, "mine").await?;
    store.must_remove(&key, "mine").await
}

/// Renewals are sent so close to the end that some have to wait beyond it. What has been seen gone must not come back:
/// only such a renewal could have done that.
pub(super) async fn a_late_renewal_does_not_revive(subject: &Subject) -> Verdict {
    const RENEWALS: u32 = 12;
    // So short that the entry ends soon, however many of them apply.
    let renewed_for = millis(20);
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    let ends = written.called + base().as_duration();
    let renewals = (1..=RENEWALS).map(|number| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            sleep_until(ends - Duration::from_millis(1) * number / 2).await;
            store.try_expire(&key, b"mine", renewed_for).await
        })
    });
    let renewals: Vec<_> = renewals.collect();
    let (mut seen_gone, mut all_answered) = (None, None);
    sleep_until(ends - renewed_for.as_duration()).await;
    loop {
        let asked = Instant::now();
        let is_there = store.get(&key).await?.is_some();
        match (is_there, seen_gone) {
            (false, None) => seen_gone = Some(Instant::now()),
            (true, Some(gone)) => ensure!(
                asked < gone,
                "it was seen gone, and {:?} later it was there again: a renewal revived it",
                asked - gone
            ),
            _ => {}
        }
        match all_answered {
            None if renewals.iter().all(|renewal| renewal.is_finished()) => all_answered = Some(Instant::now()),
            Some(last) if asked >= last + renewed_for.as_duration() + subject.tolerance.late => break,
            _ => {}
        }
        sleep(Duration::from_millis(2)).await;
    }
    for renewal in renewals {
        match renewal.await {
            Ok(answer) => {
                let (Outcome::Applied | Outcome::NotApplied) = answer?;
            }
            Err(error) => ensure!(false, "a renewal ended badly: {error}"),
        }
    }
    store.must_not_show(&key, &format!("its last renewal was for {renewed_for:?}, and is over")).await
}
