//! A revision is larger than that of every earlier write of its key: what makes it a fencing token.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{AddOutcome, Expiry, Revision};

use super::try_replace::swaps;
use crate::subject::{Subject, base, key, long};
use crate::timing::measured;
use crate::verdict::{Verdict, ensure};

pub(super) async fn rise_across_replacement(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut last = store.must_add(&key, "0", long()).await?;
    for number in 0..50 {
        let next = store.must_replace(&key, number.to_string(), (number + 1).to_string(), long()).await?;
        last = rose(last, next, "a replacement")?;
    }
    Ok(())
}

pub(super) async fn rise_across_removal(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut last = store.must_add(&key, "mine", long()).await?;
    for _ in 0..20 {
        store.must_remove(&key, "mine").await?;
        last = rose(last, store.must_add(&key, "mine", long()).await?, "a removal")?;
    }
    Ok(())
}

pub(super) async fn rise_across_expiry(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    // Many writes, so that a counter that starts anew after the expiry is behind.
    let mut last = store.must_add(&key, "0", long()).await?;
    for number in 0..20 {
        last = store.must_replace(&key, number.to_string(), (number + 1).to_string(), long()).await?;
    }
    let (written, ()) = measured(store.must_expire(&key, "20", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    rose(last, store.must_add(&key, "next", long()).await?, "its expiry")?;
    Ok(())
}

pub(super) async fn rise_across_sets(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut last = store.must_add(&key, "mine", long()).await?;
    for _ in 0..10 {
        last = rose(last, store.must_set(&key, "set", Expiry::After(long())).await?, "a set")?;
        last = rose(last, store.must_replace(&key, "set", "replaced", long()).await?, "a set")?;
        last = rose(last, store.must_set(&key, "set", Expiry::Never).await?, "a replacement")?;
        ensure!(store.cache().remove(&key).await?.is_applied(), "remove must apply to what is there");
        last = rose(last, store.must_add(&key, "mine", long()).await?, "a removal")?;
    }
    Ok(())
}

pub(super) async fn rise_for_all_handles(subject: &Subject) -> Verdict {
    let handles = [subject.store.clone(), subject.another_handle().await?];
    let key = key("k");
    let mut last = handles[0].must_add(&key, "mine", long()).await?;
    for turn in 1..20 {
        let handle = &handles[turn % 2];
        handle.must_remove(&key, "mine").await?;
        last = rose(last, handle.must_add(&key, "mine", long()).await?, "a write through another handle")?;
    }
    Ok(())
}

pub(super) async fn are_never_given_twice(subject: &Subject) -> Verdict {
    let mut revisions = turns(subject).await?;
    let given = revisions.len();
    revisions.sort();
    revisions.dedup();
    ensure!(revisions.len() == given, "{} of {given} writes of one key got a revision twice", given - revisions.len());
    Ok(())
}

/// Each owner of a key adds it after the one before has removed it, so their order is certain.
pub(super) async fn come_in_the_order_of_owners(subject: &Subject) -> Verdict {
    for pair in turns(subject).await?.windows(2) {
        ensure!(pair[0] < pair[1], "an owner has revision {}, and the owner before it {}", pair[1], pair[0]);
    }
    Ok(())
}

/// Each swap knows the one before it, so their order is certain, however many tasks make them.
pub(super) async fn come_in_the_order_of_swaps(subject: &Subject) -> Verdict {
    for pair in swaps(subject).await?.windows(2) {
        let ((_, earlier), (count, later)) = (pair[0], pair[1]);
        ensure!(earlier < later, "swap {count} has revision {later}, and the swap before it {earlier}");
    }
    Ok(())
}

pub(super) async fn leave_room_to_rise(subject: &Subject) -> Verdict {
    // Microseconds since 1970 reach this in the year 2112; what is minted from a finer clock is near the limit today.
    const ROOM: u64 = Revision::LIMIT / 2;
    let revision = subject.store.must_add(&key("k"), "mine", long()).await?;
    ensure!(revision.get() < ROOM, "revision {revision} is too close to 2^53, where revisions end");
    Ok(())
}

fn rose(last: Revision, next: Revision, across: &str) -> Verdict<Revision> {
    ensure!(next > last, "revisions must rise across {across}, and {next} came after {last}");
    Ok(next)
}

/// The revisions of many tasks that take turns with one key, in the order of their turns.
async fn turns(subject: &Subject) -> Verdict<Vec<Revision>> {
    let key = key("k");
    let turns = Arc::new(Mutex::new(Vec::new()));
    subject
        .at_once(8, |task| {
            let (store, key, turns) = (subject.store.clone(), key.clone(), turns.clone());
            async move {
                let mine = task.to_string();
                for _ in 0..40 {
                    let added = store.try_add(&key, mine.clone().into(), long()).await?;
                    if let AddOutcome::Added(revision) = added {
                        // Noted while the key is owned, so nobody else notes theirs.
                        turns.lock().unwrap_or_else(PoisonError::into_inner).push(revision);
                        store.must_remove(&key, &mine).await?;
                    }
                }
                Ok(())
            }
        })
        .await?;
    let turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(turns.clone())
}
