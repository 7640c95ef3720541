//! `tidegate-bench`: one command for each measurement.

use clap::{Parser, Subcommand};
use tidegate_bench::{attach, cache, churn, memory, model, propagate, queue, served, start, steady, subject, swaps};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser, Debug)]
#[command(name = "tidegate-bench", about = "Measures Tidegate; docs/benchmarks.md explains the figures.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measures the cost of one change and of one look-up, by counts of operations.
    Swaps(swaps::Args),
    /// Measures the cost of a step of the control loop's queue behind a list of keys, and the time that a live change
    /// waits there.
    Queue(queue::Args),
    /// Measures the effect of changes to other hosts' routes on requests to one host.
    Churn(churn::Args),
    /// Measures the cost of a request when nothing changes.
    Steady(steady::Args),
    /// Measures the memory for routes, changes and idle connections.
    Memory(memory::Args),
    /// Counts the memory that a route takes in the control loop and the routing model.
    Model(model::Args),
    /// Measures the bytes that the cluster cache writes to disk for a change, and the time to read it back.
    Cache(cache::Args),
    /// Measures the served API: the memory for objects and watches, the delivery of changes to a thousand watches, and
    /// its start from disk.
    Served(served::Args),
    /// Measures the time from the start of a process to its first right response.
    Start(start::Args),
    /// Measures the time from the write of a route to its first right response.
    Propagate(propagate::Args),
    /// Measures the time until many HTTPRoutes serve on one Gateway, and until their statuses are written.
    Attach(attach::Args),
    /// Runs a data plane alone, for the commands that count its work.
    #[command(subcommand, hide = true)]
    Subject(subject::Command),
}

fn main() -> anyhow::Result<()> {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("another crypto provider was installed");
    }
    match Cli::parse().command {
        Command::Swaps(args) => swaps::run(&args, &["swaps"]),
        Command::Queue(args) => queue::run(&args, &["queue"]),
        Command::Cache(args) => cache::run(args),
        Command::Model(args) => model::run(&args),
        Command::Churn(args) => with_processes(churn::run(args)),
        Command::Steady(args) => with_processes(steady::run(args)),
        Command::Memory(args) => with_processes(memory::run(args)),
        Command::Served(args) => with_processes(served::run(args)),
        Command::Start(args) => with_processes(start::run(args)),
        Command::Propagate(args) => with_processes(propagate::run(args)),
        Command::Attach(args) => with_processes(attach::run(args)),
        Command::Subject(command) => subject::run(&command),
    }
}

/// Runs a command that starts processes. A termination signal drops it, and its processes with it.
fn with_processes(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    Runtime::new()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = command => done,
            interrupted = tokio::signal::ctrl_c() => { interrupted?; anyhow::bail!("interrupted") }
            _ = terminate.recv() => anyhow::bail!("terminated by a signal"),
        }
    })
}
