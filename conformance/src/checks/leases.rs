//! Leases on top of the store: what all the primitives are for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::lock::{Attempt, Holder, Lease, LockRequest, Locks, Release, Renewal};
use leasehold_core::{ErrorKind, Key, Ttl};
use tokio::time::{Instant, sleep, timeout};

use crate::handle::Handle;
use crate::subject::{Subject, key, long};
use crate::timing::{Round, Span, measured};
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

mod faults;

pub(super) use faults::survive_every_single_fault;

pub(super) async fn have_one_holder_at_a_time(subject: &Subject) -> Verdict {
    const TASKS: usize = 8;
    const TURNS: u32 = 4;
    let managers = [managed(&subject.store), managed(&subject.another_handle().await?)];
    let (holders, turns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    subject
        .at_once(TASKS, |task| {
            let (locks, holders, turns) = (managers[task % 2].clone(), holders.clone(), turns.clone());
            async move {
                for _ in 0..TURNS {
                    let lease = got(&locks, "k").await?;
                    let others = holders.fetch_add(1, Ordering::AcqRel);
                    sleep(Duration::from_millis(1)).await;
                    holders.fetch_sub(1, Ordering::AcqRel);
                    ensure!(others == 0, "{} tasks hold one lease at once", others + 1);
                    turns.fetch_add(1, Ordering::AcqRel);
                    released(lease, Release::Released).await?;
                }
                Ok(())
            }
        })
        .await?;
    ensure!(turns.load(Ordering::Acquire) == TASKS as u32 * TURNS, "some tasks never got their turn");
    Ok(())
}

pub(super) async fn have_rising_tokens(subject: &Subject) -> Verdict {
    let managers = [managed(&subject.store), managed(&subject.another_handle().await?)];
    let mut last = None;
    for turn in 0..10 {
        let lease = managers[turn % 2].lock("k").require_fencing().acquire().await?;
        let token = lease.fencing_token();
        ensure!(token.is_some() && token > last, "tokens must rise, and {token:?} came after {last:?}");
        last = token;
        released(lease, Release::Released).await?;
    }
    Ok(())
}

/// A holder that comes back after its lease has ended frees nobody else's.
pub(super) async fn are_released_by_their_holder_only(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let (asked, former) = measured(acquired_in_time(fixed(&locks, key, ttl))).await?;
            let Some(former) = former else { return Ok(Round::Undecided) };
            subject.tolerance.past_the_end(asked, ttl).await;
            let present = acquired(others.lock(key).ttl(long().into())).await?;
            released(former, Release::AlreadyLost).await?;
            present.check()?;
            let holder = locks.inspect(key).await?;
            ensure!(
                holder.is_some_and(|holder| holder.nonce == present.nonce()),
                "the release of a lease that had ended freed the one after it"
            );
            released(present, Release::Released).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn are_lost_before_another_gets_them(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let former = acquired_in_time(fixed(&locks, key, ttl)).await?;
            let Some(former) = former else { return Ok(Round::Undecided) };
            let next = others.lock(key).ttl(long().into()).acquire().await?;
            ensure!(former.check().is_err(), "another got the lease while its holder still counts on it");
            let lost = timeout(Duration::from_secs(5), former.lost()).await;
            ensure!(lost.is_ok(), "the lease is lost, and its holder is not told");
            released(next, Release::Released).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn are_kept_by_renewal(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let lease = acquired_in_time(locks.lock(key).ttl(ttl.into()).renewal(Renewal::Auto)).await?;
            let Some(lease) = lease else { return Ok(Round::Undecided) };
            let until = Instant::now() + ttl.as_duration() * 3;
            while Instant::now() < until {
                let attempt = others.lock(key).try_acquire().await?;
                // Lost by a renewal that came too late: the machine's fault, unless it goes on being so.
                if lease.check().is_err() {
                    return Ok(Round::Undecided);
                }
                ensure_matches!(attempt, Attempt::Held(_), "another got a lease that is renewed");
                sleep(ttl.as_duration() / 10).await;
            }
            // Lost after it was looked at last, by such a renewal.
            if lease.release().await? == Release::AlreadyLost {
                return Ok(Round::Undecided);
            }
            Ok(Round::Decided)
        })
        .await
}

/// A hint may be lost, and then who waits looks again when the lease would end: so that is not far off.
pub(super) async fn go_to_who_waits_after_a_release(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds_from(2_000, async |key, ttl| {
            let lease = acquired_in_time(locks.lock(key).ttl(ttl.into())).await?;
            let Some(lease) = lease else { return Ok(Round::Undecided) };
            let waiting = others.lock(key).ttl(ttl.into()).wait(PATIENCE);
            let waiter = tokio::spawn(async move { waiting.acquire().await });
            sleep(Duration::from_millis(100)).await;
            let ended_early = waiter.is_finished();
            // Lost by a renewal that came too late: the machine's fault, unless it goes on being so.
            if lease.check().is_err() {
                return Ok(Round::Undecided);
            }
            ensure!(!ended_early, "who waits for a lease came to an end while it is held");
            if lease.release().await? == Release::AlreadyLost {
                return Ok(Round::Undecided);
            }
            let next = match waiter.await {
                Ok(next) => next?,
                Err(error) => return Stop::failed(format!("who waits ended badly: {error}")),
            };
            let _ = next.release().await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn go_to_who_waits_after_their_end(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let lease = acquired_in_time(fixed(&locks, key, ttl)).await?;
            let Some(lease) = lease else { return Ok(Round::Undecided) };
            // Its holder is no more: nobody releases it.
            std::mem::forget(lease);
            let next = others.lock(key).ttl(long().into()).wait(PATIENCE).acquire().await?;
            released(next, Release::Released).await?;
            Ok(Round::Decided)
        })
        .await
}

pub(super) async fn leave_nothing_behind(subject: &Subject) -> Verdict {
    let (store, locks) = (&subject.store, managed(&subject.store));
    let stored = key("lock:k");
    let lease = acquired(locks.lock("k")).await?;
    ensure!(store.get(&stored).await?.is_some(), "a lease that is held must be in the store");
    released(lease, Release::Released).await?;
    store.must_not_show(&stored, "the lease was released").await?;
    drop(acquired(locks.lock("k")).await?);
    locks.close().await;
    store.must_not_show(&stored, "the lease was dropped").await?;
    if store.has_cache() {
        let left = store.scan_all("").await?;
        ensure!(left.is_empty(), "leases that are over left {left:?} behind");
    }
    Ok(())
}

pub(super) async fn are_kept_after_their_release_if_asked(subject: &Subject) -> Verdict {
    let locks = managed(&subject.store);
    let others = managed(&subject.another_handle().await?);
    subject
        .rounds(async |key, ttl| {
            let (asked, lease) = measured(acquired(locks.lock(key).ttl(long().into()))).await?;
            let (parked, release) = measured(async { Ok(lease.release_no_sooner_than(ttl.into()).await?) }).await?;
            ensure_matches!(release, Release::Released, "the lease was held when it was released");
            // It counts from the acquisition on, and what is left was sent with the release.
            let kept = Span { called: asked.called, returned: parked.returned };
            let earliest = subject.tolerance.earliest_end(kept, ttl);
            let mut round = Round::Undecided;
            loop {
                let attempt = others.lock(key).try_acquire().await?;
                if Instant::now() >= earliest {
                    break;
                }
                round = Round::Decided;
                ensure_matches!(attempt, Attempt::Held(_), "another got the lease before the time it is kept for");
                sleep(ttl.as_duration() / 10).await;
            }
            subject.tolerance.past_the_end(kept, ttl).await;
            // Whoever got it in the loop has dropped it.
            others.close().await;
            released(acquired(others.lock(key)).await?, Release::Released).await?;
            Ok(round)
        })
        .await
}

pub(super) async fn are_given_back_when_their_acquisition_is_dropped(subject: &Subject) -> Verdict {
    let others = managed(&subject.another_handle().await?);
    for polls in 1..=10_u32 {
        let locks = managed(&subject.store);
        let resource = key(&format!("k-{polls}"));
        let mut left = polls;
        {
            let mut acquisition = std::pin::pin!(locks.lock(&resource).ttl(long().into()).acquire());
            std::future::poll_fn(|cx| {
                left -= 1;
                match acquisition.as_mut().poll(cx) {
                    std::task::Poll::Pending if left > 0 => std::task::Poll::Pending,
                    // Dropped midway, or with the lease that it gave.
                    _ => std::task::Poll::Ready(()),
                }
            })
            .await;
        }
        // A request may still be on its way and granted late, so that this waits for its reclaim; not for its ttl.
        released(got(&others, resource.as_str()).await?, Release::Released).await?;
        if left > 0 {
            break;
        }
    }
    Ok(())
}

pub(super) async fn tell_who_holds_them(subject: &Subject) -> Verdict {
    let (locks, others) = (managed(&subject.store), managed(&subject.another_handle().await?));
    ensure!(others.inspect("k").await?.is_none(), "nobody holds the lease");
    let (asked, lease) = measured(acquired(locks.lock("k").ttl(long().into()).owner("it's me"))).await?;
    let (read, holder) = measured(async { Ok(others.inspect("k").await?) }).await?;
    let Some(holder) = holder else { return Stop::failed("a lease is held, and nobody is told to hold it") };
    ensure!(holder.nonce == lease.nonce() && holder.owner == "it's me", "another is told to hold the lease: {holder}");
    subject.tolerance.ensure_time_left(Some(holder.time_left), asked, long(), read)?;
    let freed = others.force_release("k").await?;
    ensure!(freed.is_some_and(|freed| freed.nonce == lease.nonce()), "who is forced to release is told");
    ensure!(others.inspect("k").await?.is_none(), "the lease was released by force");
    released(lease, Release::AlreadyLost).await
}

/// How long a lease may take to come to who waits for it, where nothing but the store can hold it up.
const PATIENCE: Duration = Duration::from_secs(20);

fn managed(store: &Handle) -> Locks {
    Locks::new(store.atomic())
}

/// A lease that ends by itself.
fn fixed(locks: &Locks, key: &Key, ttl: Ttl) -> LockRequest {
    locks.lock(key).ttl(ttl.into()).renewal(Renewal::Off)
}

/// Waits for a lease that will be free soon. Short waits one after the other, as a hint may be lost. The end of one can
/// come while a try is on its way, and on a busy machine does: that is `Timeout`, and the manager takes back what the
/// try may have got.
async fn got(locks: &Locks, resource: &str) -> Verdict<Lease> {
    let began = Instant::now();
    loop {
        match locks.lock(resource).ttl(long().into()).wait(Duration::from_millis(500)).acquire().await {
            Ok(lease) => return Ok(lease),
            // A store that is slow for once has not answered within the wait.
            Err(error)
                if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Timeout) && began.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// One try, which must succeed.
async fn acquired(request: LockRequest) -> Verdict<Lease> {
    match request.try_acquire().await? {
        Attempt::Acquired(lease) => Ok(lease),
        Attempt::Held(holder) => held(&holder),
    }
}

/// One try for a lease so short that a machine which stalls can get it when it is over.
async fn acquired_in_time(request: LockRequest) -> Verdict<Option<Lease>> {
    match request.try_acquire().await {
        Ok(Attempt::Acquired(lease)) => Ok(Some(lease)),
        Ok(Attempt::Held(holder)) => held(&holder),
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn held<T>(holder: &Holder) -> Verdict<T> {
    Stop::failed(format!("a lease that nobody holds must be got, and {holder} has it"))
}

async fn released(lease: Lease, wanted: Release) -> Verdict {
    let release = lease.release().await?;
    ensure!(release == wanted, "the release of the lease must say {wanted:?}, and says {release:?}");
    Ok(())
}
