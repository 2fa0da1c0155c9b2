//! The Postgres store of Leasehold: leases and a cache in the database that you have.
//!
//! One table and one statement a primitive, on the server's clock alone. Operations of one process that come together
//! go in one statement. No connection is held while a lease is held or waited for, no session state is used, and it
//! works behind pgbouncer in transaction mode (`?pgbouncer=true`).
//!
//! The tables are made by [`PostgresStore::migrate`], which [`PostgresStore::connect`] calls unless the URL says
//! `?migrate=false`, or by the statements of [`PostgresConfig::schema_sql`].

mod commit;
mod config;
mod error;
mod fence;
mod hints;
mod knock;
mod lane;
mod link;
mod parameters;
mod request;
mod sql;
mod store;
mod sweeper;
mod transaction;
mod waiting;
mod within;

pub use config::PostgresConfig;
pub use sqlx;
pub use store::PostgresStore;
pub use within::Within;
