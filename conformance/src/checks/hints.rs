//! Hints may be lost and may be spurious, so a change is made several times before its hint is missed, and a hint too
//! many is none of these checks' business. But a hint that names a key names one that is listened for. What is on the
//! stream already is taken off before each change, or it would pass for the hint at that.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Expiry, Hint, Hints, Key, KeyPrefix};
use tokio::time::timeout;

use crate::handle::{Handle, ensure_refused};
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn a_replacement_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut hints = store.watch(&key).await?;
    let changes = Replacements::of(&subject.store, &key);
    hears(&mut hints, &key, async |_| changes.next().await).await?;
    // Once more, as the first hint may be about the subscription itself and have come late.
    hears(&mut hints, &key, async |_| changes.next().await).await
}

pub(super) async fn a_removal_is_heard(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let add = async || store.must_add(&key, "mine", long()).await.map(drop);
    hears_after(subject, &key, add, async || store.must_remove(&key, "mine").await).await
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
    let add = async || store.must_add(&key, "mine", long()).await.map(drop);
    hears_after(subject, &key, add, async || {
        ensure!(store.cache().remove(&key).await?.is_applied(), "remove must apply to what is there");
        Ok(())
    })
    .await
}

pub(super) async fn each_of_a_batch_is_heard(subject: &Subject) -> Verdict {
    let (cache, keys) = (subject.store.cache(), [key("a"), key("b"), key("c")]);
    let set = async || {
        let items = keys.iter().map(|key| (key.clone(), "set".into(), Expiry::After(long()))).collect();
        cache.set_many(items).await?;
        Ok(())
    };
    for watched in &keys {
        let mut hints = cache.watch(watched).await?;
        hears(&mut hints, watched, async |_| set().await).await?;
        hears_after(subject, watched, set, async || {
            let removed = cache.remove_many(&keys).await?;
            ensure!(removed.iter().all(|removed| removed.is_applied()), "remove_many must apply to what is there");
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
    let changes = Replacements::of(&subject.store, &key);
    hears(&mut hints, &key, async |_| changes.next().await).await
}

pub(super) async fn all_who_listen_hear(subject: &Subject) -> Verdict {
    const LISTENERS: usize = 5;
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        listeners.push(store.watch(&key).await?);
    }
    for hints in &mut listeners {
        quiet(hints, |hinted| *hinted == key).await?;
    }
    let changes = Replacements::of(store, &key);
    changes.next().await?;
    for hints in &mut listeners {
        // The change before is the one they all have to hear; another is made only for who missed it.
        if let Ok(heard) = timeout(PATIENCE, about(hints, |hinted| *hinted == key, |hinted| *hinted == key)).await {
            heard?;
        } else {
            hears(hints, &key, async |_| changes.next().await).await?;
        }
    }
    Ok(())
}

pub(super) async fn who_stops_listening_disturbs_nobody(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let changes = Replacements::of(store, &key);
    let first = store.watch(&key).await?;
    let mut second = store.watch(&key).await?;
    drop(first);
    hears(&mut second, &key, async |_| changes.next().await).await?;
    drop(second);
    let mut third = store.watch(&key).await?;
    hears(&mut third, &key, async |_| changes.next().await).await
}

pub(super) async fn who_does_not_read_holds_nobody_up(subject: &Subject) -> Verdict {
    const CHANGES: u32 = 500;
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "0", long()).await?;
    let mut hints = store.watch(&key).await?;
    let changes = Replacements::of(store, &key);
    for turn in 0..CHANGES {
        let Ok(changed) = timeout(PATIENCE, changes.next()).await else {
            return Stop::failed(format!("write {turn} hangs while somebody listens and does not read"));
        };
        changed?;
    }
    hears(&mut hints, &key, async |_| changes.next().await).await
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
    let changes = Replacements::of(store, &watched);
    hears(&mut hints, &watched, async |_| changes.next().await).await
}

pub(super) async fn a_prefix_hears_its_keys(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let mut hints = store.cache().watch_prefix(&KeyPrefix::new("a:")?).await?;
    for text in ["a:1", "a:2", "a:b:c"] {
        let key = key(text);
        store.must_add(&key, "0", long()).await?;
        let below = |hinted: &Key| hinted.as_str().starts_with("a:");
        let changes = Replacements::of(store, &key);
        hears_one_of(&mut hints, |hinted| *hinted == key, below, async |_| changes.next().await).await?;
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
    let changes = Replacements::of(store, &inside);
    hears(&mut hints, &inside, async |_| changes.next().await).await
}

pub(super) async fn the_empty_prefix_hears_all_of_the_namespace(subject: &Subject) -> Verdict {
    let (store, neighbour, inside) = (&subject.store, subject.neighbour("x").await?, key("inside"));
    store.must_add(&inside, "0", long()).await?;
    let mut hints = store.cache().watch_prefix(&KeyPrefix::new("")?).await?;
    neighbour.must_add(&key("outside"), "0", long()).await?;
    neighbour.must_replace(&key("outside"), "0", "1", long()).await?;
    // What was changed in the other namespace must not be named in this one.
    let changes = Replacements::of(store, &inside);
    hears(&mut hints, &inside, async |_| changes.next().await).await
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

/// Replacements of one key, one after the other; the first finds "0".
pub(super) struct Replacements<'s> {
    store: &'s Handle,
    key: &'s Key,
    made: Cell<u32>,
}

impl<'s> Replacements<'s> {
    pub(super) fn of(store: &'s Handle, key: &'s Key) -> Self {
        Self { store, key, made: Cell::new(0) }
    }

    pub(super) async fn next(&self) -> Verdict {
        let made = self.made.replace(self.made.get() + 1);
        self.store.must_replace(self.key, made.to_string(), (made + 1).to_string(), long()).await?;
        Ok(())
    }
}

/// How often a change is made before its hint is missed.
const TURNS: u32 = 3;

/// Makes a change, again if need be, until a hint at it comes.
pub(super) async fn hears(hints: &mut Hints, key: &Key, change: impl AsyncFn(u32) -> Verdict) -> Verdict {
    hears_one_of(hints, |hinted| hinted == key, |hinted| hinted == key, change).await
}

/// The same where several keys may change: a hint about another may be late news, if that one is `listened_for`.
async fn hears_one_of(
    hints: &mut Hints,
    wanted: impl Fn(&Key) -> bool,
    listened_for: impl Fn(&Key) -> bool,
    change: impl AsyncFn(u32) -> Verdict,
) -> Verdict {
    for turn in 0..TURNS {
        quiet(hints, &listened_for).await?;
        change(turn).await?;
        if let Ok(heard) = timeout(PATIENCE, about(hints, &wanted, &listened_for)).await {
            return heard;
        }
    }
    missed()
}

/// The same of a change that something must be written for first: nobody listens until that is done, as the hint at it
/// would pass for the one that is wanted.
async fn hears_after(
    subject: &Subject,
    key: &Key,
    prepare: impl AsyncFn() -> Verdict,
    change: impl AsyncFn() -> Verdict,
) -> Verdict {
    for _ in 0..TURNS {
        prepare().await?;
        let mut hints = subject.store.watch(key).await?;
        quiet(&mut hints, |hinted| hinted == key).await?;
        change().await?;
        if let Ok(heard) = timeout(PATIENCE, about(&mut hints, |hinted| hinted == key, |hinted| hinted == key)).await {
            return heard;
        }
    }
    missed()
}

fn missed() -> Verdict {
    Stop::failed(format!("no hint came within {PATIENCE:?} of a change, {TURNS} times over"))
}

/// Waits for a hint at a key that is wanted, or at anything.
async fn about(hints: &mut Hints, wanted: impl Fn(&Key) -> bool, listened_for: impl Fn(&Key) -> bool) -> Verdict {
    while !next(hints, &listened_for).await?.is_none_or(|hinted| wanted(&hinted)) {}
    Ok(())
}

/// Takes the hints off that have come, until none comes for a moment: those at what was done before, and what a store
/// says when it begins to listen.
async fn quiet(hints: &mut Hints, listened_for: impl Fn(&Key) -> bool) -> Verdict {
    const MOMENT: Duration = Duration::from_millis(50);
    // Hints may be spurious, so that there may be no end of them.
    const MOST: u32 = 100;
    for _ in 0..MOST {
        let Ok(hint) = timeout(MOMENT, next(hints, &listened_for)).await else { break };
        hint?;
    }
    Ok(())
}

/// The key that the next hint names; nothing when it may be any.
async fn next(hints: &mut Hints, listened_for: impl Fn(&Key) -> bool) -> Verdict<Option<Key>> {
    match hints.next().await {
        Some(Hint::Changed(hinted)) => {
            ensure!(listened_for(&hinted), "a hint names {hinted:?}, which nobody listens for");
            Ok(Some(hinted))
        }
        Some(_) => Ok(None),
        None => Stop::failed("the stream of hints has ended"),
    }
}
