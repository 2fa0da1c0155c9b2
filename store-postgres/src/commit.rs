use leasehold_core::idempotency::{Answer, Begin, Call, CallError, Claim, Completion, Recording};
use leasehold_core::{Effect, Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, Postgres, Transaction};
use sqlx_core::transaction::TransactionManager;

use crate::error::Failure;
use crate::store::{NAME, PostgresStore};

impl PostgresStore {
    /// Commits the caller's transaction with the answer of a claim in it: the effect and the record of it are one, so
    /// that the call has its effect exactly once.
    ///
    /// The answer is written as the last statement, and the transaction is committed if the claim still holds; else it is
    /// rolled back. One trip for each of the two. The claim must be of an
    /// [`Idempotency`](leasehold_core::idempotency::Idempotency) on this very store, without a namespace. The transaction
    /// must be the outer one, begun by the driver, and `READ COMMITTED`: under a stricter isolation a renewal of the claim
    /// makes it fail, without effect.
    ///
    /// Say [`free_when_dropped`](Claim::free_when_dropped) of the claim, and an error on the way, which rolls the
    /// transaction back as it is dropped, frees the key.
    ///
    /// ```no_run
    /// # use leasehold_core::{Error, idempotency::{Begin, Idempotency}};
    /// # use leasehold_postgres::{PostgresStore, sqlx};
    /// # async fn example(store: PostgresStore, once: Idempotency, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let order: i64 = match once.call("order", "key of the caller", &["42"]).begin().await? {
    ///     Begin::Replay(replay) => replay.value()?,
    ///     Begin::Claimed(claim) => {
    ///         let claim = claim.free_when_dropped();
    ///         let mut transaction = pool.begin().await?;
    ///         let order = sqlx::query_scalar("INSERT INTO orders (item) VALUES (42) RETURNING id")
    ///             .fetch_one(&mut *transaction)
    ///             .await?;
    ///         store.commit(claim, transaction, &order).await?;
    ///         order
    ///     }
    /// };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - `Lost`, with nothing committed, when the claim does not hold any more, and when an earlier statement had aborted
    ///   the transaction, though its error was swallowed.
    /// - `InvalidInput` when the answer cannot be written as JSON, or the transaction is a savepoint; nothing is committed.
    /// - What the server could not answer. The effect is `None` when surely nothing is committed. A commit whose answer is
    ///   lost is looked into, so that it is `Unknown` only when that fails too.
    ///
    /// # Cancel safety
    ///
    /// All of it may be committed, or nothing is; what was not frees the key.
    pub async fn commit<T>(
        &self,
        claim: Claim,
        mut transaction: Transaction<'_, Postgres>,
        answer: &T,
    ) -> Result<(), Error>
    where
        T: Serialize + ?Sized,
    {
        let recording = claim.free_when_dropped().recording(answer)?;
        if PgTransactionManager::get_transaction_depth(&transaction) != 1 {
            let message = "a savepoint is no transaction: what it holds may yet be rolled back";
            return Err(Error::new(ErrorKind::InvalidInput, "commit", message).with_store(NAME));
        }
        // That this succeeds shows that nothing has aborted the transaction: the server answers a COMMIT of one that was
        // with ROLLBACK, which the driver passes off as success. Nothing comes between this and the commit.
        match recording.write_to(&self.within(&mut transaction)).await {
            Ok(Completion::Recorded) => {}
            Ok(Completion::Lost) => {
                roll_back(transaction).await;
                return Err(lost("the claim does not hold any more, and nothing is committed"));
            }
            Err(error) => {
                roll_back(transaction).await;
                // Within a transaction, that is said of one that was aborted before.
                return Err(match error.kind() {
                    ErrorKind::Conflict => lost("the transaction was aborted before, and nothing is committed"),
                    _ => error.with_effect(Effect::None),
                });
            }
        }
        match transaction.commit().await {
            Ok(()) => {
                self.bell().ring(recording.key());
                recording.recorded();
                Ok(())
            }
            Err(error) => {
                let key = recording.key().clone();
                find_out(recording, Failure::of(&error)).await.inspect(|()| self.bell().ring(&key))
            }
        }
    }

    /// Runs work in a transaction of this store's pool, and [commits](Self::commit) it with the answer, unless the call
    /// was made before: then its answer is replayed.
    ///
    /// Work that fails is rolled back, and its key is free. The work must not end the transaction itself.
    ///
    /// ```no_run
    /// # use leasehold_core::idempotency::{CallError, Idempotency};
    /// # use leasehold_postgres::{PostgresStore, sqlx};
    /// # async fn example(store: PostgresStore) -> Result<(), CallError<sqlx::Error>> {
    /// let once = Idempotency::new(store.clone());
    /// let order = store
    ///     .run_once(once.call("order", "key of the caller", &["42"]), async |transaction| {
    ///         sqlx::query_scalar::<_, i64>("INSERT INTO orders (item) VALUES (42) RETURNING id")
    ///             .fetch_one(transaction)
    ///             .await
    ///     })
    ///     .await?;
    /// println!("order {} (replayed: {})", order.value, order.replayed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::Work`] with what the work said; else as [`Call::begin`] and [`commit`](Self::commit).
    ///
    /// # Cancel safety
    ///
    /// All of it may be committed, or nothing is, and the key is freed in the background.
    pub async fn run_once<T, E>(
        &self,
        call: Call,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
    ) -> Result<Answer<T>, CallError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let claim = match call.begin().await? {
            Begin::Replay(replay) => return Ok(Answer { value: replay.value()?, replayed: true }),
            Begin::Claimed(claim) => claim.free_when_dropped(),
        };
        let mut transaction = self.begin().await?;
        match work(&mut transaction).await {
            Ok(value) => {
                self.commit(claim, transaction, &value).await?;
                Ok(Answer { value, replayed: false })
            }
            Err(error) => {
                roll_back(transaction).await;
                if let Err(error) = claim.abandon().await {
                    tracing::warn!(%error, "the work was rolled back, and its key is freed in the background");
                }
                Err(CallError::Work(error))
            }
        }
    }

    /// A transaction on a connection of the pool. The driver leaves a connection in a transaction when beginning one is
    /// dropped midway, so that is left to a task.
    async fn begin(&self) -> Result<Transaction<'static, Postgres>, Error> {
        let link = self.link().clone();
        let task = tokio::spawn(async move {
            let connection = link.connection(link.until()).await?;
            Transaction::begin(connection, None).await.map_err(|error| Failure::of(&error))
        });
        let begun = task.await.unwrap_or_else(|_| Err(Failure::abandoned()));
        begun.map_err(|failure| failure.into_error("begin").with_effect(Effect::None))
    }
}

/// The commit was not confirmed: what is in the store says what became of it.
async fn find_out(recording: Recording, failure: Failure) -> Result<(), Error> {
    let refused = failure.is_answer();
    let error = failure.into_error("commit");
    // An answer that names the reason is as good as the truth: a constraint that was deferred to the commit, for one.
    if refused {
        return Err(error);
    }
    match recording.find_out().await {
        Ok(Completion::Recorded) => Ok(()),
        Ok(Completion::Lost) => Err(error.with_effect(Effect::None)),
        Err(_) => Err(error.with_effect(Effect::Unknown)),
    }
}

/// Rolls back, so that a rollback that fails is of no matter: the connection is closed then, and with it the transaction.
async fn roll_back(transaction: Transaction<'_, Postgres>) {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(error = %Failure::of(&error).into_error("rollback"), "a rollback was not confirmed");
    }
}

fn lost(message: &'static str) -> Error {
    Error::new(ErrorKind::Lost, "commit", message).with_store(NAME).with_effect(Effect::None)
}
