use std::sync::Mutex;

use tokio::sync::watch;

use crate::process::lock;

/// A fault that waits for one request.
#[derive(Debug)]
pub(super) struct Trap {
    action: Action,
    needle: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Swallow,
    Cut,
}

impl Trap {
    /// An empty needle is in every request.
    pub(super) fn new(action: Action, needle: impl AsRef<[u8]>) -> Self {
        Self { action, needle: needle.as_ref().to_vec() }
    }

    fn wants(&self, request: &[u8]) -> bool {
        self.needle.is_empty() || request.windows(self.needle.len()).any(|window| window == self.needle)
    }
}

/// The traps that are armed, first armed first sprung.
#[derive(Debug, Default)]
pub(super) struct Traps {
    armed: Mutex<Vec<Trap>>,
    sprung: watch::Sender<u64>,
}

impl Traps {
    pub(super) fn arm(&self, trap: Trap) {
        lock(&self.armed).push(trap);
    }

    pub(super) fn disarm(&self) {
        lock(&self.armed).clear();
    }

    /// Takes the first trap that this request springs. The caller forwards the request and then
    /// says so by [`mark_sprung`](Self::mark_sprung).
    pub(super) fn take(&self, request: &[u8], mute: bool) -> Option<Action> {
        let mut armed = lock(&self.armed);
        let found = armed.iter().position(|trap| {
            // There is no answer to swallow on a connection that gets none.
            !(mute && trap.action == Action::Swallow) && trap.wants(request)
        })?;
        Some(armed.remove(found).action)
    }

    pub(super) fn mark_sprung(&self) {
        self.sprung.send_modify(|sprung| *sprung += 1);
    }

    pub(super) fn sprung(&self) -> u64 {
        *self.sprung.borrow()
    }

    pub(super) async fn wait_for_sprung(&self, count: u64) {
        let mut sprung = self.sprung.subscribe();
        sprung.wait_for(|sprung| *sprung >= count).await.expect("the sender is borrowed for as long as this waits");
    }
}
