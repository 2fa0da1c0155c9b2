use leasehold_core::Code;
use leasehold_core::idempotency::{Answer, CallError, Idempotency, Inbox};
use leasehold_memory::MemoryStore;
use tokio::time::sleep;

use crate::support::{Work, seconds};

#[tokio::test(start_paused = true)]
async fn a_message_is_handled_once() {
    let (inbox, handled) = (Inbox::new(Idempotency::new(MemoryStore::new()), "billing"), Work::default());
    for replayed in [false, true, true] {
        let answer = inbox.message("m-1").run(async || handled.run()).await.unwrap();
        assert_eq!(answer, Answer { value: 1, replayed });
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_handler_leaves_the_message_deliverable() {
    let inbox = Inbox::new(Idempotency::new(MemoryStore::new()), "billing");
    let failed = inbox.message("m-1").try_run(async || Err::<(), _>("no")).await;
    assert!(matches!(failed, Err(CallError::Work("no"))));
    assert!(!inbox.message("m-1").try_run(async || Ok::<_, &str>(())).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_not_acknowledged_while_the_first_is_handled() {
    let inbox = Inbox::new(Idempotency::new(MemoryStore::new()), "billing");
    let first = inbox.message("m-1").try_run(async || {
        sleep(seconds(2.0)).await;
        Err::<(), _>("it failed in the end")
    });
    let duplicate = async {
        sleep(seconds(1.0)).await;
        inbox.message("m-1").try_run(async || Ok::<(), &str>(())).await
    };
    let (first, duplicate) = tokio::join!(first, duplicate);
    assert!(first.is_err());
    assert_eq!(duplicate.unwrap_err().code(), Some(Code::CallInProgress), "so that it is delivered again");
    assert!(!inbox.message("m-1").try_run(async || Ok::<(), &str>(())).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn two_consumers_of_one_message_are_independent() {
    let once = Idempotency::new(MemoryStore::new());
    let handled = Work::default();
    for replayed in [false, true] {
        for (number, consumer) in (1..).zip(["billing", "shipping", "billing:m-1"]) {
            let answer = Inbox::new(once.clone(), consumer).message("m-1").run(async || handled.run()).await;
            assert_eq!(answer.unwrap(), Answer { value: number, replayed });
        }
    }
    let call = once.call("handle", "m-1", &()).principal("billing");
    assert!(!call.run(async || 9).await.unwrap().replayed, "a call and a message never meet");
}
