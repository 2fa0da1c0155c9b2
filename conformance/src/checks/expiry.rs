//! An entry lives exactly its ttl, by bounds that are measured: see [`crate::timing`].

use crate::subject::{Subject, base, key, long, millis};
use crate::timing::{Round, measured};
use crate::verdict::{Verdict, ensure};
use leasehold_core::Ttl;

pub(super) async fn never_early(subject: &Subject) -> Verdict {
    subject.rounds(async |key, ttl| there_until_the_end(subject, key, ttl).await).await
}

pub(super) async fn not_late(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    subject.is_gone_after(written, &key, base()).await
}

pub(super) async fn keeps_fractions_of_a_second(subject: &Subject) -> Verdict {
    subject
        .rounds_from(1_400, async |key, ttl| {
            let round = there_until_the_end(subject, key, ttl).await?;
            let written = measured(subject.store.must_add(&crate::subject::key("next"), "mine", ttl)).await?.0;
            subject.is_gone_after(written, &crate::subject::key("next"), ttl).await?;
            Ok(round)
        })
        .await
}

pub(super) async fn a_few_milliseconds_are_kept(subject: &Subject) -> Verdict {
    let store = &subject.store;
    for ttl in [Ttl::MIN, millis(2), millis(15)] {
        let key = key(&format!("k-{}", ttl.as_millis()));
        let (written, _) = measured(store.must_add(&key, "mine", ttl)).await?;
        subject.is_gone_after(written, &key, ttl).await?;
        store.must_add(&key, "next", long()).await?;
    }
    Ok(())
}

pub(super) async fn the_longest_ttl_is_kept(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", Ttl::MAX)).await?;
    let (read, entry) = measured(store.must_show(&key, "mine")).await?;
    subject.tolerance.ensure_time_left(entry.time_left, written, Ttl::MAX, read)?;
    store.must_expire(&key, "mine", long()).await?;
    let (renewed, ()) = measured(store.must_expire(&key, "mine", Ttl::MAX)).await?;
    let (read, entry) = measured(store.must_show(&key, "mine")).await?;
    subject.tolerance.ensure_time_left(entry.time_left, renewed, Ttl::MAX, read)?;
    // Nothing that ends so late is to be left behind.
    let _ = store.try_remove(&key, b"mine").await?;
    Ok(())
}

pub(super) async fn every_operation_agrees(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_not_expire(&key, "mine", "it has expired").await?;
    store.must_not_replace(&key, "mine", "it has expired").await?;
    store.must_not_remove(&key, "mine", "it has expired").await?;
    store.must_not_show(&key, "it has expired").await?;
    store.must_add(&key, "next", long()).await?;
    Ok(())
}

pub(super) async fn one_end_takes_no_neighbour(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let (short, longer) = (key("short"), key("longer"));
    store.must_add(&longer, "longer", long()).await?;
    let (written, _) = measured(store.must_add(&short, "short", base())).await?;
    subject.is_gone_after(written, &short, base()).await?;
    // Some stores sweep with each write.
    store.must_add(&short, "short", base()).await?;
    store.must_show(&longer, "longer").await?;
    Ok(())
}

pub(super) async fn an_old_end_takes_no_new_entry(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "old", ttl)).await?;
            let removed = store.try_remove(key, b"old").await?;
            if tokio::time::Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(removed.is_applied(), "try_remove must apply to the expected value");
            store.must_add(key, "new", long()).await?;
            subject.tolerance.well_past_the_end(written, ttl).await;
            store.must_show(key, "new").await?;
            Ok(Round::Decided)
        })
        .await
}

async fn there_until_the_end(subject: &Subject, key: &leasehold_core::Key, ttl: Ttl) -> Verdict<Round> {
    let (written, _) = measured(subject.store.must_add(key, "mine", ttl)).await?;
    subject.is_there_until(written.called, key, subject.tolerance.earliest_end(written, ttl)).await
}
