use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::error::Failure;
use crate::link::Link;

/// Begins transactions of the store's own for work of its callers'.
///
/// That work holds its connection for as long as it takes, and its claim is kept by statements that need one too. So
/// there are never so many of them that the store has none left.
pub(crate) struct Transactions {
    link: Link,
    places: Arc<Semaphore>,
}

impl Transactions {
    pub(crate) fn new(link: Link, at_most: usize) -> Self {
        Self { link, places: Arc::new(Semaphore::new(at_most)) }
    }

    /// A transaction of a chosen isolation, whatever the role or the database has as its default. In a task, as the
    /// driver leaves a connection in a transaction when beginning one is dropped midway.
    pub(crate) async fn begin(&self) -> Result<OwnTransaction, Failure> {
        let (link, places, until) = (self.link.clone(), self.places.clone(), self.link.until());
        let task = tokio::spawn(async move {
            let Ok(Ok(place)) = timeout_at(until, places.acquire_owned()).await else {
                return Err(Failure::no_connection());
            };
            let mut connection = link.connection(until).await?;
            let begin = "BEGIN ISOLATION LEVEL READ COMMITTED".into_sql_str();
            let begun = timeout_at(until, PgTransactionManager::begin(&mut connection, Some(begin))).await;
            let mut transaction = OwnTransaction { connection, _place: place };
            let failure = match begun {
                Ok(Ok(())) => return Ok(transaction),
                Ok(Err(error)) => Failure::of(&error),
                Err(_) => link.no_answer(),
            };
            if !failure.is_answer() {
                transaction.close_when_dropped();
            }
            Err(failure)
        });
        task.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }
}

/// An open transaction on a connection of a pool's. Dropped, it is rolled back.
pub(crate) struct OwnTransaction {
    connection: PoolConnection<Postgres>,
    _place: OwnedSemaphorePermit,
}

impl OwnTransaction {
    /// For a connection that gave no answer: in the pool it would wait for it, and the server go on with a transaction
    /// that nobody ends.
    pub(crate) fn close_when_dropped(&mut self) {
        self.connection.close_on_drop();
    }
}

impl Deref for OwnTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for OwnTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for OwnTransaction {
    fn drop(&mut self) {
        // Sent as the connection comes back to its pool. One that has ended has nothing to roll back.
        PgTransactionManager::start_rollback(&mut self.connection);
    }
}
