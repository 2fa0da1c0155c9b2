//! Futures that are dropped midway: at each of their awaits in turn. What was asked may have been done or not, and never
//! in part; and the store works on.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{AddOutcome, Expiry, Key, KeyPrefix};
use tokio::time::timeout;

use crate::checks::hints::{Replacements, hears};
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn try_add_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, None, &[None, Some("new")], async |key| {
        let _ = store.try_add(key, "new".into(), long()).await;
    })
    .await
}

pub(super) async fn try_replace_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, Some("old"), &[Some("old"), Some("new")], async |key| {
        let _ = store.try_replace(key, b"old", "new".into(), long()).await;
    })
    .await
}

pub(super) async fn try_remove_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, Some("old"), &[Some("old"), None], async |key| {
        let _ = store.try_remove(key, b"old").await;
    })
    .await
}

pub(super) async fn try_expire_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, Some("old"), &[Some("old")], async |key| {
        let _ = store.try_expire(key, b"old", long()).await;
    })
    .await
}

pub(super) async fn get_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, Some("old"), &[Some("old")], async |key| {
        let _ = store.get(key).await;
    })
    .await
}

pub(super) async fn watch_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    dropped_midway(subject, Some("old"), &[Some("old")], async |key| {
        let _ = store.watch(key).await;
    })
    .await?;
    // Who listens afterwards hears.
    let key = key("heard");
    store.must_add(&key, "0", long()).await?;
    let mut hints = store.watch(&key).await?;
    let changes = Replacements::of(store, &key);
    hears(&mut hints, &key, async |_| changes.next().await).await
}

pub(super) async fn set_may_be_dropped(subject: &Subject) -> Verdict {
    let cache = subject.store.cache();
    dropped_midway(subject, Some("old"), &[Some("old"), Some("new")], async |key| {
        let _ = cache.set(key, "new".into(), Expiry::After(long())).await;
    })
    .await
}

pub(super) async fn remove_may_be_dropped(subject: &Subject) -> Verdict {
    let cache = subject.store.cache();
    dropped_midway(subject, Some("old"), &[Some("old"), None], async |key| {
        let _ = cache.remove(key).await;
    })
    .await
}

pub(super) async fn batches_may_be_dropped(subject: &Subject) -> Verdict {
    let cache = subject.store.cache();
    let other = |key: &Key| crate::subject::key(&format!("{key}-other"));
    dropped_midway(subject, Some("old"), &[Some("old"), Some("new")], async |key| {
        let items = [key.clone(), other(key)].map(|key| (key, "new".into(), Expiry::After(long())));
        let _ = cache.set_many(items.into()).await;
    })
    .await?;
    dropped_midway(subject, Some("old"), &[Some("old")], async |key| {
        let _ = cache.get_many(&[key.clone(), other(key)]).await;
    })
    .await?;
    dropped_midway(subject, Some("old"), &[Some("old"), None], async |key| {
        let _ = cache.remove_many(&[key.clone(), other(key)]).await;
    })
    .await
}

pub(super) async fn scan_may_be_dropped(subject: &Subject) -> Verdict {
    let (cache, prefix) = (subject.store.cache(), KeyPrefix::new("midway")?);
    dropped_midway(subject, Some("old"), &[Some("old")], async |_| {
        let _ = cache.scan(&prefix, None).await;
    })
    .await
}

pub(super) async fn hundreds_may_be_dropped(subject: &Subject) -> Verdict {
    let store = &subject.store;
    for number in 0..300 {
        let key = key(&format!("k-{}", number % 7));
        dropped_after(1, async {
            let _ = store.try_add(&key, "new".into(), long()).await;
        })
        .await;
    }
    goes_on(subject, &key("k-0"), &[None, Some("new")]).await
}

/// Drops a call at each of its awaits in turn, until it ends before it can be dropped.
async fn dropped_midway(
    subject: &Subject,
    before: Option<&'static str>,
    after: &[Option<&str>],
    call: impl AsyncFn(&Key),
) -> Verdict {
    const MOST_AWAITS: u32 = 20;
    let drawn: u64 = rand::random();
    for awaits in 1..=MOST_AWAITS {
        let key = key(&format!("midway-{drawn:x}-{awaits}"));
        if let Some(before) = before {
            subject.store.must_add(&key, before, long()).await?;
        }
        let ended = dropped_after(awaits, call(&key)).await;
        goes_on(subject, &key, after).await?;
        if ended {
            return Ok(());
        }
    }
    Ok(())
}

/// Polls a call so many times and drops it. Says whether it had ended by then.
async fn dropped_after(polls: u32, call: impl Future<Output = ()>) -> bool {
    let mut call = pin!(call);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        left -= 1;
        match call.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The key has one of the values that it may have, and can be written like any other.
async fn goes_on(subject: &Subject, key: &Key, values: &[Option<&str>]) -> Verdict {
    const PATIENCE: Duration = Duration::from_secs(10);
    let store = &subject.store;
    let may_be = |found: Option<&[u8]>| values.iter().any(|value| value.map(str::as_bytes) == found);
    let work = async {
        let found = store.get(key).await?;
        ensure!(
            may_be(found.as_ref().map(|entry| &*entry.value)),
            "after a call was dropped midway, one of {values:?} must be there, and another value or nothing is"
        );
        match store.try_add(key, "next".into(), long()).await? {
            AddOutcome::Added(_) => ensure!(
                values.contains(&None),
                "after a call was dropped midway, one of {values:?} must be there, and nothing is"
            ),
            AddOutcome::Exists(entry) => ensure!(
                may_be(Some(&entry.value)),
                "after a call was dropped midway, one of {values:?} must be there, and another value is"
            ),
        }
        let other = crate::subject::key("another");
        store.must_add(&other, "mine", long()).await?;
        store.must_replace(&other, "mine", "still mine", long()).await?;
        store.must_remove(&other, "still mine").await
    };
    match timeout(PATIENCE, work).await {
        Ok(verdict) => verdict,
        Err(_) => Stop::failed(format!("after a call was dropped midway, the next hangs for {PATIENCE:?}")),
    }
}
