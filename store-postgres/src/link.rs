use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Postgres};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Failure;
use crate::knock::Knock;
use crate::parameters::Parameters;

/// The way to the server: a pool, and how statements are sent over it.
///
/// A statement whose future is dropped goes on at the server, and leaves its connection waiting for the answer in the
/// pool. So each is sent from a task of its own kind that sees it to its end, and a connection that gave no answer in
/// time is closed.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pool: PgPool,
    /// Whether the server keeps statements prepared, which a pooler in transaction mode would mix up.
    prepared: bool,
    deadline: Duration,
    knock: Knock,
}

/// The part of the deadline that a server may refuse connections for, as during a restart, before it counts as away; and
/// that an idle connection may take to say that it is there.
const PATIENCE: u32 = 5;

impl Link {
    pub(crate) fn new(pool: PgPool, prepared: bool, deadline: Duration) -> Self {
        let knock = Knock::new(pool.clone(), deadline / PATIENCE);
        Self { pool, prepared, deadline, knock }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// When a call that starts now has to have its answer.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// What a call whose deadline has come says.
    pub(crate) fn no_answer(&self) -> Failure {
        Failure::no_answer(self.deadline)
    }

    pub(crate) async fn connection(&self, until: Instant) -> Result<PoolConnection<Postgres>, Failure> {
        self.connected(until, self.pool.acquire()).await
    }

    /// Waits for a connection, until the deadline or until the server has refused it for a while.
    pub(crate) async fn connected<T>(
        &self,
        until: Instant,
        connects: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            // The connection that is there counts first.
            biased;
            connected = timeout_at(until, connects) => match connected {
                Ok(Ok(connection)) => Ok(connection),
                Ok(Err(error)) => Err(Failure::not_sent(&error)),
                Err(_) => Err(Failure::no_connection()),
            },
            () = self.knock.refused() => Err(Failure::refused()),
        }
    }

    /// Sends one statement; the connection comes back if it is good for another. Not to be dropped midway.
    pub(crate) async fn send(
        &self,
        mut connection: PoolConnection<Postgres>,
        sql: &Arc<str>,
        parameters: Parameters,
        until: Instant,
    ) -> (Result<Vec<PgRow>, Failure>, Option<PoolConnection<Postgres>>) {
        match timeout_at(until, fetch(&mut connection, sql, parameters, self.prepared)).await {
            Ok(Ok(rows)) => (Ok(rows), Some(connection)),
            Ok(Err(failure)) if failure.is_answer() => (Err(failure), Some(connection)),
            Ok(Err(failure)) => {
                drop(connection.detach());
                (Err(failure), None)
            }
            Err(_) => {
                drop(connection.detach());
                (Err(Failure::no_answer(self.deadline)), None)
            }
        }
    }

    /// Sends one statement from a task of its own, so that this future can be dropped.
    pub(crate) async fn rows(
        &self,
        sql: &Arc<str>,
        parameters: Parameters,
        until: Instant,
    ) -> Result<Vec<PgRow>, Failure> {
        let (link, sql) = (self.clone(), sql.clone());
        let task = tokio::spawn(async move {
            let connection = link.connection(until).await?;
            link.send(connection, &sql, parameters, until).await.0
        });
        task.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// Runs several statements as one transaction, from a task of its own.
    pub(crate) async fn run(&self, text: String, until: Instant) -> Result<(), Failure> {
        let link = self.clone();
        let task = tokio::spawn(async move {
            let mut connection = link.connection(until).await?;
            let sent = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection);
            match timeout_at(until, sent).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(Failure::of(&error)),
                Err(_) => {
                    drop(connection.detach());
                    Err(Failure::no_answer(link.deadline))
                }
            }
        });
        task.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }
}

/// One statement in one exchange with the server, once it is prepared.
pub(crate) async fn fetch(
    connection: &mut PgConnection,
    sql: &Arc<str>,
    parameters: Parameters,
    prepared: bool,
) -> Result<Vec<PgRow>, Failure> {
    let rows = if prepared {
        sqlx::query_with(AssertSqlSafe(sql.clone()), parameters.bound()?).fetch_all(connection).await
    } else {
        sqlx::raw_sql(AssertSqlSafe(parameters.written_into(sql))).fetch_all(connection).await
    };
    rows.map_err(|error| Failure::of(&error))
}

/// Asks a connection that has not been used for a while whether it still is one. One that was used just now is taken
/// at its word, which saves a trip for each statement.
///
/// What drops idle connections on the way may do so without a word. Such a one must not take the time of the call that
/// meets it: the pool opens another in its place.
pub(crate) async fn is_alive(
    connection: &mut PgConnection,
    idle_for: Duration,
    deadline: Duration,
) -> Result<bool, sqlx::Error> {
    const TRUSTED: Duration = Duration::from_secs(1);
    if idle_for > TRUSTED {
        let silent = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        timeout(deadline / PATIENCE, connection.ping()).await.map_err(silent)??;
    }
    Ok(true)
}
