use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::error::{Error, ErrorKind, shown};
use crate::lock::hold::Hold;
use crate::store::Key;

/// Who acquires: a label that others see, and the identity that makes holds re-entrant.
///
/// Two acquisitions of one resource with *the same* `Owner` (this value or a clone of it) through one
/// [`Locks`](crate::lock::Locks) share one lease, counted, and the last release ends it. Two owners of one label are
/// two owners. Thread and task are never the identity.
#[derive(Clone)]
pub struct Owner(Arc<Identity>);

struct Identity {
    label: String,
    /// What is held by this owner, so that it can be shared instead of waited for.
    holds: Mutex<Vec<Weak<Hold>>>,
    /// There is one more.
    granted: Notify,
}

impl Owner {
    const MAX_LABEL_LEN: usize = 256;

    /// An owner that no other is the same as. The label is checked when something is acquired: 1 to 256 bytes without a
    /// control character.
    pub fn new(label: impl Into<String>) -> Self {
        Self(Arc::new(Identity { label: label.into(), holds: Mutex::default(), granted: Notify::new() }))
    }

    /// The label that others see.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let label = self.label();
        let rule = if label.is_empty() || label.len() > Self::MAX_LABEL_LEN {
            "must be 1 to 256 bytes"
        } else if label.chars().any(char::is_control) {
            "must not have a control character"
        } else {
            return Ok(());
        };
        let message = format!("an owner's label {rule}, and {} breaks it", shown(label));
        Err(Error::new(ErrorKind::InvalidInput, "owner", message))
    }

    /// A hold of this resource by this owner, if `accept` takes it.
    pub(super) fn find<T>(&self, key: &Key, accept: impl Fn(&Arc<Hold>) -> Option<T>) -> Option<T> {
        self.holds().iter().filter_map(Weak::upgrade).filter(|hold| hold.key() == key).find_map(|hold| accept(&hold))
    }

    pub(super) fn remember(&self, hold: &Arc<Hold>) {
        let mut holds = self.holds();
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(hold));
        drop(holds);
        self.0.granted.notify_waiters();
    }

    /// Resolves when this owner has been granted something after this call.
    pub(super) fn granted(&self) -> Notified<'_> {
        self.0.granted.notified()
    }

    // Nothing panics under this lock.
    fn holds(&self) -> MutexGuard<'_, Vec<Weak<Hold>>> {
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The label of an acquisition without an owner: `host:pid`.
pub(crate) fn process_label() -> &'static str {
    static LABEL: OnceLock<String> = OnceLock::new();
    LABEL.get_or_init(|| format!("{}:{}", host(), std::process::id()))
}

#[cfg(unix)]
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}

impl From<&str> for Owner {
    fn from(label: &str) -> Self {
        Self::new(label)
    }
}

impl From<String> for Owner {
    fn from(label: String) -> Self {
        Self::new(label)
    }
}

impl From<&Owner> for Owner {
    fn from(owner: &Owner) -> Self {
        owner.clone()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.0.label).finish()
    }
}
