//! `churn`: the effect on requests to one host of changes to the routes of other hosts, and of rolling its own
//! endpoints.

mod plot;
mod table;
mod turn;

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use crate::cores::Cores;
use crate::load::{self, CASES, Case};
use crate::metrics::Histogram;
use crate::peer::{self, Kind, Peer, Route, SECURE, STREAMED, Target};
use crate::place::version;
use crate::progress::Progress;
use crate::size::Size;
use crate::steal::undisturbed;
use crate::table::{Output, Setup};
use crate::upstream::Upstream;
use turn::Turn;

const SOCKET: &str = "socket.example";

/// Measures requests to one host while the routes of other hosts change, and while its own endpoints roll.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when Tidegate fails a request or breaks a stream.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The requests to the measured host, whose Service has two endpoints.
    #[arg(long, default_value = "h1-small", value_parser = PossibleValuesParser::new(CASES.map(|case| case.name)))]
    case: String,
    /// The number of rounds; in each, the proxies take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The duration of load in one turn, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Changes per second; 0 is the quiet turn that the others are compared with.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,100,1000")]
    rates: Vec<u32>,
    /// Measures each rate a second time, while one of the two endpoints of the measured host is replaced this many
    /// times per second.
    #[arg(long, value_name = "PER_SECOND")]
    roll: Option<f64>,
    /// The number of routes, of which the changing ones are taken in turn.
    #[arg(long, default_value_t = 1000)]
    routes: usize,
    /// The time between two reloads, in seconds, for proxies that must reload (ingress-nginx leaves 3.3).
    #[arg(long, default_value_t = 1.0)]
    reload_every: f64,
    /// The time between two requests of the sampler, which records latency over time, in milliseconds.
    #[arg(long, default_value_t = 10)]
    sample_every_ms: u64,
    /// The file for a drawing (SVG) of latency over time in the last round, with the moments of change.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    load: load::Args,
    #[command(flatten)]
    peers: peer::Args,
}

impl Args {
    /// The turns of each round: the rates of changes, and of rolls.
    fn paces(&self) -> Vec<Pace> {
        let rolls = std::iter::once(0.0).chain(self.roll);
        rolls.flat_map(|rolls| self.rates.iter().map(move |rate| Pace { rate: *rate, rolls })).collect()
    }
}

/// The rates of changes during the load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Pace {
    /// The requested rate of changes to other hosts' routes, per second.
    rate: u32,
    /// The requested rate of changes to the measured host's endpoints, per second.
    rolls: f64,
}

impl Pace {
    fn is_quiet(self) -> bool {
        self.rate == 0 && self.rolls == 0.0
    }
}

/// A proxy that takes turns, and the changes made to it in all of them: the next change is always a new one.
#[derive(Debug)]
struct Contestant {
    peer: Peer,
    changes: usize,
    rolls: usize,
}

impl Contestant {
    /// The batches of changes that it has published by its own metrics, if it has such metrics.
    async fn published(&self) -> anyhow::Result<Option<Histogram>> {
        Ok(self.peer.histograms([PUBLISHED]).await?.map(|[published]| published))
    }
}

/// Tidegate's batches of changes, from the arrival of the oldest to their publication.
const PUBLISHED: &str = "tidegate_change_duration_seconds";

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    setup: Setup,
    turns: Vec<Turn>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or at smoke size when Tidegate failed a request, or broke the WebSocket or a gRPC
/// stream.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    if args.size == Size::Smoke {
        (args.rounds, args.seconds, args.rates, args.routes) = (1, 1, vec![0, 100], 100);
        (args.roll, args.reload_every) = (Some(5.0), 0.3);
    }
    let Some(wrk) = version("wrk", "--version") else {
        anyhow::bail!("wrk is not installed (bench/setup installs it)")
    };
    let (choices, left_out) = peer::choose(&args.peers)?;
    args.size.complete(&left_out)?;
    let cores = Cores::share(args.peers.workers())?;
    let share = cores.proxy(args.peers.workers());
    let upstream = Upstream::start(cores.upstream()).await?;
    let routes: Vec<Route> = (0..args.routes).map(|i| Route::numbered(i, Target::Again)).collect();
    let held = [Route::new(SOCKET, Target::Echo), Route::new(STREAMED, Target::Grpc)];
    let routes = [&routes[..], &held, &[Route::new(SECURE, Target::Rolled)]].concat();
    let asked = Case::named(&args.case).context("no such case")?;
    let mut contestants = Vec::new();
    for choice in &choices {
        let peer = choice.start(&args.peers, share, &upstream, &routes).await?;
        contestants.push(Contestant { peer, changes: 0, rolls: 0 });
    }
    let paces = args.paces();
    let progress = Progress::new(args.rounds * paces.len() * contestants.len());
    let mut turns = Vec::new();
    for round in 1..=args.rounds {
        for pace in &paces {
            for contestant in &mut contestants {
                let (Pace { rate, rolls }, name) = (pace, contestant.peer.choice().name());
                progress.say(format!("round {round}: {name}, {rate} changes and {rolls} rolls a second"));
                let turn = async || turn::turn(contestant, (&asked, *pace), round, &upstream, &args).await;
                let taken = undisturbed(args.size, turn).await.with_context(|| format!("{name}, {pace:?}"));
                let (turn, stolen) = taken?;
                turns.push(Turn { stolen: Some(stolen), ..turn });
            }
        }
    }
    progress.finish();
    let mut setup = Setup::new(&choices, left_out);
    setup.on(&cores);
    setup.versions.push(wrk);
    let report = Report { setup, turns };
    if let Some(file) = &args.plot {
        plot::draw(&report.turns, file)?;
    }
    args.output.tell(&report, table::print)?;
    if args.size == Size::Smoke { unharmed(&report.turns) } else { Ok(()) }
}

fn unharmed(turns: &[Turn]) -> anyhow::Result<()> {
    let ours: Vec<&Turn> = turns.iter().filter(|turn| turn.kind == Kind::Tidegate).collect();
    anyhow::ensure!(!ours.is_empty(), "Tidegate had no turn");
    for turn in ours {
        let (pace, failures) = (turn.pace, turn.failures());
        anyhow::ensure!(failures == 0, "{failures} requests failed at {pace:?}: {:?}", turn.load);
        anyhow::ensure!(turn.socket_broken.is_none(), "the WebSocket broke: {:?}", turn.socket_broken);
        let grpc = &turn.grpc;
        anyhow::ensure!(grpc.due > 0 && grpc.broken == 0 && grpc.missed == 0, "gRPC streams broke: {grpc:?}");
        anyhow::ensure!(pace.rate == 0 || turn.reached > 0.0, "no change was made");
        anyhow::ensure!(pace.rolls == 0.0 || turn.rolled > 0.0, "no endpoint was replaced");
        let published = turn.published.context("no metric of publications")?;
        let changes = pace.rate > 0 || pace.rolls > 0.0;
        anyhow::ensure!(!changes || published > 0.0, "nothing was published at {pace:?}");
    }
    Ok(())
}
