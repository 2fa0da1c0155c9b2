//! The first lease: acquire it, work under it, give it back. And what another hears meanwhile.

use std::time::Duration;

use leasehold::lock::{Attempt, Locks};

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    // "redis://…" or "postgres://…" here, and the rest stays as it is.
    let store = leasehold::connect("memory://").await?;
    let locks = Locks::new(store);

    let lease = locks.lock("orders:42").ttl(Duration::from_secs(10)).acquire().await?;
    println!("acquired {}, good for another {:?}", lease.resource(), lease.remaining());

    match locks.lock("orders:42").try_acquire().await? {
        Attempt::Acquired(_) => unreachable!("two at once"),
        Attempt::Held(holder) => println!("another is told: held by {holder}"),
    }

    // It renews itself while this goes on, however long that takes.
    lease.while_held(ship(42)).await?;
    println!("and given back: {:?}", lease.release().await?);

    // The same in one go: acquire, work, release.
    let shipped = locks.lock("orders:43").run(async |_lease| ship(43).await).await?;
    println!("order {shipped} too");
    Ok(())
}

async fn ship(order: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("shipped order {order}");
    order
}
