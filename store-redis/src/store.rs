use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Effect, Entry, Error, Expiry, Hints, Key, KeyPrefix,
    Outcome, Page, ReplaceOutcome, Revision, Ttl,
};
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};

use crate::combine::Combiner;
use crate::config::{RedisConfig, Settings};
use crate::connection::Connection;
use crate::error::{Fault, foreign_cursor, no_hints, refused, unexpected};
use crate::hints::Subscriptions;
use crate::layout::{Layout, terms, value_of, write_stored};
use crate::scripts::{Item, Kind, Script};

pub(crate) const NAME: &str = "redis";

/// A store in a Redis or Valkey server. Clones share the connection.
///
/// ```no_run
/// use leasehold_core::{AtomicStore, Key, Ttl};
/// use leasehold_redis::{RedisConfig, RedisStore};
///
/// # async fn example() -> Result<(), leasehold_core::Error> {
/// let store = RedisStore::connect(RedisConfig::from_url("redis://localhost")?).await?;
/// let answer = store.try_add(&Key::new("orders:42")?, "mine".into(), Ttl::from_millis(30_000)?).await?;
/// # let _ = answer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    combiner: Combiner,
    layout: Layout,
    /// None over a connection that somebody else made.
    subscriptions: Option<Subscriptions>,
    max_value_len: usize,
    durable: bool,
}

impl RedisStore {
    /// How many names a page of a scan looks at.
    const PAGE: u32 = 500;

    /// Connects to a server: one attempt, within the connect timeout.
    ///
    /// It warns, through `tracing`, when the server may evict leases to make room.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a configuration that breaks a rule, `Unauthorized` for a wrong user or password,
    /// `Unsupported` for a server that is too old for RESP3, `Unavailable` and `Timeout` for one that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens nothing.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        let settings = config.settings();
        settings.check()?;
        Self::open(config.client()?, settings).await
    }

    /// Connects by way of a client that the caller made. Of the configuration, `key_prefix`, `deadline`,
    /// `connect_timeout`, `max_value_len` and `durable` count; where the server is, the client says.
    ///
    /// The store makes its own connections, with RESP3 and the TCP settings that it needs.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn with_client(client: &Client, config: &RedisConfig) -> Result<Self, Error> {
        let settings = config.settings();
        settings.check()?;
        Self::open(settings.client(client.get_connection_info().clone())?, settings).await
    }

    /// Takes a connection that the caller made. Of the configuration, `key_prefix`, `deadline`, `max_value_len` and
    /// `durable` count.
    ///
    /// It can do less than a store that connects by itself: it gives no hints, and once the connection is closed it
    /// stays unavailable. The connection's own response timeout should be off or longer than the deadline, as a call
    /// that it ends is taken for a broken connection.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a configuration that breaks a rule.
    pub fn with_connection(connection: MultiplexedConnection, config: &RedisConfig) -> Result<Self, Error> {
        let settings = config.settings();
        settings.check()?;
        let database = redis::aio::ConnectionLike::get_db(&connection);
        Ok(Self::over(Connection::given(connection, settings.clone()), database, settings))
    }

    async fn open(client: Client, settings: Settings) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        // The program may have chosen another one already; that one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let database = client.get_connection_info().redis_settings().db();
        let connection = Connection::open(client, settings.clone()).await;
        let connection = connection.map_err(|failure| Fault::Unreachable(Some(failure)).of("connect"))?;
        let store = Self::over(connection, database, settings);
        store.look_around().await;
        Ok(store)
    }

    fn over(connection: Connection, database: i64, settings: Settings) -> Self {
        let layout = Layout::new(&settings.key_prefix);
        let (max_value_len, durable) = (settings.max_value_len, settings.durable);
        let subscriptions =
            connection.client().map(|client| Subscriptions::new(client.clone(), settings, layout.clone(), database));
        let combiner = Combiner::new(connection, Script::new(database, &layout));
        Self(Arc::new(Shared { combiner, layout, subscriptions, max_value_len, durable }))
    }

    /// Asks what kind of server it is. Who may not ask finds out as it goes.
    ///
    /// A server that evicts takes leases away from their holders.
    async fn look_around(&self) {
        let connection = self.0.combiner.connection();
        let Ok(info) = connection.run(connection.begin(), redis::cmd("INFO").arg("server").arg("memory")).await else {
            return;
        };
        let info = match &info {
            Value::BulkString(info) => String::from_utf8_lossy(info),
            Value::VerbatimString { text, .. } => text.as_str().into(),
            _ => return,
        };
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // Valkey has both names.
        if field("redis_mode").or(field("server_mode")).is_some_and(|mode| mode.trim() == "cluster") {
            self.0.combiner.spread();
        }
        let policy = field("maxmemory_policy").unwrap_or("noeviction").trim();
        let has_limit = field("maxmemory").is_some_and(|limit| limit.trim() != "0");
        if has_limit && policy != "noeviction" {
            tracing::warn!(policy, "the server may evict leases to make room; set maxmemory-policy to noeviction");
        }
    }
}

impl Shared {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal()
            .with_shared(true)
            .with_hints(self.subscriptions.is_some())
            .with_revisions(true)
            .with_durable(self.durable)
            .with_max_value_len(self.max_value_len)
    }

    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(NAME))
    }

    async fn run(&self, operation: &'static str, item: Item) -> Result<Value, Error> {
        match self.combiner.run(item).await {
            Ok(answer) => accepted(operation, answer),
            Err(fault) => Err(fault.of(operation)),
        }
    }

    /// Does many items, in one round trip and in their order.
    async fn run_many(&self, operation: &'static str, items: Vec<Item>) -> Result<Vec<Value>, Error> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.combiner.run_many(&items).await.into_iter();
        let answers = answers.map(|answer| accepted(operation, answer.map_err(|fault| fault.of(operation))?));
        let answers: Vec<_> = answers.collect();
        // An item that was refused says nothing about the others.
        let is_of_no_effect =
            |answer: &Result<_, Error>| answer.as_ref().is_err_and(|error| error.effect() == Effect::None);
        let nothing_applied = answers.iter().all(is_of_no_effect);
        let unless_nothing = |error: Error| if nothing_applied { error } else { error.with_effect(Effect::Unknown) };
        answers.into_iter().map(|answer| answer.map_err(unless_nothing)).collect()
    }

    fn set_item(&self, key: &Key, value: &Bytes, expiry: Expiry) -> Item {
        self.item(Kind::Set, key, &[value], &terms(expiry))
    }

    fn item(&self, kind: Kind, key: &Key, values: &[&[u8]], numbers: &[u64]) -> Item {
        const DIGITS: usize = 20;
        let room = values.iter().map(|value| 1 + value.len()).sum::<usize>() + numbers.len() * DIGITS;
        let entry = self.layout.entry_with_room(key, room);
        let mut item = Item::new(kind, entry);
        for value in values {
            item.push(|bytes| write_stored(value, bytes));
        }
        for number in numbers {
            // A vector takes whatever is written.
            item.push(|bytes| drop(write!(bytes, "{number}")));
        }
        item
    }

    fn subscriptions(&self, operation: &'static str) -> Result<&Subscriptions, Error> {
        self.subscriptions.as_ref().ok_or_else(|| no_hints(operation))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl AtomicStore for RedisStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        const OPERATION: &str = "try_add";
        self.0.check(OPERATION, &value)?;
        let item = self.0.item(Kind::TryAdd, key, &[&value], &[ttl.as_millis()]);
        match self.0.run(OPERATION, item).await? {
            Value::Int(revision) => Ok(AddOutcome::Added(minted(OPERATION, revision)?)),
            held => match entry(OPERATION, held)? {
                Some(entry) => Ok(AddOutcome::Exists(entry)),
                None => Err(unexpected(OPERATION)),
            },
        }
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        const OPERATION: &str = "try_replace";
        self.0.check(OPERATION, &value)?;
        let item = self.0.item(Kind::TryReplace, key, &[expected, &value], &[ttl.as_millis()]);
        match self.0.run(OPERATION, item).await? {
            Value::Int(0) => Ok(ReplaceOutcome::NotApplied),
            Value::Int(revision) => Ok(ReplaceOutcome::Applied(minted(OPERATION, revision)?)),
            _ => Err(unexpected(OPERATION)),
        }
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        const OPERATION: &str = "try_remove";
        let item = self.0.item(Kind::TryRemove, key, &[expected], &[]);
        outcome(OPERATION, &self.0.run(OPERATION, item).await?)
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        const OPERATION: &str = "try_expire";
        let item = self.0.item(Kind::TryExpire, key, &[expected], &[ttl.as_millis()]);
        outcome(OPERATION, &self.0.run(OPERATION, item).await?)
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        const OPERATION: &str = "get";
        entry(OPERATION, self.0.run(OPERATION, self.0.item(Kind::Get, key, &[], &[])).await?)
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        const OPERATION: &str = "watch";
        let call = self.0.combiner.connection().begin();
        self.0.subscriptions(OPERATION)?.watch(call, key).await.map_err(|fault| fault.of(OPERATION))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl CacheStore for RedisStore {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        const OPERATION: &str = "set";
        self.0.check(OPERATION, &value)?;
        revision(OPERATION, &self.0.run(OPERATION, self.0.set_item(key, &value, expiry)).await?)
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        const OPERATION: &str = "remove";
        outcome(OPERATION, &self.0.run(OPERATION, self.0.item(Kind::Remove, key, &[], &[])).await?)
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        const OPERATION: &str = "get_many";
        let items = keys.iter().map(|key| self.0.item(Kind::Get, key, &[], &[])).collect();
        let answers = self.0.run_many(OPERATION, items).await?;
        answers.into_iter().map(|answer| entry(OPERATION, answer)).collect()
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        const OPERATION: &str = "set_many";
        for (_, value, _) in &items {
            self.0.check(OPERATION, value)?;
        }
        let items = items.iter().map(|(key, value, expiry)| self.0.set_item(key, value, *expiry)).collect();
        let answers = self.0.run_many(OPERATION, items).await?;
        answers.iter().map(|answer| revision(OPERATION, answer)).collect()
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        const OPERATION: &str = "remove_many";
        let items = keys.iter().map(|key| self.0.item(Kind::Remove, key, &[], &[])).collect();
        let answers = self.0.run_many(OPERATION, items).await?;
        answers.iter().map(|answer| outcome(OPERATION, answer)).collect()
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        const OPERATION: &str = "scan";
        let cursor = match &cursor {
            Some(cursor) => std::str::from_utf8(cursor.as_bytes())
                .ok()
                .and_then(|cursor| cursor.parse::<u64>().ok())
                .filter(|cursor| *cursor != 0)
                .ok_or_else(foreign_cursor)?,
            None => 0,
        };
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(self.0.layout.pattern(prefix)).arg("COUNT").arg(RedisStore::PAGE);
        let connection = self.0.combiner.connection();
        let answer = connection.run(connection.begin(), &command).await.map_err(|fault| fault.of(OPERATION))?;
        self.0.page(prefix, accepted(OPERATION, answer)?).ok_or_else(|| unexpected(OPERATION))
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        const OPERATION: &str = "watch_prefix";
        let call = self.0.combiner.connection().begin();
        self.0.subscriptions(OPERATION)?.watch_prefix(call, prefix).await.map_err(|fault| fault.of(OPERATION))
    }
}

impl Shared {
    /// Reads the answer of `SCAN`. It leaves out what has expired, as every command does.
    fn page(&self, prefix: &KeyPrefix, answer: Value) -> Option<Page> {
        let Value::Array(parts) = answer else { return None };
        let [Value::BulkString(next), Value::Array(names)] = parts.as_slice() else { return None };
        let mut keys = Vec::with_capacity(names.len());
        for name in names {
            let Value::BulkString(name) = name else { return None };
            keys.extend(self.layout.key(name).filter(|key| prefix.matches(key)));
        }
        let next = (next != b"0").then(|| Cursor::from_store(next.clone()));
        Some(Page { keys, next })
    }
}

/// An answer that is no error.
fn accepted(operation: &'static str, answer: Value) -> Result<Value, Error> {
    match answer {
        Value::ServerError(error) => Err(refused(operation, &error)),
        answer => Ok(answer),
    }
}

fn outcome(operation: &'static str, answer: &Value) -> Result<Outcome, Error> {
    match answer {
        Value::Int(applied @ (0 | 1)) => Ok(Outcome::from_applied(*applied == 1)),
        _ => Err(unexpected(operation)),
    }
}

fn revision(operation: &'static str, answer: &Value) -> Result<Revision, Error> {
    match answer {
        Value::Int(number) => minted(operation, *number),
        _ => Err(unexpected(operation)),
    }
}

fn minted(operation: &'static str, number: i64) -> Result<Revision, Error> {
    u64::try_from(number).ok().and_then(|number| Revision::new(number).ok()).ok_or_else(|| unexpected(operation))
}

/// Reads what a script says is there: the value as it is stored, and the time left in milliseconds, or nothing.
fn entry(operation: &'static str, answer: Value) -> Result<Option<Entry>, Error> {
    let parts = match answer {
        Value::Nil => return Ok(None),
        Value::Array(parts) => parts,
        _ => return Err(unexpected(operation)),
    };
    let (stored, millis) = match <[Value; 2]>::try_from(parts) {
        Ok([Value::BulkString(stored), Value::Int(millis)]) => (stored, millis),
        Ok([_, Value::ServerError(error)]) => return Err(refused(operation, &error)),
        _ => return Err(unexpected(operation)),
    };
    // An entry ends when its last millisecond is over, so one that is there with 0 of them left is in its last.
    let time_left = u64::try_from(millis).ok().map(|millis| Duration::from_millis(millis.max(1)));
    Ok(Some(Entry { value: value_of(operation, stored)?, time_left }))
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("layout", &self.0.layout).finish_non_exhaustive()
    }
}
