//! `propagate`: from the write of a route to its first right answer.

use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::clock::{now, timed_async};
use crate::peer::{self, Choice, Kind, Peer, Route, Target};
use crate::place::machine;
use crate::poll::until_right;
use crate::progress::Progress;
use crate::spread::{percentile, sorted};
use crate::upstream::Upstream;

/// A route that takes longer fails the run.
const RIGHT_MAX: Duration = Duration::from_secs(60);
/// Time spent on one proxy at one size, at most.
const BUDGET: Duration = Duration::from_secs(120);

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Size {
    /// A few seconds.
    Smoke,
    /// What the flags say.
    Full,
}

/// Measures the time from the write of a route to its first right answer.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How much is measured.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Routes that are there already; several for several runs (up to 100000).
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    routes: Vec<usize>,
    /// Routes that are written, one after the other.
    #[arg(long, default_value_t = 200)]
    writes: usize,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    peers: peer::Args,
}

/// One proxy with so many routes.
#[derive(Debug, Serialize)]
struct Row {
    peer: Kind,
    routes: usize,
    /// Time to start and take all of them, in seconds.
    start_s: f64,
    /// Routes that were written.
    writes: usize,
    /// From the beginning of a write to the first right answer, in milliseconds.
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Of that, until the write was acknowledged: the API's answer, or the reload handed over.
    write_p50_ms: f64,
    /// The longest time between two questions.
    gap_max_ms: f64,
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
/// When something cannot be measured or a route does not become right.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    if args.size == Size::Smoke {
        (args.routes, args.writes) = (vec![100], 20);
    }
    let (choices, left_out) = peer::choose(&args.peers)?;
    let upstream = Upstream::start().await?;
    let progress = Progress::new(args.routes.len() * choices.len());
    let mut rows = Vec::new();
    for routes in &args.routes {
        for choice in &choices {
            progress.say(format!("{:?} with {routes} routes", choice.kind));
            rows.push(measure(choice, *routes, &args, &upstream).await?);
        }
    }
    progress.finish();
    let versions = peer::versions(&choices);
    let report = Report { machine: machine(), versions, left_out, rows };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

async fn measure(choice: &Choice, routes: usize, args: &Args, upstream: &Upstream) -> anyhow::Result<Row> {
    let present: Vec<Route> = (0..routes).map(|i| Route::new(format!("app-{i:06}.example"), Target::Right)).collect();
    let (peer, start) = timed_async(choice.start(&args.peers, upstream, &present)).await;
    let mut peer = peer?;
    let (begin, mut right, mut writes, mut gap_max) = (now(), Vec::new(), Vec::new(), Duration::ZERO);
    for i in 0..args.writes {
        let (total, write, gap) = one(&mut peer, &format!("new-{i:06}.example")).await?;
        right.push(milliseconds(total));
        writes.push(milliseconds(write));
        gap_max = gap_max.max(gap);
        if now() - begin > BUDGET {
            break;
        }
    }
    let (right, writes) = (sorted(right), sorted(writes));
    let of = |figures: &[f64], percent| percentile(figures, percent).unwrap_or(f64::NAN);
    Ok(Row {
        peer: choice.kind,
        routes,
        start_s: start.as_secs_f64(),
        writes: right.len(),
        p50_ms: of(&right, 50.0),
        p99_ms: of(&right, 99.0),
        max_ms: of(&right, 100.0),
        write_p50_ms: of(&writes, 50.0),
        gap_max_ms: milliseconds(gap_max),
    })
}

/// Writes one route while its host is asked for, and takes it away again: the time until it was right, the time of the write
/// alone, and the longest time between two questions.
async fn one(peer: &mut Peer, host: &str) -> anyhow::Result<(Duration, Duration, Duration)> {
    let begin = now();
    let asking = until_right(peer.address(), host, RIGHT_MAX);
    let route = [Route::new(host, Target::Right)];
    let (right, (written, write)) = tokio::join!(asking, timed_async(peer.put(&route)));
    written?;
    let right = right?;
    peer.remove(host).await?;
    Ok((right.at - begin, write, right.gap_max))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn print(report: &Report) {
    println!("Machine: {}", report.machine);
    println!("Versions: {}", report.versions.join("; "));
    for left_out in &report.left_out {
        println!("Left out: {left_out}");
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "routes",
        "proxy",
        "start s",
        "writes",
        "p50 ms",
        "p99 ms",
        "max ms",
        "write alone, p50 ms",
        "longest gap ms",
    ]);
    for row in &report.rows {
        let figures = [row.p50_ms, row.p99_ms, row.max_ms, row.write_p50_ms, row.gap_max_ms];
        let mut line = vec![row.routes.to_string(), format!("{:?}", row.peer).to_lowercase()];
        line.extend([format!("{:.2}", row.start_s), row.writes.to_string()]);
        line.extend(figures.map(|figure| format!("{figure:.2}")));
        table.add_row(line);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
