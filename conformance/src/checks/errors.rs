//! What an error tells, and what it keeps to itself. A too long value is the one that every store has to refuse.

use bytes::Bytes;
use leasehold_core::{Error, Expiry};

use super::values::longest_value;
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn show_no_value(subject: &Subject) -> Verdict {
    for (operation, error) in refusals(subject).await? {
        let rendered = format!("{error} {error:#} {error:?}");
        ensure!(!rendered.contains(SECRET), "an error of {operation} shows the value: {error}");
        let in_numbers = format!("{:?}", SECRET.as_bytes());
        let in_numbers = in_numbers.trim_matches(['[', ']']);
        ensure!(!rendered.contains(in_numbers), "an error of {operation} shows the bytes of the value: {error}");
    }
    Ok(())
}

pub(super) async fn name_the_operation_and_the_store(subject: &Subject) -> Verdict {
    let name = subject.store.name();
    for (operation, error) in refusals(subject).await? {
        ensure!(
            error.operation() == operation,
            "an error of {operation} names the operation {:?}: {error}",
            error.operation()
        );
        ensure!(
            error.store() == Some(name),
            "an error of {operation} must name the store {name:?}, and names {:?}: {error}",
            error.store()
        );
    }
    Ok(())
}

const SECRET: &str = "s3cret-of-a-customer";

/// An error of each operation that takes a value, which is too long and begins and ends with a secret.
async fn refusals(subject: &Subject) -> Verdict<Vec<(&'static str, Error)>> {
    let (store, key) = (&subject.store, key("k"));
    let too_long = Bytes::from([SECRET.as_bytes(), &longest_value(subject)?, SECRET.as_bytes()].concat());
    store.must_add(&key, SECRET, long()).await?;
    let mut refusals = vec![
        ("try_add", store.try_add(&key, too_long.clone(), long()).await.err()),
        ("try_replace", store.try_replace(&key, SECRET.as_bytes(), too_long.clone(), long()).await.err()),
    ];
    if store.has_cache() {
        let cache = store.cache();
        refusals.push(("set", cache.set(&key, too_long.clone(), Expiry::Never).await.err()));
        refusals.push(("set_many", cache.set_many(vec![(key, too_long, Expiry::Never)]).await.err()));
    }
    let mut errors = Vec::new();
    for (operation, refusal) in refusals {
        match refusal {
            Some(error) => errors.push((operation, error)),
            None => return Stop::failed(format!("{operation} of a value that is too long must be refused")),
        }
    }
    Ok(errors)
}
