//! A batch is as its items one after the other, in one trip.

use bytes::Bytes;
use leasehold_core::{ErrorKind, Expiry, Key, Outcome};

use super::values::longest_value;
use crate::handle::{ensure_refused, shown};
use crate::subject::{Subject, base, key, long, millis};
use crate::timing::measured;
use crate::verdict::{Verdict, ensure};

pub(super) async fn get_many_answers_in_order(subject: &Subject) -> Verdict {
    let store = &subject.store;
    store.must_add(&key("a"), "1", long()).await?;
    store.must_add(&key("b"), "2", long()).await?;
    let (written, _) = measured(store.must_add(&key("gone"), "3", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    must_have(
        subject,
        &["b", "absent", "a", "b", "gone", "a"],
        &[Some("2"), None, Some("1"), Some("2"), None, Some("1")],
    )
    .await
}

pub(super) async fn get_many_tells_the_time_left(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("a"), millis(60_250));
    let (written, _) = measured(store.must_add(&key, "1", ttl)).await?;
    let get_many = async { Ok(store.cache().get_many(std::slice::from_ref(&key)).await?) };
    let (read, answer) = measured(get_many).await?;
    let left = answer.first().and_then(|entry| entry.as_ref()).and_then(|entry| entry.time_left);
    subject.tolerance.ensure_time_left(left, written, ttl, read)
}

pub(super) async fn set_many_writes_each(subject: &Subject) -> Verdict {
    let store = &subject.store;
    store.must_add(&key("a"), "old", long()).await?;
    let answer = store.cache().set_many(items(&[("a", "1"), ("b", "2"), ("c", "")])).await?;
    ensure!(answer.len() == 3, "set_many of 3 items must give 3 revisions, and gave {}", answer.len());
    must_have(subject, &["a", "b", "c"], &[Some("1"), Some("2"), Some("")]).await
}

pub(super) async fn set_many_leaves_the_last_of_two(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let answer = store.cache().set_many(items(&[("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")])).await?;
    ensure!(answer.len() == 4, "set_many of 4 items must give 4 revisions, and gave {}", answer.len());
    must_have(subject, &["a", "b"], &[Some("4"), Some("2")]).await
}

pub(super) async fn set_many_numbers_its_writes_in_order(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let before = store.must_add(&key("a"), "0", long()).await?;
    let revisions = store.cache().set_many(items(&[("a", "1"), ("a", "2"), ("a", "3")])).await?;
    ensure!(revisions.len() == 3, "set_many of 3 items must give 3 revisions, and gave {}", revisions.len());
    let mut last = before;
    for revision in revisions {
        ensure!(revision > last, "revisions must rise in the order of the items, and {revision} came after {last}");
        last = revision;
    }
    let after = store.must_replace(&key("a"), "3", "4", long()).await?;
    ensure!(after > last, "a write after the batch must have a larger revision, and {after} came after {last}");
    Ok(())
}

pub(super) async fn set_many_gives_each_its_own_end(subject: &Subject) -> Verdict {
    let (store, ttl) = (&subject.store, base());
    let items = vec![
        (key("never"), Bytes::from("1"), Expiry::Never),
        (key("soon"), Bytes::from("2"), Expiry::After(ttl)),
        (key("later"), Bytes::from("3"), Expiry::After(long())),
    ];
    let set_many = async { Ok(store.cache().set_many(items).await?) };
    let (written, _) = measured(set_many).await?;
    subject.tolerance.past_the_end(written, ttl).await;
    must_have(subject, &["never", "soon", "later"], &[Some("1"), None, Some("3")]).await?;
    let entry = store.must_show(&key("never"), "1").await?;
    ensure!(entry.time_left.is_none(), "what never ends has no time left to tell, and {:?} is told", entry.time_left);
    // Nothing that never ends is to be left behind.
    let _ = store.cache().remove(&key("never")).await?;
    Ok(())
}

pub(super) async fn set_many_is_refused_whole(subject: &Subject) -> Verdict {
    let store = &subject.store;
    let too_long = Bytes::from([&longest_value(subject)?[..], b"!"].concat());
    let mut batch = items(&[("a", "1"), ("b", "2"), ("c", "3")]);
    batch[1].1 = too_long;
    let answer = store.cache().set_many(batch).await;
    ensure_refused(answer, ErrorKind::InvalidInput, "set_many with a value that is a byte too long")?;
    must_have(subject, &["a", "b", "c"], &[None, None, None]).await
}

pub(super) async fn remove_many_answers_in_order(subject: &Subject) -> Verdict {
    let store = &subject.store;
    store.must_add(&key("a"), "1", long()).await?;
    store.must_add(&key("b"), "2", long()).await?;
    store.must_add(&key("kept"), "3", long()).await?;
    let answer = store.cache().remove_many(&["b", "absent", "a", "b"].map(key)).await?;
    let wanted = [Outcome::Applied, Outcome::NotApplied, Outcome::Applied, Outcome::NotApplied];
    ensure!(answer == wanted, "remove_many must answer {wanted:?}, and answered {answer:?}");
    must_have(subject, &["a", "b", "kept"], &[None, None, Some("3")]).await
}

pub(super) async fn of_nothing_are_answered_with_nothing(subject: &Subject) -> Verdict {
    let store = subject.store.cache();
    ensure!(store.get_many(&[]).await?.is_empty(), "get_many of nothing must answer nothing");
    ensure!(store.set_many(Vec::new()).await?.is_empty(), "set_many of nothing must answer nothing");
    ensure!(store.remove_many(&[]).await?.is_empty(), "remove_many of nothing must answer nothing");
    Ok(())
}

pub(super) async fn of_a_thousand_are_whole(subject: &Subject) -> Verdict {
    const MANY: usize = 1_000;
    let store = subject.store.cache();
    let keys: Vec<Key> = (0..MANY).map(|number| key(&format!("k-{number}"))).collect();
    let value = |number: usize| Bytes::from(format!("v-{number}"));
    let batch = keys.iter().enumerate().map(|(number, key)| (key.clone(), value(number), Expiry::After(long())));
    let revisions = store.set_many(batch.collect()).await?;
    ensure!(revisions.len() == MANY, "set_many of {MANY} items gave {} revisions", revisions.len());
    let entries = store.get_many(&keys).await?;
    ensure!(entries.len() == MANY, "get_many of {MANY} keys gave {} answers", entries.len());
    for (number, entry) in entries.iter().enumerate() {
        let found = entry.as_ref().map(|entry| &entry.value);
        ensure!(found == Some(&value(number)), "get_many gave another value for key {number} of {MANY}");
    }
    let outcomes = store.remove_many(&keys).await?;
    let removed = outcomes.iter().filter(|outcome| outcome.is_applied()).count();
    ensure!(removed == MANY && outcomes.len() == MANY, "remove_many of {MANY} keys removed {removed}");
    ensure!(store.get_many(&keys).await?.iter().all(Option::is_none), "something is left of what was removed");
    Ok(())
}

fn items(items: &[(&str, &'static str)]) -> Vec<(Key, Bytes, Expiry)> {
    items.iter().map(|(name, value)| (key(name), Bytes::from(*value), Expiry::After(long()))).collect()
}

/// What `get_many` must answer.
async fn must_have(subject: &Subject, keys: &[&str], values: &[Option<&str>]) -> Verdict {
    let named: Vec<Key> = keys.iter().map(|name| key(name)).collect();
    let answer = subject.store.cache().get_many(&named).await?;
    let found: Vec<_> = answer.iter().map(|entry| entry.as_ref().map(|entry| &*entry.value)).collect();
    let wanted: Vec<_> = values.iter().map(|value| value.map(str::as_bytes)).collect();
    let rendered = |values: &[Option<&[u8]>]| {
        let values: Vec<_> = values.iter().map(|value| value.map_or("nothing".to_owned(), shown)).collect();
        values.join(", ")
    };
    ensure!(found == wanted, "get_many of {keys:?} must give {}, and gave {}", rendered(&wanted), rendered(&found));
    Ok(())
}
