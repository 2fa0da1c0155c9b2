//! Concurrent histories: recorded, and searched for an order that explains every answer. See [`crate::history`].

use crate::history::{Cause, Failure, Handles, Workload};
use crate::subject::Subject;
use crate::verdict::{Stop, Verdict};

pub(super) async fn of_the_primitives_have_an_order(subject: &Subject) -> Verdict {
    let handles = [subject.store.clone(), subject.another_handle().await?];
    are_explained(subject, Handles::Atomic(handles.map(|handle| handle.atomic()).into())).await
}

pub(super) async fn of_the_whole_store_have_an_order(subject: &Subject) -> Verdict {
    let handles = [subject.store.clone(), subject.another_handle().await?];
    are_explained(subject, Handles::Cache(handles.iter().filter_map(|handle| handle.whole()).collect())).await
}

async fn are_explained(subject: &Subject, handles: Handles) -> Verdict {
    let workload = if subject.stepped { Workload::stepped(subject.seed) } else { Workload::new(subject.seed) };
    match workload.with_rounds(subject.rounds).run(&handles, subject.tolerance).await {
        Ok(_) => Ok(()),
        Err(failure) => Stop::failed(format!("{failure}{}", kept(subject, &failure))),
    }
}

/// Keeps the history of a failure, and says where.
fn kept(subject: &Subject, failure: &Failure) -> String {
    let Failure { origin, history, cause } = failure;
    let Some(folder) = subject.histories.as_ref().filter(|_| !matches!(cause, Cause::Failed { .. })) else {
        return String::new();
    };
    let path = folder.join(format!("leasehold-history-{}-{}.json", subject.namespace(), origin.round));
    match history.save(&path) {
        Ok(()) => format!("\nkept as {}, to be judged again by `leasehold conform --replay`", path.display()),
        Err(error) => format!("\nit could not be kept as {}: {error}", path.display()),
    }
}
