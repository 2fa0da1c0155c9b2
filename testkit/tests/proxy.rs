//! Each fault of the proxy, against a server that sends back what it gets.

mod support;

use std::time::{Duration, Instant};

use leasehold_testkit::{Mode, Proxy, eventually};
use support::{Client, DEADLINE, Echo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn echo_and_link() -> (Echo, Proxy) {
    let echo = Echo::start().await;
    let link = Proxy::start(echo.addr);
    (echo, link)
}

#[tokio::test]
async fn passes_both_ways_and_counts() {
    let (_echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask("hello", "hello").await;
    eventually(DEADLINE, async || link.counts().answer_bytes_forwarded == 5).await;
    let counts = link.counts();
    assert_eq!((counts.accepted, counts.open), (1, 1));
    assert_eq!(counts.request_bytes_read, 5);
    assert_eq!(counts.request_bytes_forwarded, 5);
    assert_eq!(counts.answer_bytes_read, 5);
    drop(client);
    eventually(DEADLINE, async || link.counts().open == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_much_at_once_in_order() {
    let (_echo, link) = echo_and_link().await;
    let (mut from, mut to) = TcpStream::connect(link.addr()).await.unwrap().into_split();
    let sent: Vec<u8> = (0..8_000_000_u32).map(|byte| byte as u8).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move { to.write_all(&sent).await.map(|()| to) });
    let mut got = vec![0; expected.len()];
    tokio::time::timeout(DEADLINE, from.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == expected);
    sending.await.unwrap().unwrap();
}

#[tokio::test]
async fn hands_on_an_orderly_end() {
    let (_echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.send("last words").await;
    client.0.shutdown().await.unwrap();
    client.expect("last words").await;
    assert!(!client.expect_end().await);
}

#[tokio::test]
async fn refuses_new_connections_and_resets_old_ones() {
    let (_echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;

    link.refuse();
    let error = TcpStream::connect(link.addr()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(old.expect_end().await);

    link.pass();
    let mut new = Client::connect(link.addr()).await;
    new.ask("b", "b").await;
}

#[tokio::test]
async fn a_connection_that_slept_through_a_refusal_is_still_reset() {
    let (echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;
    // No await in between: the connection's task sees only the second mode.
    link.refuse();
    link.pass();
    old.send("b").await;
    assert!(old.expect_end().await);
    assert_eq!(echo.heard(), "a");
}

#[tokio::test]
async fn resets_connections_when_told_and_takes_new_ones() {
    let (_echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;
    link.reset_connections();
    assert!(old.expect_end().await);
    Client::connect(link.addr()).await.ask("b", "b").await;
}

#[tokio::test]
async fn delays_answers_but_not_requests() {
    let (echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask("a", "a").await;

    let delay = Duration::from_millis(400);
    link.delay_answers(delay);
    let asked = Instant::now();
    client.send("b").await;
    eventually(DEADLINE, async || echo.heard() == "ab").await;
    client.expect("b").await;
    assert!(asked.elapsed() >= delay);
}

#[tokio::test]
async fn delays_requests() {
    let (echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask("a", "a").await;

    link.delay_requests(Duration::from_secs(3600));
    client.send("b").await;
    client.expect_silence().await;
    assert_eq!(echo.heard(), "a");
    // A shorter delay counts for what is under way too.
    link.delay_requests(Duration::from_millis(1));
    client.expect("b").await;
}

#[tokio::test]
async fn a_delay_is_latency_and_not_a_queue() {
    let (_echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask("a", "a").await;
    let delay = Duration::from_millis(500);
    link.delay_answers(delay);
    let asked = Instant::now();
    for number in 1..=10 {
        client.send("b").await;
        // Apart, so that each is an answer of its own.
        let read = number + 1;
        eventually(DEADLINE, async || link.counts().answer_bytes_read == read).await;
    }
    client.expect("bbbbbbbbbb").await;
    // Ten in a queue would take ten delays.
    assert!(asked.elapsed() < delay * 8);
}

#[tokio::test]
async fn a_black_hole_holds_everything_and_delivers_it_late() {
    let (echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;

    link.black_hole();
    old.send("b").await;
    let mut new = Client::connect(link.addr()).await;
    new.send("c").await;
    old.expect_silence().await;
    new.expect_silence().await;
    assert_eq!(echo.heard(), "a");

    link.pass();
    old.expect("b").await;
    new.expect("c").await;
}

#[tokio::test]
async fn a_black_hole_delivers_the_request_of_a_client_that_left() {
    let (echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;

    link.black_hole();
    old.send("b").await;
    // Read by the proxy: a reset then cannot take it back.
    eventually(DEADLINE, async || link.counts().request_bytes_read == 2).await;
    old.0.set_zero_linger().unwrap();
    drop(old);
    let mut new = Client::connect(link.addr()).await;
    new.send("c").await;
    eventually(DEADLINE, async || link.counts().request_bytes_read == 3).await;
    drop(new);
    assert_eq!(echo.heard(), "a");

    link.pass();
    eventually(DEADLINE, async || {
        let heard = echo.heard();
        heard == "abc" || heard == "acb"
    })
    .await;
    eventually(DEADLINE, async || link.counts().open == 0).await;
}

#[tokio::test]
async fn a_black_hole_that_drops_delivers_nothing_later() {
    let (echo, link) = echo_and_link().await;
    let mut idle = Client::connect(link.addr()).await;
    idle.ask("a", "a").await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("b", "b").await;

    link.black_hole_dropping();
    old.send("lost").await;
    let mut new = Client::connect(link.addr()).await;
    new.send("lost").await;
    eventually(DEADLINE, async || link.counts().request_bytes_read == 10).await;
    old.expect_silence().await;

    link.pass();
    // A stream never has a hole: these stay dead, and what lost nothing goes on.
    old.send("late").await;
    old.expect_silence().await;
    new.expect_silence().await;
    idle.ask("c", "c").await;
    assert_eq!(echo.heard(), "abc");

    drop((old, new));
    eventually(DEADLINE, async || link.counts().open == 1).await;
}

#[tokio::test]
async fn swallows_answers_but_forwards_requests() {
    let (echo, link) = echo_and_link().await;
    let mut old = Client::connect(link.addr()).await;
    old.ask("a", "a").await;

    link.swallow_answers();
    old.send("b").await;
    eventually(DEADLINE, async || echo.heard() == "ab").await;
    link.pass();
    old.expect_silence().await;
    // The next answer must not be read as the lost one.
    old.send("c").await;
    old.expect_silence().await;
    assert_eq!(echo.heard(), "abc");
    Client::connect(link.addr()).await.ask("d", "d").await;
}

#[tokio::test]
async fn swallows_as_many_answers_as_told() {
    let (echo, link) = echo_and_link().await;
    link.swallow_next_answers(2);
    for _ in 0..2 {
        let mut client = Client::connect(link.addr()).await;
        client.send("x").await;
        client.expect_silence().await;
    }
    assert_eq!(link.sprung(), 2);
    assert_eq!(echo.heard(), "xx");
    Client::connect(link.addr()).await.ask("y", "y").await;
}

#[tokio::test]
async fn swallows_the_answer_to_the_request_it_was_told() {
    let (_echo, link) = echo_and_link().await;
    let mut one = Client::connect(link.addr()).await;
    let mut other = Client::connect(link.addr()).await;
    link.swallow_answer_to("two");
    one.ask("request one", "request one").await;
    other.send("request two").await;
    link.wait_for_sprung(1).await;
    other.expect_silence().await;
    one.ask("request two", "request two").await;
}

#[tokio::test]
async fn cuts_the_client_once_its_request_is_forwarded() {
    let (echo, link) = echo_and_link().await;
    let mut client = Client::connect(link.addr()).await;
    client.ask("a", "a").await;
    link.cut_after("commit");
    client.ask("b", "b").await;
    client.send("commit").await;
    link.wait_for_sprung(1).await;
    client.expect_end().await;
    eventually(DEADLINE, async || echo.heard() == "abcommit").await;
    eventually(DEADLINE, async || link.counts().open == 0).await;
    Client::connect(link.addr()).await.ask("commit", "commit").await;
}

#[tokio::test]
async fn healing_disarms_what_has_not_sprung() {
    let (_echo, link) = echo_and_link().await;
    link.cut_after_request();
    link.swallow_next_answers(3);
    link.pass();
    Client::connect(link.addr()).await.ask("a", "a").await;
    assert_eq!(link.sprung(), 0);
}

#[tokio::test]
async fn resets_a_client_whose_server_is_down_and_follows_a_redirect() {
    let (echo, link) = echo_and_link().await;
    let nobody = leasehold_testkit::ReservedPort::reserve();
    link.redirect(nobody.addr());
    let mut client = Client::connect(link.addr()).await;
    assert!(client.expect_end().await);
    link.redirect(echo.addr);
    Client::connect(link.addr()).await.ask("a", "a").await;
}

#[tokio::test]
async fn dropping_it_ends_every_connection_and_frees_the_port() {
    let (_echo, link) = echo_and_link().await;
    let addr = link.addr();
    let mut client = Client::connect(addr).await;
    client.ask("a", "a").await;
    link.black_hole();
    drop(link);
    client.expect_end().await;
    let error = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    std::net::TcpListener::bind(addr).unwrap();
}

#[tokio::test]
async fn is_switched_from_a_plain_thread_too() {
    let (_echo, link) = echo_and_link().await;
    let link = std::thread::spawn(move || {
        link.refuse();
        link.pass();
        link
    })
    .join()
    .unwrap();
    assert_eq!(link.mode(), Mode::Pass);
    Client::connect(link.addr()).await.ask("a", "a").await;
}

#[tokio::test]
#[should_panic(expected = "proxy.rs")]
async fn waiting_in_vain_names_the_line() {
    eventually(Duration::from_millis(20), async || false).await;
}
