use leasehold_core::fence::{Admission, FencePolicy, FencingToken};
use leasehold_core::{Error, Key};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::error::Failure;
use crate::link::fetch;
use crate::parameters::Parameters;
use crate::store::PostgresStore;

impl PostgresStore {
    /// Asks, in the caller's transaction, whether a write to `resource` under `token` may go on, and notes the token.
    ///
    /// Until the transaction ends, nobody else is admitted to this resource, so that what it writes after this and the
    /// check are one atomic step. A refusal changes nothing. One trip; a refusal by a token that was noted at the same
    /// moment costs another, and then keeps others out until the transaction ends, so roll back. Who asks for several
    /// resources asks for them in one order, as [`Within`](crate::Within) says. A resource's token is kept for ever, in 60
    /// bytes or so and its name.
    ///
    /// # Errors
    ///
    /// What the server could not answer; the transaction is then aborted, as by any statement that fails.
    ///
    /// # Cancel safety
    ///
    /// The token may be noted; roll back.
    pub async fn admit(
        &self,
        transaction: &mut PgConnection,
        resource: &Key,
        token: FencingToken,
        policy: FencePolicy,
    ) -> Result<Admission, Error> {
        let (sql, prepared) = self.statements();
        let ask = async {
            // A revision is below 2^53.
            let number = token.get().cast_signed();
            let parameters = Parameters::default()
                .bytes(Some(resource.as_bytes()))
                .number(number)
                .truth(policy == FencePolicy::Repeatable);
            if let Some(row) = fetch(transaction, &sql.admit, parameters, prepared).await?.first() {
                let admitted = row.try_get("admitted").map_err(|_| Failure::unexpected())?;
                return match (admitted, highest(row)) {
                    (true, _) => Ok(Admission::Admitted(())),
                    (false, Some(highest)) => Ok(Admission::Stale { highest }),
                    (false, None) => Err(Failure::unexpected()),
                };
            }
            let parameters = Parameters::default().bytes(Some(resource.as_bytes()));
            let highest = fetch(transaction, &sql.admitted, parameters, prepared).await?.first().and_then(highest);
            highest.map(|highest| Admission::Stale { highest }).ok_or_else(Failure::unexpected)
        };
        ask.await.map_err(|failure: Failure| failure.into_error("admit"))
    }
}

fn highest(row: &PgRow) -> Option<FencingToken> {
    let number: i64 = row.try_get("token").ok()?;
    FencingToken::new(u64::try_from(number).ok()?).ok()
}
