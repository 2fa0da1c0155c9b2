//! The conformance suite on a private server.

use std::process::{Command, ExitCode};
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_conformance::{Capability, Suite};
use leasehold_core::wrap::Prefixed;
use leasehold_core::{Error, Namespace};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::{PgBouncer, PoolMode, PostgresServer};

/// Where another process of the suite finds the server of the first.
const URL: &str = "LEASEHOLD_CONFORMANCE_POSTGRES";

/// How the store reaches the server. Each test program goes one way.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each program uses one of the two")]
pub(crate) enum Way {
    Direct,
    /// By a pooler in transaction mode.
    PgBouncer,
}

/// Dropped in this order: who is in front goes first.
type Running = (Option<PgBouncer>, PostgresServer);

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Runs the suite on a server that is started by whoever first wants it, so that listing the checks starts none.
pub(crate) fn run(way: Way) -> ExitCode {
    let (name, required) = match way {
        Way::Direct => ("postgres", Capability::ALL.to_vec()),
        // `LISTEN` is a session's.
        Way::PgBouncer => ("pgbouncer", vec![Capability::Shared, Capability::Durable, Capability::Revisions]),
    };
    let status = Suite::new(name, move |namespace| open(way, namespace))
        .require(required)
        .other_process(move || {
            let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
            command.env(URL, url(way));
            command
        })
        .run();
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take();
    status
}

async fn open(way: Way, namespace: String) -> Result<Prefixed<PostgresStore>, Error> {
    let url = tokio::task::spawn_blocking(move || url(way)).await.expect("a server");
    let store = PostgresStore::connect(url).await?;
    Ok(Prefixed::new(store, Namespace::new(namespace)?))
}

fn url(way: Way) -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Ok(url) = std::env::var(URL) {
            return url;
        }
        // A runtime of its own, as that of a check ends with the check.
        let start = move || tokio::runtime::Runtime::new().expect("a runtime").block_on(start(way));
        let (running, url) = std::thread::spawn(start).join().expect("a server");
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        url
    })
}

async fn start(way: Way) -> (Running, String) {
    let server = PostgresServer::builder().max_connections(400).start().await;
    match way {
        Way::Direct => {
            let url = format!("{}?max_connections=4", server.url("postgres"));
            ((None, server), url)
        }
        Way::PgBouncer => {
            // Few connections for many, so that a client hardly ever gets the one that it had before.
            let pooler = PgBouncer::builder(&server)
                .pool_mode(PoolMode::Transaction)
                .setting("default_pool_size", "8")
                .setting("max_client_conn", "1000")
                .start()
                .await;
            let url = format!("{}?pgbouncer=true&max_connections=4", pooler.url("postgres"));
            ((Some(pooler), server), url)
        }
    }
}
