//! The binary `tidegate`: reads flags, wires the crates together and supervises their tasks. No crate depends on it.

mod admin;
mod args;
mod ask;
mod clock;
mod debug;
mod dev;
mod explain;
mod history;
mod listen_place;
mod lite;
mod logs;
mod own;
mod forward_writes;
mod report;
mod resources;
mod run;
mod serve;
mod served;
mod settings;
mod signal;
mod supervise;
mod topology;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The threads of the runtime for everything except traffic: the control loop, and room beside it for health.
const CONTROL_THREADS: usize = 2;

fn main() -> ExitCode {
    // Only the first installation counts, and this is the first statement of the process.
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    let over = match args.command {
        Command::Run(args) => block_on(run::main(&args)),
        Command::Lite(args) => block_on(lite::main(&args)),
        Command::Dev(args) => block_on(dev::main(&args)),
        Command::Explain(args) => block_on(explain::main(&args)),
        Command::Topology(args) => block_on(topology::main(&args)),
        Command::History(args) => block_on(history::main(&args)),
        Command::Freeze(args) => block_on(history::freeze(&args)),
        Command::Thaw(args) => block_on(history::thaw(&args)),
        Command::Rollback(args) => block_on(history::rollback(&args)),
        Command::Echo(args) => block_on(dev::echo(&args)),
    };
    over.unwrap_or_else(|error| {
        eprintln!("tidegate: {error:#}");
        ExitCode::from(2)
    })
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()?;
    let over = runtime.block_on(command);
    // A blocking call that hangs, such as a DNS look-up, must not keep the process.
    runtime.shutdown_background();
    over
}
