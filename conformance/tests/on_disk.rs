//! A store that other processes share and that outlives them passes too, with the primitives only: one file, read and
//! written whole under a lock. It is as slow as it is simple.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, ErrorKind as IoErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_conformance::{Capability, Suite};
use leasehold_core::{
    AddOutcome, AtomicStore, Capabilities, Entry, Error, ErrorKind, Hints, Key, Outcome, ReplaceOutcome, Revision, Ttl,
};
use serde::{Deserialize, Serialize};

fn main() -> ExitCode {
    if std::env::var_os("LEASEHOLD_CONFORMANCE_OTHER_PROCESS").is_some() {
        // A program may print what it likes before it comes to the suite, and more than a pipe takes.
        print!("the store is on disk");
        eprintln!("{}", "no news\n".repeat(20_000));
    }
    Suite::atomic("on_disk", |ns| async move { OnDisk::open(&ns) })
        .require([Capability::Shared, Capability::Durable, Capability::Revisions])
        .run()
}

struct OnDisk(PathBuf);

#[derive(Default, Serialize, Deserialize)]
struct Contents {
    last_revision: u64,
    entries: BTreeMap<String, Kept>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    value: Vec<u8>,
    ends: Duration,
}

impl OnDisk {
    fn open(namespace: &str) -> std::io::Result<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("on_disk").join(namespace);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Reads everything, lets `change` change it, and writes it back if it says so.
    fn locked<T>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut Contents, Duration) -> T,
    ) -> Result<T, Error> {
        let failed = |error: std::io::Error| Error::new(ErrorKind::Other, operation, "disk").with_source(error);
        let lock = self.0.join("lock");
        while let Err(error) = OpenOptions::new().write(true).create_new(true).open(&lock) {
            if error.kind() != IoErrorKind::AlreadyExists {
                return Err(failed(error));
            }
            thread::sleep(Duration::from_micros(200));
        }
        let (path, next) = (self.0.join("contents"), self.0.join("next"));
        let mut contents = match File::open(&path) {
            Ok(file) => serde_json::from_reader(BufReader::new(file)).expect("what this wrote"),
            Err(_) => Contents::default(),
        };
        // Read under the lock, so that who waited for it cannot revive what has ended meanwhile.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock of this century");
        contents.entries.retain(|_, kept| now < kept.ends);
        let answer = change(&mut contents, now);
        fs::write(&next, serde_json::to_vec(&contents).expect("plain data"))
            .and_then(|()| fs::rename(&next, &path))
            .and_then(|()| fs::remove_file(&lock))
            .map_err(failed)?;
        Ok(answer)
    }

    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(self.name()))
    }
}

impl Contents {
    fn write(&mut self, key: &Key, value: &Bytes, ttl: Ttl, now: Duration) -> Revision {
        let micros = u64::try_from(now.as_micros()).expect("a clock of this century");
        self.last_revision = micros.max(self.last_revision + 1);
        let kept = Kept { value: value.to_vec(), ends: now + ttl.as_duration() };
        self.entries.insert(key.as_str().to_owned(), kept);
        Revision::new(self.last_revision).expect("a clock of this century")
    }

    fn is(&self, key: &Key, expected: &[u8]) -> bool {
        self.entries.get(key.as_str()).is_some_and(|kept| kept.value == expected)
    }

    fn entry(&self, key: &Key, now: Duration) -> Option<Entry> {
        let kept = self.entries.get(key.as_str())?;
        Some(Entry { value: kept.value.clone().into(), time_left: Some(kept.ends - now) })
    }
}

#[async_trait]
impl AtomicStore for OnDisk {
    fn name(&self) -> &'static str {
        "on_disk"
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::minimal().with_shared(true).with_durable(true).with_revisions(true);
        capabilities.with_max_value_len(4096)
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.check("try_add", &value)?;
        self.locked("try_add", |contents, now| match contents.entry(key, now) {
            Some(entry) => AddOutcome::Exists(entry),
            None => AddOutcome::Added(contents.write(key, &value, ttl, now)),
        })
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.check("try_replace", &value)?;
        self.locked("try_replace", |contents, now| match contents.is(key, expected) {
            true => ReplaceOutcome::Applied(contents.write(key, &value, ttl, now)),
            false => ReplaceOutcome::NotApplied,
        })
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.locked("try_remove", |contents, _| {
            let applies = contents.is(key, expected);
            if applies {
                contents.entries.remove(key.as_str());
            }
            Outcome::from_applied(applies)
        })
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.locked("try_expire", |contents, now| match contents.entries.get_mut(key.as_str()) {
            Some(kept) if kept.value == expected => {
                kept.ends = now + ttl.as_duration();
                Outcome::Applied
            }
            _ => Outcome::NotApplied,
        })
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.locked("get", |contents, now| contents.entry(key, now))
    }

    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        Err(Error::new(ErrorKind::Unsupported, "watch", "a file tells of no changes").with_store(self.name()))
    }
}
