use leasehold_core::AddOutcome;
use tokio::time::Instant;

use crate::subject::{Subject, base, key, long, millis};
use crate::timing::{Round, measured};
use crate::verdict::{Verdict, ensure};

pub(super) async fn adds_what_is_absent(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_show(&key, "mine").await?;
    Ok(())
}

pub(super) async fn hands_back_what_is_there(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), millis(60_000));
    store.must_add(&key, "first", long()).await?;
    let (written, _) = measured(store.must_replace(&key, "first", "second", ttl)).await?;
    let (read, found) = measured(store.must_find(&key, long())).await?;
    ensure!(found.value == "second", "try_add must hand back the value that is there now, and gave {found:?}");
    subject.tolerance.ensure_time_left(found.time_left, written, ttl, read)
}

pub(super) async fn leaves_what_is_there_alone(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "first", ttl)).await?;
            let answer = store.try_add(key, "second".into(), long()).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(matches!(answer, AddOutcome::Exists(_)), "try_add must find what is there, and added");
            let entry = store.get(key).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(
                entry.is_some_and(|entry| entry.value == "first"),
                "a try_add that finds what is there must change no value"
            );
            // Nor may it have moved the end.
            subject.is_gone_after(written, key, ttl).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn exactly_one_of_many_wins(subject: &Subject) -> Verdict {
    const MANY: usize = 32;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        let answers = all_add(subject, MANY, &key).await?;
        let winners: Vec<_> = (0..MANY).filter(|&task| matches!(answers[task], AddOutcome::Added(_))).collect();
        ensure!(winners.len() == 1, "{} of {MANY} tasks added one and the same key", winners.len());
        subject.store.must_show(&key, winners[0].to_string()).await?;
    }
    Ok(())
}

pub(super) async fn losers_see_the_winner(subject: &Subject) -> Verdict {
    let store = &subject.store;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        let answers = all_add(subject, 16, &key).await?;
        let Some(winner) = store.get(&key).await? else {
            ensure!(false, "nothing is there after 16 tasks have added");
            return Ok(());
        };
        for answer in answers {
            if let AddOutcome::Exists(entry) = answer {
                ensure!(entry.value == winner.value, "a loser was handed back another value than the winner's");
            }
        }
    }
    Ok(())
}

pub(super) async fn takes_an_expired_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "first", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_add(&key, "second", long()).await?;
    store.must_show(&key, "second").await?;
    Ok(())
}

pub(super) async fn takes_a_removed_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    for value in ["first", "second", "second", "third"] {
        store.must_add(&key, value, long()).await?;
        store.must_show(&key, value).await?;
        store.must_remove(&key, value).await?;
    }
    Ok(())
}

pub(super) async fn exactly_one_takes_an_expired_key(subject: &Subject) -> Verdict {
    const MANY: usize = 32;
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "first", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    let answers = all_add(subject, MANY, &key).await?;
    let winners = answers.iter().filter(|answer| matches!(answer, AddOutcome::Added(_))).count();
    ensure!(winners == 1, "{winners} of {MANY} tasks added a key that had expired");
    Ok(())
}

/// Adds to one key from many tasks at once; each writes its own number.
async fn all_add(subject: &Subject, tasks: usize, key: &leasehold_core::Key) -> Verdict<Vec<AddOutcome>> {
    subject
        .at_once(tasks, |task| {
            let (store, key) = (subject.store.clone(), key.clone());
            async move { Ok(store.try_add(&key, task.to_string().into(), long()).await?) }
        })
        .await
}
