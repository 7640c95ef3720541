//! `tidegate-bench`: one command for each thing that is measured.

use clap::{Parser, Subcommand};
use tidegate_bench::{attach, cache, churn, memory, propagate, queue, served, start, steady, subject, swaps};
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
    /// What a step of the control loop's queue costs behind a list of keys, and how long a live change waits there.
    Queue(queue::Args),
    /// What requests to one host notice while the routes of other hosts change.
    Churn(churn::Args),
    /// What a request costs when nothing changes.
    Steady(steady::Args),
    /// What routes, changes and idle connections cost in memory.
    Memory(memory::Args),
    /// What the cluster cache on disk writes for a change, and how long it takes to read it back.
    Cache(cache::Args),
    /// What the served API takes for objects and watches, how fast changes reach a thousand watches, and its start from disk.
    Served(served::Args),
    /// The time from the start of a process to its first right answer.
    Start(start::Args),
    /// The time from the write of a route to its first right answer.
    Propagate(propagate::Args),
    /// The time until many HTTPRoutes serve on one Gateway, and until their statuses are written.
    Attach(attach::Args),
    /// A data plane alone, for what counts it.
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

/// Runs a command that starts processes. When it is told to end it is dropped, and they with it.
fn with_processes(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    Runtime::new()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = command => done,
            interrupted = tokio::signal::ctrl_c() => { interrupted?; anyhow::bail!("interrupted") }
            _ = terminate.recv() => anyhow::bail!("told to end"),
        }
    })
}
