//! A value is bytes: what is written comes back, and what is expected is compared, whole and byte for byte.

use bytes::Bytes;
use leasehold_core::ErrorKind;

use crate::handle::ensure_refused;
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn empty_is_a_value(subject: &Subject) -> Verdict {
    comes_back(subject, "added", Bytes::new()).await?;
    let (store, key) = (&subject.store, key("emptied"));
    store.must_add(&key, "full", long()).await?;
    store.must_replace(&key, "full", "", long()).await?;
    store.must_show(&key, "").await?;
    store.must_find(&key, long()).await?;
    store.must_expire(&key, "", long()).await?;
    store.must_remove(&key, "").await
}

pub(super) async fn binary_comes_back_byte_for_byte(subject: &Subject) -> Verdict {
    let all_bytes: Vec<u8> = (0..=255).collect();
    comes_back(subject, "all-bytes", all_bytes.into()).await?;
    // Neither is UTF-8, and a store that makes it so has one for both.
    comes_back(subject, "broken-text", Bytes::from_static(b"\xc3\x28\xff")).await?;
    subject.store.must_not_remove(&key("broken-text"), b"\xc3\x28\xfe", "another byte is there").await
}

pub(super) async fn nul_ends_nothing(subject: &Subject) -> Verdict {
    comes_back(subject, "inside", Bytes::from_static(b"before\0after")).await?;
    comes_back(subject, "first", Bytes::from_static(b"\0")).await?;
    let (store, key) = (&subject.store, key("inside"));
    store.must_not_remove(&key, b"before\0other", "it differs after the NUL").await?;
    store.must_not_replace(&key, b"before", "the value goes on after the NUL").await
}

pub(super) async fn numbers_are_not_read(subject: &Subject) -> Verdict {
    for (place, number) in ["007", "1e3", "-0", "1.0", "9007199254740993"].into_iter().enumerate() {
        comes_back(subject, &format!("number-{place}"), number.into()).await?;
    }
    subject.store.must_not_remove(&key("number-0"), "7", "007 is written").await
}

pub(super) async fn white_space_counts(subject: &Subject) -> Verdict {
    comes_back(subject, "around", " a\t\r\n".into()).await?;
    subject.store.must_not_remove(&key("around"), " a", "white space follows in the value").await?;
    comes_back(subject, "only", " ".into()).await
}

pub(super) async fn the_longest_comes_back(subject: &Subject) -> Verdict {
    let longest = longest_value(subject)?;
    comes_back(subject, "longest", longest.clone()).await?;
    let (store, key) = (&subject.store, key("longest"));
    let mut other = longest.to_vec();
    if let Some(last) = other.last_mut() {
        *last ^= 1;
    }
    store.must_not_replace(&key, &other, "the last byte differs").await?;
    store.must_replace(&key, &longest, other.clone(), long()).await?;
    store.must_show(&key, &other).await?;
    store.must_remove(&key, &other).await
}

pub(super) async fn one_byte_over_is_refused_without_effect(subject: &Subject) -> Verdict {
    let longest = longest_value(subject)?;
    let too_long = Bytes::from([&longest[..], b"!"].concat());
    let (store, absent, there) = (&subject.store, key("absent"), key("there"));
    let added = store.try_add(&absent, too_long.clone(), long()).await;
    ensure_refused(added, ErrorKind::InvalidInput, "try_add of a value that is a byte too long")?;
    store.must_not_show(&absent, "its try_add was refused").await?;
    store.must_add(&there, "first", long()).await?;
    let replaced = store.try_replace(&there, b"first", too_long, long()).await;
    ensure_refused(replaced, ErrorKind::InvalidInput, "try_replace by a value that is a byte too long")?;
    store.must_show(&there, "first").await?;
    Ok(())
}

pub(super) async fn the_last_byte_counts(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("long"));
    let value = [vec![b'x'; 999], vec![b'1']].concat();
    let other = [vec![b'x'; 999], vec![b'2']].concat();
    store.must_add(&key, value.clone(), long()).await?;
    untouched_by(subject, &value, &other, "the last byte differs").await
}

pub(super) async fn a_beginning_is_not_the_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("long"));
    store.must_add(&key, "holder-1", long()).await?;
    untouched_by(subject, b"holder-1", b"holder-", "it is only the beginning of the value").await?;
    untouched_by(subject, b"holder-1", b"", "it is only the beginning of the value").await?;
    untouched_by(subject, b"holder-1", b"holder-11", "the value is only its beginning").await
}

pub(super) async fn case_counts(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("long"));
    store.must_add(&key, "Holder", long()).await?;
    untouched_by(subject, b"Holder", b"holder", "the case differs").await
}

/// What is added comes back, is handed to who comes too late, and is what is expected.
async fn comes_back(subject: &Subject, name: &str, value: Bytes) -> Verdict {
    let (store, key) = (&subject.store, key(name));
    store.must_add(&key, value.clone(), long()).await?;
    store.must_show(&key, &value).await?;
    let found = store.must_find(&key, long()).await?;
    ensure!(found.value == value, "try_add of {key:?} must hand back what is there, byte for byte");
    store.must_expire(&key, &value, long()).await
}

/// Nothing that expects `other` applies to the key `long`.
async fn untouched_by(subject: &Subject, value: &[u8], other: &[u8], why: &str) -> Verdict {
    let (store, key) = (&subject.store, key("long"));
    store.must_not_expire(&key, other, why).await?;
    store.must_not_replace(&key, other, why).await?;
    store.must_not_remove(&key, other, why).await?;
    store.must_show(&key, value).await?;
    Ok(())
}

/// How long a value may be, where such a value can be tried.
pub(super) fn longest_length(subject: &Subject) -> Verdict<usize> {
    const MOST_TRIED: usize = 64 * 1024 * 1024;
    let longest = subject.store.capabilities().max_value_len;
    if longest > MOST_TRIED {
        return Err(Stop::Ignored(format!("values of {longest} bytes are not tried")));
    }
    Ok(longest)
}

/// As long as a value may be, of bytes that do not repeat every few.
pub(super) fn longest_value(subject: &Subject) -> Verdict<Bytes> {
    Ok((0..longest_length(subject)?).map(|place| (place % 251) as u8).collect())
}
