//! The primitives against each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::{AddOutcome, Outcome, ReplaceOutcome};
use tokio::time::{Instant, sleep};

use crate::subject::{Subject, base, key, long, millis};
use crate::timing::measured;
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn a_value_is_removed_or_replaced_and_never_both(subject: &Subject) -> Verdict {
    const EACH: usize = 8;
    let store = &subject.store;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        store.must_add(&key, "first", long()).await?;
        let applied = subject
            .at_once(2 * EACH, |task| {
                let (store, key) = (store.clone(), key.clone());
                async move {
                    Ok(match (task + round) % 2 {
                        0 => store.try_remove(&key, b"first").await?.is_applied(),
                        _ => {
                            let answer = store.try_replace(&key, b"first", task.to_string().into(), long()).await?;
                            answer != ReplaceOutcome::NotApplied
                        }
                    })
                }
            })
            .await?;
        let winners: Vec<_> = (0..2 * EACH).filter(|&task| applied[task]).collect();
        ensure!(winners.len() == 1, "{} tasks removed or replaced one and the same value", winners.len());
        match (winners[0] + round) % 2 {
            0 => store.must_not_show(&key, "it was removed").await?,
            _ => {
                store.must_show(&key, winners[0].to_string()).await?;
            }
        }
    }
    Ok(())
}

/// What a lock is: whoever added the key owns it until they remove it.
pub(super) async fn one_owner_at_a_time(subject: &Subject) -> Verdict {
    const TASKS: usize = 8;
    const TURNS: u32 = 5;
    const PATIENCE: Duration = Duration::from_secs(20);
    let key = key("owned");
    let owners = Arc::new(AtomicU32::new(0));
    subject
        .at_once(TASKS, |task| {
            let (store, key, owners) = (subject.store.clone(), key.clone(), owners.clone());
            async move {
                for turn in 0..TURNS {
                    let mine = format!("{task}-{turn}");
                    let began = Instant::now();
                    while let AddOutcome::Exists(_) = store.try_add(&key, mine.clone().into(), long()).await? {
                        ensure!(
                            began.elapsed() < PATIENCE,
                            "a key that owners give back was not free for {PATIENCE:?}"
                        );
                        sleep(Duration::from_millis(2)).await;
                    }
                    let others = owners.fetch_add(1, Ordering::AcqRel);
                    sleep(Duration::from_millis(1)).await;
                    owners.fetch_sub(1, Ordering::AcqRel);
                    ensure!(others == 0, "{} tasks own one key at once", others + 1);
                    store.must_remove(&key, &mine).await?;
                }
                Ok(())
            }
        })
        .await?;
    Ok(())
}

pub(super) async fn what_is_removed_stays_removed(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_remove(&key, "mine").await?;
    store.must_not_expire(&key, "mine", "it was removed").await?;
    store.must_not_replace(&key, "mine", "it was removed").await?;
    store.must_not_remove(&key, "mine", "it was removed before").await?;
    store.must_not_show(&key, "it was removed").await
}

pub(super) async fn a_late_renewal_does_not_undo_a_removal(subject: &Subject) -> Verdict {
    const RENEWALS: usize = 8;
    let store = &subject.store;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        store.must_add(&key, "mine", long()).await?;
        let removed = subject
            .at_once(RENEWALS + 1, |task| {
                let (store, key) = (store.clone(), key.clone());
                async move {
                    if task == RENEWALS / 2 {
                        return Ok(store.try_remove(&key, b"mine").await?.is_applied());
                    }
                    let (Outcome::Applied | Outcome::NotApplied) = store.try_expire(&key, b"mine", long()).await?;
                    Ok(false)
                }
            })
            .await?;
        ensure!(removed.contains(&true), "try_remove must apply to the expected value");
        store.must_not_show(&key, "it was removed, and a renewal writes nothing").await?;
    }
    Ok(())
}

pub(super) async fn a_former_owner_touches_nothing(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "former", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    let ttl = millis(60_000);
    let (written, _) = measured(store.must_add(&key, "present", ttl)).await?;
    store.must_not_expire(&key, "former", "another owns it now").await?;
    store.must_not_replace(&key, "former", "another owns it now").await?;
    store.must_not_remove(&key, "former", "another owns it now").await?;
    let (read, entry) = measured(store.must_show(&key, "present")).await?;
    subject.tolerance.ensure_time_left(entry.time_left, written, ttl, read)
}

pub(super) async fn neighbours_are_left_alone(subject: &Subject) -> Verdict {
    let (store, ttl) = (&subject.store, millis(60_000));
    let neighbours = ["a:b", "aa", "A", "b", "a."].map(key);
    let mut written = Vec::new();
    for neighbour in &neighbours {
        // The same value as its neighbour's: only the key may decide.
        written.push(measured(store.must_add(neighbour, "same", ttl)).await?.0);
    }
    let key = key("a");
    store.must_add(&key, "same", long()).await?;
    store.must_expire(&key, "same", long()).await?;
    store.must_replace(&key, "same", "other", long()).await?;
    store.must_remove(&key, "other").await?;
    for (neighbour, written) in neighbours.iter().zip(written) {
        let (read, entry) = measured(store.must_show(neighbour, "same")).await?;
        if let Err(Stop::Failed(reason)) = subject.tolerance.ensure_time_left(entry.time_left, written, ttl, read) {
            return Stop::failed(format!("the end of {neighbour:?} was moved with that of \"a\": {reason}"));
        }
    }
    Ok(())
}
