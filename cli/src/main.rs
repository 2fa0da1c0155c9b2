//! The `leasehold` command.

mod conform;
mod contest;
mod duration;
mod failure;
mod store_url;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Leases with fencing tokens, on the store that you have.
#[derive(Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Contest(contest::Arguments),
    Conform(conform::Arguments),
    /// A worker of a contest, as a process of its own
    #[cfg(unix)]
    #[command(hide = true)]
    ContestWorker,
    /// The server of a contest, as a process of its own
    #[cfg(unix)]
    #[command(hide = true)]
    ContestServer {
        /// What it lives in
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let Command { action } = Command::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::io("no runtime", error).report(),
    };
    let done = runtime.block_on(async {
        match action {
            Action::Conform(arguments) => conform::run(arguments).await,
            Action::Contest(arguments) => contest::run(arguments).await,
            #[cfg(unix)]
            Action::ContestWorker => contest::run_worker().await,
            #[cfg(unix)]
            Action::ContestServer { folder } => contest::become_server(&folder),
        }
    });
    // A call of a driver that hangs must not keep the command from ending.
    runtime.shutdown_background();
    done.unwrap_or_else(|failure| failure.report())
}
