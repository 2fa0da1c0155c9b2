use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use leasehold_core::{Effect, Error, ErrorKind, Hint, HintHub, Hints, Key, KeyPrefix};

use super::universe::Universe;
use super::{Broken, Mistake};

impl Broken {
    /// Tells those who listen.
    pub(super) async fn hint(&self, key: &Key) {
        let hub = self.hub();
        match self.mistake {
            Mistake::HintsAreNeverSent => return,
            Mistake::UnreadHintsBlockWriters if !hub.is_idle() => {
                const MOST: usize = 64;
                if self.universe.unread.fetch_add(1, Ordering::AcqRel) >= MOST {
                    std::future::pending::<()>().await;
                }
            }
            _ => {}
        }
        hub.changed(key);
    }

    pub(super) async fn listen(&self, key: &Key) -> Result<Hints, Error> {
        self.are_supported("watch").await?;
        if self.mistake == Mistake::OnlyTheLastListenerHears {
            *self.universe.hints.lock().unwrap_or_else(PoisonError::into_inner) = HintHub::new();
        }
        let hints = match self.mistake {
            Mistake::AnythingAtFirstAndNothingAfter => anything_and_no_more(),
            Mistake::HintsNameEveryKey => self.hub().watch_prefix(&prefix(self.stored("").as_str())),
            _ => self.hub().watch(&self.key(key)),
        };
        Ok(self.below(hints))
    }

    pub(super) async fn listen_for_all(&self, wanted: &KeyPrefix) -> Result<Hints, Error> {
        self.are_supported("watch_prefix").await?;
        let hub = self.hub();
        let hints = match self.mistake {
            Mistake::AnythingAtFirstAndNothingAfter => anything_and_no_more(),
            Mistake::PrefixHearsNothing => HintHub::new().watch_prefix(wanted),
            Mistake::PrefixHintsNameEveryKey => hub.watch_prefix(&prefix(self.stored("").as_str())),
            Mistake::PrefixHintsLeaveTheNamespace if wanted.as_str().is_empty() => hub.watch_prefix(&prefix("")),
            _ => hub.watch_prefix(&prefix(self.stored(wanted.as_str()).as_str())),
        };
        Ok(self.below(hints))
    }

    async fn are_supported(&self, operation: &'static str) -> Result<(), Error> {
        let unsupported = Error::new(ErrorKind::Unsupported, operation, "this store sends no hints");
        match self.mistake {
            Mistake::UnsupportedHintsHang => std::future::pending().await,
            Mistake::UnsupportedHintsLeaveADoubt => Err(unsupported.with_effect(Effect::Unknown)),
            _ => Ok(()),
        }
    }

    fn hub(&self) -> HintHub {
        match self.mistake {
            Mistake::HintsStayInTheirHandle => self.own_hints.clone(),
            _ => self.universe.hints.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn below(&self, hints: Hints) -> Hints {
        let before = self.stored("").as_str().to_owned();
        Hints::new(Listener { hints, before, mistake: self.mistake, universe: self.universe.clone() })
    }
}

fn anything_and_no_more() -> Hints {
    let hub = HintHub::new();
    let hints = hub.watch_prefix(&prefix(""));
    hub.anything();
    hints
}

fn prefix(text: &str) -> KeyPrefix {
    KeyPrefix::new(text).expect("a prefix of a check below its namespace")
}

struct Listener {
    hints: Hints,
    before: String,
    mistake: Mistake,
    universe: Arc<Universe>,
}

impl Stream for Listener {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let hint = ready!(Pin::new(&mut self.hints).poll_next(cx));
        self.universe.unread.store(0, Ordering::Release);
        Poll::Ready(hint.map(|hint| match hint {
            Hint::Changed(key) => {
                let named = key.as_str().strip_prefix(&self.before).unwrap_or(key.as_str());
                Key::from_store(named).map_or(Hint::Anything, Hint::Changed)
            }
            other => other,
        }))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.mistake == Mistake::ListenerThatLeavesTakesTheOthersAlong {
            *self.universe.hints.lock().unwrap_or_else(PoisonError::into_inner) = HintHub::new();
        }
    }
}
