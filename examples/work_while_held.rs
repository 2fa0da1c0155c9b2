//! Work that stops when its lease is lost: here an operator takes the lease away in the middle of it.

use std::time::Duration;

use leasehold::lock::Locks;

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let locks = Locks::new(leasehold::connect("memory://").await?);
    let lease = locks.lock("reports:daily").ttl(Duration::from_millis(600)).acquire().await?;

    let operator = {
        let locks = locks.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            locks.force_release("reports:daily").await
        })
    };

    let work = async {
        for page in 1.. {
            println!("page {page}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // The work is dropped at one of its awaits, so between two pages and never within one. What must be undone then,
    // a guard in the work undoes when it is dropped.
    match lease.while_held(work).await {
        Ok(()) => unreachable!("there is always another page"),
        Err(lost) => println!("stopped: {lost}"),
    }

    let taken = operator.await.expect("the operator does not panic")?;
    println!("an operator had taken it from {}", taken.expect("it was held").owner);
    // Whoever holds it now keeps it.
    println!("released: {:?}", lease.release().await?);
    Ok(())
}
