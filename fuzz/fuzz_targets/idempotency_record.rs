//! Whatever is stored under the key of a call: looking at it and beginning the call panic at nothing, agree with each
//! other, and show nothing that is not there.

#![no_main]

use std::num::NonZeroUsize;
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold_core::idempotency::{Begin, Call, Idempotency, PayloadKeys, RecordInfo, RecordState, Replay, Scope};
use leasehold_core::lock::Nonce;
use leasehold_core::{AtomicStore, CacheStore, Code, Error, ErrorKind, Expiry, Ttl};
use leasehold_memory::MemoryStore;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

#[derive(Debug, Arbitrary)]
struct Input {
    stored: Stored,
    /// Nothing for ever.
    ttl_millis: Option<u32>,
    has_first_level: bool,
}

#[derive(Debug, Arbitrary)]
enum Stored {
    Bytes(Vec<u8>),
    /// Bytes drawn at random hardly ever get past the first few; a record that was changed does.
    Record {
        state: State,
        changes: Vec<(u16, u8)>,
        kept: u16,
        tail: Vec<u8>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum State {
    InProgress,
    Answered,
    Sealed,
    Unkept,
}

fuzz_target!(|input: Input| {
    // A new one each time, so that nothing that runs on in the background piles up.
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(judge(input));
});

async fn judge(Input { stored, ttl_millis, has_first_level }: Input) {
    let stored = match stored {
        Stored::Bytes(bytes) => bytes,
        Stored::Record { state, changes, kept, tail } => {
            let mut record = record(state).await;
            for (at, byte) in changes {
                let at = usize::from(at) % record.len();
                record[at] = byte;
            }
            record.truncate(usize::from(kept));
            record.extend(tail);
            record
        }
    };
    let (store, scope) = (MemoryStore::new(), Scope::call(KEY));
    let key = scope.stored_key().expect("a valid key");
    let expiry = match ttl_millis {
        None => Expiry::Never,
        // Not so short that it ends meanwhile.
        Some(millis) => Expiry::After(Ttl::from_millis(u64::from(millis).max(10_000)).expect("a valid ttl")),
    };
    if store.set(&key, stored.clone().into(), expiry).await.is_err() {
        return;
    }
    let once = service(&store, true, has_first_level);
    let seen = once.inspect(&scope).await.map(|record| record.expect("something is stored"));
    let (first, again) = (begun(call(&once)).await, begun(call(&once)).await);
    agree(&seen, &first, &stored);
    agree(&seen, &again, &stored);
    assert_eq!(first.is_ok(), again.is_ok());
    let left = store.get(&key).await.expect("a store in memory answers").expect("nobody removes it");
    assert_eq!(left.value, stored, "looking and asking change nothing");
    let _ = once.purge(&scope).await.expect("anything can be purged");
    assert!(store.get(&key).await.expect("a store in memory answers").is_none());
}

/// Whether what was seen and what was answered can both be of these bytes.
fn agree(seen: &Result<RecordInfo, Error>, begun: &Result<Replay, Error>, stored: &[u8]) {
    let code = begun.as_ref().err().and_then(Error::code);
    match seen {
        Err(error) => {
            assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, Some(Code::NotReplayable)), "{error:#}");
            assert_eq!(code, Some(Code::NotReplayable), "what cannot be read is not answered");
        }
        Ok(record) => {
            let nonce = stored[7..23].try_into().expect("16 bytes");
            assert_eq!(record.nonce, Nonce::from_bytes(nonce));
            let operation = record.operation.as_bytes();
            assert!(stored[65..].starts_with(operation), "an operation that is not there: {record:?}");
            let rest = &stored[65 + operation.len()..];
            match (&record.state, begun) {
                (RecordState::Answered { bytes }, Ok(replay)) => {
                    assert_eq!(*bytes, rest.len());
                    let is_sealed = stored[6] == b's';
                    assert!(is_sealed || replay.as_bytes() == rest, "an answer that is not there");
                    assert_eq!(replay.nonce(), record.nonce);
                }
                (RecordState::InProgress { owner } | RecordState::OutcomeUnknown { owner }, Err(_)) => {
                    assert_eq!(owner.as_bytes(), &rest[16..]);
                    assert!(code.is_some());
                }
                (RecordState::Answered { .. } | RecordState::AnswerNotKept, Err(_)) => assert!(code.is_some()),
                (state, Ok(_)) => panic!("{state:?} was replayed"),
                (state, Err(error)) => panic!("a state that is new here: {state:?}, {error:#}"),
            }
        }
    }
}

const KEY: &str = "k";

fn service(store: &MemoryStore, is_sealed: bool, has_first_level: bool) -> Idempotency {
    let mut builder = Idempotency::builder(store.clone());
    if is_sealed {
        builder = builder.encrypt(PayloadKeys::new(1, [7; 32]));
    }
    if has_first_level {
        builder = builder.first_level(NonZeroUsize::MIN, Duration::from_secs(60));
    }
    builder.build()
}

fn call(once: &Idempotency) -> Call {
    once.call("charge", KEY, "42.00 EUR")
}

async fn begun(call: Call) -> Result<Replay, Error> {
    match call.begin().await? {
        Begin::Replay(replay) => Ok(replay),
        Begin::Claimed(claim) => panic!("something is stored, and it was claimed: {claim:?}"),
    }
}

/// A record as it is written.
async fn record(state: State) -> Vec<u8> {
    let (store, key) = (MemoryStore::new(), Scope::call(KEY).stored_key().expect("a valid key"));
    let once = service(&store, state == State::Sealed, false);
    let Ok(Begin::Claimed(claim)) = call(&once).begin().await else { panic!("nobody else is there") };
    match state {
        State::InProgress => drop(claim),
        State::Answered | State::Sealed => drop(claim.complete("the answer").await.expect("it is kept")),
        State::Unkept => drop(claim.complete_without_answer().await.expect("it is kept")),
    }
    store.get(&key).await.expect("a store in memory answers").expect("it was written").value.to_vec()
}
