//! `propagate`: from the write of a route to its first right answer.

mod table;

use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tokio::time::timeout;

use crate::clock::{now, timed_async};
use crate::cores::{Cores, Part};
use crate::metrics::{Histogram, histograms};
use crate::peer::{self, Choice, Kind, Peer, Route, Target};
use crate::place::machine;
use crate::poll::until_right;
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::{percentile, sorted};
use crate::upstream::Upstream;

/// A proxy that takes longer for its start is cut off, and so is one that takes longer for its writes.
const BUDGET: Duration = Duration::from_secs(120);
/// What Tidegate says of where its time goes: from the arrival of a change to its publication, and of that compiling and publishing.
const STAGES: [&str; 2] = ["tidegate_change_duration_seconds", "tidegate_publish_duration_seconds"];

/// Measures the time from the write of a route to its first right answer.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How much is measured; a smoke run fails when Tidegate is cut off.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Routes that are there already; several for several runs (up to 100000).
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
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
    /// What it is called.
    peer: String,
    kind: Kind,
    routes: usize,
    /// Time to start and take all of them, in seconds.
    start_s: f64,
    /// From the beginning of each write to its first right answer, in milliseconds, in ascending order.
    right_ms: Vec<f64>,
    /// Of that, until the write was acknowledged: the API's answer, or the change handed over. In ascending order.
    write_ms: Vec<f64>,
    /// The longest time between two questions.
    gap_max_ms: f64,
    /// What it says of where the time goes.
    stages: Option<Stages>,
    /// Why not all of the writes were made.
    cut_off: Option<String>,
}

/// Means, in milliseconds, over everything that was published: routes that came, and routes that went.
#[derive(Clone, Copy, Debug, Serialize)]
struct Stages {
    /// From the arrival of the change to its publication.
    change_ms: f64,
    /// Of that, compiling and publishing.
    publish_ms: f64,
}

impl Row {
    fn new(choice: &Choice, routes: usize, start: Duration) -> Self {
        let (peer, kind, start_s) = (choice.name(), choice.kind, start.as_secs_f64());
        let (right_ms, write_ms) = (Vec::new(), Vec::new());
        Self { peer, kind, routes, start_s, right_ms, write_ms, gap_max_ms: 0.0, stages: None, cut_off: None }
    }

    /// `None` when nothing was measured.
    fn right(&self, percent: f64) -> Option<f64> {
        percentile(&self.right_ms, percent)
    }
}

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    cores: String,
    versions: Vec<String>,
    left_out: Vec<String>,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or Tidegate is cut off at smoke size.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    if args.size == Size::Smoke {
        (args.routes, args.writes) = (vec![100], 20);
    }
    let (choices, left_out) = peer::choose(&args.peers)?;
    let cores = Cores::share(args.peers.workers())?;
    let upstream = Upstream::start().await?;
    cores.give(Part::Upstream, upstream.process())?;
    let progress = Progress::new(args.routes.len() * choices.len());
    let mut rows = Vec::new();
    for routes in &args.routes {
        for choice in &choices {
            progress.say(format!("{} with {routes} routes", choice.name()));
            rows.push(measure(choice, *routes, &args, &upstream, &cores).await?);
        }
    }
    progress.finish();
    let report =
        Report { machine: machine(), cores: cores.describe(), versions: peer::versions(&choices), left_out, rows };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        table::print(&report);
    }
    if args.size == Size::Smoke {
        for row in report.rows.iter().filter(|row| row.kind == Kind::Tidegate) {
            ensure!(row.cut_off.is_none(), "Tidegate was cut off: {:?}", row.cut_off);
        }
    }
    Ok(())
}

async fn measure(
    choice: &Choice,
    routes: usize,
    args: &Args,
    upstream: &Upstream,
    cores: &Cores,
) -> anyhow::Result<Row> {
    let present: Vec<Route> = (0..routes).map(|i| Route::new(format!("app-{i:06}.example"), Target::Right)).collect();
    let (peer, start) = timed_async(timeout(BUDGET, choice.start(&args.peers, upstream, &present))).await;
    let mut row = Row::new(choice, routes, start);
    let Ok(peer) = peer else {
        row.cut_off = Some(format!("not started after {BUDGET:?}"));
        return Ok(row);
    };
    let mut peer = peer?;
    cores.give(Part::Proxy, peer.process())?;
    let (begin, before) = (now(), stages(&peer).await?);
    for i in 0..args.writes {
        let spent = now() - begin;
        let one = one(&mut peer, &format!("new-{i:06}.example"), BUDGET.saturating_sub(spent)).await;
        let Some(one) = one.with_context(|| format!("{} with {routes} routes", choice.name()))? else {
            row.cut_off = Some(format!("{i} of {} writes after {BUDGET:?}", args.writes));
            break;
        };
        row.right_ms.push(milliseconds(one.right));
        row.write_ms.push(milliseconds(one.write));
        row.gap_max_ms = row.gap_max_ms.max(milliseconds(one.gap_max));
    }
    (row.right_ms, row.write_ms) = (sorted(row.right_ms), sorted(row.write_ms));
    row.stages = stages(&peer).await?.zip(before).and_then(|([change, publish], [change_before, publish_before])| {
        let (change_ms, publish_ms) = (change.mean_ms_since(change_before)?, publish.mean_ms_since(publish_before)?);
        Some(Stages { change_ms, publish_ms })
    });
    Ok(row)
}

async fn stages(peer: &Peer) -> anyhow::Result<Option<[Histogram; 2]>> {
    let Some(admin) = peer.metrics() else { return Ok(None) };
    Ok(Some(histograms(admin, STAGES).await?))
}

/// How long one write took.
#[derive(Clone, Copy, Debug)]
struct One {
    /// Until the first right answer.
    right: Duration,
    /// Until it was acknowledged.
    write: Duration,
    /// The longest time between two questions.
    gap_max: Duration,
}

/// Writes one route while its host is asked for, and takes it away again. `None` when the time is over before it is right.
async fn one(peer: &mut Peer, host: &str, patience: Duration) -> anyhow::Result<Option<One>> {
    let begin = now();
    let asking = until_right(peer.address(), host, BUDGET);
    let route = [Route::new(host, Target::Right)];
    let both = async { tokio::join!(asking, timed_async(peer.put(&route))) };
    let Ok((right, (written, write))) = timeout(patience, both).await else { return Ok(None) };
    written?;
    let right = right?;
    peer.remove(host).await?;
    Ok(Some(One { right: right.at - begin, write, gap_max: right.gap_max }))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
