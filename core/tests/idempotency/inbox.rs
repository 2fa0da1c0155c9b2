use leasehold_core::idempotency::{Answer, CallError, Idempotency, Inbox};
use leasehold_core::{Code, ErrorKind};
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

/// Were it the consumer in another word, this message would be one of the inbox of another.
#[tokio::test(start_paused = true)]
async fn a_message_has_a_consumer_and_no_principal() {
    let once = Idempotency::new(MemoryStore::new());
    let _ = Inbox::new(once.clone(), "shipping").message("m-1").run(async || 1).await.unwrap();
    let error = Inbox::new(once, "billing").message("m-1").principal("shipping").run(async || 2).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)));
}

/// What a broker would deliver again for ever is told apart from what has to come again.
#[tokio::test(start_paused = true)]
async fn an_id_that_is_no_key_is_told_by_its_code_each_time() {
    let inbox = Inbox::new(Idempotency::new(MemoryStore::new()), "billing");
    for id in ["", "two words", "m-1\n", &"m".repeat(600)] {
        for _ in 0..2 {
            let refused = inbox.message(id).try_run(async || Ok::<(), &str>(())).await.unwrap_err();
            assert_eq!(refused.code(), Some(Code::InvalidKey), "{id:?}");
        }
    }
}
