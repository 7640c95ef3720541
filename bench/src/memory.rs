//! `memory`: what routes, changes and idle connections cost in resident memory.

mod idle;

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use tokio::time::sleep;

use crate::files;
use crate::peer::{self, Choice, Peer, Route, SECURE, Target, choose, versions};
use crate::place::{machine, usage};
use crate::poll::until_right;
use crate::progress::Progress;
use crate::size::Size;
use crate::upstream::Upstream;
use idle::Speech;

/// What a process gets to come to rest before its memory is read: longer than buffers of TLS handshakes and of reloads live.
const REST: Duration = Duration::from_secs(2);
/// The same where figures do not matter.
const SHORT_REST: Duration = Duration::from_millis(100);
/// How long the last of many changes may take to show.
const RIGHT_MAX: Duration = Duration::from_secs(300);
/// Changes that are handed over at once.
const CHANGES: usize = 1000;

/// Measures resident memory: of routes, after changes, and of idle connections.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How much is measured.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Routes, each with a Service and endpoint of its own; several for several runs.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    routes: Vec<usize>,
    /// Changes that are then made, where a run has no more routes than --changed-routes.
    #[arg(long, default_value_t = 0)]
    changes: usize,
    /// Routes up to which changes are made: reloading proxies take long over many.
    #[arg(long, default_value_t = 1000)]
    changed_routes: usize,
    /// Idle connections of each kind, in the run with the fewest routes.
    #[arg(long, default_value_t = 2000)]
    connections: usize,
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
    /// Resident memory with no route but one, with all of them, and after the changes, in KiB.
    empty_kib: f64,
    full_kib: f64,
    /// With all of them, of a new process.
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
    machine: String,
    versions: Vec<String>,
    left_out: Vec<String>,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.apart = true;
    if args.size == Size::Smoke {
        (args.routes, args.connections, args.changes) = (vec![200], 50, 400);
    }
    let (choices, mut left_out) = choose(&args.peers)?;
    // Each connection has two ends of which one is ours; what we start has the same limit.
    let (may, need) = (files::raise(), args.connections as u64 + 256);
    if may.is_some_and(|may| may < need) {
        left_out.push(format!("idle connections: they take {need} open files, and the limit is {may:?}"));
        args.connections = 0;
    }
    let upstream = Upstream::start().await?;
    let progress = Progress::new(args.routes.len() * choices.len());
    let mut report = Report { machine: machine(), left_out, ..Report::default() };
    report.versions = versions(&choices);
    let fewest = args.routes.iter().min().copied();
    for routes in &args.routes {
        for choice in &choices {
            progress.say(format!("{} with {routes} routes", choice.name()));
            let connections = if Some(*routes) == fewest { args.connections } else { 0 };
            report.rows.push(measure(choice, *routes, connections, &args, &upstream).await?);
        }
    }
    progress.finish();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

async fn measure(
    choice: &Choice,
    routes: usize,
    connections: usize,
    args: &Args,
    upstream: &Upstream,
) -> anyhow::Result<Row> {
    let mut peer = choice.start(&args.peers, upstream, &[Route::new(SECURE, Target::Own)]).await?;
    let empty_kib = resident_kib(&peer, args).await;
    let present: Vec<Route> = (0..routes).map(|i| Route::new(host(i), Target::Own)).collect();
    put(&mut peer, &present).await?;
    let full_kib = resident_kib(&peer, args).await;
    let changed_kib = if args.changes > 0 && routes <= args.changed_routes {
        change(&mut peer, routes, args.changes).await?;
        Some(resident_kib(&peer, args).await)
    } else {
        None
    };
    peer.restart().await?;
    if let Some(last) = present.last() {
        until_right(peer.address(), &last.host, RIGHT_MAX).await?;
    }
    let fresh_kib = resident_kib(&peer, args).await;
    let mut idle = Vec::new();
    for speech in Speech::ALL {
        let address = if speech.secure() { peer.secure_address() } else { Some(peer.address()) };
        if let Some(address) = address.filter(|_| connections > 0) {
            // The first few make what all of them share.
            drop(idle::open(address, speech, 64.min(connections)).await?);
            let before = resident_kib(&peer, args).await;
            let held = idle::open(address, speech, connections).await?;
            let after = resident_kib(&peer, args).await;
            drop(held);
            #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
            idle.push(Idle { speech, connections, kib: (after - before) / connections as f64 });
        }
    }
    Ok(Row { proxy: choice.name(), routes, empty_kib, full_kib, fresh_kib, changed_kib, idle })
}

fn host(i: usize) -> String {
    format!("app-{i:06}.example")
}

/// Hands routes over and waits until the last one is right.
async fn put(peer: &mut Peer, routes: &[Route]) -> anyhow::Result<()> {
    peer.put(routes).await?;
    if let Some(last) = routes.last() {
        until_right(peer.address(), &last.host, RIGHT_MAX).await?;
    }
    Ok(())
}

/// Lets one route after the other lead to another Service and, the next time, back.
async fn change(peer: &mut Peer, routes: usize, changes: usize) -> anyhow::Result<()> {
    // An even number of passes ends as it began.
    let passes = (changes / routes.max(1)).next_multiple_of(2);
    for pass in 0..passes {
        let target = if pass % 2 == 0 { Target::Right } else { Target::Own };
        let all: Vec<Route> = (0..routes).map(|i| Route::new(host(i), target)).collect();
        for some in all.chunks(CHANGES) {
            put(peer, some).await?;
        }
    }
    Ok(())
}

/// Resident memory when it has come to rest, with all processes: of those that a reload left behind too, until they end.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn resident_kib(peer: &Peer, args: &Args) -> f64 {
    sleep(if args.size == Size::Smoke { SHORT_REST } else { REST }).await;
    usage(peer.process()).resident_bytes as f64 / 1024.0
}

fn print(report: &Report) {
    println!("Machine: {}", report.machine);
    println!("Versions: {}", report.versions.join("; "));
    for left_out in &report.left_out {
        println!("Left out: {left_out}");
    }
    let mut routes = table(&[
        "routes",
        "proxy",
        "MiB without",
        "MiB with",
        "KiB a route",
        "MiB after changes",
        "MiB of a new process",
        "KiB a route",
    ]);
    let mut idle = table(&["proxy", "connection", "count", "KiB each"]);
    for row in &report.rows {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = |kib: f64| format!("{:.2}", (kib - row.empty_kib) / row.routes as f64);
        let mebibytes = |kib: f64| format!("{:.1}", kib / 1024.0);
        routes.add_row([
            row.routes.to_string(),
            row.proxy.clone(),
            mebibytes(row.empty_kib),
            mebibytes(row.full_kib),
            each(row.full_kib),
            row.changed_kib.map_or("–".to_owned(), mebibytes),
            mebibytes(row.fresh_kib),
            each(row.fresh_kib),
        ]);
        for Idle { speech, connections, kib } in &row.idle {
            idle.add_row([row.proxy.clone(), speech.title().to_owned(), connections.to_string(), format!("{kib:.1}")]);
        }
    }
    for mut table in [routes, idle] {
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(header);
    table
}
