//! The life of a private Redis and Valkey, and the proxy before one.

mod support;

use leasehold_testkit::{Family, Proxy, RedisServer, eventually, signal};
use support::{Client, DEADLINE, resp};
use tokio::net::TcpStream;

#[tokio::test]
async fn each_family_starts_answers_and_is_gone_after_drop() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).start().await;
        assert_eq!(server.family(), family);
        assert_eq!(server.command(&["PING"]).await, "PONG");
        let info = server.command(&["INFO", "server"]).await;
        assert_eq!(info.contains("valkey_version"), family == Family::Valkey);
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));

        let pid = server.pid().unwrap();
        assert!(signal::is_running(pid));
        drop(server);
        assert!(!signal::is_running(pid));
    }
}

#[tokio::test]
async fn a_paused_server_hangs_and_then_serves_what_came_meanwhile() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).start().await;
        let mut client = Client::connect(server.addr()).await;
        client.ask(&resp(&["SET", "a", "1"]), "+OK\r\n").await;

        server.pause();
        client.send(&resp(&["GET", "a"])).await;
        client.expect_silence().await;
        server.resume();
        client.expect("$1\r\n1\r\n").await;
    }
}

#[tokio::test]
async fn a_killed_server_forgets_and_comes_back_on_its_port() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).start().await;
        let port = server.port();
        server.command(&["SET", "a", "1"]).await;
        let pid = server.pid().unwrap();

        server.kill().await;
        assert!(!signal::is_running(pid));
        assert_eq!(server.pid(), None);
        let error = TcpStream::connect(server.addr()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);

        server.restart().await;
        assert_eq!(server.port(), port);
        assert_eq!(server.command(&["GET", "a"]).await, "");
    }
}

#[tokio::test]
async fn an_append_only_file_survives_a_kill_and_a_stop() {
    let server = RedisServer::builder().append_only().start().await;
    server.command(&["SET", "a", "1"]).await;
    server.kill().await;
    server.restart().await;
    assert_eq!(server.command(&["GET", "a"]).await, "1");
    server.pause();
    server.stop_gracefully().await;
    server.restart().await;
    assert_eq!(server.command(&["GET", "a"]).await, "1");
}

#[tokio::test]
async fn dropping_a_paused_server_ends_it() {
    let server = RedisServer::start().await;
    let pid = server.pid().unwrap();
    server.pause();
    drop(server);
    assert!(!signal::is_running(pid));
}

#[tokio::test]
async fn credentials_are_required_and_in_the_url() {
    let password = "p \"w\\/@";
    let server = RedisServer::builder().password(password).start().await;
    assert_eq!(server.command(&["PING"]).await, "PONG");
    assert!(server.url().starts_with("redis://:p%20%22w%5C%2F%40@127.0.0.1:"));
    let mut stranger = Client::connect(server.addr()).await;
    stranger.ask(&resp(&["PING"]), "-NOAUTH").await;

    let server = RedisServer::builder().user("ann", "secret").start().await;
    assert_eq!(server.command(&["ACL", "WHOAMI"]).await, "ann");
    assert!(server.url().starts_with("redis://ann:secret@"));
}

#[tokio::test]
async fn configuration_reaches_the_server() {
    let server = RedisServer::builder()
        .eviction("16mb", "allkeys-lru")
        .config("client-output-buffer-limit", "pubsub 1mb 1mb 10")
        .start()
        .await;
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).await;
    assert_eq!(policy, "maxmemory-policy\nallkeys-lru");
}

#[tokio::test]
async fn a_replica_follows_and_lags_behind_a_black_hole() {
    let primary = RedisServer::builder().password("secret").start().await;
    let link = Proxy::start(primary.addr());
    let replica = RedisServer::builder().replica_of_through(&primary, link.addr()).start().await;
    primary.command(&["SET", "a", "1"]).await;
    eventually(DEADLINE, async || replica.command(&["GET", "a"]).await == "1").await;

    link.black_hole();
    primary.command(&["SET", "a", "2"]).await;
    assert_eq!(replica.command(&["GET", "a"]).await, "1");
    link.pass();
    eventually(DEADLINE, async || replica.command(&["GET", "a"]).await == "2").await;
}

#[tokio::test]
async fn a_wrong_option_panics_with_the_log() {
    let builder = RedisServer::builder().config("no-such-option", "1");
    let error = tokio::spawn(builder.start()).await.unwrap_err();
    let message = *error.into_panic().downcast::<String>().unwrap();
    assert!(message.contains("no-such-option"), "{message}");
}

#[tokio::test]
async fn a_link_that_swallows_leaves_the_write_in_place() {
    let server = RedisServer::start().await;
    let link = Proxy::start(server.addr());
    let mut client = Client::connect(link.addr()).await;
    client.ask(&resp(&["PING"]), "+PONG\r\n").await;

    link.swallow_answer_to("lease");
    client.send(&resp(&["SET", "lease", "mine", "NX"])).await;
    link.wait_for_sprung(1).await;
    eventually(DEADLINE, async || server.command(&["GET", "lease"]).await == "mine").await;
    client.expect_silence().await;
}

#[tokio::test]
async fn a_link_that_cuts_leaves_the_write_in_place() {
    let server = RedisServer::start().await;
    let link = Proxy::start(server.addr());
    let mut client = Client::connect(link.addr()).await;
    link.cut_after_request();
    client.send(&resp(&["SET", "lease", "mine", "NX"])).await;
    client.expect_end().await;
    eventually(DEADLINE, async || server.command(&["GET", "lease"]).await == "mine").await;
}

#[tokio::test]
async fn a_black_hole_delivers_a_write_after_its_client_gave_up() {
    let server = RedisServer::start().await;
    let link = Proxy::start(server.addr());
    let mut client = Client::connect(link.addr()).await;
    client.ask(&resp(&["PING"]), "+PONG\r\n").await;

    link.black_hole();
    client.send(&resp(&["SET", "parked", "late"])).await;
    drop(client);
    let mut other = Client::connect(server.addr()).await;
    other.ask(&resp(&["GET", "parked"]), "$-1\r\n").await;
    other.expect_silence().await;
    other.ask(&resp(&["GET", "parked"]), "$-1\r\n").await;

    link.pass();
    eventually(DEADLINE, async || server.command(&["GET", "parked"]).await == "late").await;
}

#[tokio::test]
async fn a_link_to_a_server_that_is_killed_resets_or_ends() {
    let server = RedisServer::start().await;
    let link = Proxy::start(server.addr());
    let mut client = Client::connect(link.addr()).await;
    client.ask(&resp(&["PING"]), "+PONG\r\n").await;
    server.kill().await;
    client.expect_end().await;
    server.restart().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask(&resp(&["PING"]), "+PONG\r\n").await;
}

/// Not a property: what the test below runs in an environment of its own.
#[tokio::test]
#[ignore = "run by a_missing_server_is_a_panic_that_says_what_to_do"]
async fn start_each_family() {
    for family in Family::ALL {
        RedisServer::builder().family(family).start().await;
    }
}

#[test]
fn a_missing_server_is_a_panic_that_says_what_to_do() {
    for (variable, value, message) in [
        ("PATH", "/nowhere", "no redis-server found: run ./scripts/install-servers"),
        ("LEASEHOLD_REDIS_SERVER", "/nowhere", "LEASEHOLD_REDIS_SERVER names /nowhere"),
        ("LEASEHOLD_VALKEY_SERVER", "/nowhere", "LEASEHOLD_VALKEY_SERVER names /nowhere"),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "start_each_family", "--ignored", "--nocapture"])
            .env(variable, value)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains(message), "{complaint}");
    }
}
