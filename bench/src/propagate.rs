//! `propagate`: the time from the write of a route to its first right response.

mod deis;
mod policies;
mod table;

use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tokio::time::timeout;

use crate::clock::{now, timed_async};
use crate::cores::Cores;
use crate::metrics::Histogram;
use crate::peer::{self, Choice, Kind, Peer, Route, START_MAX, Target};
use crate::poll::until_right;
use crate::progress::Progress;
use crate::size::Size;
use crate::spread::{percentile, sorted};
use crate::table::{Output, Setup};
use crate::upstream::Upstream;

/// A proxy that takes longer for its writes is cut off, like one that does not start within [`START_MAX`].
const BUDGET: Duration = Duration::from_secs(120);
/// Tidegate's metrics of its stages: from the arrival of a change to its publication, and of that compiling and
/// publishing.
const STAGES: [&str; 2] = ["tidegate_change_duration_seconds", "tidegate_publish_duration_seconds"];

/// Measures the time from the write of a route to its first right response.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when Tidegate is cut off.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of existing routes; comma-separated (up to 100000).
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    routes: Vec<usize>,
    /// The number of applications of the Deis router with three domains each, in place of routes by Ingresses, and
    /// writes of one of them; for Tidegate alone. Comma-separated.
    #[arg(long, value_delimiter = ',', conflicts_with = "routes")]
    apps: Vec<usize>,
    /// Writes of a policy of the Gateway, a listener, a route and a rule, until requests are refused; for Tidegate
    /// alone, with HTTPRoutes.
    #[arg(long, conflicts_with = "apps")]
    policies: bool,
    /// The number of routes that are written, one after the other; the proxies take turns.
    #[arg(long, default_value_t = 200)]
    writes: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    peers: peer::Args,
}

/// One proxy with this number of routes.
#[derive(Debug, Serialize)]
struct Row {
    /// Its name.
    peer: String,
    kind: Kind,
    routes: usize,
    /// Time to start and load all of them, in seconds.
    start_s: f64,
    /// From the beginning of each write to its first right response, in milliseconds, in ascending order.
    right_ms: Vec<f64>,
    /// Of that, until the write was acknowledged: by the API's response, or by the end of the hand-over. In ascending
    /// order.
    write_ms: Vec<f64>,
    /// The longest time between two requests.
    gap_max_ms: f64,
    /// Its own measurement of its stages.
    stages: Option<Stages>,
    /// The reason why not all of the writes were made.
    cut_off: Option<String>,
}

/// Means, in milliseconds, over all publications: routes that came, and routes that went.
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

    /// `None` if nothing was measured.
    fn right(&self, percent: f64) -> Option<f64> {
        percentile(&self.right_ms, percent)
    }
}

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    setup: Setup,
    rows: Vec<Row>,
    /// The duration of each change of the platform domain, if there are applications of the Deis router. In ascending
    /// order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moves_ms: Vec<f64>,
}

/// The start of every run: the proxies, the cores, the endpoints, and an empty report.
async fn begin(args: &Args) -> anyhow::Result<(Vec<Choice>, Cores, Upstream, Report)> {
    let (choices, left_out) = peer::choose(&args.peers)?;
    args.size.complete(&left_out)?;
    let cores = Cores::share(args.peers.workers())?;
    let upstream = Upstream::start(cores.upstream()).await?;
    let mut report = Report { setup: Setup::new(&choices, left_out), rows: Vec::new(), moves_ms: Vec::new() };
    report.setup.on(&cores);
    Ok((choices, cores, upstream, report))
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or Tidegate is cut off at smoke size.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    if !args.apps.is_empty() {
        return deis::run(args).await;
    }
    if args.policies {
        return policies::run(args).await;
    }
    if args.size == Size::Smoke {
        (args.routes, args.writes) = (vec![100], 20);
    }
    let (choices, cores, upstream, mut report) = begin(&args).await?;
    let progress = Progress::new(args.routes.len() * choices.len() * args.writes);
    for routes in &args.routes {
        let mut contestants = Vec::new();
        for choice in &choices {
            contestants.push(Contestant::start(choice, *routes, &args, &upstream, &cores).await?);
        }
        for write in 0..args.writes {
            for contestant in &mut contestants {
                progress.say(format!("write {write}: {} with {routes} routes", contestant.row.peer));
                contestant.turn(write, args.writes).await?;
            }
        }
        for contestant in contestants {
            report.rows.push(contestant.end().await?);
        }
    }
    progress.finish();
    args.output.tell(&report, table::print)?;
    if args.size == Size::Smoke { through(&report.rows, args.writes) } else { Ok(()) }
}

fn through(rows: &[Row], writes: usize) -> anyhow::Result<()> {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.kind == Kind::Tidegate).collect();
    ensure!(!ours.is_empty(), "Tidegate had no turn");
    for row in ours {
        ensure!(row.cut_off.is_none() && row.right_ms.len() == writes, "Tidegate was cut off: {:?}", row.cut_off);
        ensure!(row.stages.is_some(), "Tidegate reports no stages");
    }
    Ok(())
}

/// A proxy that takes turns, until its time is over.
#[derive(Debug)]
struct Contestant {
    /// `None` if it has not started in time.
    peer: Option<Peer>,
    row: Row,
    spent: Duration,
    before: Option<[Histogram; 2]>,
}

impl Contestant {
    async fn start(
        choice: &Choice,
        routes: usize,
        args: &Args,
        upstream: &Upstream,
        cores: &Cores,
    ) -> anyhow::Result<Self> {
        let present: Vec<Route> = (0..routes).map(|i| Route::numbered(i, Target::Right)).collect();
        let share = cores.proxy(args.peers.workers());
        let (peer, start) = timed_async(timeout(START_MAX, choice.start(&args.peers, share, upstream, &present))).await;
        let mut row = Row::new(choice, routes, start);
        let Ok(peer) = peer else {
            row.cut_off = Some(format!("not started after {START_MAX:?}"));
            return Ok(Self { peer: None, row, spent: Duration::ZERO, before: None });
        };
        let peer = peer?;
        let before = peer.histograms(STAGES).await?;
        Ok(Self { peer: Some(peer), row, spent: Duration::ZERO, before })
    }

    /// Writes one route, unless its time is over.
    async fn turn(&mut self, write: usize, writes: usize) -> anyhow::Result<()> {
        let Some(peer) = self.peer.as_mut().filter(|_| self.row.cut_off.is_none()) else { return Ok(()) };
        let left = BUDGET.saturating_sub(self.spent);
        let (one, took) = timed_async(one(peer, &format!("new-{write:06}.example"), left)).await;
        self.spent += took;
        match one.with_context(|| format!("{} with {} routes", self.row.peer, self.row.routes))? {
            None => self.row.cut_off = Some(format!("{write} of {writes} writes in {BUDGET:?}")),
            Some(One { right, write, gap_max }) => {
                self.row.right_ms.push(milliseconds(right));
                self.row.write_ms.push(milliseconds(write));
                self.row.gap_max_ms = self.row.gap_max_ms.max(milliseconds(gap_max));
            }
        }
        Ok(())
    }

    async fn end(self) -> anyhow::Result<Row> {
        let Self { peer, mut row, before, .. } = self;
        (row.right_ms, row.write_ms) = (sorted(row.right_ms), sorted(row.write_ms));
        let after = match &peer {
            Some(peer) => peer.histograms(STAGES).await?,
            None => None,
        };
        row.stages = after.zip(before).and_then(|([change, publish], [change_before, publish_before])| {
            let (change_ms, publish_ms) =
                (change.since(change_before).mean_ms()?, publish.since(publish_before).mean_ms()?);
            Some(Stages { change_ms, publish_ms })
        });
        Ok(row)
    }
}

/// The durations of one write.
#[derive(Clone, Copy, Debug)]
struct One {
    /// Until the first right response.
    right: Duration,
    /// Until it was acknowledged.
    write: Duration,
    /// The longest time between two questions.
    gap_max: Duration,
}

/// Writes one route while its host is polled, and removes it again. `None` if the time is over before it is right.
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
