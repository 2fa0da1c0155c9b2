//! What the store is to another process.

use crate::capability::Capability;
use crate::other_process::{FROM_THE_FIRST, FROM_THE_OTHER, Running};
use crate::subject::{Subject, key, long};
use crate::verdict::{Stop, Verdict, ensure};

pub(super) async fn another_process_has_the_same_data(subject: &Subject) -> Verdict {
    let store = &subject.store;
    store.must_add(&key(FROM_THE_FIRST), FROM_THE_FIRST, long()).await?;
    let mut other = another_process(subject, Capability::Shared)?;
    ensure!(other.saw_the_first, "another process does not see what this one has added");
    store.must_show(&key(FROM_THE_OTHER), FROM_THE_OTHER).await?;
    store.must_remove(&key(FROM_THE_OTHER), FROM_THE_OTHER).await?;
    other.kill()
}

/// Starts another process that works on the same namespace.
pub(super) fn another_process(subject: &Subject, asked: Capability) -> Verdict<Running> {
    match &subject.other_process {
        Some(other) => other.start(subject.namespace()),
        None if subject.required.contains(&asked) => {
            Stop::failed(format!("`{asked}` is required, and no other process can be started from here to ask it"))
        }
        None => Err(Stop::Ignored("no other process can be started from here".to_owned())),
    }
}
