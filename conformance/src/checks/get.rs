use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::subject::{Subject, key, long, millis};
use crate::timing::{Round, measured};
use crate::verdict::Verdict;

pub(super) async fn finds_nothing_where_nothing_is(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_not_show(&key, "nothing was ever there").await?;
    store.must_add(&key, "mine", long()).await?;
    store.must_remove(&key, "mine").await?;
    store.must_not_show(&key, "it was removed").await
}

pub(super) async fn sees_the_last_write(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    for number in 0..50 {
        store.must_show(&key, number.to_string()).await?;
        store.must_replace(&key, number.to_string(), (number + 1).to_string(), long()).await?;
    }
    store.must_remove(&key, "50").await?;
    store.must_not_show(&key, "it was removed").await
}

pub(super) async fn tells_the_time_left(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), millis(90_500));
    let (written, _) = measured(store.must_add(&key, "mine", ttl)).await?;
    for _ in 0..3 {
        let (read, entry) = measured(store.must_show(&key, "mine")).await?;
        subject.tolerance.ensure_time_left(entry.time_left, written, ttl, read)?;
        sleep(Duration::from_millis(150)).await;
    }
    let (renewed, ()) = measured(store.must_expire(&key, "mine", millis(30_250))).await?;
    let (read, entry) = measured(store.must_show(&key, "mine")).await?;
    subject.tolerance.ensure_time_left(entry.time_left, renewed, millis(30_250), read)
}

pub(super) async fn does_not_prolong(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "mine", ttl)).await?;
            let mut round = Round::Undecided;
            while Instant::now() < subject.tolerance.earliest_end(written, ttl) {
                if store.get(key).await?.is_some() {
                    round = Round::Decided;
                }
                sleep(Duration::from_millis(20)).await;
            }
            subject.is_gone_after(written, key, ttl).await?;
            Ok(round)
        })
        .await
}
