//! `churn`: what requests to one host notice while the routes of other hosts change.

mod table;

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::load::{self, Load, load};
use crate::peer::{self, Kind, Peer, Route, Target};
use crate::place::{machine, usage, version};
use crate::progress::Progress;
use crate::upstream::Upstream;
use crate::websocket::Held;

const MEASURED: &str = "measured.example";
const SOCKET: &str = "socket.example";

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Size {
    /// A few seconds; fails when Tidegate fails a request.
    Smoke,
    /// What the flags say.
    Full,
}

/// Measures requests to one host while the routes of other hosts change.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How much is measured.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Rounds; in each, the proxies take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of load in one turn.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Changes a second; 0 is the quiet turn that the others are compared with.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,100,1000")]
    rates: Vec<u32>,
    /// Routes that are there, of which the changing ones are taken in turn.
    #[arg(long, default_value_t = 1000)]
    routes: usize,
    /// Seconds between two reloads, for proxies that must reload (ingress-nginx leaves 3.3).
    #[arg(long, default_value_t = 1.0)]
    reload_every: f64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: load::Args,
    #[command(flatten)]
    peers: peer::Args,
}

/// One turn of a proxy.
#[derive(Clone, Debug, Serialize)]
struct Turn {
    peer: Kind,
    /// Changes a second that were asked for.
    rate: u32,
    /// Changes a second that were handed over.
    reached: f64,
    load: Load,
    /// CPU time of the proxy with all of its processes, for one request, in microseconds.
    cpu_us: f64,
    /// Memory that is resident at the end, in MiB.
    resident_mib: f64,
    /// Processes at the end.
    processes: usize,
    /// What broke the WebSocket.
    socket_broken: Option<String>,
}

/// A run.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    versions: Vec<String>,
    left_out: Vec<String>,
    turns: Vec<Turn>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or at smoke size when Tidegate failed a request or broke the WebSocket.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    if args.size == Size::Smoke {
        (args.rounds, args.seconds, args.rates, args.routes) = (1, 2, vec![0, 100], 100);
    }
    let Some(wrk) = version("wrk", "--version") else {
        anyhow::bail!("wrk is not installed (bench/setup installs it)")
    };
    let (choices, left_out) = peer::choose(&args.peers)?;
    let upstream = Upstream::start().await?;
    let routes: Vec<Route> = (0..args.routes).map(|i| Route::new(host(i), Target::Again)).collect();
    let routes = [routes, vec![Route::new(SOCKET, Target::Echo), Route::new(MEASURED, Target::Right)]].concat();
    let mut peers = Vec::new();
    for choice in &choices {
        peers.push(choice.start(&args.peers, &upstream, &routes).await?);
    }
    let progress = Progress::new(args.rounds * args.rates.len() * peers.len());
    let mut turns = Vec::new();
    for round in 1..=args.rounds {
        for rate in &args.rates {
            for peer in &mut peers {
                progress.say(format!("round {round}: {:?}, {rate} changes a second", peer.kind()));
                turns.push(turn(peer, *rate, &args).await?);
            }
        }
    }
    progress.finish();
    let versions = [peer::versions(&choices), vec![wrk]].concat();
    let report = Report { machine: machine(), versions, left_out, turns };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        table::print(&report);
    }
    if args.size == Size::Smoke { unharmed(&report.turns) } else { Ok(()) }
}

fn host(i: usize) -> String {
    format!("app-{i:06}.example")
}

async fn turn(peer: &mut Peer, rate: u32, args: &Args) -> anyhow::Result<Turn> {
    let (address, process, kind) = (peer.address(), peer.process(), peer.kind());
    let duration = Duration::from_secs(args.seconds);
    let stop = CancellationToken::new();
    let socket = Held::open(address, SOCKET).await?;
    let before = usage(process);
    let loading = async {
        let load = load(address, MEASURED, duration, &args.load).await;
        stop.cancel();
        load
    };
    let churning = churn(peer, rate, args, &stop);
    let (load, changes, held) = tokio::join!(loading, churning, socket.hold(&stop));
    let (load, changes, after) = (load?, changes?, usage(process));
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(Turn {
        peer: kind,
        rate,
        reached: changes as f64 / duration.as_secs_f64(),
        load,
        cpu_us: after.cpu().saturating_sub(before.cpu()).as_secs_f64() * 1e6 / load.requests as f64,
        resident_mib: after.resident_bytes as f64 / f64::from(1 << 20),
        processes: after.processes,
        socket_broken: held.err().map(|why| format!("{why:#}")),
    })
}

/// Lets hosts lead elsewhere, one after the other, until told to stop; returns how many changes were handed over.
async fn churn(peer: &mut Peer, rate: u32, args: &Args, stop: &CancellationToken) -> anyhow::Result<usize> {
    let (start, mut made) = (now(), 0);
    let gathers = peer.gathers(Duration::try_from_secs_f64(args.reload_every)?);
    while !stop.is_cancelled() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
        let due = ((now() - start).as_secs_f64() * f64::from(rate)) as usize;
        let routes: Vec<Route> = (made..due)
            .map(|change| {
                let target = if (change / args.routes).is_multiple_of(2) { Target::Right } else { Target::Again };
                Route::new(host(change % args.routes), target)
            })
            .collect();
        if !routes.is_empty() {
            peer.put(&routes).await?;
            made = due;
        }
        tokio::select! {
            () = sleep(gathers) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(made)
}

fn unharmed(turns: &[Turn]) -> anyhow::Result<()> {
    for turn in turns.iter().filter(|turn| turn.peer == Kind::Tidegate) {
        let failures = turn.load.failures();
        anyhow::ensure!(failures == 0, "{failures} requests failed at {} changes a second: {:?}", turn.rate, turn.load);
        anyhow::ensure!(turn.socket_broken.is_none(), "the WebSocket broke: {:?}", turn.socket_broken);
        anyhow::ensure!(turn.rate == 0 || turn.reached > 0.0, "no change was made");
    }
    Ok(())
}
