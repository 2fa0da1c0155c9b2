//! A consumer of messages that come more than once: each is handled once, and acknowledged only then.

use leasehold::Code;
use leasehold::idempotency::{CallError, Idempotency, Inbox};

/// What a broker delivers, at least once.
#[derive(Clone)]
struct Message {
    id: &'static str,
    body: &'static str,
}

/// What the broker is told.
#[derive(Debug, PartialEq)]
enum Verdict {
    Acknowledge,
    DeliverAgain,
    /// To the messages that somebody has to look at.
    SetAside,
}

async fn handle(message: &Message, attempt: u32) -> Result<(), &'static str> {
    if message.body == "flaky" && attempt == 1 {
        return Err("the printer is out of paper");
    }
    println!("  handled {}: {}", message.id, message.body);
    Ok(())
}

async fn receive(inbox: &Inbox, message: &Message, attempt: u32) -> Verdict {
    match inbox.message(message.id).try_run(async || handle(message, attempt).await).await {
        // Handled now, or before.
        Ok(_) => Verdict::Acknowledge,
        // Its handler failed: the message is free for the next delivery.
        Err(CallError::Work(error)) => {
            println!("  {error}");
            Verdict::DeliverAgain
        }
        Err(CallError::Call(error)) => {
            println!("  {error}");
            match error.code() {
                // Its outcome is unknown, or its id is no key: it would come again for nothing, and for ever.
                Some(Code::NotReplayable | Code::InvalidKey) => Verdict::SetAside,
                // Another delivery of it is being handled, or the store is away: either way it has to come again.
                _ => Verdict::DeliverAgain,
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let once = Idempotency::new(leasehold::connect("memory://").await?);
    let (billing, shipping) = (Inbox::new(once.clone(), "billing"), Inbox::new(once, "shipping"));

    let deliveries = [
        (Message { id: "m-1", body: "invoice" }, 1, Verdict::Acknowledge),
        (Message { id: "m-1", body: "invoice" }, 2, Verdict::Acknowledge),
        (Message { id: "m-2", body: "flaky" }, 1, Verdict::DeliverAgain),
        (Message { id: "m-2", body: "flaky" }, 2, Verdict::Acknowledge),
        (Message { id: "m-2", body: "flaky" }, 3, Verdict::Acknowledge),
        (Message { id: "m 3", body: "invoice" }, 1, Verdict::SetAside),
    ];
    for (message, attempt, wanted) in deliveries {
        println!("{} for the {attempt}. time", message.id);
        let verdict = receive(&billing, &message, attempt).await;
        println!("  {verdict:?}");
        assert_eq!(verdict, wanted);
    }

    println!("m-1 for another consumer");
    assert_eq!(receive(&shipping, &Message { id: "m-1", body: "parcel" }, 1).await, Verdict::Acknowledge);
    Ok(())
}
