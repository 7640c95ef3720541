//! `tidegate-bench`: one command for each thing that is measured.

use clap::{Parser, Subcommand};
use tidegate_bench::{churn, propagate, swaps};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser, Debug)]
#[command(name = "tidegate-bench", about = "Measures Tidegate; docs/benchmarks.md says what each figure means.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The cost of one change and of one look-up, by counts.
    Swaps(swaps::Args),
    /// What requests to one host notice while the routes of other hosts change.
    Churn(churn::Args),
    /// The time from the write of a route to its first right answer.
    Propagate(propagate::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Swaps(args) => swaps::run(&args, &["swaps"]),
        Command::Churn(args) => with_processes(churn::run(args)),
        Command::Propagate(args) => with_processes(propagate::run(args)),
    }
}

/// Runs a command that starts processes. When it is told to end it is dropped, and they with it.
fn with_processes(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("another crypto provider was installed");
    }
    Runtime::new()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = command => done,
            interrupted = tokio::signal::ctrl_c() => { interrupted?; anyhow::bail!("interrupted") }
            _ = terminate.recv() => anyhow::bail!("told to end"),
        }
    })
}
