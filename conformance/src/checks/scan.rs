use bytes::Bytes;
use leasehold_core::{Cursor, ErrorKind, Expiry, Key, KeyPrefix};
use tokio::task::yield_now;

use crate::handle::ensure_refused;
use crate::subject::{Subject, base, key, long};
use crate::timing::measured;
use crate::verdict::{Verdict, ensure};

pub(super) async fn finds_every_one_of_many(subject: &Subject) -> Verdict {
    const MANY: usize = 1_300;
    let wanted: Vec<_> = (0..MANY).map(|number| key(&format!("many:{number:05}"))).collect();
    write(subject, &wanted).await?;
    let mut found = subject.store.scan_all("many:").await?;
    found.dedup();
    let missing = wanted.iter().filter(|key| found.binary_search(key).is_err()).count();
    ensure!(missing == 0, "a scan missed {missing} of {MANY} keys");
    ensure!(found.len() == MANY, "a scan found {} keys where {MANY} are", found.len());
    Ok(())
}

pub(super) async fn finds_only_its_prefix(subject: &Subject) -> Verdict {
    finds(subject, &["a:1", "a:b:2", "a:", "ab:1", "b:a:1", "a"], "a:", &["a:", "a:1", "a:b:2"]).await?;
    found_by(subject, "none", &[]).await?;
    found_by(subject, "a:1", &["a:1"]).await
}

pub(super) async fn takes_wildcards_as_letters(subject: &Subject) -> Verdict {
    let keys = ["a*1", "ab1", "a_1", "a%1", "a?1", "a[b]1", "a\\1", "a\\*1"];
    finds(subject, &keys, "a*", &["a*1"]).await?;
    for prefix in ["a_", "a%", "a?", "a[b]"] {
        found_by(subject, prefix, &[&format!("{prefix}1")]).await?;
    }
    found_by(subject, "a\\", &["a\\*1", "a\\1"]).await
}

pub(super) async fn tells_case_apart(subject: &Subject) -> Verdict {
    finds(subject, &["Order:1", "order:2", "ORDER:3"], "order:", &["order:2"]).await?;
    found_by(subject, "O", &["ORDER:3", "Order:1"]).await
}

pub(super) async fn gives_keys_as_they_were_written(subject: &Subject) -> Verdict {
    let mut keys = ["é:1", "日本:2", "😀", "a%3Ab", "{a}b", "\u{10ffff}"];
    keys.sort_unstable();
    finds(subject, &keys, "", &keys).await?;
    found_by(subject, "日", &["日本:2"]).await
}

pub(super) async fn with_the_empty_prefix_stays_in_the_namespace(subject: &Subject) -> Verdict {
    let neighbour = subject.neighbour("x").await?;
    neighbour.must_add(&key("theirs"), "theirs", long()).await?;
    finds(subject, &["ours:1", "ours:2"], "", &["ours:1", "ours:2"]).await
}

pub(super) async fn shows_nothing_expired(subject: &Subject) -> Verdict {
    let store = &subject.store;
    write(subject, &[key("k:kept")]).await?;
    let (written, _) = measured(store.must_add(&key("k:gone"), "gone", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    found_by(subject, "k:", &["k:kept"]).await
}

pub(super) async fn shows_nothing_removed(subject: &Subject) -> Verdict {
    let store = &subject.store;
    write(subject, &["k:1", "k:2", "k:3"].map(key)).await?;
    store.must_remove(&key("k:1"), "k:1").await?;
    ensure!(store.cache().remove(&key("k:3")).await?.is_applied(), "remove must apply to what is there");
    found_by(subject, "k:", &["k:2"]).await
}

pub(super) async fn refuses_a_foreign_cursor(subject: &Subject) -> Verdict {
    let (store, prefix) = (subject.store.cache(), KeyPrefix::new("k:")?);
    write(subject, &[key("k:1")]).await?;
    let foreign = Cursor::from_store(Bytes::from_static(b"\xff\xfe of another store \xff"));
    let answer = store.scan(&prefix, Some(foreign)).await;
    ensure_refused(answer, ErrorKind::InvalidInput, "scan from a cursor of another store")
}

/// Who removes what each page gives must still come by everything: what a cursor counts from must not move.
pub(super) async fn misses_nothing_while_others_remove(subject: &Subject) -> Verdict {
    const MANY: usize = 700;
    let keys: Vec<_> = (0..MANY).map(|number| key(&format!("many:{number:05}"))).collect();
    write(subject, &keys).await?;
    let (store, prefix) = (subject.store.cache(), KeyPrefix::new("many:")?);
    let (mut removed, mut cursor) = (0, None);
    loop {
        let page = store.scan(&prefix, cursor).await?;
        removed += store.remove_many(&page.keys).await?.iter().filter(|outcome| outcome.is_applied()).count();
        cursor = page.next;
        if cursor.is_none() {
            ensure!(removed == MANY, "a scan came by {removed} of {MANY} keys, all of which were there until it did");
            return Ok(());
        }
        yield_now().await;
    }
}

async fn finds(subject: &Subject, keys: &[&str], prefix: &str, wanted: &[&str]) -> Verdict {
    let keys: Vec<_> = keys.iter().map(|text| key(text)).collect();
    write(subject, &keys).await?;
    found_by(subject, prefix, wanted).await
}

/// What a whole scan must find, in the order of keys.
async fn found_by(subject: &Subject, prefix: &str, wanted: &[&str]) -> Verdict {
    let mut found = subject.store.scan_all(prefix).await?;
    found.dedup();
    let found: Vec<_> = found.iter().map(Key::as_str).collect();
    ensure!(found == wanted, "a scan of {prefix:?} must find {wanted:?}, and found {found:?}");
    Ok(())
}

/// Writes keys whose values are their names.
async fn write(subject: &Subject, keys: &[Key]) -> Verdict {
    for batch in keys.chunks(100) {
        let items = batch.iter().map(|key| (key.clone(), Bytes::from(key.as_str().to_owned()), Expiry::After(long())));
        let revisions = subject.store.cache().set_many(items.collect()).await?;
        ensure!(revisions.len() == batch.len(), "set_many of {} items gave {} revisions", batch.len(), revisions.len());
    }
    Ok(())
}
