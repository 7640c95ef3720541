//! `served`: the resources of `tidegate lite` for objects and watches, the delivery of changes to many watches, and the
//! time to serve its state from disk.

mod cluster;
mod server;
mod watches;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tokio::time::sleep;

use crate::clock::now;
use crate::files;
use crate::peer::{self, choose};
use crate::progress::Progress;
use crate::size::Size;
use crate::table::{Output, Setup, spread, table};
use cluster::Cluster;
use server::Server;
use watches::Watches;

/// The time for a process to come to rest before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// The same at smoke size, where figures do not matter.
const SHORT_REST: Duration = Duration::from_millis(100);

/// Measures the served API: memory of objects and watches, delivery of changes, and a start from disk.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The size of the measurement; a run of any size fails when an object or an event is missing.
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// The number of Services; comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    objects: Vec<u64>,
    /// The number of open watches, in the run with the fewest objects.
    #[arg(long, default_value_t = 1000)]
    watches: usize,
    /// The number of changes sent to all of them, fewer than the queue of a watch holds (1,024).
    #[arg(long, default_value_t = 500)]
    changes: u64,
    /// The number of rounds; in each, every process is restarted and measured once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    peers: peer::Args,
}

/// The measurements with this number of objects, one figure per round.
#[derive(Debug, Default, Serialize)]
struct Row {
    objects: u64,
    /// Bytes of JSON of an object, as held in memory.
    json_bytes: Vec<f64>,
    /// Resident memory that an object adds, in bytes.
    object_bytes: Vec<f64>,
    /// Seconds from the start of a process until it is ready, without an API server and with all objects on disk.
    start_s: Vec<f64>,
    /// The same until it has responded to a list of one page.
    first_page_s: Vec<f64>,
    watched: Vec<Watched>,
}

/// The measurements with many watches.
#[derive(Debug, Serialize)]
struct Watched {
    watches: usize,
    changes: u64,
    /// Resident memory that an idle watch adds, in bytes.
    watch_bytes: f64,
    /// Seconds from the first change to the last event at the last watch.
    delivery_s: f64,
    /// CPU seconds of the process meanwhile.
    cpu_s: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    setup: Setup,
    rows: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or an object or an event is missing.
pub async fn run(mut args: Args) -> anyhow::Result<()> {
    args.peers.only_tidegate();
    if args.size == Size::Smoke {
        (args.objects, args.watches, args.changes, args.rounds) = (vec![500], 50, 100, 1);
    }
    let (choices, mut left_out) = choose(&args.peers)?;
    let program = choices.first().context("no tidegate")?.program().to_owned();
    // Each watch has two ends of which one is in this process; child processes have the same limit.
    let (may, need) = (files::raise(), args.watches as u64 + 256);
    if may.is_some_and(|may| may < need) {
        left_out.push(format!("watches: they take {need} open files, and the limit is {may:?}"));
        args.watches = 0;
    }
    args.size.complete(&left_out)?;
    let mut report = Report { setup: Setup::new(&choices, left_out), rows: Vec::new() };
    let progress = Progress::new(args.objects.len() * args.rounds);
    let fewest = args.objects.iter().min().copied();
    for objects in &args.objects {
        let mut row = Row { objects: *objects, ..Row::default() };
        for round in 1..=args.rounds {
            progress.say(format!("round {round}: {objects} objects"));
            let mut server = Server::new(&program)?;
            measure(&args, &mut server, &mut row, Some(*objects) == fewest).await?;
        }
        report.rows.push(row);
    }
    progress.finish();
    args.output.tell(&report, print)
}

#[allow(clippy::cast_precision_loss, reason = "bytes and counts for people")]
async fn measure(args: &Args, server: &mut Server, row: &mut Row, watched: bool) -> anyhow::Result<()> {
    let rest = if args.size == Size::Smoke { SHORT_REST } else { REST };
    let nearly_none = Cluster::start(1).await?;
    let mut empty = Server::new(server.program())?;
    empty.start(nearly_none.address()).await?;
    sleep(rest).await;
    let without = empty.resident()?;
    drop((empty, nearly_none));

    let mut cluster = Cluster::start(row.objects).await?;
    server.start(cluster.address()).await?;
    let held = server.metric("tidegate_served_objects{kind=\"services\"}").await?;
    ensure!((held - row.objects as f64).abs() < 0.5, "{held} objects are served");
    server.until_kept(row.objects).await?;
    sleep(rest).await;
    let with = server.resident()?;
    row.json_bytes.push(server.metric("tidegate_served_bytes{kind=\"services\"}").await? / row.objects as f64);
    row.object_bytes.push((with as f64 - without as f64) / row.objects as f64);
    if watched && args.watches > 0 {
        row.watched.push(watch(args, server, &mut cluster, rest).await?);
    }

    // From here on only the disk has the objects.
    server.end();
    let address = cluster.address();
    drop(cluster);
    let begun = now();
    server.start(address).await?;
    row.start_s.push((now() - begun).as_secs_f64());
    let total = server.first_page().await?;
    row.first_page_s.push((now() - begun).as_secs_f64());
    ensure!(total == row.objects, "{total} objects are served from disk");
    Ok(())
}

/// Opens watches, and sends changes to all of them.
#[allow(clippy::cast_precision_loss, reason = "bytes for people")]
async fn watch(args: &Args, server: &Server, cluster: &mut Cluster, rest: Duration) -> anyhow::Result<Watched> {
    let before = server.resident()?;
    let watches = Watches::open(server.api(), args.watches, cluster.version()).await?;
    sleep(rest).await;
    let watch_bytes = (server.resident()? as f64 - before as f64) / args.watches as f64;
    let (cpu, begun) = (server.cpu()?, now());
    cluster.change(args.changes);
    watches.all_told(args.changes).await?;
    let (delivery_s, cpu_s) = ((now() - begun).as_secs_f64(), (server.cpu()? - cpu).as_secs_f64());
    Ok(Watched { watches: args.watches, changes: args.changes, watch_bytes, delivery_s, cpu_s })
}

#[allow(clippy::cast_precision_loss, reason = "counts for people")]
fn print(report: &Report) {
    report.setup.print();
    let figures = |digits, figures: &[f64]| spread(digits, figures.iter().copied());
    let lines = report.rows.iter().map(|row| {
        vec![
            row.objects.to_string(),
            figures(0, &row.json_bytes),
            figures(0, &row.object_bytes),
            figures(2, &row.start_s),
            figures(2, &row.first_page_s),
        ]
    });
    let header = ["objects", "JSON bytes an object", "resident bytes an object", "ready from disk s", "first page s"];
    println!("{}\n", table(0, header, lines));
    let lines = report.rows.iter().filter_map(|row| {
        let first = row.watched.first()?;
        let of = |digits, figure: &dyn Fn(&Watched) -> f64| spread(digits, row.watched.iter().map(figure));
        let events = |one: &Watched| one.watches as f64 * one.changes as f64;
        Some(vec![
            first.watches.to_string(),
            first.changes.to_string(),
            of(1, &|one| one.watch_bytes / 1024.0),
            of(2, &|one| one.delivery_s),
            of(0, &|one| events(one) / one.delivery_s),
            of(1, &|one| one.cpu_s * 1e6 / events(one)),
        ])
    });
    let header = ["watches", "changes", "KiB an idle watch", "to all s", "events a second", "CPU µs an event"];
    println!("{}", table(0, header, lines));
}
