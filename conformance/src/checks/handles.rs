//! Handles: several on one namespace, several namespaces on one store, many tasks on one handle.

use std::time::Duration;

use leasehold_core::AddOutcome;

use crate::subject::{Subject, key, long};
use crate::verdict::{Verdict, ensure};

pub(super) async fn of_one_namespace_share_the_data(subject: &Subject) -> Verdict {
    let (one, other, key) = (&subject.store, subject.another_handle().await?, key("k"));
    one.must_add(&key, "one's", long()).await?;
    let found = other.must_find(&key, long()).await?;
    ensure!(found.value == "one's", "another handle must find what was added through the first");
    other.must_remove(&key, "one's").await?;
    one.must_not_show(&key, "it was removed through another handle").await
}

pub(super) async fn see_each_others_writes_at_once(subject: &Subject) -> Verdict {
    let handles = [subject.store.clone(), subject.another_handle().await?];
    let key = key("k");
    handles[0].must_add(&key, "0", long()).await?;
    for turn in 0..30 {
        let (writer, reader) = (&handles[turn % 2], &handles[(turn + 1) % 2]);
        // Read before too: what one keeps of that must not outlive the write.
        reader.must_show(&key, turn.to_string()).await?;
        writer.must_replace(&key, turn.to_string(), (turn + 1).to_string(), long()).await?;
        reader.must_show(&key, (turn + 1).to_string()).await?;
    }
    Ok(())
}

pub(super) async fn exclude_each_other(subject: &Subject) -> Verdict {
    const MANY: usize = 16;
    let handles = [subject.store.clone(), subject.another_handle().await?];
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        let answers = subject
            .at_once(MANY, |task| {
                let (store, key) = (handles[task % 2].clone(), key.clone());
                async move { Ok(store.try_add(&key, task.to_string().into(), long()).await?) }
            })
            .await?;
        let winners = answers.iter().filter(|answer| matches!(answer, AddOutcome::Added(_))).count();
        ensure!(winners == 1, "{winners} of {MANY} tasks added one key through two handles");
    }
    Ok(())
}

pub(super) async fn outlive_each_other(subject: &Subject) -> Verdict {
    let (first, second, key) = (subject.another_handle().await?, &subject.store, key("k"));
    first.must_add(&key, "mine", long()).await?;
    drop(first);
    // What a handle does when it is dropped may take a moment.
    tokio::time::sleep(Duration::from_millis(20)).await;
    second.must_show(&key, "mine").await?;
    second.must_remove(&key, "mine").await?;
    second.must_add(&key, "again", long()).await?;
    Ok(())
}

pub(super) async fn of_two_namespaces_never_meet(subject: &Subject) -> Verdict {
    stay_apart(subject, "a", "b", "k", "k").await
}

/// A namespace that begins another, with keys that would make up for the difference.
pub(super) async fn of_a_namespace_that_begins_another_never_meet(subject: &Subject) -> Verdict {
    stay_apart(subject, "", "1", "1k", "k").await?;
    stay_apart(subject, "", "1", "_1k", "k").await?;
    stay_apart(subject, "", "1", "1:k", "k").await
}

pub(super) async fn serve_many_tasks_at_once(subject: &Subject) -> Verdict {
    const TASKS: usize = 64;
    subject
        .at_once(TASKS, |task| {
            let (store, key) = (subject.store.clone(), key(&format!("k-{task}")));
            async move {
                store.must_add(&key, format!("{task}:0"), long()).await?;
                for turn in 0..5 {
                    store.must_show(&key, format!("{task}:{turn}")).await?;
                    store.must_replace(&key, format!("{task}:{turn}"), format!("{task}:{}", turn + 1), long()).await?;
                }
                store.must_remove(&key, format!("{task}:5")).await
            }
        })
        .await?;
    Ok(())
}

pub(super) async fn say_what_they_are(subject: &Subject) -> Verdict {
    let (one, other) = (&subject.store, subject.another_handle().await?);
    let name = one.name();
    let is_word = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    ensure!(is_word(name), "a store's name must be one lower-case word, and {name:?} is not");
    let capabilities = one.capabilities();
    ensure!(capabilities.max_value_len > 0, "a store must take values of some length");
    ensure!(!capabilities.resolution.is_zero(), "a store tells some step of time apart, and it is above zero");
    one.must_add(&key("k"), "mine", long()).await?;
    ensure!(
        (other.name(), other.capabilities()) == (name, capabilities) && one.capabilities() == capabilities,
        "all handles must declare the same, at any time: {capabilities:?} and {:?}",
        other.capabilities()
    );
    Ok(())
}

/// The same, or what would be the same if names were only put together, in two namespaces.
async fn stay_apart(subject: &Subject, one: &str, other: &str, ones: &str, others: &str) -> Verdict {
    let (one, other) = (subject.neighbour(one).await?, subject.neighbour(other).await?);
    let (ones, others) = (key(ones), key(others));
    one.must_add(&ones, "one's", long()).await?;
    other.must_add(&others, "other's", long()).await?;
    one.must_show(&ones, "one's").await?;
    other.must_show(&others, "other's").await?;
    one.must_remove(&ones, "one's").await?;
    other.must_show(&others, "other's").await?;
    other.must_remove(&others, "other's").await
}
