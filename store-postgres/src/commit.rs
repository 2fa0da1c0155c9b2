use leasehold_core::idempotency::{Answer, Begin, Call, CallError, Claim, Completion, Recording};
use leasehold_core::{Effect, Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, Postgres, Transaction};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::store::{NAME, PostgresStore};

impl PostgresStore {
    /// Commits the caller's transaction with the answer of a claim in it: the effect and the record of it are one, so
    /// that the call has its effect exactly once.
    ///
    /// The answer is written as the last statement, and the transaction is committed if the claim still holds; else it is
    /// rolled back. One trip for each of the two, and one [`deadline`](crate::PostgresConfig::deadline) for both; the
    /// server ends a transaction whose commit does not come within another. The claim must be of an
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
    /// - `Lost`, with nothing committed, when the claim does not hold any more or is not one of this store, and when an
    ///   earlier statement had aborted the transaction, though its error was swallowed.
    /// - `InvalidInput` when the answer cannot be written as JSON, or the transaction is a savepoint; nothing is committed.
    /// - What the server could not answer. The effect is `None` when surely nothing is committed. A commit whose answer is
    ///   lost, or does not come in time, is looked into for some seconds, so that it is `Unknown` only when that fails too.
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
        let (held, recording) = draft(claim, answer)?;
        if PgTransactionManager::get_transaction_depth(&transaction) != 1 {
            let message = "a savepoint is no transaction: what it holds may yet be rolled back";
            return Err(Error::new(ErrorKind::InvalidInput, "commit", message).with_store(NAME));
        }
        let ending = self.end(&mut transaction, &recording, held).await;
        // What is left of it must not stand in the way of finding out.
        drop(transaction);
        self.conclude(ending, recording).await
    }

    /// Runs work in a transaction of this store's pool, and [commits](Self::commit) it with the answer, unless the call
    /// was made before: then its answer is replayed.
    ///
    /// Work that fails is rolled back, and its key is free, under either
    /// [`AfterError`](leasehold_core::idempotency::AfterError), as it had no effect. Work whose claim is lost is always
    /// dropped at its next await point and rolled back. The work must not end the transaction itself.
    ///
    /// The transaction is `READ COMMITTED`. A store that [connects by URL](Self::connect) has connections of their own for
    /// them, as many as [`max_connections`](crate::PostgresConfig::max_connections), with the settings that the user, the
    /// database and the URL give. On a pool of the caller's they take at most three quarters of its connections, so that
    /// there is one left to renew their claims, unless it has but one. Who finds none within the deadline is told so.
    ///
    /// Behind a pooler in transaction mode no statement may be kept prepared: use
    /// [`persistent(false)`](sqlx::query::Query::persistent) or [`raw_sql`](sqlx::raw_sql()).
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
        let begun = self.transactions().begin().await;
        let mut transaction = begun.map_err(|failure| failure.into_error("begin").with_effect(Effect::None))?;
        // What is done after a loss could not be committed, and would only stand in the way of who has the call next.
        let done = claim.while_held(work(&mut transaction)).await;
        let error = match done {
            Ok(Ok(value)) => {
                let (held, recording) = draft(claim, &value)?;
                let ending = self.end(&mut transaction, &recording, held).await;
                if ending.is_silent() {
                    transaction.close_when_dropped();
                }
                drop(transaction);
                self.conclude(ending, recording).await?;
                return Ok(Answer { value, replayed: false });
            }
            Ok(Err(error)) => CallError::Work(error),
            Err(_) => CallError::Call(lost("the claim was lost while the work ran, and nothing is committed")),
        };
        if !roll_back(&mut transaction, self.link().until()).await {
            transaction.close_when_dropped();
        }
        drop(transaction);
        if let Err(error) = claim.abandon().await {
            tracing::warn!(%error, "the work was rolled back, and its key is freed in the background");
        }
        Err(error)
    }

    /// Writes the answer and commits, in the time of one call.
    ///
    /// That the answer is written shows that nothing has aborted the transaction: the server answers a COMMIT of one that
    /// was with ROLLBACK, which the driver passes off as success. Nothing comes between this and the commit.
    async fn end(&self, transaction: &mut PgConnection, recording: &Recording, held: bool) -> Ending {
        let until = self.link().until();
        let unwritten = |error, answered| Ending::Unwritten { error, answered };
        let written = timeout_at(until, recording.write_to(&self.to_be_committed(&mut *transaction))).await;
        let error = match written {
            Ok(Ok(Completion::Recorded)) => {
                return match timeout_at(until, PgTransactionManager::commit(transaction)).await {
                    Ok(Ok(())) => Ending::Committed,
                    Ok(Err(error)) => Ending::Uncommitted(Failure::of(&error)),
                    Err(_) => Ending::Uncommitted(self.link().no_answer()),
                };
            }
            Ok(Ok(Completion::Lost)) if held => lost(
                "the claim holds, and its marker is not in this store: it is one of another store or of a namespace, or an \
                 operator has freed it; nothing is committed",
            ),
            Ok(Ok(Completion::Lost)) => lost("the claim does not hold any more, and nothing is committed"),
            // Within a transaction, that is said of one that was aborted before.
            Ok(Err(error)) if error.kind() == ErrorKind::Conflict => {
                lost("the transaction was aborted before, and nothing is committed")
            }
            Ok(Err(error)) => error.with_effect(Effect::None),
            Err(_) => {
                let error = self.link().no_answer().into_error("commit");
                return unwritten(error.with_effect(Effect::None), false);
            }
        };
        let answered = roll_back(transaction, until).await;
        unwritten(error, answered)
    }

    async fn conclude(&self, ending: Ending, recording: Recording) -> Result<(), Error> {
        let key = recording.key().clone();
        match ending {
            Ending::Committed => recording.recorded(),
            Ending::Unwritten { error, .. } => return Err(error),
            Ending::Uncommitted(failure) => find_out(recording, failure).await?,
        }
        self.bell().ring(&key);
        Ok(())
    }
}

/// What became of a transaction.
enum Ending {
    Committed,
    /// The answer is not written, and surely nothing is committed.
    Unwritten {
        error: Error,
        /// Whether the connection has answered all that it was asked.
        answered: bool,
    },
    /// The commit was not confirmed.
    Uncommitted(Failure),
}

impl Ending {
    /// Whether the connection may still owe an answer.
    fn is_silent(&self) -> bool {
        match self {
            Self::Committed => false,
            Self::Unwritten { answered, .. } => !answered,
            Self::Uncommitted(failure) => !failure.is_answer(),
        }
    }
}

/// What is to be written, and whether the claim still held by then.
fn draft<T: Serialize + ?Sized>(claim: Claim, answer: &T) -> Result<(bool, Recording), Error> {
    let held = claim.check().is_ok();
    Ok((held, claim.free_when_dropped().recording(answer)?))
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

/// Rolls back, and says whether that is confirmed. It is of no matter else: what is not ends with its connection.
async fn roll_back(transaction: &mut PgConnection, until: Instant) -> bool {
    match timeout_at(until, PgTransactionManager::rollback(transaction)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(error = %Failure::of(&error).into_error("rollback"), "a rollback was not confirmed");
            false
        }
        Err(_) => false,
    }
}

fn lost(message: &'static str) -> Error {
    Error::new(ErrorKind::Lost, "commit", message).with_store(NAME).with_effect(Effect::None)
}
