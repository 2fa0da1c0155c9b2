//! An order that is placed exactly once: the order and the record of the call are committed in one transaction, so
//! that neither is there without the other.
//!
//! `cargo run --features postgres --example order_and_record_in_one_transaction -- postgres://app:secret@db.example/orders`
//!
//! Without a URL, there or in `LEASEHOLD_STORE`, a private server is started. The table is dropped in the end.

use leasehold::idempotency::{Begin, CallError, Idempotency};
use leasehold::postgres::sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use leasehold::postgres::{PostgresConfig, PostgresStore, sqlx};
use leasehold_testkit::PostgresServer;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let (url, _server) = database().await;
    // The pool that the program has anyway.
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await?;
    let store = PostgresStore::new(pool.clone(), PostgresConfig::default())?;
    store.migrate().await?;
    let once = Idempotency::new(store.clone());
    sqlx::query("CREATE TABLE leasehold_example_orders (id bigserial PRIMARY KEY, item text NOT NULL)")
        .execute(&pool)
        .await?;

    // A request of a customer who hears no answer, and asks again under the same key.
    for _ in 0..3 {
        let call = once.call("place_order", "7c9d", &"book").tenant("shop-7");
        let order = store.run_once(call, async |transaction| place(transaction, "book").await).await?;
        println!("order {} (replayed: {})", order.value, order.replayed);
    }

    // What fails is rolled back, and its key is free for another try.
    let call = || once.call("place_order", "81aa", &"pen").tenant("shop-7");
    let failed = store.run_once(call(), async |transaction| place(transaction, "nothing like it").await).await;
    match failed {
        Err(CallError::Work(error)) => println!("rolled back: {error}"),
        other => unreachable!("it was refused: {other:?}"),
    }
    println!("order {} at the next try", by_hand(&store, &pool, call()).await?);

    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM leasehold_example_orders").fetch_one(&pool).await?;
    println!("{orders} orders in all");
    sqlx::query("DROP TABLE leasehold_example_orders").execute(&pool).await?;
    assert_eq!(orders, 2);
    Ok(())
}

async fn place(transaction: &mut PgConnection, item: &str) -> std::result::Result<i64, sqlx::Error> {
    let id = sqlx::query_scalar("INSERT INTO leasehold_example_orders (item) VALUES ($1) RETURNING id")
        .bind(item)
        .fetch_one(transaction)
        .await?;
    // Found out after the order was written, which the rollback takes back.
    if item == "nothing like it" { Err(sqlx::Error::RowNotFound) } else { Ok(id) }
}

/// The same in steps, for who begins the transaction elsewhere.
async fn by_hand(store: &PostgresStore, pool: &PgPool, call: leasehold::idempotency::Call) -> Result<i64> {
    match call.begin().await? {
        Begin::Replay(replay) => Ok(replay.value()?),
        Begin::Claimed(claim) => {
            // From here on an error, or a caller who goes away, rolls back and frees the key.
            let claim = claim.free_when_dropped();
            let mut transaction = pool.begin().await?;
            let order = place(&mut transaction, "pen").await?;
            store.commit(claim, transaction, &order).await?;
            Ok(order)
        }
    }
}

/// Where the database is, and the server if one had to be started.
async fn database() -> (String, Option<PostgresServer>) {
    if let Some(url) = std::env::args().nth(1).or_else(|| std::env::var("LEASEHOLD_STORE").ok()) {
        return (url, None);
    }
    let server = PostgresServer::start().await;
    (server.url("postgres"), Some(server))
}
