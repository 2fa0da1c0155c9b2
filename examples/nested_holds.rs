//! Holds within holds: a function that takes the lease calls another that takes it too. Who is the same is said
//! explicitly; neither the thread nor the task is.

use leasehold::lock::{Locks, Owner, Release};

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let locks = Locks::new(leasehold::connect("memory://").await?);
    // One owner for one piece of work, handed down. Not one for the process: two pieces of work would be one holder.
    let work = Owner::new("close the month");

    let outer = locks.lock("ledger").owner(&work).acquire().await?;
    post_interest(&locks, &work).await?;
    outer.check()?;
    println!("the outer hold is still ours");

    // A share does the same without an owner, where the lease itself is at hand.
    let share = outer.share()?;
    assert_eq!(outer.release().await?, Release::StillShared);
    assert_eq!(share.release().await?, Release::Released);
    println!("the last one released it");
    Ok(())
}

async fn post_interest(locks: &Locks, work: &Owner) -> Result<(), leasehold::Error> {
    let inner = locks.lock("ledger").owner(work).acquire().await?;
    println!("the inner hold did not wait for the outer one");
    assert_eq!(inner.release().await?, Release::StillShared);
    Ok(())
}
