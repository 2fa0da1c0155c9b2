use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Effect, Entry, Error, ErrorKind, Expiry, Hints, Key,
    KeyPrefix, Outcome, Page, ReplaceOutcome, Revision, Ttl,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::{ConnectOptions, PgConnection, PgPool, Row};

use crate::config::PostgresConfig;
use crate::error::{Failure, foreign_cursor, invalid, no_hints};
use crate::hints::Bell;
use crate::lane::Lane;
use crate::link::{Link, is_alive};
use crate::parameters::Parameters;
use crate::request::{Read, Write, Written};
use crate::sql::Sql;
use crate::sweeper::Sweeper;
use crate::transaction::Transactions;
use crate::waiting::Waiting;
use crate::within::Within;

pub(crate) const NAME: &str = "postgres";

/// A store in a Postgres database. Clones share everything.
///
/// ```no_run
/// use leasehold_postgres::PostgresStore;
///
/// # async fn example() -> Result<(), leasehold_core::Error> {
/// let store = PostgresStore::connect("postgres://app:secret@db.example/orders?table_prefix=leases_").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Shared>);

struct Shared {
    link: Link,
    sql: Arc<Sql>,
    config: PostgresConfig,
    writes: Lane<Write>,
    reads: Lane<Read>,
    transactions: Transactions,
    bell: Bell,
    sweeper: Sweeper,
    /// Tells the sweeper that the store is still there.
    alive: Arc<()>,
}

impl PostgresStore {
    /// Connects by URL, with a pool of its own, and makes the tables unless the URL says `?migrate=false`.
    ///
    /// The parameters are those of [`PostgresConfig::URL_PARAMETERS`] and the driver's, such as `sslmode`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a URL that cannot be read, without showing its password; else what the server could not
    /// answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing open; the tables may be there.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, PostgresConfig::default()).await
    }

    /// The same with a configuration from elsewhere, such as a file. What the URL says goes before it.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and `InvalidInput` for a configuration that breaks a rule.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_with(url: &str, config: PostgresConfig) -> Result<Self, Error> {
        let (config, mut options) = config.with_url(url)?;
        if config.pgbouncer {
            // The driver logs whole statements, the slow ones as a warning, and there they hold keys and values.
            options = options.disable_statement_logging();
        }
        // A pooler refuses a start with settings that it does not know. In transaction mode no plan is kept anyway.
        let has_settings = config.startup_settings && !config.pgbouncer;
        if !has_settings {
            options = options.extra_float_digits(None);
        }
        let deadline = config.deadline;
        let pool = |options| {
            PgPoolOptions::new()
                .max_connections(config.max_connections)
                // Ours comes first, and says more.
                .acquire_timeout(deadline * 2)
                .test_before_acquire(false)
                .before_acquire(move |connection, meta| Box::pin(is_alive(connection, meta.idle_for, deadline)))
                .connect_lazy_with(options)
        };
        // The work of callers has statements of another kind, and its transactions must not use up what keeps their
        // claims.
        let for_transactions = (pool(options.clone()), config.max_connections as usize);
        // To plan a statement takes longer than to run it for a few items, so its plan is kept. One that was made while
        // the table was small would read the whole table when it is large.
        let settings = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];
        let pool = pool(if has_settings { options.options(settings) } else { options });
        let migrate = config.migrate;
        let store = Self::over(pool, for_transactions, config)?;
        if migrate {
            store.migrate().await?;
        } else {
            // A server that is not there should be found out now, too.
            store.is_there("connect").await?;
        }
        Ok(store)
    }

    /// A store over a pool of the caller's. It uses at most four connections of it for writes, two for reads and two
    /// for what waits for a lock, or a part of a smaller pool, and none while it has nothing to ask; besides, one
    /// connection with the same options for hints, once somebody watches. With a
    /// [`max_batch`](PostgresConfig::max_batch) of 1 it uses as many as the pool has. The work in
    /// [`run_once`](Self::run_once) holds one more for as long as it takes, up to three quarters of the pool in all. It
    /// makes no tables, and does not look at those that are there: [`migrate`](Self::migrate) refuses an unlogged table
    /// that the configuration does not call so, and until it is called the store says that it is durable because it is
    /// told so.
    ///
    /// With [`pgbouncer`](PostgresConfig::pgbouncer) keys and values are in the text of statements, which the driver logs:
    /// give the pool options with
    /// [`disable_statement_logging`](sqlx::ConnectOptions::disable_statement_logging).
    ///
    /// A pool with `test_before_acquire` (the driver's default) costs a trip more for a statement. A connection keeps the
    /// plan of a statement until the table is analyzed anew: where no autovacuum does that, set `enable_seqscan` off in
    /// the options of the pool, as [`connect`](Self::connect) does, or a plan for a small table is used on a large one.
    /// It also sets `plan_cache_mode` to `force_generic_plan`; without that the server plans some statements each time.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a configuration that breaks a rule.
    pub fn new(pool: PgPool, config: PostgresConfig) -> Result<Self, Error> {
        let connections = pool.options().get_max_connections();
        let kept_back = (connections / 4).max(1);
        let for_transactions = (pool.clone(), connections.saturating_sub(kept_back).max(1) as usize);
        Self::over(pool, for_transactions, config)
    }

    /// With the pool that transactions of the store's own are begun on, and how many at the same time.
    fn over(pool: PgPool, (transactions, at_most): (PgPool, usize), config: PostgresConfig) -> Result<Self, Error> {
        let sql = Arc::new(config.sql()?);
        let connections = pool.options().get_max_connections();
        let share = |most: u32, part: u32| (connections / part).clamp(1, most) as usize;
        let (writes, reads, alone) = match config.max_batch {
            // What does not go together goes side by side, and the pool says how much of that.
            1 => (connections as usize, connections as usize, share(2, 4)),
            _ => (share(4, 2), share(2, 4), share(2, 4)),
        };
        let lane = |width| [width, config.max_batch as usize];
        let link_over = |pool| Link::new(pool, !config.pgbouncer, config.deadline);
        let transactions = Transactions::new(link_over(transactions), at_most);
        let link = link_over(pool);
        let bell = Bell::new(link.clone(), sql.clone(), config.hints && !config.pgbouncer);
        let waiting = Arc::new(Waiting::new(alone));
        Ok(Self(Arc::new(Shared {
            writes: Lane::new(link.clone(), sql.clone(), bell.clone(), lane(writes), waiting.clone()),
            reads: Lane::new(link.clone(), sql.clone(), bell.clone(), lane(reads), waiting),
            sweeper: Sweeper::new(link.clone(), sql.clone(), config.grace, config.sweep_interval),
            alive: Arc::default(),
            transactions,
            link,
            sql,
            config,
            bell,
        })))
    }

    /// Makes the tables where they are not there. It may be called again, and by many processes at once.
    ///
    /// # Errors
    ///
    /// `Unauthorized` where they are not there and the user may not make them; else what the server could not answer.
    /// After an unknown effect they may be there.
    ///
    /// # Cancel safety
    ///
    /// All of them may be made, or none.
    pub async fn migrate(&self) -> Result<(), Error> {
        // Asked first, as a user who may use the tables need not have the right to make some.
        if self.is_there("migrate").await? {
            return Ok(());
        }
        let shared = &self.0;
        shared
            .link
            .run(shared.sql.schema.clone(), shared.link.until())
            .await
            .map_err(|error| error.into_error("migrate"))
    }

    /// Deletes all that ended longer ago than the grace time, as the sweeper does by itself every now and then, and
    /// answers how many rows that were.
    ///
    /// # Errors
    ///
    /// What the server could not answer.
    ///
    /// # Cancel safety
    ///
    /// A part may be gone.
    pub async fn purge(&self) -> Result<u64, Error> {
        self.0.sweeper.sweep().await.map_err(|failure| failure.into_error("purge"))
    }

    /// The primitives over a transaction of the caller's: they are committed or rolled back with it.
    ///
    /// Its isolation must be `READ COMMITTED`. Under a stricter one the store answers by what was there when the
    /// transaction began, and may fail with a serialization error where another was in the way.
    ///
    /// ```no_run
    /// # use leasehold_core::{AtomicStore, Error, Key, Ttl};
    /// # async fn example(
    /// #     store: leasehold_postgres::PostgresStore, pool: sqlx::PgPool, key: Key, ttl: Ttl,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = pool.begin().await?;
    /// let added = store.within(&mut transaction).try_add(&key, "mine".into(), ttl).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<'t>(&self, transaction: &'t mut PgConnection) -> Within<'t> {
        Within::new(transaction, self.0.sql.clone(), self.0.link.is_prepared(), self.capabilities())
    }

    /// The same as the last thing before a commit that follows at once.
    pub(crate) fn to_be_committed<'t>(&self, transaction: &'t mut PgConnection) -> Within<'t> {
        self.within(transaction).commits_within(self.0.link.deadline())
    }

    pub(crate) fn transactions(&self) -> &Transactions {
        &self.0.transactions
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.0.bell
    }

    pub(crate) fn statements(&self) -> (&Sql, bool) {
        (&self.0.sql, self.0.link.is_prepared())
    }

    async fn is_there(&self, operation: &'static str) -> Result<bool, Error> {
        let Shared { link, sql, .. } = &*self.0;
        let ask = async {
            let parameters = Parameters::default().text(&sql.table).text(sql.fences());
            let rows = link.rows(&sql.is_there, parameters, link.until()).await?;
            let row = rows.first().ok_or_else(Failure::unexpected)?;
            let read = |column| row.try_get::<bool, _>(column).map_err(|_| Failure::unexpected());
            Ok((read("is_there")?, read("is_unlogged")?))
        };
        let (is_there, is_unlogged) =
            ask.await.map_err(|failure: Failure| failure.into_error(operation).with_effect(Effect::None))?;
        if is_unlogged && !self.0.config.unlogged {
            return Err(invalid("the table is unlogged, which promises less: say so by `unlogged=true`"));
        }
        Ok(is_there)
    }
}

impl Shared {
    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities().check_value(operation, value).map_err(|error| error.with_store(NAME))
    }

    fn capabilities(&self) -> Capabilities {
        let PostgresConfig { unlogged, hints, pgbouncer, max_value_len, .. } = &self.config;
        Capabilities::minimal()
            .with_shared(true)
            .with_durable(!unlogged)
            .with_hints(*hints && !pgbouncer)
            .with_revisions(true)
            .with_max_value_len(*max_value_len)
    }

    async fn write(&self, operation: &'static str, write: Write) -> Result<Written, Error> {
        self.sweeper.keep_running(&self.alive);
        self.writes.ask(write).await.map_err(|failure| failure.into_error(operation))
    }

    async fn write_all(&self, operation: &'static str, writes: Vec<Write>) -> Result<Vec<Written>, Error> {
        self.sweeper.keep_running(&self.alive);
        self.writes.ask_all(writes).await.map_err(|failure| failure.into_error(operation))
    }

    async fn listen(
        &self,
        operation: &'static str,
        topic: impl FnOnce(&leasehold_core::HintHub) -> Hints,
    ) -> Result<Hints, Error> {
        match self.bell.listen(topic, self.link.until()).await {
            Some(hints) => hints.map_err(|failure| failure.into_error(operation).with_effect(Effect::None)),
            None if self.config.pgbouncer => Err(no_hints(operation, "there are no hints behind a pooler")),
            None => Err(no_hints(operation, "hints are switched off")),
        }
    }
}

/// What an add says.
pub(crate) fn added(written: Written, operation: &'static str) -> Result<AddOutcome, Error> {
    match written {
        Written::Applied(revision) => Ok(AddOutcome::Added(revision)),
        Written::NotApplied(Some(entry)) => Ok(AddOutcome::Exists(entry)),
        Written::NotApplied(None) => Err(Failure::unexpected().into_error(operation)),
    }
}

/// What a replacement says.
pub(crate) fn replaced(written: Written) -> ReplaceOutcome {
    match written {
        Written::Applied(revision) => ReplaceOutcome::Applied(revision),
        Written::NotApplied(_) => ReplaceOutcome::NotApplied,
    }
}

fn revision(written: Written, operation: &'static str) -> Result<Revision, Error> {
    match written {
        Written::Applied(revision) => Ok(revision),
        Written::NotApplied(_) => Err(Failure::unexpected().into_error(operation)),
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl AtomicStore for PostgresStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.0.check("try_add", &value)?;
        added(self.0.write("try_add", Write::add(key, value, ttl)).await?, "try_add")
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.0.check("try_replace", &value)?;
        self.0.write("try_replace", Write::replace(key, expected, value, ttl)).await.map(replaced)
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        let written = self.0.write("try_remove", Write::remove(key, Some(expected))).await?;
        Ok(written.outcome())
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        let written = self.0.write("try_expire", Write::expire(key, expected, ttl)).await?;
        Ok(written.outcome())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.0.reads.ask(Read(key.clone())).await.map_err(|failure| failure.into_error("get"))
    }

    async fn watch(&self, key: &Key) -> Result<Hints, Error> {
        self.0.listen("watch", |hub| hub.watch(key)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl CacheStore for PostgresStore {
    async fn set(&self, key: &Key, value: Bytes, expiry: Expiry) -> Result<Revision, Error> {
        self.0.check("set", &value)?;
        revision(self.0.write("set", Write::set(key, value, expiry)).await?, "set")
    }

    async fn remove(&self, key: &Key) -> Result<Outcome, Error> {
        let written = self.0.write("remove", Write::remove(key, None)).await?;
        Ok(written.outcome())
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
        let reads = keys.iter().cloned().map(Read).collect();
        self.0.reads.ask_all(reads).await.map_err(|failure| failure.into_error("get_many"))
    }

    async fn set_many(&self, items: Vec<(Key, Bytes, Expiry)>) -> Result<Vec<Revision>, Error> {
        for (_, value, _) in &items {
            self.0.check("set_many", value)?;
        }
        let writes = items.into_iter().map(|(key, value, expiry)| Write::set(&key, value, expiry)).collect();
        let written = self.0.write_all("set_many", writes).await?;
        written.into_iter().map(|written| revision(written, "set_many")).collect()
    }

    async fn remove_many(&self, keys: &[Key]) -> Result<Vec<Outcome>, Error> {
        let writes = keys.iter().map(|key| Write::remove(key, None)).collect();
        let written = self.0.write_all("remove_many", writes).await?;
        Ok(written.iter().map(Written::outcome).collect())
    }

    async fn scan(&self, prefix: &KeyPrefix, cursor: Option<Cursor>) -> Result<Page, Error> {
        const ROWS: i64 = 1000;
        let after = match &cursor {
            // The cursor is the last key that was looked at.
            Some(cursor) => {
                let key = std::str::from_utf8(cursor.as_bytes()).ok().and_then(|key| Key::from_store(key).ok());
                key.filter(|key| prefix.matches(key)).ok_or_else(foreign_cursor)?.as_bytes().to_vec()
            }
            // The sweeper's own row comes before every key.
            None => vec![0],
        };
        let Shared { link, sql, .. } = &*self.0;
        let parameters = Parameters::default()
            .bytes(Some(prefix.as_bytes()))
            .bytes(Some(&after))
            .bytes(successor(prefix.as_bytes()).as_deref())
            .number(ROWS);
        let rows = link.rows(&sql.scan, parameters, link.until()).await;
        let rows = rows.map_err(|failure| failure.into_error("scan"))?;
        let unexpected = || Failure::unexpected().into_error("scan");
        let (mut keys, mut last) = (Vec::new(), None);
        for row in &rows {
            let bytes: Vec<u8> = row.try_get("key").map_err(|_| unexpected())?;
            if row.try_get("live").map_err(|_| unexpected())? {
                let text = std::str::from_utf8(&bytes).map_err(|_| unexpected())?;
                keys.push(Key::from_store(text).map_err(|error| {
                    Error::new(ErrorKind::Corrupt, "scan", "the table has a key that is none")
                        .with_store(NAME)
                        .with_source(error)
                })?);
            }
            last = Some(bytes);
        }
        let next = last.filter(|_| rows.len() as i64 == ROWS).map(Cursor::from_store);
        Ok(Page { keys, next })
    }

    async fn watch_prefix(&self, prefix: &KeyPrefix) -> Result<Hints, Error> {
        self.0.listen("watch_prefix", |hub| hub.watch_prefix(prefix)).await
    }
}

/// The first key after all that begin with `prefix`; nothing if there is no such key.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the pool nor its options, which know the password.
        f.debug_struct("PostgresStore").field("config", &self.0.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_successor_begins() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(&[b'a', 0xff]), Some(b"b".to_vec()));
        assert_eq!(successor(b""), None);
        assert_eq!(successor(&[0xff]), None);
    }
}
