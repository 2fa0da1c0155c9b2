//! A store of your own, and the suite that says whether it keeps the contract.
//!
//! This one has the primitives only, in a map under a mutex. That is all that leases need. `docs/writing-a-store.md`
//! walks through it.
//!
//! In a crate of its own the last part is a test: `Suite::atomic("shelf", …).run()` as the `main` of one with
//! `harness = false`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_conformance::{Selection, Suite};
use leasehold_core::lock::Locks;
use leasehold_core::{
    AddOutcome, AtomicStore, Capabilities, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome, Revision, Ttl,
};

/// A handle. Clones are on the same data.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Shelved>>);

#[derive(Default)]
struct Shelved {
    entries: HashMap<Key, Kept>,
    last_revision: u64,
}

struct Kept {
    value: Bytes,
    ends: Instant,
}

impl Shelf {
    /// The shelf of this name in this process.
    fn named(name: &str) -> Self {
        static SHELVES: OnceLock<Mutex<HashMap<String, Shelf>>> = OnceLock::new();
        let mut shelves = SHELVES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        shelves.entry(name.to_owned()).or_default().clone()
    }

    // Everything that an operation reads and writes, it does under this one guard: that makes it one atomic step.
    fn shelved(&self) -> MutexGuard<'_, Shelved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(self.name()))
    }
}

impl Shelved {
    /// The live entry. The clock is read here, under the guard: an instant from before the wait for it would revive
    /// what has ended meanwhile.
    fn live(&mut self, key: &Key) -> Option<(&mut Kept, Instant)> {
        let now = Instant::now();
        self.entries.get_mut(key).filter(|kept| now < kept.ends).map(|kept| (kept, now))
    }

    fn live_as(&mut self, key: &Key, expected: &[u8]) -> Option<&mut Kept> {
        self.live(key).map(|(kept, _)| kept).filter(|kept| kept.value == expected)
    }

    fn write(&mut self, key: &Key, value: Bytes, ttl: Ttl) -> Result<Revision, Error> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(since_1970.as_micros()).unwrap_or(0);
        // By the clock, so that it rises across a restart; by the last one, so that it rises when the clock does not.
        self.last_revision = micros.max(self.last_revision + 1);
        self.entries.insert(key.clone(), Kept { value, ends: Instant::now() + ttl.as_duration() });
        Revision::new(self.last_revision)
    }
}

#[async_trait]
impl AtomicStore for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal().with_revisions(true)
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.check("try_add", &value)?;
        let mut shelved = self.shelved();
        if let Some((kept, now)) = shelved.live(key) {
            return Ok(AddOutcome::Exists(Entry { value: kept.value.clone(), time_left: Some(kept.ends - now) }));
        }
        shelved.write(key, value, ttl).map(AddOutcome::Added)
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.check("try_replace", &value)?;
        let mut shelved = self.shelved();
        if shelved.live_as(key, expected).is_none() {
            return Ok(ReplaceOutcome::NotApplied);
        }
        shelved.write(key, value, ttl).map(ReplaceOutcome::Applied)
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let mut shelved = self.shelved();
        let applies = shelved.live_as(key, expected).is_some();
        if applies {
            shelved.entries.remove(key);
        }
        Ok(Outcome::from_applied(applies))
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let mut shelved = self.shelved();
        let live = shelved.live_as(key, expected);
        let applies = live.is_some();
        if let Some(kept) = live {
            kept.ends = Instant::now() + ttl.as_duration();
        }
        Ok(Outcome::from_applied(applies))
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let mut shelved = self.shelved();
        Ok(shelved.live(key).map(|(kept, now)| Entry { value: kept.value.clone(), time_left: Some(kept.ends - now) }))
    }

    // `capabilities` declares no hints, so this has to say so.
    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        Err(Error::new(ErrorKind::Unsupported, "watch", "a shelf sends no hints").with_store(self.name()))
    }
}

fn main() -> ExitCode {
    // Leases need nothing but the primitives.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let held = runtime.block_on(async {
        let lease = Locks::new(Shelf::named("app")).lock("orders:42").acquire().await?;
        println!("held, with fencing token {:?}", lease.fencing_token());
        lease.release().await
    });
    println!("{held:?}\n");

    let suite = Suite::atomic("shelf", |namespace| async move { Shelf::named(&namespace) });
    let report = suite.report_each(&Selection::default(), |check| println!("{check}"));
    println!("\n{}", report.summary());
    if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
