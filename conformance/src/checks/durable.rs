use super::shared::another_process;
use crate::capability::Capability;
use crate::other_process::FROM_THE_OTHER;
use crate::subject::{Subject, key};
use crate::verdict::Verdict;

/// The process is killed as soon as the store has answered it. For a store that lives in the process that is all there
/// is to durability; for a server its own tests have to pull the plug.
pub(super) async fn an_answered_write_outlives_its_process(subject: &Subject) -> Verdict {
    another_process(subject, Capability::Durable)?.kill()?;
    let store = subject.another_handle().await?;
    store.must_show(&key(FROM_THE_OTHER), FROM_THE_OTHER).await?;
    Ok(())
}
