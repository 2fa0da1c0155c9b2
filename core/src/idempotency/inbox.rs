use crate::idempotency::call::Call;
use crate::idempotency::fingerprint::Fingerprint;
use crate::idempotency::scope::Scope;
use crate::idempotency::service::Idempotency;

/// The messages of one consumer, each to be handled once though it is delivered again.
///
/// A message whose [`Call`] has an answer was handled, now or before: acknowledge it. After an error do not: its handler
/// failed, or another delivery of it is being handled, and it has to come again.
///
/// Two codes say that it would come again for nothing, so that it belongs where somebody looks at it:
///
/// - [`Code::NotReplayable`](crate::Code::NotReplayable): its outcome is unknown, or its record cannot be read.
/// - [`Code::InvalidKey`](crate::Code::InvalidKey): its id is empty, too long, or has white space or a control
///   character. Ids that strangers make up are better digested first, and the digest given in their place.
///
/// ```
/// # use leasehold_core::{Code, idempotency::{CallError, Idempotency, Inbox}, Store};
/// # struct Message { id: String }
/// # impl Message { fn acknowledge(self) {} fn deliver_again_later(self) {} fn set_aside(self) {} }
/// # async fn handle(_message: &Message) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example(store: Store, message: Message) {
/// let inbox = Inbox::new(Idempotency::new(store), "billing");
///
/// match inbox.message(&message.id).try_run(async || handle(&message).await).await {
///     Ok(_) => message.acknowledge(),
///     Err(error) if matches!(error.code(), Some(Code::NotReplayable | Code::InvalidKey)) => message.set_aside(),
///     Err(_) => message.deliver_again_later(),
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    once: Idempotency,
    consumer: String,
}

impl Inbox {
    /// What every message is the operation of.
    const OPERATION: &'static str = "handle";

    /// The inbox of `consumer`. Another consumer of the same messages has one of its own.
    pub fn new(once: Idempotency, consumer: impl Into<String>) -> Self {
        Self { once, consumer: consumer.into() }
    }

    /// The call that handles the message with this id. A message is told from another by its id alone: when it comes
    /// again, its body may say that it does.
    pub fn message(&self, id: impl Into<String>) -> Call {
        let scope = Scope::message(self.consumer.as_str(), id);
        self.once.call_in(scope, Self::OPERATION, Fingerprint::of_parts([]))
    }
}
