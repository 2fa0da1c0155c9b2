use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Error, Expiry, HintHub, Hints, Key, KeyPrefix,
    Outcome, Page, ReplaceOutcome, Revision, Ttl,
};
use tokio::time::Instant;

use crate::config::MemoryConfig;
use crate::deadlines::{Deadlines, Ticket};
use crate::error::foreign_cursor;

pub(crate) const NAME: &str = "memory";

/// A store in this process's memory. Clones share the data.
///
/// ```
/// use leasehold_core::{AddOutcome, AtomicStore, Key, Ttl};
/// use leasehold_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), leasehold_core::Error> {
/// let store = MemoryStore::new();
/// let (key, ttl) = (Key::new("orders:42")?, Ttl::from_millis(1_000)?);
/// assert!(matches!(store.try_add(&key, "mine".into(), ttl).await?, AddOutcome::Added(_)));
///
/// tokio::time::advance(ttl.as_duration()).await;
/// assert_eq!(store.get(&key).await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    entries: DashMap<Key, Slot>,
    deadlines: Deadlines,
    hints: HintHub,
    revisions: Revisions,
    max_value_len: usize,
}

/// What is kept of an entry, live or expired.
struct Slot {
    value: Bytes,
    /// Nothing when it never expires.
    ends: Option<Instant>,
    /// How long a read makes it live on.
    idle: Option<Duration>,
    /// The end that no read moves.
    at_most: Option<Instant>,
    /// Its place among the deadlines; at its end or before.
    ticket: Option<Ticket>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// An empty store with chosen limits.
    pub fn with_config(config: MemoryConfig) -> Self {
        let MemoryConfig { max_value_len } = config;
        Self(Arc::new(Shared {
            entries: DashMap::new(),
            deadlines: Deadlines::new(),
            hints: HintHub::new(),
            revisions: Revisions::new(),
            max_value_len,
        }))
    }

    /// The store of this name in this process, made when nobody holds it yet. It is gone when the last handle is.
    pub fn named(name: &str) -> Self {
        static NAMED: OnceLock<Mutex<HashMap<String, Weak<Shared>>>> = OnceLock::new();
        // Nothing panics under this lock.
        let mut named = NAMED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = named.get(name).and_then(Weak::upgrade) {
            return Self(shared);
        }
        named.retain(|_, store| store.strong_count() > 0);
        let store = Self::new();
        named.insert(name.to_owned(), Arc::downgrade(&store.0));
        store
    }

    /// How many entries are kept: those that live, and those that expired and that no operation has reclaimed yet.
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal().with_hints(true).with_revisions(true).with_max_value_len(self.max_value_len)
    }

    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(NAME))
    }

    /// Every operation begins here: it reclaims a few of the entries that have expired.
    fn sweep(&self) {
        for (ticket, key) in self.deadlines.due() {
            let MapEntry::Occupied(mut entry) = self.entries.entry(key) else { continue };
            // An entry that was written anew meanwhile has another ticket.
            if entry.get().ticket != Some(ticket) {
                continue;
            }
            if entry.get().is_live(Instant::now()) {
                // It was prolonged since it was queued: most leases are, so only here does a new end cost a place.
                let ends = entry.get().ends;
                let key = entry.key().clone();
                entry.get_mut().ticket = ends.map(|ends| self.deadlines.push(ends, key));
            } else {
                entry.remove();
            }
        }
    }

    /// Adds the value if nothing live is there.
    fn add(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<AddOutcome, Error> {
        match self.entries.entry(key.clone()) {
            MapEntry::Occupied(mut entry) => {
                // Read under the guard: an instant from before the wait for it could bury what is live.
                let now = Instant::now();
                if entry.get().is_live(now) {
                    return Ok(AddOutcome::Exists(entry.get().entry(now)));
                }
                self.write(entry.get_mut(), key, value, expiry, now).map(AddOutcome::Added)
            }
            MapEntry::Vacant(entry) => {
                let mut slot = Slot::empty();
                let revision = self.write(&mut slot, key, value, expiry, Instant::now())?;
                entry.insert(slot);
                Ok(AddOutcome::Added(revision))
            }
        }
    }

    fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        let mut slot = self.entries.entry(key.clone()).or_insert_with(Slot::empty);
        self.write(&mut slot, key, value, expiry, Instant::now())
    }

    /// What all writes come to. The caller holds the slot's guard, so the revision is minted in the same step.
    fn write(&self, slot: &mut Slot, key: &Key, value: Bytes, expiry: Expiry, now: Instant) -> Result<Revision, Error> {
        let revision = self.revisions.mint(now)?;
        let after = |ttl: Ttl| now + ttl.as_duration();
        slot.value = value;
        slot.idle = expiry.idle().map(Ttl::as_duration);
        slot.at_most = expiry.at_most().map(after);
        self.end_at(slot, key, expiry.first_ttl().map(after));
        Ok(revision)
    }

    /// Moves the end of an entry. The caller holds the slot's guard.
    fn end_at(&self, slot: &mut Slot, key: &Key, ends: Option<Instant>) {
        slot.ends = ends;
        match (slot.ticket, ends) {
            // A ticket for an earlier time still serves: the sweep that draws it queues the entry for its end.
            (Some(ticket), Some(ends)) if ticket.at() <= ends => {}
            (ticket, ends) => {
                if let Some(ticket) = ticket {
                    self.deadlines.cancel(ticket);
                }
                slot.ticket = ends.map(|ends| self.deadlines.push(ends, key.clone()));
            }
        }
    }

    /// Runs `change` on the live entry, under its guard.
    fn live<T>(&self, key: &Key, change: impl FnOnce(&mut Slot, Instant) -> T) -> Option<T> {
        let mut slot = self.entries.get_mut(key)?;
        let now = Instant::now();
        slot.is_live(now).then(|| change(&mut slot, now))
    }

    /// Removes the live entry if `matches` says so of its value.
    fn remove(&self, key: &Key, matches: impl FnOnce(&Bytes) -> bool) -> Outcome {
        let MapEntry::Occupied(entry) = self.entries.entry(key.clone()) else { return Outcome::NotApplied };
        if !entry.get().is_live(Instant::now()) || !matches(&entry.get().value) {
            return Outcome::NotApplied;
        }
        let slot = entry.remove();
        if let Some(ticket) = slot.ticket {
            self.deadlines.cancel(ticket);
        }
        self.hints.changed(key);
        Outcome::Applied
    }

    fn read(&self, key: &Key) -> Option<Entry> {
        // Most reads slide nothing, and those share the guard.
        {
            let slot = self.entries.get(key)?;
            let now = Instant::now();
            if !slot.is_live(now) {
                return None;
            }
            if slot.idle.is_none() {
                return Some(slot.entry(now));
            }
        }
        self.live(key, |slot, now| {
            if let Some(idle) = slot.idle {
                let slid = now + idle;
                self.end_at(slot, key, Some(slot.at_most.map_or(slid, |at_most| slid.min(at_most))));
            }
            slot.entry(now)
        })
    }
}

impl Slot {
    fn empty() -> Self {
        Self { value: Bytes::new(), ends: None, idle: None, at_most: None, ticket: None }
    }

    fn is_live(&self, now: Instant) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    fn entry(&self, now: Instant) -> Entry {
        Entry { value: self.value.clone(), time_left: self.ends.map(|ends| ends.saturating_duration_since(now)) }
    }
}

/// Mints revisions for all keys from one counter, so that nothing has to be kept of a key that is gone.
///
/// It starts from the wall clock, so that revisions go on rising when the process starts again.
struct Revisions {
    last: AtomicU64,
    base_micros: u64,
    origin: Instant,
}

impl Revisions {
    fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let base_micros = u64::try_from(since_epoch.as_micros()).unwrap_or(0);
        Self { last: AtomicU64::new(0), base_micros, origin: Instant::now() }
    }

    fn mint(&self, now: Instant) -> Result<Revision, Error> {
        let elapsed = now.saturating_duration_since(self.origin).as_micros() as u64;
        let micros = self.base_micros.saturating_add(elapsed);
        let next = |last: u64| micros.max(last + 1);
        let last = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        // The update always writes, so both arms hold what was there before it.
        let (Ok(last) | Err(last)) = last;
        Revision::new(next(last))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl AtomicStore for MemoryStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.0.check("try_add", &value)?;
        self.0.sweep();
        self.0.add(key, value, Expiry::After(ttl))
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.0.check("try_replace", &value)?;
        self.0.sweep();
        let replaced = self.0.live(key, |slot, now| {
            (slot.value == expected).then(|| self.0.write(slot, key, value, Expiry::After(ttl), now))
        });
        match replaced.flatten() {
            Some(revision) => {
                let revision = revision?;
                self.0.hints.changed(key);
                Ok(ReplaceOutcome::Applied(revision))
            }
            None => Ok(ReplaceOutcome::NotApplied),
        }
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.0.sweep();
        Ok(self.0.remove(key, |value| value == expected))
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.0.sweep();
        let expired = self.0.live(key, |slot, now| {
            let applies = slot.value == expected;
            if applies {
                let ends = now + ttl.as_duration();
                (slot.idle, slot.at_most) = (None, Some(ends));
                self.0.end_at(slot, key, Some(ends));
            }
            applies
        });
        Ok(Outcome::from_applied(expired == Some(true)))
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.0.sweep();
        Ok(self.0.read(key))
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        Ok(self.0.hints.watch(key))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl CacheStore for MemoryStore {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.0.check("set", &value)?;
        self.0.sweep();
        let revision = self.0.set(key, value, expiry)?;
        self.0.hints.changed(key);
        Ok(revision)
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        self.0.sweep();
        Ok(self.0.remove(key, |_| true))
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        self.0.sweep();
        Ok(keys.iter().map(|key| self.0.read(key)).collect())
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        for (_, value, _) in &items {
            self.0.check("set_many", value)?;
        }
        let mut revisions = Vec::with_capacity(items.len());
        for (key, value, expiry) in items {
            self.0.sweep();
            revisions.push(self.0.set(&key, value, expiry)?);
            self.0.hints.changed(&key);
        }
        Ok(revisions)
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        self.0.sweep();
        Ok(keys.iter().map(|key| self.0.remove(key, |_| true)).collect())
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        self.0.sweep();
        let after = match &cursor {
            Some(cursor) => Some(std::str::from_utf8(cursor.as_bytes()).map_err(|_| foreign_cursor())?),
            None => None,
        };
        Ok(self.0.page(prefix, after))
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        Ok(self.0.hints.watch_prefix(prefix))
    }
}

impl Shared {
    /// The first keys after `after`, in order. The map has none, so a page is one walk through it; pages grow with the
    /// map, so that a whole scan is at most 16 walks.
    fn page(&self, prefix: &KeyPrefix, after: Option<&str>) -> Page {
        let size = (self.entries.len() / 16).max(500);
        let now = Instant::now();
        let mut first = BinaryHeap::with_capacity(size + 1);
        for entry in &self.entries {
            let key = entry.key();
            let wanted = prefix.matches(key) && after.is_none_or(|after| key.as_str() > after);
            if !wanted || !entry.is_live(now) {
                continue;
            }
            if first.len() < size {
                first.push(key.clone());
            } else if first.peek().is_some_and(|last| key < last) {
                first.push(key.clone());
                first.pop();
            }
        }
        let next = first.peek().filter(|_| first.len() == size).map(|last: &Key| last.as_bytes().to_vec());
        Page { keys: first.into_vec(), next: next.map(Cursor::from_store) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("len", &self.len())
            .field("deadlines", &self.0.deadlines.len())
            .finish_non_exhaustive()
    }
}
