//! `start`: from the start of a process to its first right answer, with all of its routes there.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::peer::{self, Choice, Route, Target, choose, versions};
use crate::place::machine;
use crate::poll::until_right;
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::Spread;
use crate::upstream::Upstream;

/// A start that takes longer fails the run.
const RIGHT_MAX: Duration = Duration::from_secs(300);

/// Measures the time from the start of a process to its first right answer.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How much is measured.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Routes, each with a Service and endpoint of its own; several for several runs.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    routes: Vec<usize>,
    /// Starts of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    peers: peer::Args,
}

/// One proxy with so many routes.
#[derive(Debug, Serialize)]
struct Row {
    proxy: String,
    routes: usize,
    /// Seconds until the first right answer of each host: the one that was made first, and the one that was made last.
    first_s: Spread,
    last_s: Spread,
}

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    versions: Vec<String>,
    left_out: Vec<String>,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or no right answer comes.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.apart = true;
    if args.size == Size::Smoke {
        (args.routes, args.rounds) = (vec![200], 1);
    }
    let (choices, left_out) = choose(&args.peers)?;
    let upstream = Upstream::start().await?;
    let progress = Progress::new(args.routes.len() * choices.len());
    let mut rows = Vec::new();
    for routes in &args.routes {
        for choice in &choices {
            progress.say(format!("{} with {routes} routes", choice.name()));
            rows.push(measure(choice, *routes, &args, &upstream).await?);
        }
    }
    progress.finish();
    let report = Report { machine: machine(), versions: versions(&choices), left_out, rows };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

async fn measure(choice: &Choice, routes: usize, args: &Args, upstream: &Upstream) -> anyhow::Result<Row> {
    let present: Vec<Route> = (0..routes).map(|i| Route::new(host(i), Target::Own)).collect();
    let mut peer = choice.start(&args.peers, upstream, &present).await?;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds.max(1) {
        let begun = peer.restart().await?;
        let (one, other) = (host(0), host(routes.saturating_sub(1)));
        let asked = |host: String| {
            let address = peer.address();
            async move { until_right(address, &host, RIGHT_MAX).await }
        };
        let (one, other) = tokio::try_join!(asked(one), asked(other))?;
        first.push((one.at - begun).as_secs_f64());
        last.push((other.at - begun).as_secs_f64());
    }
    let spread = |figures: Vec<f64>| Spread::of(figures).ok_or_else(|| anyhow::anyhow!("no round"));
    Ok(Row { proxy: choice.name(), routes, first_s: spread(first)?, last_s: spread(last)? })
}

fn host(i: usize) -> String {
    format!("app-{i:06}.example")
}

fn print(report: &Report) {
    println!("Machine: {}", report.machine);
    println!("Versions: {}", report.versions.join("; "));
    for left_out in &report.left_out {
        println!("Left out: {left_out}");
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["routes", "proxy", "first host right after s", "last host right after s"]);
    for row in &report.rows {
        let spread = |Spread { least, median, greatest }: Spread| format!("{median:.2} ({least:.2}–{greatest:.2})");
        table.add_row([row.routes.to_string(), row.proxy.clone(), spread(row.first_s), spread(row.last_s)]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
