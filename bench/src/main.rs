//! `tidegate-bench`: one command for each thing that is measured.

use clap::{Parser, Subcommand};
use tidegate_bench::swaps;

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
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Swaps(args) => swaps::run(&args, &["swaps"]),
    }
}
