//! An order is written under a lease, and in the transaction that writes it the database itself refuses a holder of the
//! past: by `admit`, or by a column of the table and a condition of the `UPDATE`.
//!
//! `cargo run --features postgres --example fenced_order -- postgres://app:secret@db.example/orders`
//!
//! Without a URL, there or in `LEASEHOLD_STORE`, a private server is started. The table is a temporary one.

use std::time::Duration;

use leasehold::fence::{Admission, FencePolicy, FencingToken};
use leasehold::lock::{Lease, Locks, Renewal};
use leasehold::postgres::sqlx::postgres::{PgConnection, PgPoolOptions};
use leasehold::postgres::sqlx::{self, Connection};
use leasehold::postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::PostgresServer;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let (url, _server) = database().await;
    // The pool that the program has anyway. A lease that is held or waited for keeps none of its connections.
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await?;
    let store = PostgresStore::new(pool, PostgresConfig::default())?;
    store.migrate().await?;
    let locks = Locks::new(store.clone());

    let mut database = PgConnection::connect(&url).await?;
    sqlx::query(
        "CREATE TEMPORARY TABLE orders (id bigint PRIMARY KEY, status text NOT NULL, fencing_token bigint NOT NULL)",
    )
    .execute(&mut database)
    .await?;

    let request = || locks.lock("orders:42").ttl(Duration::from_millis(500)).require_fencing();
    // It renews nothing, as a process that is stopped: by a long garbage collection, a full disk, a closed laptop.
    let stopped = request().renewal(Renewal::Off).acquire().await?;
    // So the next waits until that lease has ended, and has it then.
    let lease = request().acquire().await?;

    println!("the holder places the order:      {:?}", place(&store, &mut database, &lease).await?);
    println!("a past holder places it:          {:?}", place(&store, &mut database, &stopped).await?);
    println!("the holder ships it:              {}", ship(&mut database, &lease).await?);
    println!("a past holder ships it:           {}", ship(&mut database, &stopped).await?);

    let (status, token): (String, i64) =
        sqlx::query_as("SELECT status, fencing_token FROM orders WHERE id = 42").fetch_one(&mut database).await?;
    println!("order 42 is {status}, by the token {token}; the lease is {:?}", lease.release().await?);
    Ok(())
}

/// By `admit`: for writes of any kind to any tables. The store keeps the highest token of each resource in a table of
/// its own.
async fn place(store: &PostgresStore, database: &mut PgConnection, lease: &Lease) -> Result<Admission> {
    let token = token(lease);
    let mut transaction = database.begin().await?;
    // Until the commit nobody else is admitted, so no newer holder can come between this and the write.
    let admission = store.admit(&mut transaction, lease.resource(), token, FencePolicy::Repeatable).await?;
    if admission.is_admitted() {
        sqlx::query("INSERT INTO orders (id, status, fencing_token) VALUES (42, 'placed', $1)")
            .bind(number(token))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
    }
    // Refused: the transaction is dropped, which rolls it back.
    Ok(admission)
}

/// By a column: for a row that the lease is about. No other table and no other statement is needed.
async fn ship(database: &mut PgConnection, lease: &Lease) -> Result<&'static str> {
    let updated =
        sqlx::query("UPDATE orders SET status = 'shipped', fencing_token = $1 WHERE id = 42 AND fencing_token <= $1")
            .bind(number(token(lease)))
            .execute(database)
            .await?;
    // Wrong would be to ask `lease.check()` before: it may be stopped right after it was told that all is well.
    Ok(if updated.rows_affected() == 1 { "done" } else { "refused: the row has a newer token" })
}

fn token(lease: &Lease) -> FencingToken {
    lease.fencing_token().expect("fencing is required")
}

/// A token is below 2^53.
fn number(token: FencingToken) -> i64 {
    token.get().cast_signed()
}

/// Where the database is, and the server if one had to be started.
async fn database() -> (String, Option<PostgresServer>) {
    if let Some(url) = std::env::args().nth(1).or_else(|| std::env::var("LEASEHOLD_STORE").ok()) {
        return (url, None);
    }
    let server = PostgresServer::start().await;
    (server.url("postgres"), Some(server))
}
