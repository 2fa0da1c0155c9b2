//! What the tests of this crate share.
#![allow(dead_code)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // as in the tests: a panic is how they fail

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Long enough for a busy machine, and only ever waited for in full by a test that fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// How long a test listens to be sure of a silence. Too short could only miss a failure.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// A server that sends back what it gets, and keeps it.
pub(crate) struct Echo {
    pub(crate) addr: SocketAddr,
    heard: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Echo {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let heard = std::sync::Arc::default();
        let echo = Self { addr, heard: std::sync::Arc::clone(&heard) };
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let heard = std::sync::Arc::clone(&heard);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        heard.lock().unwrap().extend_from_slice(&buffer[..length]);
                        if stream.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        echo
    }

    pub(crate) fn heard(&self) -> String {
        String::from_utf8(self.heard.lock().unwrap().clone()).unwrap()
    }
}

/// A client that speaks in whole answers.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self(TcpStream::connect(addr).await.unwrap())
    }

    pub(crate) async fn send(&mut self, request: &str) {
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    /// Waits for exactly this answer.
    pub(crate) async fn expect(&mut self, answer: &str) {
        let mut buffer = vec![0; answer.len()];
        timeout(DEADLINE, self.0.read_exact(&mut buffer))
            .await
            .expect("an answer in time")
            .expect("an answer and not the end");
        assert_eq!(String::from_utf8_lossy(&buffer), answer);
    }

    /// Asks and waits for exactly this answer.
    pub(crate) async fn ask(&mut self, request: &str, answer: &str) {
        self.send(request).await;
        self.expect(answer).await;
    }

    /// Makes sure that the connection is open and nothing comes.
    pub(crate) async fn expect_silence(&mut self) {
        let got = timeout(SILENCE, self.0.read(&mut [0; 64])).await;
        assert!(got.is_err(), "something came: {got:?}");
    }

    /// Waits for the end of the connection without any answer; whether it was a reset.
    pub(crate) async fn expect_end(&mut self) -> bool {
        let got = timeout(DEADLINE, self.0.read(&mut [0; 64])).await;
        match got.expect("the end in time") {
            Ok(0) => false,
            Ok(length) => panic!("{length} bytes came"),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                true
            }
        }
    }
}

/// A command in RESP.
pub(crate) fn resp(arguments: &[&str]) -> String {
    let mut request = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    request
}
