use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{Key, Outcome, Ttl};
use rand::Rng;
use tokio::time::{Instant, sleep};

use crate::handle::Handle;
use crate::subject::{Subject, base, key, long, millis};
use crate::timing::{Round, measured};
use crate::verdict::{Verdict, ensure};

pub(super) async fn lengthens(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "mine", ttl)).await?;
            let answer = store.try_expire(key, b"mine", long()).await?;
            if Instant::now() >= subject.tolerance.earliest_end(written, ttl) {
                return Ok(Round::Undecided);
            }
            ensure!(answer == Outcome::Applied, "try_expire must apply to the expected value");
            subject.tolerance.well_past_the_end(written, ttl).await;
            store.must_show(key, "mine").await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn shortens(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .lives_its_ttl(async |key, ttl| {
            store.must_add(key, "mine", long()).await?;
            Ok(measured(store.must_expire(key, "mine", ttl)).await?.0)
        })
        .await
}

pub(super) async fn refuses_another_value(subject: &Subject) -> Verdict {
    let store = &subject.store;
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(store.must_add(key, "mine", ttl)).await?;
            store.must_not_expire(key, "other", "another value is there").await?;
            // Nor may it have moved the end all the same.
            subject.is_gone_after(written, key, ttl).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn refuses_an_absent_key(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_not_expire(&key, "mine", "nothing is there").await?;
    store.must_not_expire(&key, "", "nothing is there").await?;
    store.must_not_show(&key, "a try_expire writes nothing").await
}

pub(super) async fn never_revives(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (written, _) = measured(store.must_add(&key, "mine", base())).await?;
    subject.tolerance.past_the_end(written, base()).await;
    store.must_not_expire(&key, "mine", "it has expired").await?;
    store.must_not_show(&key, "it has expired").await?;
    store.must_add(&key, "another's", long()).await?;
    Ok(())
}

pub(super) async fn changes_no_value(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    store.must_add(&key, "mine", long()).await?;
    store.must_expire(&key, "mine", millis(60_000)).await?;
    store.must_show(&key, "mine").await?;
    store.must_remove(&key, "mine").await
}

/// A renewal that has to wait its turn, and finds the entry dead by then, leaves it dead.
///
/// A crowd comes for one key: first those that leave it next to no time, with so long a value that a store which locks
/// what it writes holds its lock for a while, and after them those that renew it. What has been gone must not come back,
/// as nobody adds.
pub(super) async fn a_late_renewal_does_not_revive(subject: &Subject) -> Verdict {
    const ROUNDS: usize = 20;
    // The least shows a store that counts from after its wait: its entry must be dead before the next has its turn. One
    // that counts from before it takes no longer for that, and can be asked by more who are late.
    let shortened_to = [Ttl::MIN, millis(10)];
    // Each with connections of its own, where a store has some for each.
    let mut handles = vec![subject.store.clone()];
    for _ in 0..3 {
        handles.push(subject.another_handle().await?);
    }
    let value = long_value(subject);
    let mut quickest = Duration::MAX;
    let keys: Vec<_> = (0..ROUNDS).map(|round| key(&format!("k-{round}"))).collect();
    for (round, key) in keys.iter().enumerate() {
        let (added, _) = measured(subject.store.must_add(key, value.clone(), long())).await?;
        // One that is judged in time and written later: who looks in between may find nothing.
        quickest = quickest.min(added.returned - added.called);
        let doubtful = subject.tolerance.early.max(quickest);
        crowd_at_the_end(subject, &handles, key, &value, shortened_to[round % 2], doubtful).await?;
    }
    sleep(RENEWED_FOR + subject.tolerance.late).await;
    for key in &keys {
        subject.store.must_not_show(key, &format!("its last renewal was for {RENEWED_FOR:?}, and is over")).await?;
    }
    Ok(())
}

const RENEWED_FOR: Duration = Duration::from_millis(60);

/// As long as may be, within reason, and of bytes that cannot be made fewer.
fn long_value(subject: &Subject) -> Bytes {
    const MOST: usize = 256 * 1024;
    let mut value = vec![0; subject.store.capabilities().max_value_len.min(MOST)];
    rand::rng().fill_bytes(&mut value);
    value.into()
}

/// Those who shorten it, those who renew it, and some who look.
async fn crowd_at_the_end(
    subject: &Subject,
    handles: &[Handle],
    key: &Key,
    value: &Bytes,
    shortened_to: Ttl,
    doubtful: Duration,
) -> Verdict {
    const SHORTEN: usize = 10;
    const RENEW: usize = 6;
    const LOOK: usize = 3;
    let renewed_for = Ttl::try_from(RENEWED_FOR)?;
    let writing = Arc::new(AtomicUsize::new(SHORTEN + RENEW));
    let task = |number: usize| {
        let store = handles[number % handles.len()].clone();
        let (key, value, writing) = (key.clone(), value.clone(), writing.clone());
        async move {
            if number >= SHORTEN + RENEW {
                return stays_gone(&store, &key, &writing, doubtful).await;
            }
            let answer = match number < SHORTEN {
                true => store.try_replace(&key, &value, value.clone(), shortened_to).await.map(drop),
                false => store.try_expire(&key, &value, renewed_for).await.map(drop),
            };
            writing.fetch_sub(1, Ordering::AcqRel);
            Ok(answer?)
        }
    };
    subject.at_once(SHORTEN + RENEW + LOOK, task).await?;
    Ok(())
}

/// Looks at a key until nobody is writing any more, and once after that.
async fn stays_gone(store: &Handle, key: &Key, writing: &AtomicUsize, doubtful: Duration) -> Verdict {
    // Since when nothing was there, and until when at least.
    let mut gone: Option<(Instant, Instant)> = None;
    loop {
        let is_last = writing.load(Ordering::Acquire) == 0;
        let (look, found) = measured(async { Ok(store.get(key).await?) }).await?;
        gone = match (found, gone) {
            (None, None) => Some((look.returned, look.returned)),
            (None, Some((since, _))) => Some((since, look.called)),
            (Some(_), gone) => {
                let gone_for = gone.map_or(Duration::ZERO, |(since, until)| until.saturating_duration_since(since));
                ensure!(
                    gone_for <= doubtful,
                    "{key:?} was gone for {gone_for:?} and is there again: a renewal that had to wait revived it"
                );
                None
            }
        };
        if is_last {
            return Ok(());
        }
        sleep(Duration::from_millis(1)).await;
    }
}
