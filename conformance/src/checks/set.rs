use leasehold_core::{AddOutcome, ErrorKind, Expiry, Key, Ttl};
use tokio::time::Instant;

use super::values::longest_value;
use crate::handle::ensure_refused;
use crate::subject::{Subject, key, long};
use crate::timing::{Round, measured};
use crate::verdict::{Verdict, ensure};

pub(super) async fn writes_whatever_is_there(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_set(&key, "first", Expiry::After(long())).await?;
    store.must_show(&key, "first").await?;
    store.must_set(&key, "second", Expiry::Never).await?;
    store.must_show(&key, "second").await?;
    store.must_remove(&key, "second").await?;
    store.must_add(&key, "added", long()).await?;
    store.must_set(&key, "third", Expiry::After(long())).await?;
    store.must_show(&key, "third").await?;
    Ok(())
}

pub(super) async fn is_a_value_like_any_other(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_set(&key, "set", Expiry::After(long())).await?;
    let found = store.must_find(&key, long()).await?;
    ensure!(found.value == "set", "try_add must hand back what was set, byte for byte");
    store.must_expire(&key, "set", long()).await?;
    store.must_replace(&key, "set", "replaced", long()).await?;
    store.must_set(&key, "set again", Expiry::After(long())).await?;
    store.must_remove(&key, "set again").await
}

pub(super) async fn drops_a_nearer_end(subject: &Subject) -> Verdict {
    outlives_the_old_end(subject, Expiry::After(long())).await?;
    outlives_the_old_end(subject, Expiry::Never).await
}

pub(super) async fn drops_a_farther_end(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .lives_its_ttl(async |key, ttl| {
            store.must_set(key, "first", Expiry::After(long())).await?;
            Ok(measured(store.must_set(key, "second", Expiry::After(ttl))).await?.0)
        })
        .await
}

pub(super) async fn ends_what_never_ended(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .lives_its_ttl(async |key, ttl| {
            store.must_set(key, "first", Expiry::Never).await?;
            Ok(measured(store.must_set(key, "second", Expiry::After(ttl))).await?.0)
        })
        .await
}

pub(super) async fn never_means_no_end(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_set(&key, "forever", Expiry::Never).await?;
    let entry = store.must_show(&key, "forever").await?;
    ensure!(entry.time_left.is_none(), "what never ends has no time left to tell, and {:?} is told", entry.time_left);
    let found = store.must_find(&key, long()).await?;
    ensure!(found.time_left.is_none(), "what never ends has no time left to tell, and {:?} is told", found.time_left);
    forget(subject, &key).await
}

/// What never ends has no end to compare with, and is live all the same.
pub(super) async fn the_primitives_take_what_never_ends(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_set(&key, "first", Expiry::Never).await?;
    let answer = store.try_add(&key, "intruder".into(), long()).await?;
    ensure!(matches!(answer, AddOutcome::Exists(_)), "try_add must find what never ends");
    store.must_replace(&key, "first", "second", long()).await?;
    store.must_set(&key, "third", Expiry::Never).await?;
    store.must_remove(&key, "third").await?;
    subject
        .lives_its_ttl(async |key, ttl: Ttl| {
            store.must_set(key, "forever", Expiry::Never).await?;
            Ok(measured(store.must_expire(key, "forever", ttl)).await?.0)
        })
        .await
}

pub(super) async fn one_byte_over_is_refused_without_effect(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let too_long = [&longest_value(subject)?[..], b"!"].concat();
    store.must_set(&key, "first", Expiry::Never).await?;
    let set = store.cache().set(&key, too_long.into(), Expiry::Never).await;
    ensure_refused(set, ErrorKind::InvalidInput, "set of a value that is a byte too long")?;
    store.must_show(&key, "first").await?;
    forget(subject, &key).await
}

async fn outlives_the_old_end(subject: &Subject, expiry: Expiry) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_set(key, "first", Expiry::After(ttl))).await?;
            store.must_set(key, "second", expiry).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            subject.tolerance.well_past_the_end(written, ttl).await;
            store.must_show(key, "second").await?;
            forget(subject, key).await?;
            Ok(Round::Decided)
        })
        .await
}

/// Leaves nothing behind that never ends.
async fn forget(subject: &Subject, key: &Key) -> Verdict {
    let _ = subject.store.cache().remove(key).await?;
    Ok(())
}
