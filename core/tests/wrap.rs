//! What each wrapper adds. That it takes nothing away, the conformance suite says.

#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use leasehold_conformance::{Fault, Faulty, Operation, Plan};
use leasehold_core::wrap::{Prefixed, Traced, WithTimeout};
use leasehold_core::{
    AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Hint, Key, KeyPrefix, Namespace, Outcome, Ttl,
};
use leasehold_memory::MemoryStore;
use metrics_util::debugging::DebuggingRecorder;
use tracing_subscriber::fmt::format::FmtSpan;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn below(store: &MemoryStore, namespace: &str) -> Prefixed<MemoryStore> {
    Prefixed::new(store.clone(), Namespace::new(namespace).unwrap())
}

#[tokio::test]
async fn namespaces_of_one_store_do_not_meet() {
    let store = MemoryStore::new();
    // The second is what a careless joining would make of the first and its key.
    let (one, other) = (below(&store, "tenant"), below(&store, "tenant:a"));
    one.set(&key("a:b"), "one".into(), Expiry::Never).await.unwrap();
    other.set(&key("b"), "other".into(), Expiry::Never).await.unwrap();
    assert_eq!(one.get(&key("a:b")).await.unwrap().unwrap().value, "one");
    assert_eq!(other.get(&key("b")).await.unwrap().unwrap().value, "other");
    assert_eq!(store.len(), 2);

    let everything = KeyPrefix::new("").unwrap();
    assert_eq!(one.scan(&everything, None).await.unwrap().keys, [key("a:b")]);
    assert_eq!(other.scan(&everything, None).await.unwrap().keys, [key("b")]);
    assert_eq!(one.remove_many(&[key("b"), key("a:b")]).await.unwrap(), [Outcome::NotApplied, Outcome::Applied]);
    assert_eq!(other.get_many(&[key("b")]).await.unwrap()[0].as_ref().unwrap().value, "other");
}

#[tokio::test]
async fn hints_come_by_the_names_of_the_namespace() {
    let store = MemoryStore::new();
    let (one, other) = (below(&store, "one"), below(&store, "other"));
    let mut of_key = one.watch(&key("a")).await.unwrap();
    let mut of_prefix = one.watch_prefix(&KeyPrefix::new("").unwrap()).await.unwrap();
    other.set(&key("a"), "x".into(), Expiry::Never).await.unwrap();
    assert!(of_key.next().now_or_never().is_none() && of_prefix.next().now_or_never().is_none());
    one.set(&key("a"), "x".into(), Expiry::Never).await.unwrap();
    assert_eq!(of_key.next().await, Some(Hint::Changed(key("a"))));
    assert_eq!(of_prefix.next().await, Some(Hint::Changed(key("a"))));
}

#[tokio::test(start_paused = true)]
async fn an_operation_over_its_limit_is_a_timeout_of_unknown_effect() {
    let faulty = Faulty::new(MemoryStore::new());
    let limited = WithTimeout::new(faulty.clone(), Duration::from_secs(1));
    let (name, value, ttl) = (key("a"), Bytes::from_static(b"x"), Ttl::MAX);
    faulty.follow(Operation::ALL.into_iter().fold(Plan::none(), |plan, operation| {
        plan.nth(operation, 1, Fault::ApplyAndHang).nth(operation, 2, Fault::DelayAnswer(Duration::from_millis(900)))
    }));
    for slow in [true, false] {
        let everything = KeyPrefix::new("").unwrap();
        let errors = [
            limited.try_add(&name, value.clone(), ttl).await.err(),
            limited.try_replace(&name, b"x", value.clone(), ttl).await.err(),
            limited.try_expire(&name, b"x", ttl).await.err(),
            limited.get(&name).await.err(),
            limited.watch(&name).await.err(),
            limited.try_remove(&name, b"x").await.err(),
            limited.set(&name, value.clone(), Expiry::Never).await.err(),
            limited.remove(&name).await.err(),
            limited.get_many(std::slice::from_ref(&name)).await.err(),
            limited.set_many(Vec::new()).await.err(),
            limited.remove_many(&[]).await.err(),
            limited.scan(&everything, None).await.err(),
            limited.watch_prefix(&everything).await.err(),
        ];
        for error in errors {
            let seen = error.map(|error| (error.kind(), error.effect(), error.store()));
            assert_eq!(seen, slow.then_some((ErrorKind::Timeout, Effect::Unknown, Some("memory"))));
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the traced store logs and counts of a few operations.
async fn traced(keys: bool) -> (String, String) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    {
        let _logging = tracing::subscriber::set_default(subscriber);
        let _recording = metrics::set_default_local_recorder(&recorder);
        let faulty = Faulty::new(MemoryStore::new());
        faulty.follow(
            Plan::none().nth(Operation::Get, 2, Fault::Refuse).nth(Operation::Get, 3, Fault::LoseAnswer).nth(
                Operation::Get,
                4,
                Fault::Hang,
            ),
        );
        let store = Traced::new(faulty);
        let store = if keys { store.with_keys() } else { store };
        let name = key("orders:someone");
        let _ = store.try_add(&name, "secret-value".into(), Ttl::MAX).await.unwrap();
        let _ = store.try_add(&name, "secret-value".into(), Ttl::MAX).await.unwrap();
        store.get(&name).await.unwrap();
        store.get(&name).await.unwrap_err();
        store.get(&name).await.unwrap_err();
        // Given up after it was asked for, and before.
        assert!(store.get(&name).now_or_never().is_none());
        drop(store.try_remove(&name, b"x"));
    }
    let counted = snapshots
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| format!("{:?} {value:?}\n", key.key()))
        .collect();
    (String::from_utf8(log.0.lock().unwrap().clone()).unwrap(), counted)
}

#[tokio::test]
async fn spans_and_metrics_tell_operation_store_and_outcome() {
    let (log, counted) = traced(false).await;
    for told in
        ["operation=\"try_add\"", "store=\"memory\"", "outcome=\"added\"", "outcome=\"exists\"", "outcome=\"found\""]
    {
        assert!(log.contains(told), "{told} is in {log}");
    }
    for told in ["outcome=\"error\"", "outcome=\"error_of_unknown_effect\"", "the store could not answer"] {
        assert!(log.contains(told), "{told} is in {log}");
    }
    assert!(log.contains("outcome=\"dropped\""), "what was given up is in {log}");
    for name in
        ["leasehold_store_operations_total", "leasehold_store_operation_seconds", "try_add", "exists", "dropped"]
    {
        assert!(counted.contains(name), "{name} is in {counted}");
    }
    assert!(!counted.contains("try_remove"), "what was never asked for is not in {counted}");
}

#[tokio::test]
async fn keys_are_told_on_request_and_values_never() {
    let (without, counted) = traced(false).await;
    let (with, _) = traced(true).await;
    assert!(!without.contains("someone") && !counted.contains("someone"));
    assert!(with.contains("key=\"orders:someone\""), "{with}");
    assert!(!without.contains("secret-value") && !with.contains("secret-value"));
}
