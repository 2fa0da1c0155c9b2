//! A store that somebody else could have written, and what the conformance suite says about it: a map behind a mutex,
//! with the primitives only, no hints and no memory of its own after the process has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold::{
    AddOutcome, AtomicStore, Capabilities, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome, Revision, Ttl,
};
use leasehold_conformance::{Selection, Suite};

#[derive(Clone, Default)]
struct MapStore(Arc<Mutex<Map>>);

#[derive(Default)]
struct Map {
    entries: HashMap<Key, Slot>,
    /// One for all keys: it rises for each of them, and nothing has to be kept of a key that is gone.
    last_revision: u64,
}

struct Slot {
    value: Bytes,
    ends: Instant,
}

impl MapStore {
    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(self.name()))
    }

    // Nothing panics under this lock.
    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    /// The live entry. What has expired is dropped here, and so is nothing else.
    fn live(&mut self, key: &Key) -> Option<&mut Slot> {
        if self.entries.get(key).is_some_and(|slot| Instant::now() >= slot.ends) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    fn write(&mut self, key: &Key, value: Bytes, ttl: Ttl) -> Result<Revision, Error> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        self.last_revision = clock.max(self.last_revision + 1);
        self.entries.insert(key.clone(), Slot { value, ends: Instant::now() + ttl.as_duration() });
        Revision::new(self.last_revision)
    }
}

impl Slot {
    fn entry(&self) -> Entry {
        let left = self.ends.saturating_duration_since(Instant::now());
        // It was live a moment ago, and an entry that is handed out has time left.
        Entry { value: self.value.clone(), time_left: Some(left.max(Duration::from_nanos(1))) }
    }
}

// Each method holds the mutex from the first look to the write: one atomic step. None awaits, so none can be dropped
// midway.
#[async_trait]
impl AtomicStore for MapStore {
    fn name(&self) -> &'static str {
        "map"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal().with_revisions(true)
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.check("try_add", &value)?;
        let mut map = self.map();
        match map.live(key) {
            Some(slot) => Ok(AddOutcome::Exists(slot.entry())),
            None => map.write(key, value, ttl).map(AddOutcome::Added),
        }
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.check("try_replace", &value)?;
        let mut map = self.map();
        match map.live(key) {
            Some(slot) if slot.value == expected => map.write(key, value, ttl).map(ReplaceOutcome::Applied),
            _ => Ok(ReplaceOutcome::NotApplied),
        }
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let mut map = self.map();
        let found = map.live(key).is_some_and(|slot| slot.value == expected);
        if found {
            map.entries.remove(key);
        }
        Ok(Outcome::from_applied(found))
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let mut map = self.map();
        match map.live(key) {
            Some(slot) if slot.value == expected => {
                slot.ends = Instant::now() + ttl.as_duration();
                Ok(Outcome::Applied)
            }
            _ => Ok(Outcome::NotApplied),
        }
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        Ok(self.map().live(key).map(|slot| slot.entry()))
    }

    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        Err(Error::new(ErrorKind::Unsupported, "watch", "this store gives no hints").with_store("map"))
    }
}

fn main() {
    // Two handles on one namespace share a map; namespaces do not.
    let maps: Arc<Mutex<HashMap<String, MapStore>>> = Arc::default();
    let open = move |namespace: String| {
        let maps = maps.clone();
        async move { maps.lock().unwrap_or_else(PoisonError::into_inner).entry(namespace).or_default().clone() }
    };
    let report = Suite::atomic("map", open).report(&Selection::default());
    println!("{report}");
    assert!(report.is_success());
}
