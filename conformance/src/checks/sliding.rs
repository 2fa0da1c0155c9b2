//! Entries that live on when they are read.

use leasehold_core::{AddOutcome, Expiry, Key, Ttl};
use tokio::time::{Instant, sleep, sleep_until};

use crate::subject::{Subject, base, key, millis};
use crate::timing::{Round, Span, measured};
use crate::verdict::{Verdict, ensure};

pub(super) async fn a_read_prolongs(subject: &Subject) -> Verdict {
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(subject.store.must_set(key, "mine", Expiry::Sliding(ttl))).await?;
            lives_on(subject, key, ttl, written, Read::Get).await
        })
        .await
}

pub(super) async fn a_read_of_many_prolongs(subject: &Subject) -> Verdict {
    subject
        .rounds(async |key, ttl| {
            let (written, _) = measured(subject.store.must_set(key, "mine", Expiry::Sliding(ttl))).await?;
            lives_on(subject, key, ttl, written, Read::GetMany).await
        })
        .await
}

pub(super) async fn without_reads_it_ends(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), base());
    let (written, _) = measured(store.must_set(&key, "mine", Expiry::Sliding(ttl))).await?;
    subject.is_gone_after(written, &key, ttl).await?;
    // And as long after its last read.
    store.must_set(&key, "mine", Expiry::Sliding(ttl)).await?;
    let (read, _) = measured(async { Ok(store.get(&key).await?) }).await?;
    subject.is_gone_after(read, &key, ttl).await
}

pub(super) async fn the_absolute_end_wins(subject: &Subject) -> Verdict {
    let (store, key) = (&subject.store, key("k"));
    let (idle, at_most) = (base(), millis(2 * base().as_millis()));
    let (written, _) = measured(store.must_set(&key, "mine", Expiry::SlidingUntil { idle, at_most })).await?;
    while Instant::now() < subject.tolerance.latest_end(written, at_most) {
        let _ = store.get(&key).await?;
        sleep(idle.as_duration() / 4).await;
    }
    store.must_not_show(&key, "its absolute end has come, whatever was read").await
}

pub(super) async fn a_read_prolongs_up_to_the_absolute_end(subject: &Subject) -> Verdict {
    subject
        .rounds(async |key, ttl| {
            let expiry = Expiry::SlidingUntil { idle: ttl, at_most: millis(10 * ttl.as_millis()) };
            let (written, _) = measured(subject.store.must_set(key, "mine", expiry)).await?;
            lives_on(subject, key, ttl, written, Read::Get).await
        })
        .await
}

pub(super) async fn without_reads_it_ends_before_the_absolute_end(subject: &Subject) -> Verdict {
    let (store, key, idle) = (&subject.store, key("k"), base());
    let expiry = Expiry::SlidingUntil { idle, at_most: millis(60_000) };
    let (written, _) = measured(store.must_set(&key, "mine", expiry)).await?;
    subject.is_gone_after(written, &key, idle).await
}

pub(super) async fn try_replace_brings_a_fixed_end(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), base());
    store.must_set(&key, "sliding", Expiry::Sliding(millis(60_000))).await?;
    let (written, _) = measured(store.must_replace(&key, "sliding", "fixed", ttl)).await?;
    read_until(subject, &key, written, ttl).await?;
    store.must_not_show(&key, "try_replace gave it a fixed end").await
}

pub(super) async fn try_expire_brings_a_fixed_end(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), base());
    store.must_set(&key, "sliding", Expiry::Sliding(millis(60_000))).await?;
    let (written, ()) = measured(store.must_expire(&key, "sliding", ttl)).await?;
    read_until(subject, &key, written, ttl).await?;
    store.must_not_show(&key, "try_expire gave it a fixed end").await
}

pub(super) async fn try_add_prolongs_nothing(subject: &Subject) -> Verdict {
    let (store, key, ttl) = (&subject.store, key("k"), base());
    let (written, _) = measured(store.must_set(&key, "mine", Expiry::Sliding(ttl))).await?;
    while Instant::now() < subject.tolerance.latest_end(written, ttl) {
        let answer = store.try_add(&key, "added".into(), ttl).await?;
        if let AddOutcome::Added(_) = answer {
            ensure!(
                Instant::now() >= subject.tolerance.earliest_end(written, ttl),
                "try_add wrote over an entry that had time left"
            );
            return Ok(());
        }
        sleep(ttl.as_duration() / 8).await;
    }
    store.must_add(&key, "added", ttl).await?;
    Ok(())
}

pub(super) async fn a_read_tells_the_end_that_it_brings(subject: &Subject) -> Verdict {
    let (store, key, idle) = (&subject.store, key("k"), millis(60_000));
    store.must_set(&key, "mine", Expiry::Sliding(idle)).await?;
    sleep(base().into()).await;
    let (read, entry) = measured(store.must_show(&key, "mine")).await?;
    // The read is what it lives on from, so that is where the bounds are measured.
    subject.tolerance.ensure_time_left(entry.time_left, read, idle, read)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Get,
    GetMany,
}

/// Reads an entry twice in each of its idle times, for four of them: each read that came in time must find it.
async fn lives_on(subject: &Subject, key: &Key, idle: Ttl, written: Span, read: Read) -> Verdict<Round> {
    let store = &subject.store;
    let mut last = written;
    for _ in 0..8 {
        sleep_until(last.returned + idle.as_duration() / 2).await;
        let look = async {
            Ok(match read {
                Read::Get => store.get(key).await?,
                Read::GetMany => store.cache().get_many(std::slice::from_ref(key)).await?.pop().flatten(),
            })
        };
        let (span, found) = measured(look).await?;
        if span.returned >= subject.tolerance.earliest_end(last, idle) {
            return Ok(Round::Undecided);
        }
        ensure!(
            found.is_some(),
            "it was gone {:?} after its last read, though it lives {idle:?} from each",
            span.returned - last.called
        );
        last = span;
    }
    Ok(Round::Decided)
}

/// Reads a key often until its end must have come.
async fn read_until(subject: &Subject, key: &Key, written: Span, ttl: Ttl) -> Verdict {
    while Instant::now() < subject.tolerance.latest_end(written, ttl) {
        let _ = subject.store.get(key).await?;
        sleep(ttl.as_duration() / 8).await;
    }
    Ok(())
}
