//! What the tests of this crate share.
#![allow(dead_code)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // as in the tests: a panic is how they fail

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{AddOutcome, AtomicStore, Entry, Error, Key, Revision, Ttl};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::{Family, Proxy, RedisServer};
use tracing_subscriber::fmt::MakeWriter;

/// Long enough for a busy machine, and only ever waited for in full by a test that fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a test on a fresh server of each family.
pub(crate) async fn on_each(test: impl AsyncFn(RedisServer)) {
    for family in Family::ALL {
        test(RedisServer::builder().family(family).start().await).await;
    }
}

pub(crate) fn config(server: &RedisServer) -> RedisConfig {
    RedisConfig::from_url(&server.url()).unwrap()
}

pub(crate) async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(config(server)).await.unwrap()
}

/// The configuration of a store behind a link, with a deadline that a test can wait out.
pub(crate) fn config_through(server: &RedisServer, link: &Proxy, deadline: Duration) -> RedisConfig {
    let config = RedisConfig::from_url(&server.url_through(link.addr())).unwrap();
    config.with_deadline(deadline).with_connect_timeout(deadline)
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

pub(crate) const MINUTE: u64 = 60_000;

pub(crate) async fn added(store: &impl AtomicStore, key: &Key, value: &'static str) -> Revision {
    match store.try_add(key, Bytes::from(value), ttl(MINUTE)).await {
        Ok(AddOutcome::Added(revision)) => revision,
        other => panic!("{key:?} was not added: {other:?}"),
    }
}

pub(crate) async fn value(store: &impl AtomicStore, key: &Key) -> Option<Bytes> {
    store.get(key).await.unwrap().map(|Entry { value, .. }| value)
}

/// Polls once, which sends what is to be sent as far as it gets without waiting.
pub(crate) async fn begin<T>(future: &mut Pin<&mut (impl Future<Output = T> + ?Sized)>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// All the faces of an error.
pub(crate) fn faces(error: &Error) -> String {
    format!("{error}\n{error:#}\n{error:?}\n{error:#?}")
}

/// How often clients have called a command, by `INFO commandstats`.
pub(crate) async fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// What is traced on this thread while the guard lives.
pub(crate) fn traced() -> (Trace, tracing::subscriber::DefaultGuard) {
    let trace = Trace::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(trace.clone()).with_ansi(false);
    (trace, tracing::subscriber::set_default(subscriber.finish()))
}

#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<u8>>>);

impl Trace {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Trace {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Trace {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}
