//! A key is bytes: two keys are the same exactly when their bytes are. The store neither folds, trims, cuts, escapes nor
//! interprets any of it.

use leasehold_core::{Key, Part};

use crate::history::Dice;
use crate::subject::{Subject, key, long};
use crate::verdict::{Verdict, ensure};

pub(super) async fn case_counts(subject: &Subject) -> Verdict {
    stay_apart(subject, &["order", "Order", "ORDER", "ä", "Ä", "ß", "SS"]).await
}

pub(super) async fn trailing_dots_count(subject: &Subject) -> Verdict {
    stay_apart(subject, &["a", "a.", "a..", "a/", "a:", "a-", "a_"]).await
}

pub(super) async fn unicode_is_not_normalized(subject: &Subject) -> Verdict {
    // One letter or two characters, a ligature, full width, a mark that shows nothing.
    stay_apart(subject, &["caf\u{e9}", "cafe\u{301}", "\u{fb01}", "fi", "\u{ff21}", "A", "A\u{200b}"]).await
}

pub(super) async fn unicode_comes_back(subject: &Subject) -> Verdict {
    stay_apart(subject, &["日本", "日木", "😀", "😁", "שלום", "\u{10ffff}", "\u{fffd}"]).await
}

pub(super) async fn the_longest_are_told_apart(subject: &Subject) -> Verdict {
    // 2,048 bytes of UTF-8 each, and the difference comes last.
    let one = "\u{1d306}".repeat(Key::MAX_CHARS);
    let other = format!("{}\u{1d307}", "\u{1d306}".repeat(Key::MAX_CHARS - 1));
    let shorter = "\u{1d306}".repeat(Key::MAX_CHARS - 1);
    stay_apart(subject, &[&one, &other, &shorter]).await
}

pub(super) async fn wildcards_are_letters(subject: &Subject) -> Verdict {
    stay_apart(subject, &["a*", "ab", "a?", "a%", "a_", "a[b]", "*", "%", "_", "a", "^a$", "a.*"]).await
}

pub(super) async fn braces_are_letters(subject: &Subject) -> Verdict {
    stay_apart(subject, &["{a}b", "{a}c", "{a}", "a", "{}a", "{a", "a}", "{{a}}"]).await
}

pub(super) async fn quotes_and_slashes_are_letters(subject: &Subject) -> Verdict {
    let odd =
        ["a'b", "ab", "a\"b", "a\\b", "a\\\\b", "a/b", "a/./b", "a//b", "a/../b", "a`b", "a;b--", "$1", "?1", "a,b"];
    stay_apart(subject, &odd).await
}

pub(super) async fn numbers_are_not_read(subject: &Subject) -> Verdict {
    stay_apart(subject, &["1", "01", "1.0", "1e0", "+1", "-0", "0"]).await
}

pub(super) async fn composed_parts_stay_apart(subject: &Subject) -> Verdict {
    let compose = |parts: &[Part<'_>]| Key::compose(parts.iter().copied());
    let keys = [
        compose(&["a:b".into(), "c".into()])?,
        compose(&["a".into(), "b:c".into()])?,
        compose(&["a".into(), "b".into(), "c".into()])?,
        compose(&["a".into(), Part::Absent])?,
        compose(&["a".into(), "-".into()])?,
        compose(&["a".into(), "".into()])?,
        compose(&["a%3Ab".into(), "c".into()])?,
    ];
    are_told_apart(subject, &keys).await
}

pub(super) async fn one_may_begin_another(subject: &Subject) -> Verdict {
    stay_apart(subject, &["a", "ab", "a:", "a:b", "a:b:c", "b", ":a", "::"]).await
}

pub(super) async fn drawn_at_random_stay_apart(subject: &Subject) -> Verdict {
    const LETTERS: &[char] = &['a', 'A', 'b', '0', ':', '%', '*', '{', '}', '.', '/', '\'', 'é', '\u{301}', '日', '😀'];
    let mut dice = Dice::new(&[subject.seed]);
    let mut keys: Vec<Key> = Vec::new();
    while keys.len() < 100 {
        let length = 1 + dice.below(5);
        let drawn = key(&(0..length).map(|_| LETTERS[dice.below(LETTERS.len() as u64) as usize]).collect::<String>());
        if !keys.contains(&drawn) {
            keys.push(drawn);
        }
    }
    are_told_apart(subject, &keys).await
}

async fn stay_apart(subject: &Subject, keys: &[&str]) -> Verdict {
    let keys: Vec<_> = keys.iter().map(|text| key(text)).collect();
    are_told_apart(subject, &keys).await
}

/// Each key can be added, keeps its own value while the others are there, and is removed alone.
async fn are_told_apart(subject: &Subject, keys: &[Key]) -> Verdict {
    let store = &subject.store;
    for key in keys {
        store.must_add(key, key.as_str().to_owned(), long()).await?;
    }
    for key in keys {
        store.must_show(key, key.as_str()).await?;
    }
    if store.has_cache() {
        let mut sorted = keys.to_vec();
        sorted.sort();
        let mut scanned = store.scan_all("").await?;
        scanned.dedup();
        ensure!(scanned == sorted, "a scan must give the keys as they were written, and gave {scanned:?}");
    }
    for (place, key) in keys.iter().enumerate() {
        store.must_remove(key, key.as_str()).await?;
        store.must_not_show(key, "it was removed").await?;
        if let Some(next) = keys.get(place + 1) {
            store.must_show(next, next.as_str()).await?;
        }
    }
    Ok(())
}
