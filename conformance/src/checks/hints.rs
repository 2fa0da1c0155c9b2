//! Hints may be lost and may be spurious, so a change is made several times before its hint is missed, and a hint too
//! many is none of these checks' business. But a hint that names a key names one that is listened for.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Expiry, Hint, Hints, Key, KeyPrefix};
use tokio::time::timeout;

use crate::handle::ensure_refused;
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn a_replacement_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut hints = store.watch(&key).await?;
    hears(&mut hints, &key, async |turn| replace(subject, &key, turn).await).await
}

pub(super) async fn a_removal_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut hints = store.watch(&key).await?;
    hears(&mut hints, &key, async |_| {
        store.must_add(&key, "mine", long()).await?;
        store.must_remove(&key, "mine").await
    })
    .await
}

pub(super) async fn a_set_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut hints = store.watch(&key).await?;
    hears(&mut hints, &key, async |_| {
        store.must_set(&key, "set", Expiry::After(long())).await?;
        Ok(())
    })
    .await
}

pub(super) async fn a_removal_of_any_value_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let mut hints = store.watch(&key).await?;
    hears(&mut hints, &key, async |_| {
        store.must_add(&key, "mine", long()).await?;
        ensure!(store.cache().remove(&key).await?.is_applied(), "remove must apply to what is there");
        Ok(())
    })
    .await
}

pub(super) async fn each_of_a_batch_is_heard(subject: &Subject) -> Verdict {
    let (store, keys) = (&subject.store, [key("a"), key("b"), key("c")]);
    for watched in &keys {
        let mut hints = store.watch(watched).await?;
        hears(&mut hints, watched, async |_| {
            let items = keys.iter().map(|key| (key.clone(), "set".into(), Expiry::After(long()))).collect();
            store.cache().set_many(items).await?;
            Ok(())
        })
        .await?;
        let mut hints = store.watch(watched).await?;
        hears(&mut hints, watched, async |turn| {
            if turn > 0 {
                store.must_set(watched, "again", Expiry::After(long())).await?;
            }
            store.cache().remove_many(&keys).await?;
            Ok(())
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn another_handle_hears(subject: &Subject) -> Verdict {
    let (other, key) = (subject.another_handle().await?, key("k"));
    subject.store.must_add(&key, "0", long()).await?;
    let mut hints = other.watch(&key).await?;
    hears(&mut hints, &key, async |turn| replace(subject, &key, turn).await).await
}

pub(super) async fn all_who_listen_hear(subject: &Subject) -> Verdict {
    const LISTENERS: usize = 5;
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        listeners.push(store.watch(&key).await?);
    }
    let turns = std::cell::Cell::new(0);
    let change = async |_| {
        let turn = turns.replace(turns.get() + 1);
        replace(subject, &key, turn).await
    };
    change(0).await?;
    for hints in &mut listeners {
        // The change before is the one they all have to hear; another is made only for who missed it.
        if let Ok(heard) = timeout(PATIENCE, about(hints, &key)).await {
            heard?;
        } else {
            hears(hints, &key, change).await?;
        }
    }
    Ok(())
}

pub(super) async fn who_stops_listening_disturbs_nobody(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let turns = std::cell::Cell::new(0);
    let change = async |_| {
        let turn = turns.replace(turns.get() + 1);
        replace(subject, &key, turn).await
    };
    let first = store.watch(&key).await?;
    let mut second = store.watch(&key).await?;
    drop(first);
    hears(&mut second, &key, change).await?;
    drop(second);
    let mut third = store.watch(&key).await?;
    hears(&mut third, &key, change).await
}

pub(super) async fn who_does_not_read_holds_nobody_up(subject: &Subject) -> Verdict {
    const CHANGES: u32 = 500;
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut hints = store.watch(&key).await?;
    for turn in 0..CHANGES {
        let change = timeout(PATIENCE, replace(subject, &key, turn)).await;
        let Ok(changed) = change else {
            return Stop::failed(format!("write {turn} hangs while somebody listens and does not read"));
        };
        changed?;
    }
    hears(&mut hints, &key, async |turn| replace(subject, &key, CHANGES + turn).await).await
}

pub(super) async fn name_only_what_is_listened_for(subject: &Subject) -> Verdict {
    let (store, watched) = (&subject.store, key("watched"));
    let neighbours = ["watched:b", "watche", "WATCHED", "other"].map(key);
    store.must_add(&watched, "0", long()).await?;
    let mut hints = store.watch(&watched).await?;
    for neighbour in &neighbours {
        store.must_add(neighbour, "0", long()).await?;
        store.must_replace(neighbour, "0", "1", long()).await?;
        store.must_remove(neighbour, "1").await?;
    }
    hears(&mut hints, &watched, async |turn| replace(subject, &watched, turn).await).await
}

pub(super) async fn a_prefix_hears_its_keys(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let mut hints = store.cache().watch_prefix(&KeyPrefix::new("a:")?).await?;
    for text in ["a:1", "a:2", "a:b:c"] {
        let key = key(text);
        store.must_add(&key, "0", long()).await?;
        let below = |hinted: &Key| hinted.as_str().starts_with("a:");
        hears_one_of(&mut hints, |hinted| *hinted == key, below, async |turn| replace(subject, &key, turn).await)
            .await?;
    }
    Ok(())
}

pub(super) async fn a_prefix_names_only_its_keys(subject: &Subject) -> Verdict {
    let (store, inside) = (&subject.store, key("a%b:1"));
    store.must_add(&inside, "0", long()).await?;
    let mut hints = store.cache().watch_prefix(&KeyPrefix::new("a%b:")?).await?;
    for outside in ["a%b", "axb:1", "A%b:1", "b:a%b:1"].map(key) {
        store.must_add(&outside, "0", long()).await?;
        store.must_replace(&outside, "0", "1", long()).await?;
    }
    hears(&mut hints, &inside, async |turn| replace(subject, &inside, turn).await).await
}

pub(super) async fn the_empty_prefix_hears_all_of_the_namespace(subject: &Subject) -> Verdict {
    let (store, neighbour, inside) = (&subject.store, subject.neighbour("x").await?, key("inside"));
    store.must_add(&inside, "0", long()).await?;
    let mut hints = store.cache().watch_prefix(&KeyPrefix::new("")?).await?;
    neighbour.must_add(&key("outside"), "0", long()).await?;
    neighbour.must_replace(&key("outside"), "0", "1", long()).await?;
    // What was changed in the other namespace must not be named in this one.
    hears(&mut hints, &inside, async |turn| replace(subject, &inside, turn).await).await
}

pub(super) async fn without_them_watch_is_unsupported(subject: &Subject) -> Verdict {
    unsupported(subject.store.watch(&key("k")), "watch").await
}

pub(super) async fn without_them_watch_prefix_is_unsupported(subject: &Subject) -> Verdict {
    let prefix = KeyPrefix::new("a:")?;
    unsupported(subject.store.cache().watch_prefix(&prefix), "watch_prefix").await
}

/// How long a hint may take.
const PATIENCE: Duration = Duration::from_secs(3);

async fn unsupported(watch: impl Future<Output = Result<Hints, Error>>, operation: &str) -> Verdict {
    match timeout(PATIENCE, watch).await {
        Ok(answer) => ensure_refused(answer, ErrorKind::Unsupported, &format!("{operation} of a store without hints")),
        Err(_) => Stop::failed(format!("{operation} of a store without hints must be refused, and does not answer")),
    }
}

async fn replace(subject: &Subject, key: &Key, turn: u32) -> Verdict {
    subject.store.must_replace(key, turn.to_string(), (turn + 1).to_string(), long()).await?;
    Ok(())
}

/// Makes a change, again if need be, until a hint at it comes.
async fn hears(hints: &mut Hints, key: &Key, change: impl AsyncFn(u32) -> Verdict) -> Verdict {
    hears_one_of(hints, |hinted| hinted == key, |hinted| hinted == key, change).await
}

/// The same where several keys may change: a hint about another may be late news, if that one is `listened_for`.
async fn hears_one_of(
    hints: &mut Hints,
    wanted: impl Fn(&Key) -> bool,
    listened_for: impl Fn(&Key) -> bool,
    change: impl AsyncFn(u32) -> Verdict,
) -> Verdict {
    const TURNS: u32 = 3;
    for turn in 0..TURNS {
        change(turn).await?;
        let heard = timeout(PATIENCE, async {
            loop {
                match hints.next().await {
                    Some(Hint::Changed(hinted)) if wanted(&hinted) => return Ok(()),
                    Some(Hint::Changed(hinted)) => {
                        ensure!(listened_for(&hinted), "a hint names {hinted:?}, which nobody listens for")
                    }
                    Some(_) => return Ok(()),
                    None => return Stop::failed("the stream of hints has ended"),
                }
            }
        });
        if let Ok(heard) = heard.await {
            return heard;
        }
    }
    Stop::failed(format!("no hint came within {PATIENCE:?} of a change, {TURNS} times over"))
}

/// Waits for a hint at this key.
async fn about(hints: &mut Hints, key: &Key) -> Verdict {
    match hints.next().await {
        Some(Hint::Changed(hinted)) => {
            ensure!(hinted == *key, "a hint names {hinted:?}, and {key:?} is listened for");
            Ok(())
        }
        Some(_) => Ok(()),
        None => Stop::failed("the stream of hints has ended"),
    }
}
