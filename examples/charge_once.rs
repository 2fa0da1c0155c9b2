//! A function that must have its effect once, however often its caller asks: the first answer is replayed.

use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::Code;
use leasehold::idempotency::Idempotency;
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Charge {
    card: String,
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt(u32);

/// A business failure is an answer like any other: it is recorded, and replayed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Declined;

static CHARGES: AtomicU32 = AtomicU32::new(0);

async fn charge(charge: &Charge) -> Result<Receipt, Declined> {
    if charge.cents > 100_000 {
        return Err(Declined);
    }
    Ok(Receipt(CHARGES.fetch_add(1, Ordering::AcqRel) + 1))
}

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    // "redis://…" or "postgres://…" here, and the rest stays as it is.
    let once = Idempotency::new(leasehold::connect("memory://").await?);
    // The caller makes the key, and sends the same one when it has heard no answer and asks again.
    let key = "3f1c9e7a";
    let order = Charge { card: "tok_1".to_owned(), cents: 4_200 };

    for _ in 0..3 {
        let answer = once.call("charge", key, &order).tenant("shop-7").run(async || charge(&order).await).await?;
        println!("{:?} (replayed: {})", answer.value, answer.replayed);
        assert_eq!(answer.value, Ok(Receipt(1)));
    }
    assert_eq!(CHARGES.load(Ordering::Acquire), 1);

    // The key of another customer is another key.
    let other = once.call("charge", key, &order).tenant("shop-8").run(async || charge(&order).await).await?;
    assert_eq!(other.value, Ok(Receipt(2)));

    // The same key for something else is a mistake of the caller's, and nothing runs.
    let dearer = Charge { cents: 4_300, ..order };
    match once.call("charge", key, &dearer).tenant("shop-7").run(async || charge(&dearer).await).await {
        Ok(answer) => unreachable!("another payload got {answer:?}"),
        Err(error) => {
            println!("{error}");
            assert_eq!(error.code(), Some(Code::PayloadMismatch));
        }
    }
    Ok(())
}
