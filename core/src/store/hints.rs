use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use crate::store::{Key, KeyPrefix};

/// A hint that something may have changed. It may be spurious, and one may have been lost before it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// This key may have changed.
    Changed(Key),
    /// Anything that is listened for may have changed: the store could not tell for a while.
    Anything,
}

/// The stream of hints that [`watch`](crate::AtomicStore::watch) opens. Dropping it stops listening.
///
/// What has ended stays ended: a store's stream is not polled again after its end.
pub struct Hints(Option<Pin<Box<dyn Stream<Item = Hint> + Send>>>);

impl Hints {
    /// Takes a store's stream.
    pub fn new(stream: impl Stream<Item = Hint> + Send + 'static) -> Self {
        Self(Some(Box::pin(stream)))
    }

    /// The next hint, or nothing when none can come any more.
    ///
    /// # Cancel safety
    ///
    /// No hint is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Hint> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Forgets the hints that have come so far, before a look at the store that makes them needless.
    pub fn drain(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(_)) = Pin::new(&mut *self).poll_next(&mut nobody) {}
    }
}

impl Stream for Hints {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(None) };
        let hint = ready!(stream.as_mut().poll_next(cx));
        if hint.is_none() {
            self.0 = None;
        }
        Poll::Ready(hint)
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hints")
    }
}

/// Hands the hints of one store to those who listen in this process: a piece for authors of stores.
///
/// A slow listener costs a bounded amount of memory: what it has not read beyond 64 keys becomes one
/// [`Hint::Anything`]. While nobody listens, a change costs one atomic load.
#[derive(Debug, Clone, Default)]
pub struct HintHub(Arc<Hub>);

#[derive(Debug, Default)]
struct Hub {
    listening: AtomicUsize,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_key: HashMap<Key, Vec<Arc<Mailbox>>>,
    by_prefix: Vec<(KeyPrefix, Arc<Mailbox>)>,
}

impl HintHub {
    /// A hub that nobody listens to yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens for changes of one key.
    pub fn watch(&self, key: &Key) -> Hints {
        self.listen(Topic::Key(key.clone()))
    }

    /// Listens for changes of all keys that begin so.
    pub fn watch_prefix(&self, prefix: &KeyPrefix) -> Hints {
        self.listen(Topic::Prefix(prefix.clone()))
    }

    /// Tells those who listen that the key may have changed.
    pub fn changed(&self, key: &Key) {
        if self.is_idle() {
            return;
        }
        let listeners = self.0.listeners();
        for mailbox in listeners.by_key.get(key).into_iter().flatten() {
            mailbox.put(key);
        }
        for (_, mailbox) in listeners.by_prefix.iter().filter(|(prefix, _)| prefix.matches(key)) {
            mailbox.put(key);
        }
    }

    /// Tells everybody who listens that anything may have changed, as after a reconnect.
    pub fn anything(&self) {
        let listeners = self.0.listeners();
        let of_prefixes = listeners.by_prefix.iter().map(|(_, mailbox)| mailbox);
        for mailbox in listeners.by_key.values().flatten().chain(of_prefixes) {
            mailbox.overflow();
        }
    }

    /// Whether nobody listens.
    pub fn is_idle(&self) -> bool {
        self.0.listening.load(Ordering::Acquire) == 0
    }

    /// Whether anybody listens for this very key.
    pub fn is_watched(&self, key: &Key) -> bool {
        !self.is_idle() && self.0.listeners().by_key.contains_key(key)
    }

    fn listen(&self, topic: Topic) -> Hints {
        let mailbox = Arc::new(Mailbox::default());
        let mut listeners = self.0.listeners();
        match &topic {
            Topic::Key(key) => listeners.by_key.entry(key.clone()).or_default().push(mailbox.clone()),
            Topic::Prefix(prefix) => listeners.by_prefix.push((prefix.clone(), mailbox.clone())),
        }
        self.0.listening.fetch_add(1, Ordering::Release);
        drop(listeners);
        Hints::new(Listener { hub: self.0.clone(), topic, mailbox })
    }
}

impl Hub {
    // No code panics while it holds the lock, and a half-told hint would be no harm.
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Topic {
    Key(Key),
    Prefix(KeyPrefix),
}

#[derive(Debug)]
struct Listener {
    hub: Arc<Hub>,
    topic: Topic,
    mailbox: Arc<Mailbox>,
}

impl Stream for Listener {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        self.mailbox.take(cx).map(Some)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.hub.listeners();
        match &self.topic {
            Topic::Key(key) => {
                if let Some(of_key) = listeners.by_key.get_mut(key) {
                    of_key.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
                    if of_key.is_empty() {
                        listeners.by_key.remove(key);
                    }
                }
            }
            Topic::Prefix(_) => listeners.by_prefix.retain(|(_, mailbox)| !Arc::ptr_eq(mailbox, &self.mailbox)),
        }
        self.hub.listening.fetch_sub(1, Ordering::Release);
    }
}

#[derive(Debug, Default)]
struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    changed: VecDeque<Key>,
    anything: bool,
    reader: Option<Waker>,
}

impl Mailbox {
    const MOST: usize = 64;

    fn put(&self, key: &Key) {
        self.deliver(|mail| {
            if mail.anything || mail.changed.contains(key) {
                // The reader has not read the last hint yet, and that one says it all.
            } else if mail.changed.len() < Self::MOST {
                mail.changed.push_back(key.clone());
            } else {
                mail.changed.clear();
                mail.anything = true;
            }
        });
    }

    fn overflow(&self) {
        self.deliver(|mail| {
            mail.changed.clear();
            mail.anything = true;
        });
    }

    fn deliver(&self, write: impl FnOnce(&mut Mail)) {
        let mut mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut mail);
        let reader = mail.reader.take();
        drop(mail);
        // Woken after the guard is gone, or the reader would run into it.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn take(&self, cx: &Context<'_>) -> Poll<Hint> {
        let mut mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut mail.anything) {
            return Poll::Ready(Hint::Anything);
        }
        match mail.changed.pop_front() {
            Some(key) => Poll::Ready(Hint::Changed(key)),
            None => {
                mail.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_listener_hears_its_key_and_its_prefix_and_nothing_else() {
        let hub = HintHub::new();
        let mut one = hub.watch(&key("a:1"));
        let mut all = hub.watch_prefix(&KeyPrefix::new("a:").unwrap());
        hub.changed(&key("b:1"));
        hub.changed(&key("a:2"));
        hub.changed(&key("a:1"));
        assert_eq!(one.next().await, Some(Hint::Changed(key("a:1"))));
        assert_eq!(all.next().await, Some(Hint::Changed(key("a:2"))));
        assert_eq!(all.next().await, Some(Hint::Changed(key("a:1"))));
    }

    #[tokio::test]
    async fn what_a_slow_listener_missed_becomes_anything() {
        let hub = HintHub::new();
        let mut all = hub.watch_prefix(&KeyPrefix::new("").unwrap());
        for number in 0..1000 {
            hub.changed(&key(&number.to_string()));
        }
        assert_eq!(all.next().await, Some(Hint::Anything));
        hub.changed(&key("x"));
        assert_eq!(all.next().await, Some(Hint::Changed(key("x"))));
        hub.anything();
        assert_eq!(all.next().await, Some(Hint::Anything));
    }

    #[tokio::test]
    async fn a_stream_is_not_polled_after_its_end() {
        let mut ended = false;
        let mut hints = Hints::new(StreamOf(move || {
            assert!(!std::mem::replace(&mut ended, true), "polled after its end");
            Poll::Ready(None)
        }));
        hints.drain();
        hints.drain();
        assert_eq!(hints.next().await, None);
    }

    struct StreamOf<F>(F);

    impl<F: FnMut() -> Poll<Option<Hint>> + Unpin> Stream for StreamOf<F> {
        type Item = Hint;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Hint>> {
            (self.0)()
        }
    }

    #[test]
    fn dropping_the_stream_leaves_nothing_behind() {
        let hub = HintHub::new();
        let hints = (hub.watch(&key("a")), hub.watch(&key("a")), hub.watch_prefix(&KeyPrefix::new("").unwrap()));
        assert!(!hub.is_idle() && hub.is_watched(&key("a")));
        drop(hints);
        assert!(hub.is_idle());
        let listeners = hub.0.listeners();
        assert!(listeners.by_key.is_empty() && listeners.by_prefix.is_empty());
    }
}
