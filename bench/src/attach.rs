//! `attach`: the time until many HTTPRoutes of one Gateway all serve and all have their status, and the writes that
//! follow a change of one of them. For Tidegate only.

mod policies;
mod statuses;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use comfy_table::Table;
use serde::Serialize;
use tokio::time::timeout;

use crate::clock::now;
use crate::cores::Cores;
use crate::peer::{self, Choice, Peer, Route, START_MAX, Target, choose};
use crate::poll::wrong;
use crate::progress::Progress;
use crate::size::Size;
use crate::table::{Output, Setup, spread, table};
use crate::upstream::Upstream;
use statuses::{Counts, Statuses, Written};

/// When no status has been written for this long, all are written. An overwritten status is repaired within two
/// seconds.
const QUIET: Duration = Duration::from_secs(3);

/// Measures the time until many HTTPRoutes are attached to one Gateway.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when one changed route does not write exactly one status.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of routes that are created at once, each with a Service and endpoint of its own; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    routes: Vec<usize>,
    /// The number of listeners of the Gateway, all of which accept every route; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u16).range(2..=64))]
    listeners: Vec<u16>,
    /// Measures a start with a policy for the Gateway, each listener, each route and every second route's rule, instead
    /// of routes that are created at once.
    #[arg(long)]
    policies: bool,
    /// The number of rounds; in each, Tidegate is restarted.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    peers: peer::Args,
}

/// The measurements with this number of routes and listeners.
#[derive(Debug, Serialize)]
struct Row {
    routes: usize,
    listeners: u16,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    turns: Vec<Turn>,
    /// Those with policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    with_policies: Vec<policies::Turn>,
}

/// The figures of one round. Times are in seconds from the first write.
#[derive(Debug, Serialize)]
struct Turn {
    /// Until the API server had acknowledged all objects.
    written_s: f64,
    /// Until every route had given a right response.
    serves_s: f64,
    /// Until the status of every route was written.
    statuses_s: f64,
    /// Until the Gateway's status counted every route on every listener.
    counted_s: f64,
    /// Writes of statuses of routes until then.
    route_writes: usize,
    /// Writes of the Gateway's status until then.
    gateway_writes: usize,
    /// From the change of one route until its status was written.
    one_s: f64,
    /// All writes of statuses, of any object, that followed that change.
    one_writes: usize,
}

/// A run.
#[derive(Debug, Default, Serialize)]
struct Report {
    setup: Setup,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or at smoke size when a change of one route writes more than its status.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    let smoke = args.size == Size::Smoke;
    if smoke {
        (args.routes, args.listeners, args.rounds) = (vec![200], vec![5], 1);
    }
    args.peers.apart = true;
    args.peers.only_tidegate();
    args.peers.only_gateway();
    let (choices, left_out) = choose(&args.peers)?;
    args.size.complete(&left_out)?;
    let cores = Cores::share(args.peers.workers())?;
    let upstream = Upstream::start(cores.upstream()).await?;
    let mut report = Report { setup: Setup::new(&choices, left_out), rows: Vec::new() };
    report.setup.on(&cores);
    let progress = Progress::new(args.routes.len() * args.listeners.len() * args.rounds);
    for choice in &choices {
        for (routes, listeners) in args.routes.iter().flat_map(|it| args.listeners.iter().map(move |of| (*it, *of))) {
            let peers = args.peers.with_listeners(listeners);
            let case = Case { peers: &peers, routes, listeners, cores: &cores, upstream: &upstream };
            let (mut turns, mut with_policies) = (Vec::new(), Vec::new());
            for round in 1..=args.rounds {
                progress.say(format!("round {round}: {routes} routes on {listeners} listeners"));
                if args.policies {
                    with_policies.push(policies::turn(choice, &case).await?);
                } else {
                    turns.push(turn(choice, &case).await?);
                }
            }
            report.rows.push(Row { routes, listeners, turns, with_policies });
        }
    }
    progress.finish();
    args.output.tell(&report, print)?;
    if !smoke {
        return Ok(());
    }
    report.rows.iter().flat_map(|row| &row.turns).try_for_each(complete)?;
    report.rows.iter().flat_map(|row| &row.with_policies).try_for_each(policies::Turn::complete)
}

/// The routes and listeners of a turn, and what it runs with.
struct Case<'a> {
    peers: &'a peer::Args,
    routes: usize,
    listeners: u16,
    cores: &'a Cores,
    upstream: &'a Upstream,
}

impl Case<'_> {
    /// Starts it without routes.
    async fn start(&self, choice: &Choice) -> anyhow::Result<Peer> {
        choice.start(self.peers, self.cores.proxy(self.peers.workers()), self.upstream, &[]).await
    }

    fn present(&self) -> Vec<Route> {
        (0..self.routes).map(|i| Route::numbered(i, Target::Own)).collect()
    }

    /// The number of attachments of a route to a listener.
    fn attached(&self) -> usize {
        self.routes * usize::from(self.listeners)
    }
}

/// Fails unless one change caused one write of a status.
fn complete(turn: &Turn) -> anyhow::Result<()> {
    ensure!(turn.one_writes == 1, "a change of one route wrote {} statuses: {turn:?}", turn.one_writes);
    Ok(())
}

async fn turn(choice: &Choice, case: &Case<'_>) -> anyhow::Result<Turn> {
    let mut peer = case.start(choice).await?;
    let mut statuses = Statuses::follow(&peer).await?;
    let present = case.present();
    let begun = now();
    let since = |at: Instant| (at - begun).as_secs_f64();
    let address = peer.address();
    let serving = async {
        let mut left: Vec<String> = present.iter().map(|route| route.host.clone()).collect();
        while !left.is_empty() {
            left = wrong(address, left).await?;
        }
        anyhow::Ok(now())
    };
    let written = async { peer.put(&present).await.map(|()| now()) };
    let settled = statuses.until(|it| it.settled().routes == case.routes && it.attached() == case.attached());
    let all = async { tokio::try_join!(serving, written, settled) };
    let (serves, written, ()) = timeout(START_MAX, all).await.context("it does not settle")??;
    let Written { route: statuses_at, gateway: counted_at, .. } = statuses.last_written();
    let Counts { routes: route_writes, gateways: gateway_writes, .. } = statuses.writes();
    statuses.until_quiet(QUIET).await?;
    let (one_s, one_writes) = timeout(START_MAX, one(&mut peer, &mut statuses, &present)).await??;
    Ok(Turn {
        written_s: since(written),
        serves_s: since(serves),
        statuses_s: since(statuses_at.context("no status was written")?),
        counted_s: since(counted_at.context("no Gateway's status was written")?),
        route_writes,
        gateway_writes,
        one_s,
        one_writes,
    })
}

/// Moves one route to another Service; returns the time until its status reports it, and all writes afterwards.
async fn one(peer: &mut Peer, statuses: &mut Statuses, present: &[Route]) -> anyhow::Result<(f64, usize)> {
    let host = &present.first().context("no routes")?.host;
    let (before, writes) = (statuses.generation(host), statuses.writes().all());
    let begun = now();
    peer.put(&[Route::new(host, Target::Right)]).await?;
    statuses.until(|it| it.generation(host) > before && it.is_settled(host)).await?;
    let at = statuses.last_written().route;
    statuses.until_quiet(QUIET).await?;
    let count = statuses.writes().all() - writes;
    Ok(((at.context("no status was written")? - begun).as_secs_f64(), count))
}

/// The title of a column, and its values.
type Column<T> = (&'static str, fn(&T) -> f64);

const COLUMNS: [Column<Turn>; 8] = [
    ("objects written s", |turn| turn.written_s),
    ("last route right s", |turn| turn.serves_s),
    ("last status s", |turn| turn.statuses_s),
    ("Gateway counts all s", |turn| turn.counted_s),
    ("statuses of routes", |turn| count(turn.route_writes)),
    ("of the Gateway", |turn| count(turn.gateway_writes)),
    ("one change ms", |turn| turn.one_s * 1e3),
    ("writes for it", |turn| count(turn.one_writes)),
];

fn print(report: &Report) {
    report.setup.print();
    let has_policies = report.rows.iter().any(|row| !row.with_policies.is_empty());
    let table = if has_policies {
        columns(report, policies::COLUMNS, |row| &row.with_policies)
    } else {
        columns(report, COLUMNS, |row| &row.turns)
    };
    println!("{table}");
}

fn columns<T, const N: usize>(report: &Report, columns: [Column<T>; N], turns: fn(&Row) -> &[T]) -> Table {
    let header = ["routes", "listeners"].into_iter().chain(columns.map(|(title, _)| title));
    let lines = report.rows.iter().map(|row| {
        let figures = columns.map(|(_, of)| spread(2, turns(row).iter().map(of)));
        [row.routes.to_string(), row.listeners.to_string()].into_iter().chain(figures).collect()
    });
    table(0, header, lines)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
const fn count(number: usize) -> f64 {
    number as f64
}
