use futures_util::FutureExt;
use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::lock::{Attempt, Owner, Release};
use tokio::time::{advance, sleep, timeout};

use crate::support::{RESOURCE, Rig, seconds, try_once};

#[tokio::test(start_paused = true)]
async fn the_last_share_that_is_released_ends_the_lease() {
    let rig = Rig::new();
    let first = rig.a.lock(RESOURCE).ttl(seconds(3.0)).acquire().await.unwrap();
    let second = first.share().unwrap();
    let third = second.share().unwrap();
    assert_eq!(first.fencing_token(), third.fencing_token());
    assert_eq!(rig.a.stats().held, 1);
    drop(second);
    assert_eq!(first.release().await.unwrap(), Release::StillShared);
    sleep(seconds(10.0)).await;
    third.check().unwrap();
    assert!(try_once(&rig.b).await.is_none());
    assert_eq!(third.release().await.unwrap(), Release::Released);
    assert!(rig.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn one_owner_re_enters_and_two_of_one_label_do_not() {
    let rig = Rig::new();
    let owner = Owner::new("worker");
    let outer = rig.a.lock(RESOURCE).owner(&owner).acquire().await.unwrap();
    let inner = rig.a.lock(RESOURCE).owner(owner.clone()).acquire().await.unwrap();
    assert_eq!(outer.nonce(), inner.nonce());
    let namesake = rig.a.lock(RESOURCE).owner(Owner::new("worker")).wait(seconds(0.0)).acquire().await;
    assert!(namesake.is_err());
    assert_eq!(outer.release().await.unwrap(), Release::StillShared);
    inner.check().unwrap();
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    // What is released is not re-entered.
    let anew = rig.a.lock(RESOURCE).owner(&owner).acquire().await.unwrap();
    assert!(anew.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_owner_re_enters_one_resource_of_one_store_only() {
    let rig = Rig::new();
    let owner = Owner::new("worker");
    let held = rig.a.lock(RESOURCE).owner(&owner).acquire().await.unwrap();
    let other = rig.a.lock("other").owner(&owner).acquire().await.unwrap();
    assert_ne!(held.nonce(), other.nonce());
    let elsewhere = rig.b.lock(RESOURCE).owner(&owner).wait(seconds(0.0)).acquire().await;
    assert!(elsewhere.is_err(), "another `Locks` may be another store");
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_shared() {
    let rig = Rig::new();
    let owner = Owner::new("worker");
    let lost = rig.a.lock(RESOURCE).ttl(seconds(3.0)).owner(&owner).acquire().await.unwrap();
    advance(seconds(4.0)).await;
    assert!(lost.share().is_err());
    let fresh = rig.a.lock(RESOURCE).owner(&owner).acquire().await.unwrap();
    assert_ne!(fresh.nonce(), lost.nonce());
    drop(lost);
    rig.a.close().await;
    fresh.check().unwrap();
    assert_eq!(rig.holder().await.unwrap().nonce, fresh.nonce());
}

#[tokio::test(start_paused = true)]
async fn two_of_one_owner_never_wait_for_each_other() {
    // The one is the head of the queue, or waits behind a stranger.
    for behind_a_stranger in [false, true] {
        let rig = Rig::new();
        let owner = Owner::new("worker");
        let b = try_once(&rig.b).await.unwrap();
        let stranger = behind_a_stranger.then(|| tokio::spawn(rig.a.lock(RESOURCE).acquire()));
        sleep(seconds(0.1)).await;
        let one = tokio::spawn(rig.a.lock(RESOURCE).owner(&owner).acquire());
        sleep(seconds(0.1)).await;
        // It is granted to the other before anybody is woken by the release, and heard of later than held.
        rig.link.follow(Plan::none().nth(Operation::TryAdd, 1, Fault::DelayAnswer(seconds(1.0))));
        let mut other = Box::pin(rig.a.lock(RESOURCE).owner(&owner).try_acquire());
        assert_eq!(b.release().now_or_never().unwrap().unwrap(), Release::Released);
        assert!((&mut other).now_or_never().is_none());
        let Attempt::Acquired(other) = other.await.unwrap() else { panic!("it was free") };
        let one = timeout(seconds(1.0), one).await.expect("while the other holds it").unwrap().unwrap();
        assert_eq!(one.nonce(), other.nonce());
        assert!(stranger.is_none_or(|stranger| !stranger.is_finished()));
    }
}
