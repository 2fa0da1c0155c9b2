use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{AtomicStore, CacheStore, Entry, Expiry, HintHub, Key};
use leasehold_memory::{MemoryConfig, MemoryStore};
use tokio::time::{Instant, sleep};

use super::Mistake;

/// A handle on a store that makes one mistake.
pub(crate) struct Broken {
    pub(super) mistake: Mistake,
    pub(super) namespace: String,
    /// Which handle of its universe it is.
    pub(super) number: usize,
    pub(super) universe: Arc<Universe>,
    pub(super) own_hints: HintHub,
    pub(super) own_revisions: AtomicU64,
    pub(super) own_reads: Mutex<HashMap<Key, (Instant, Option<Entry>)>>,
    pub(super) own_lock: tokio::sync::Mutex<()>,
}

/// What all handles of one check share, whatever their namespace.
pub(super) struct Universe {
    pub(super) memory: MemoryStore,
    pub(super) hints: Mutex<HintHub>,
    pub(super) records: Mutex<HashMap<Key, Record>>,
    pub(super) revisions: Mutex<HashMap<Key, u64>>,
    pub(super) last_revision: AtomicU64,
    pub(super) began: Instant,
    pub(super) last_asked: Mutex<Option<Key>>,
    pub(super) unread: AtomicUsize,
    pub(super) generation: AtomicUsize,
    handles: AtomicUsize,
    lock: Arc<tokio::sync::Mutex<()>>,
    permits: AtomicUsize,
}

/// What was written to a key, which the memory store forgets.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) first: Bytes,
    pub(super) last: Bytes,
    pub(super) expiry: Expiry,
    pub(super) written: Instant,
    pub(super) removed: bool,
}

/// What the suite's random names of namespaces are long.
const NAMESPACE: usize = "conformance_".len() + 16;
pub(super) const MAX_VALUE_LEN: usize = 4096;

impl Broken {
    /// A handle in a namespace of the suite.
    pub(crate) fn open(mistake: Mistake, namespace: String) -> Self {
        let universe = match mistake {
            Mistake::EachHandleHasItsOwnData => Arc::new(Universe::new()),
            _ => Universe::of_check(&namespace[..NAMESPACE]),
        };
        let number = universe.handles.fetch_add(1, Ordering::AcqRel);
        Self {
            mistake,
            namespace,
            number,
            universe,
            own_hints: HintHub::new(),
            own_revisions: AtomicU64::new(0),
            own_reads: Mutex::default(),
            own_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Every operation begins here.
    pub(super) async fn enter(&self) {
        let universe = &self.universe;
        match self.mistake {
            Mistake::LockStaysTakenWhenDropped => {
                // Who is dropped at the await has no chance to unlock.
                let locked = ManuallyDrop::new(universe.lock.clone().lock_owned().await);
                pause().await;
                drop(ManuallyDrop::into_inner(locked));
            }
            Mistake::PermitIsGoneWhenDropped => {
                const PERMITS: usize = 100;
                while universe.permits.load(Ordering::Acquire) >= PERMITS {
                    sleep(Duration::from_millis(10)).await;
                }
                universe.permits.fetch_add(1, Ordering::AcqRel);
                pause().await;
                universe.permits.fetch_sub(1, Ordering::AcqRel);
            }
            Mistake::SweepTakesNeighbours => {
                let records = universe.records().clone();
                for (key, record) in &records {
                    if !record.removed && matches!(universe.memory.get(key).await, Ok(None)) {
                        for key in records.keys() {
                            universe.forget(key).await;
                        }
                        universe.records().clear();
                        break;
                    }
                }
            }
            _ => {}
        }
    }
}

impl Universe {
    fn new() -> Self {
        let config = MemoryConfig::default().with_max_value_len(usize::MAX);
        Self {
            memory: MemoryStore::with_config(config),
            hints: Mutex::default(),
            records: Mutex::default(),
            revisions: Mutex::default(),
            last_revision: AtomicU64::new(0),
            began: Instant::now(),
            last_asked: Mutex::default(),
            unread: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            lock: Arc::default(),
            permits: AtomicUsize::new(0),
        }
    }

    fn of_check(name: &str) -> Arc<Self> {
        static ALL: OnceLock<Mutex<HashMap<String, Weak<Universe>>>> = OnceLock::new();
        let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(universe) = all.get(name).and_then(Weak::upgrade) {
            return universe;
        }
        all.retain(|_, universe| universe.strong_count() > 0);
        let universe = Arc::new(Self::new());
        all.insert(name.to_owned(), Arc::downgrade(&universe));
        universe
    }

    pub(super) fn records(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, key: &Key) -> Option<Record> {
        self.records().get(key).cloned()
    }

    pub(super) fn wrote(&self, key: &Key, value: &Bytes, expiry: Expiry) {
        let mut records = self.records();
        let first = records.get(key).map_or(value.clone(), |record| record.first.clone());
        let record = Record { first, last: value.clone(), expiry, written: Instant::now(), removed: false };
        records.insert(key.clone(), record);
    }

    pub(super) fn removed(&self, key: &Key) {
        if let Some(record) = self.records().get_mut(key) {
            record.removed = true;
        }
    }

    /// Whether the key was written, never removed, and is there no more.
    pub(super) async fn expired(&self, key: &Key) -> Option<Record> {
        let record = self.record(key).filter(|record| !record.removed)?;
        matches!(self.memory.get(key).await, Ok(None)).then_some(record)
    }

    pub(super) async fn live(&self, key: &Key) -> Option<Entry> {
        self.memory.get(key).await.ok().flatten()
    }

    pub(super) async fn forget(&self, key: &Key) {
        let _ = self.memory.remove(key).await;
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if self.mistake == Mistake::DroppedHandleTakesTheData {
            self.universe.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// An await at which others come between. A mere yield would be over at the next poll, which may follow at once.
pub(super) async fn pause() {
    sleep(Duration::from_millis(1)).await;
}
