use leasehold_core::Outcome;

use crate::subject::{Subject, base, key, long};
use crate::timing::measured;
use crate::verdict::{Verdict, ensure};

pub(super) async fn removes_the_expected_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_remove(&key, "mine").await?;
    store.must_not_show(&key, "it was removed").await
}

pub(super) async fn refuses_another_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_not_remove(&key, "other", "another value is there").await?;
    store.must_show(&key, "mine").await?;
    Ok(())
}

pub(super) async fn refuses_an_absent_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_not_remove(&key, "mine", "nothing was ever there").await?;
    store.must_not_remove(&key, "", "nothing was ever there").await?;
    store.must_add(&key, "mine", long()).await?;
    store.must_remove(&key, "mine").await?;
    store.must_not_remove(&key, "mine", "it was removed before").await
}

pub(super) async fn refuses_an_expired_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_not_remove(&key, "mine", "it has expired").await
}

pub(super) async fn exactly_one_of_many_wins(subject: &Subject) -> Verdict {
    const MANY: usize = 32;
    let store = &subject.store;
    for round in 0..8 {
        let key = key(&format!("k-{round}"));
        store.must_add(&key, "mine", long()).await?;
        let answers = subject
            .at_once(MANY, |_| {
                let (store, key) = (store.clone(), key.clone());
                async move { Ok(store.try_remove(&key, b"mine").await?) }
            })
            .await?;
        let winners = answers.iter().filter(|&&answer| answer == Outcome::Applied).count();
        ensure!(winners == 1, "{winners} of {MANY} tasks removed one and the same entry");
    }
    Ok(())
}
