use leasehold_core::{ReplaceOutcome, Revision};
use tokio::time::Instant;

use crate::subject::{Subject, base, key, long};
use crate::timing::{Round, measured};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn applies_to_the_expected_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "first", long()).await?;
    store.must_replace(&key, "first", "second", long()).await?;
    store.must_show(&key, "second").await?;
    store.must_replace(&key, "second", "third", long()).await?;
    store.must_show(&key, "third").await?;
    Ok(())
}

pub(super) async fn refuses_another_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "first", long()).await?;
    store.must_not_replace(&key, "other", "another value is there").await?;
    store.must_show(&key, "first").await?;
    Ok(())
}

pub(super) async fn refuses_an_absent_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    for expected in ["first", ""] {
        store.must_not_replace(&key, expected, "nothing is there").await?;
        store.must_not_show(&key, "a try_replace that does not apply writes nothing").await?;
    }
    Ok(())
}

pub(super) async fn refuses_an_expired_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "first", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_not_replace(&key, "first", "it has expired").await?;
    store.must_not_show(&key, "it has expired").await
}

pub(super) async fn brings_a_longer_ttl(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "first", ttl)).await?;
            let answer = store.try_replace(key, b"first", "second".into(), long()).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(answer != ReplaceOutcome::NotApplied, "try_replace must apply to the expected value");
            subject.tolerance.well_past_the_end(written, ttl).await;
            store.must_show(key, "second").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn brings_a_shorter_ttl(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .lives_its_ttl(async |key, ttl| {
            store.must_add(key, "first", long()).await?;
            Ok(measured(store.must_replace(key, "first", "second", ttl)).await?.0)
        })
        .await
}

pub(super) async fn applies_though_nothing_changes(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "same", long()).await?;
    store.must_replace(&key, "same", "same", long()).await?;
    store.must_show(&key, "same").await?;
    Ok(())
}

pub(super) async fn exactly_one_of_many_wins(subject: &Subject) -> Verdict {
    const MANY: usize = 32;
    let store = &subject.store;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        store.must_add(&key, "first", long()).await?;
        let answers = subject
            .at_once(MANY, |task| {
                let (store, key) = (store.clone(), key.clone());
                async move { Ok(store.try_replace(&key, b"first", task.to_string().into(), long()).await?) }
            })
            .await?;
        let winners: Vec<_> = (0..MANY).filter(|&task| answers[task] != ReplaceOutcome::NotApplied).collect();
        ensure!(winners.len() == 1, "{} of {MANY} tasks replaced one and the same value", winners.len());
        store.must_show(&key, winners[0].to_string()).await?;
    }
    Ok(())
}

pub(super) async fn a_chain_of_swaps_loses_none(subject: &Subject) -> Verdict {
    let counted = swaps(subject).await?.len();
    subject.store.must_show(&key("counter"), counted.to_string()).await?;
    Ok(())
}

/// Counts up from many tasks at once, and gives each number with the revision of its write, in the order of numbers.
pub(super) async fn swaps(subject: &Subject) -> Verdict<Vec<(usize, Revision)>> {
    const TASKS: usize = 8;
    const EACH: usize = 10;
    let (store, key) = (&subject.store, key("counter"));
    store.must_add(&key, "0", long()).await?;
    let swaps = subject
        .at_once(TASKS, |_| {
            let (store, key) = (store.clone(), key.clone());
            async move {
                let (mut swaps, mut refused) = (Vec::new(), 0);
                while swaps.len() < EACH {
                    let Some(entry) = store.get(&key).await? else {
                        return Stop::failed("the counter is gone, though every swap leaves one");
                    };
                    let count = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse::<usize>().ok());
                    let Some(count) = count else { return Stop::failed("the counter holds what nobody wrote") };
                    let next = (count + 1).to_string();
                    match store.try_replace(&key, &entry.value, next.into(), long()).await? {
                        ReplaceOutcome::Applied(revision) => swaps.push((count + 1, revision)),
                        // Then another's has applied since the read, and there are only so many.
                        ReplaceOutcome::NotApplied => refused += 1,
                    }
                    ensure!(refused <= TASKS * EACH, "a swap was refused more often than others can have applied");
                }
                Ok(swaps)
            }
        })
        .await?;
    let mut swaps = swaps.concat();
    swaps.sort();
    Ok(swaps)
}
