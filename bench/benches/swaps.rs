//! `cargo bench`: the same as `tidegate-bench swaps`.

use clap::Parser;
use tidegate_bench::swaps;

#[derive(Parser, Debug)]
struct Cli {
    #[command(flatten)]
    args: swaps::Args,
}

fn main() -> anyhow::Result<()> {
    swaps::run(&Cli::parse().args, &[])
}
