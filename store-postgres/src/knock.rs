use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// Finds out that the server refuses connections.
///
/// The driver's pool takes a refusal for a server that is about to come up, and tries again for as long as it is given.
/// Whoever waits for a connection should hear sooner that nobody is there, and yet not of a short restart. So while they
/// wait, somebody knocks at the server's door every now and then, one for all who wait: a pool whose connections are all
/// in use looks the same from here, and must not cost the server a connection for each of them.
#[derive(Debug, Clone)]
pub(crate) struct Knock {
    pool: PgPool,
    patience: Duration,
    last: Arc<Mutex<Option<Answer>>>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    refused: bool,
    at: Instant,
}

impl Knock {
    /// A refusal that ends within `patience` is none.
    pub(crate) fn new(pool: PgPool, patience: Duration) -> Self {
        Self { pool, patience, last: Arc::default() }
    }

    /// Resolves once the server refuses connections, and no sooner than the patience is at its end. Cancel safe.
    pub(crate) async fn refused(&self) {
        loop {
            sleep(self.patience).await;
            let mut last = self.last.lock().await;
            let recent = last.filter(|answer| answer.at.elapsed() < self.patience);
            let answer = match recent {
                Some(answer) => answer,
                // No answer at all is for the deadline to judge.
                None => Answer {
                    refused: matches!(timeout(self.patience, self.knock()).await, Ok(true)),
                    at: Instant::now(),
                },
            };
            *last = Some(answer);
            if answer.refused {
                return;
            }
        }
    }

    /// Whether the door is shut. Who leaves without a word is not even logged by the server.
    async fn knock(&self) -> bool {
        let options = self.pool.connect_options();
        let (host, port) = (options.get_host(), options.get_port());
        let folder = options.get_socket().map(|folder| folder.display().to_string());
        let folder = folder.or_else(|| host.starts_with('/').then(|| host.to_owned()));
        let opened = match folder {
            Some(folder) => UnixStream::connect(format!("{folder}/.s.PGSQL.{port}")).await.map(drop),
            None => TcpStream::connect((host, port)).await.map(drop),
        };
        opened.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }
}
