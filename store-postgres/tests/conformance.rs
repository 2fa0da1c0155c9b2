//! The Postgres store keeps the contract, on a private server.

use std::process::{Command, ExitCode};
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_conformance::{Capability, Suite};
use leasehold_core::wrap::Prefixed;
use leasehold_core::{Error, Namespace};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::PostgresServer;

/// Where another process of the suite finds the server of the first.
const URL: &str = "LEASEHOLD_CONFORMANCE_POSTGRES";

static SERVER: Mutex<Option<PostgresServer>> = Mutex::new(None);

fn main() -> ExitCode {
    let status = Suite::new("postgres", open)
        .require([Capability::Shared, Capability::Durable, Capability::Hints, Capability::Revisions])
        .other_process(|| {
            let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
            command.env(URL, url());
            command
        })
        .run();
    SERVER.lock().unwrap_or_else(PoisonError::into_inner).take();
    status
}

async fn open(namespace: String) -> Result<Prefixed<PostgresStore>, Error> {
    let url = tokio::task::spawn_blocking(url).await.expect("a server");
    let store = PostgresStore::connect(&format!("{url}?max_connections=4")).await?;
    Ok(Prefixed::new(store, Namespace::new(namespace)?))
}

/// The server is started by whoever first wants it, so that listing the checks starts none.
fn url() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Ok(url) = std::env::var(URL) {
            return url;
        }
        // A runtime of its own, as that of a check ends with the check.
        let start = || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(PostgresServer::builder().max_connections(400).start())
        };
        let server = std::thread::spawn(start).join().expect("a server");
        let url = server.url("postgres");
        *SERVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        url
    })
}
