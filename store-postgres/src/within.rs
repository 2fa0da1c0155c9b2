use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_core::{AddOutcome, AtomicStore, Capabilities, Entry, Error, Hints, Key, Outcome, ReplaceOutcome, Ttl};
use sqlx::PgConnection;
use tokio::sync::Mutex;

use crate::error::{Failure, no_hints};
use crate::link::fetch;
use crate::request::{Read, Request, Write, answers};
use crate::sql::{Forms, Sql};
use crate::store::{NAME, added, replaced};

/// The primitives over a transaction of the caller's: what
/// [`PostgresStore::within`](crate::PostgresStore::within) gives.
///
/// They wait for locks as any other statement of the transaction does, under its own limits, and that a key is taken
/// never aborts it. Nobody is told of a change.
///
/// What a transaction has written to, and what it has tried to add, is its own until it ends. Two transactions that take the
/// same keys in opposite order wait for each other, and the server aborts one of them (`40P01`, without effect): take
/// them in one order in all of your code, such as sorted.
pub struct Within<'t> {
    connection: Mutex<&'t mut PgConnection>,
    sql: Arc<Sql>,
    prepared: bool,
    capabilities: Capabilities,
    /// How long the server waits for the commit after this.
    commits_within: Option<Duration>,
}

impl<'t> Within<'t> {
    pub(crate) fn new(
        connection: &'t mut PgConnection,
        sql: Arc<Sql>,
        prepared: bool,
        capabilities: Capabilities,
    ) -> Self {
        let capabilities = capabilities.with_hints(false);
        Self { connection: Mutex::new(connection), sql, prepared, capabilities, commits_within: None }
    }

    /// Has the server end the transaction where its commit does not come so soon after one of these statements.
    pub(crate) fn commits_within(mut self, limit: Duration) -> Self {
        self.commits_within = Some(limit);
        self
    }

    async fn ask<R: Request>(&self, operation: &'static str, request: R) -> Result<R::Answer, Error> {
        // The server takes no more than this, which is 24 days.
        const MOST_MILLIS: u128 = i32::MAX as u128;
        let Forms { within, last, .. } = R::statement(&self.sql);
        let limit = self.commits_within.map(|limit| format!("{}ms", limit.as_millis().clamp(1, MOST_MILLIS)));
        let mut connection = self.connection.lock().await;
        let ask = async {
            loop {
                let parameters = R::parameters(&[&request], &self.sql);
                let (statement, parameters) = match &limit {
                    Some(limit) => (last, parameters.text(limit.as_str())),
                    None => (within, parameters),
                };
                let rows = fetch(&mut connection, statement, parameters, self.prepared).await?;
                // Where the snapshot was too old, the next is not.
                if let Some(answer) = answers::<R>(&rows, &[&request])?.pop().flatten() {
                    return Ok(answer);
                }
            }
        };
        ask.await.map_err(|failure: Failure| failure.into_error(operation))
    }

    fn check(&self, operation: &'static str, value: &Bytes) -> Result<(), Error> {
        self.capabilities.check_value(operation, value).map_err(|error| error.with_store(NAME))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl AtomicStore for Within<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error> {
        self.check("try_add", &value)?;
        added(self.ask("try_add", Write::add(key, value, ttl)).await?, "try_add")
    }

    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error> {
        self.check("try_replace", &value)?;
        self.ask("try_replace", Write::replace(key, expected, value, ttl)).await.map(replaced)
    }

    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error> {
        self.ask("try_remove", Write::remove(key, Some(expected))).await.map(|written| written.outcome())
    }

    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error> {
        self.ask("try_expire", Write::expire(key, expected, ttl)).await.map(|written| written.outcome())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.ask("get", Read(key.clone())).await
    }

    async fn watch(&self, _: &Key) -> Result<Hints, Error> {
        Err(no_hints("watch", "there are no hints within a transaction"))
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}
