use leasehold_core::{Expiry, Outcome};

use crate::subject::{Subject, base, key, long};
use crate::timing::measured;
use crate::verdict::{Verdict, ensure};

pub(super) async fn takes_whatever_is_there(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "added", long()).await?;
    ensure!(store.cache().remove(&key).await?.is_applied(), "remove must apply to what is there");
    store.must_not_show(&key, "it was removed").await?;
    store.must_set(&key, "", Expiry::Never).await?;
    ensure!(store.cache().remove(&key).await?.is_applied(), "remove must apply to what is there");
    store.must_not_show(&key, "it was removed").await
}

pub(super) async fn of_an_absent_key_is_not_applied(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    ensure!(store.cache().remove(&key).await? == Outcome::NotApplied, "nothing was ever there to remove");
    store.must_add(&key, "mine", long()).await?;
    store.must_remove(&key, "mine").await?;
    ensure!(store.cache().remove(&key).await? == Outcome::NotApplied, "it was removed before");
    Ok(())
}

pub(super) async fn of_an_expired_key_is_not_applied(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_set(&key, "mine", Expiry::After(base()))).await?;
    subject.tolerance.past_the_end(written, base()).await;
    ensure!(store.cache().remove(&key).await? == Outcome::NotApplied, "it has expired, so nothing is there to remove");
    Ok(())
}
