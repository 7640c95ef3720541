//! `memory`: the resident memory for routes, changes and idle connections.

mod idle;

use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use tokio::time::sleep;

use crate::clock::now;
use crate::cores::{Cores, Share};
use crate::files;
use crate::peer::{self, Choice, Peer, Route, SECURE, START_MAX, Target, choose};
use crate::place::{proportional_bytes, usage};
use crate::poll::{until, until_right};
use crate::progress::Progress;
use crate::size::Size;
use crate::table::{Output, Setup, spread, table};
use crate::upstream::Upstream;
use idle::Speech;

/// The least time for a process to come to rest before its memory is read: longer than the buffers of TLS handshakes
/// and of reloads live.
const REST: Duration = Duration::from_secs(2);
/// The same at smoke size, where figures do not matter.
const SHORT_REST: Duration = Duration::from_millis(100);
/// The time that it may take instead, as long as the process is busy: Tidegate writes the statuses of 10,000 routes for
/// many seconds after the last of them is in effect.
const REST_MAX: Duration = Duration::from_secs(300);
/// The CPU time of a process at rest in [`REST`], at most.
const REST_CPU: Duration = Duration::from_millis(40);
/// The maximum time for the last of many changes to take effect.
const RIGHT_MAX: Duration = Duration::from_secs(300);
/// Changes that are handed over at once.
const CHANGES: usize = 1000;
/// The columns of the first table.
const ROUTES: [&str; 9] = [
    "routes",
    "proxy",
    "MiB without",
    "MiB with",
    "KiB a route",
    "KiB a route (PSS)",
    "MiB after changes",
    "MiB of a new process",
    "KiB a route",
];
/// The host whose route shows that changes are in effect.
const MARKER: &str = "marker.example";

/// Measures resident memory: of routes, after changes, and of idle connections.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a smoke run fails when a proxy does not have all of its routes, or a figure is
    /// zero.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of routes, each with a Service and endpoint of its own; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    routes: Vec<usize>,
    /// The number of rounds; in each, every proxy is restarted and measured once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of changes made after that, where a run has no more routes than --changed-routes.
    #[arg(long, default_value_t = 0)]
    changes: usize,
    /// The number of routes up to which changes are made: reloading proxies take long over many.
    #[arg(long, default_value_t = 1000)]
    changed_routes: usize,
    /// The number of idle connections of each kind, in the run with the fewest routes.
    #[arg(long, default_value_t = 2000)]
    connections: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    peers: peer::Args,
}

/// One proxy with this number of routes.
#[derive(Debug, Serialize)]
struct Row {
    proxy: String,
    routes: usize,
    turns: Vec<Turn>,
}

/// The measurements of one round.
#[derive(Debug, Serialize)]
struct Turn {
    /// Resident memory with a single route, with all routes, and after the changes, in KiB.
    empty_kib: f64,
    full_kib: f64,
    /// The same two, with the memory that processes share divided among them.
    empty_pss_kib: f64,
    full_pss_kib: f64,
    /// Resident memory of a new process with all routes.
    fresh_kib: f64,
    changed_kib: Option<f64>,
    /// Resident memory that an idle connection adds, in KiB.
    idle: Vec<Idle>,
}

#[derive(Debug, Serialize)]
struct Idle {
    speech: Speech,
    connections: usize,
    kib: f64,
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
/// When something cannot be measured, or at smoke size when one of the routes has no right response.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.apart = true;
    let smoke = args.size == Size::Smoke;
    if smoke {
        (args.routes, args.rounds, args.connections, args.changes) = (vec![200], 1, 50, 400);
    }
    let (choices, mut left_out) = choose(&args.peers)?;
    // Each connection has two ends of which one is in this process; child processes have the same limit.
    let (may, need) = (files::raise(), args.connections as u64 + 256);
    if may.is_some_and(|may| may < need) {
        left_out.push(format!("idle connections: they take {need} open files, and the limit is {may:?}"));
        args.connections = 0;
    }
    args.size.complete(&left_out)?;
    let cores = Cores::share(args.peers.workers())?;
    let share = cores.proxy(args.peers.workers());
    let upstream = Upstream::start(cores.upstream()).await?;
    let progress = Progress::new(args.routes.len() * args.rounds * choices.len());
    let mut report = Report { setup: Setup::new(&choices, left_out), rows: Vec::new() };
    report.setup.on(&cores);
    let fewest = args.routes.iter().min().copied();
    for routes in &args.routes {
        let connections = if Some(*routes) == fewest { args.connections } else { 0 };
        let row = |choice: &Choice| Row { proxy: choice.name(), routes: *routes, turns: Vec::new() };
        let mut rows: Vec<(&Choice, Row)> = choices.iter().map(|choice| (choice, row(choice))).collect();
        for round in 1..=args.rounds {
            // A proxy that fails once is skipped from then on.
            for (choice, mut row) in std::mem::take(&mut rows) {
                progress.say(format!("round {round}: {} with {routes} routes", row.proxy));
                match measure(choice, (*routes, connections), &args, share, &upstream).await {
                    Ok(turn) => {
                        row.turns.push(turn);
                        rows.push((choice, row));
                    }
                    Err(why) => {
                        let why = why.context(format!("in round {round}"));
                        report.setup.miss(args.size, choice, *routes, why)?;
                        report.rows.extend((!row.turns.is_empty()).then_some(row));
                    }
                }
            }
        }
        report.rows.extend(rows.into_iter().map(|(_, row)| row));
    }
    progress.finish();
    args.output.tell(&report, print)?;
    if smoke { report.rows.iter().flat_map(|row| &row.turns).try_for_each(complete) } else { Ok(()) }
}

/// Checks that every figure was measured and is not zero.
fn complete(turn: &Turn) -> anyhow::Result<()> {
    let Turn { empty_kib, full_kib, empty_pss_kib, full_pss_kib, fresh_kib, changed_kib, .. } = *turn;
    let resident =
        [empty_kib, full_kib, empty_pss_kib, full_pss_kib, fresh_kib].map(Some).into_iter().chain([changed_kib]);
    ensure!(resident.into_iter().all(|kib| kib.is_some_and(|kib| kib > 0.0)), "no memory: {turn:?}");
    ensure!(turn.idle.len() == Speech::ALL.len(), "not all idle connections: {turn:?}");
    Ok(())
}

async fn measure(
    choice: &Choice,
    (routes, connections): (usize, usize),
    args: &Args,
    share: Share,
    upstream: &Upstream,
) -> anyhow::Result<Turn> {
    let mut peer = choice.start(&args.peers, share, upstream, &[Route::new(SECURE, Target::Own)]).await?;
    let (empty_kib, empty_pss_kib) = (resident_kib(&peer, args).await, pss_kib(&peer));
    let present: Vec<Route> = (0..routes).map(|i| Route::numbered(i, Target::Own)).collect();
    put(&mut peer, &present).await?;
    let (full_kib, full_pss_kib) = (resident_kib(&peer, args).await, pss_kib(&peer));
    let changed_kib = if args.changes > 0 && routes <= args.changed_routes {
        change(&mut peer, routes, args.changes).await?;
        if args.size == Size::Smoke {
            peer.all_right(&present).await?;
        }
        Some(resident_kib(&peer, args).await)
    } else {
        None
    };
    restart(&mut peer, &present).await?;
    let fresh_kib = resident_kib(&peer, args).await;
    if args.size == Size::Smoke {
        peer.all_right(&present).await?;
    }
    let mut idle = Vec::new();
    for speech in Speech::ALL {
        if connections > 0 {
            idle.push(hold(&mut peer, speech, connections, &present, args).await?);
        }
    }
    Ok(Turn { empty_kib, full_kib, empty_pss_kib, full_pss_kib, fresh_kib, changed_kib, idle })
}

/// Measures the memory of idle connections in a new process, where connections of another kind have left no free
/// memory.
async fn hold(
    peer: &mut Peer,
    speech: Speech,
    connections: usize,
    present: &[Route],
    args: &Args,
) -> anyhow::Result<Idle> {
    restart(peer, present).await?;
    let address = if speech.secure() { peer.secure_address() } else { peer.address() };
    // The first few allocate what all of them share.
    drop(idle::open(address, speech, 64.min(connections)).await?);
    let before = resident_kib(peer, args).await;
    let held = idle::open(address, speech, connections).await?;
    let after = resident_kib(peer, args).await;
    drop(held);
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    Ok(Idle { speech, connections, kib: (after - before) / connections as f64 })
}

/// Hands routes over and waits until the last one is right.
async fn put(peer: &mut Peer, routes: &[Route]) -> anyhow::Result<()> {
    peer.put(routes).await?;
    until_last(peer, routes).await
}

/// Restarts a process with the current routes, and waits until the last one is right.
async fn restart(peer: &mut Peer, routes: &[Route]) -> anyhow::Result<()> {
    peer.restart().await?;
    until_last(peer, routes).await
}

async fn until_last(peer: &Peer, routes: &[Route]) -> anyhow::Result<()> {
    if let Some(last) = routes.last() {
        until_right(peer.address(), &last.host, START_MAX).await?;
    }
    Ok(())
}

/// Moves one route after the other to another Service and, the next time, back.
async fn change(peer: &mut Peer, routes: usize, changes: usize) -> anyhow::Result<()> {
    // An even number of passes ends as it began.
    let passes = (changes / routes.max(1)).next_multiple_of(2).max(2);
    let mut marked = false;
    for pass in 0..passes {
        let target = if pass % 2 == 0 { Target::Right } else { Target::Own };
        let all: Vec<Route> = (0..routes).map(|i| Route::numbered(i, target)).collect();
        for some in all.chunks(CHANGES) {
            // All of these respond alike before and after. With them goes a route that does not: it leads in turn to a
            // target that responds, and to one that responds to WebSockets only.
            marked = !marked;
            let marker = Route::new(MARKER, if marked { Target::Right } else { Target::Echo });
            peer.put(&[some, &[marker]].concat()).await?;
            until(peer.address(), MARKER, RIGHT_MAX, move |status| (status == 200) == marked).await?;
        }
    }
    Ok(())
}

/// Resident memory at rest, of all processes, including those that a reload left behind, until they end.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn resident_kib(peer: &Peer, args: &Args) -> f64 {
    if args.size == Size::Smoke {
        sleep(SHORT_REST).await;
    } else {
        rest(peer.process()).await;
    }
    usage(peer.process()).resident_bytes as f64 / 1024.0
}

/// Waits until a process has done next to nothing for [`REST`].
async fn rest(process: u32) {
    let start = now();
    let mut before = usage(process).cpu();
    while now() - start < REST_MAX {
        sleep(REST).await;
        let cpu = usage(process).cpu();
        if cpu.saturating_sub(before) <= REST_CPU {
            return;
        }
        before = cpu;
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn pss_kib(peer: &Peer) -> f64 {
    proportional_bytes(peer.process()) as f64 / 1024.0
}

fn print(report: &Report) {
    report.setup.print();
    let lines = report.rows.iter().map(|Row { proxy, routes, turns }| {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = |of: fn(&Turn) -> f64| spread(2, turns.iter().map(|turn| of(turn) / (*routes).max(1) as f64));
        let mebibytes = |of: fn(&Turn) -> Option<f64>| spread(1, turns.iter().filter_map(of).map(|kib| kib / 1024.0));
        vec![
            routes.to_string(),
            proxy.clone(),
            mebibytes(|turn| Some(turn.empty_kib)),
            mebibytes(|turn| Some(turn.full_kib)),
            each(|turn| turn.full_kib - turn.empty_kib),
            each(|turn| turn.full_pss_kib - turn.empty_pss_kib),
            mebibytes(|turn| turn.changed_kib),
            mebibytes(|turn| Some(turn.fresh_kib)),
            each(|turn| turn.fresh_kib - turn.empty_kib),
        ]
    });
    println!("{}", table(2, ROUTES, lines));
    let idle = report.rows.iter().flat_map(|Row { proxy, turns, .. }| {
        Speech::ALL.into_iter().filter_map(|speech| {
            let of_all = turns.iter().flat_map(|turn| &turn.idle).filter(|idle| idle.speech == speech);
            let held: Vec<&Idle> = of_all.collect();
            let connections = held.first()?.connections.to_string();
            let kib = spread(1, held.iter().map(|idle| idle.kib));
            Some(vec![proxy.clone(), speech.title().to_owned(), connections, kib])
        })
    });
    println!("{}", table(2, ["proxy", "idle connection", "count", "KiB each"], idle));
}
