//! The life of a private Postgres, the pooler before it, and the proxy before both.

mod support;

use std::time::Duration;

use leasehold_testkit::{PgBouncer, PoolMode, PostgresServer, Proxy, eventually, signal};
use support::DEADLINE;

#[tokio::test]
async fn keeps_its_data_over_a_crash_and_a_stop() {
    let server = PostgresServer::start().await;
    let url = server.create_database("orders").await;
    assert_eq!(url, server.url("orders"));
    server.psql_in("orders", "create table t (n int); insert into t values (1), (2)").await;
    let first = server.pid().unwrap();

    server.stop_immediate().await;
    assert!(!signal::is_running(first));
    assert_eq!(server.pid(), None);
    assert!(server.try_psql(&url, "select 1").await.is_err());
    server.start_again().await;
    assert_eq!(server.psql_in("orders", "select n, n + 1 from t").await, "1|2\n2|3");
    assert!(server.log().contains("automatic recovery"));

    server.stop_fast().await;
    server.start_again().await;
    assert_eq!(server.psql_in("orders", "select count(*) from t").await, "2");
}

#[tokio::test]
async fn nothing_of_it_is_left_after_drop_even_if_paused() {
    for paused in [false, true] {
        let server = PostgresServer::start().await;
        let mut pids = server.psql("select pid from pg_stat_activity").await;
        pids.push_str(&format!("\n{}", server.pid().unwrap()));
        let pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
        assert!(pids.len() > 3, "{pids:?}");
        if paused {
            server.pause();
        }
        drop(server);
        let left: Vec<_> = pids.iter().filter(|pid| signal::is_running(**pid)).collect();
        assert!(left.is_empty(), "{left:?} of {pids:?}");
    }
}

#[tokio::test]
async fn a_paused_server_hangs_and_then_serves_what_came_meanwhile() {
    let server = PostgresServer::start().await;
    let url = server.url("postgres");
    server.psql("create table t (n int)").await;
    server.pause();
    let mut insert = std::pin::pin!(server.try_psql(&url, "insert into t values (1)"));
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut insert).await;
    assert!(waited.is_err());
    server.resume();
    insert.await.unwrap();
    assert_eq!(server.psql("select n from t").await, "1");
}

#[tokio::test]
async fn settings_reach_the_server() {
    let server = PostgresServer::builder()
        .fsync(true)
        .synchronous_commit(false)
        .max_connections(17)
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("application_name", "it's")
        .start()
        .await;
    for (name, value) in
        [("fsync", "on"), ("synchronous_commit", "off"), ("max_connections", "17"), ("listen_addresses", "127.0.0.1")]
    {
        assert_eq!(server.psql(&format!("show {name}")).await, value);
    }
    server.psql("create extension pg_stat_statements").await;
    assert_ne!(server.psql("select count(*) from pg_stat_statements").await, "");
}

#[tokio::test]
async fn a_failed_statement_says_why_and_those_before_it_stay() {
    let server = PostgresServer::start().await;
    let failed = server.try_psql(&server.url("postgres"), "create table t (); select no; create table u ()").await;
    assert!(failed.unwrap_err().contains("column \"no\" does not exist"));
    assert_eq!(server.psql("select to_regclass('t'), to_regclass('u')").await, "t|");
    let url = server.url("postgres");
    let complaint = server.try_psql(&url, "select 1/0").await.unwrap_err();
    assert!(complaint.contains("division by zero"), "{complaint}");
}

#[tokio::test]
async fn a_wrong_setting_panics_with_the_log() {
    let builder = PostgresServer::builder().setting("no_such_setting", "1");
    let error = tokio::spawn(builder.start()).await.unwrap_err();
    let message = *error.into_panic().downcast::<String>().unwrap();
    assert!(message.contains("no_such_setting"), "{message}");
}

#[tokio::test]
async fn a_pooler_answers_for_any_database_and_is_gone_after_drop() {
    let server = PostgresServer::start().await;
    server.create_database("orders").await;
    let pooler = PgBouncer::start(&server, PoolMode::Transaction).await;
    let one = server.try_psql(&pooler.url("postgres"), "select 1").await;
    assert_eq!(one.unwrap(), "1");
    let name = server.try_psql(&pooler.url("orders"), "select current_database()").await;
    assert_eq!(name.unwrap(), "orders");
    // Only the pooler itself knows this.
    let config = server.try_psql(&pooler.url("pgbouncer"), "show config").await;
    assert!(config.unwrap().contains("pool_mode|transaction"));

    let pid = pooler.pid();
    drop(pooler);
    assert!(!signal::is_running(pid));
}

#[tokio::test]
async fn a_link_that_cuts_a_commit_leaves_it_in_place() {
    let server = PostgresServer::start().await;
    server.psql("create table t (n int)").await;
    let link = Proxy::start(server.addr());
    link.cut_after("insert into t");
    let url = server.url_through(link.addr(), "postgres");
    let outcome = server.try_psql(&url, "insert into t values (1)").await;
    assert!(outcome.is_err(), "{outcome:?}");
    eventually(DEADLINE, async || server.psql("select n from t").await == "1").await;
}

#[tokio::test]
async fn the_way_from_pooler_to_server_can_be_cut() {
    let server = PostgresServer::start().await;
    let link = Proxy::start(server.addr());
    let pooler = PgBouncer::builder(&server).upstream(link.addr()).setting("server_login_retry", "0.1").start().await;
    let url = pooler.url("postgres");
    assert_eq!(server.try_psql(&url, "select 1").await.unwrap(), "1");
    link.refuse();
    link.pass();
    eventually(DEADLINE, async || server.try_psql(&url, "select 1").await.is_ok()).await;
    assert!(link.counts().accepted >= 2);
}
