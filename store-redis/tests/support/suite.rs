//! The conformance suite on a private server.

use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

use leasehold_conformance::{Capability, Suite};
use leasehold_core::wrap::Prefixed;
use leasehold_core::{Error, Namespace};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::{Family, RedisServer};
use tokio::sync::OnceCell;

/// Where the server is, for the process that the suite starts as another one.
const VARIABLE: &str = "LEASEHOLD_CONFORMANCE_SERVER";

/// Runs the suite on a server that is started when the first check asks for it.
pub(crate) fn run(family: Family) -> ExitCode {
    let server = Arc::new(OnceCell::new());
    let url = Arc::new(OnceLock::new());
    if let Ok(given) = std::env::var(VARIABLE) {
        url.get_or_init(|| given);
    }
    let to_others = url.clone();
    let open = move |namespace: String| {
        let (server, url) = (server.clone(), url.clone());
        async move {
            if url.get().is_none() {
                let server: &RedisServer = server
                    .get_or_init(async || RedisServer::builder().family(family).append_only().start().await)
                    .await;
                url.get_or_init(|| format!("{}?durable=true", server.url()));
            }
            let url = url.get().map_or("", String::as_str);
            let store = RedisStore::connect(RedisConfig::from_url(url)?).await?;
            Ok::<_, Error>(Prefixed::new(store, Namespace::new(namespace)?))
        }
    };
    let this_program = std::env::current_exe().expect("a program that runs has a path");
    let other_process = move || {
        let mut command = Command::new(&this_program);
        command.env(VARIABLE, to_others.get().map_or("", String::as_str));
        command
    };
    Suite::new(family.to_string(), open).require(Capability::ALL).other_process(other_process).run()
}
