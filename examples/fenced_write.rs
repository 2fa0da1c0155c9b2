//! Why a lease is not enough, and what is: a holder that was stopped past its ttl wakes up and writes. The register
//! refuses it by its fencing token.

use std::time::Duration;

use leasehold::fence::{Admission, FenceGate, FencePolicy};
use leasehold::lock::{Locks, Renewal};

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let store = leasehold::connect("memory://").await?;
    let locks = Locks::new(store.clone());
    // The balance lives in the store, with the highest token that has written it.
    let accounts = FenceGate::new(store);

    let request = || locks.lock("accounts:7").ttl(Duration::from_millis(200)).require_fencing();
    let slow = request().renewal(Renewal::Off).acquire().await?;
    println!("the slow one holds token {}", slow.fencing_token().expect("fencing is required"));

    // It is stopped here: a long garbage collection, a full disk, a laptop that was closed.
    tokio::time::sleep(Duration::from_millis(300)).await;

    let quick = request().acquire().await?;
    let token = quick.fencing_token().expect("fencing is required");
    let written = accounts.write("accounts:7", token, FencePolicy::Repeatable, "balance=70").await?;
    println!("the quick one wrote under token {token}: {written:?}");

    // Wrong would be: `if slow.check().is_ok() { write }`. The stop can as well come between the two.
    let token = slow.fencing_token().expect("fencing is required");
    match accounts.write("accounts:7", token, FencePolicy::Repeatable, "balance=50").await? {
        Admission::Admitted(()) => unreachable!("an older token"),
        Admission::Stale { highest } => println!("the slow one was refused: {token} is older than {highest}"),
    }

    let (_, balance) = accounts.read("accounts:7").await?.expect("it was written");
    println!("{}", String::from_utf8_lossy(&balance));
    Ok(())
}
