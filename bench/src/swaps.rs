//! `swaps`: the cost of one change from its event to the published snapshot, and of one look-up, by the size and shape
//! of the cluster.

mod cluster;
mod flat;
mod probe;
mod row;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::time::Duration;

use clap::ValueEnum;
use tidegate_config::model::{Bind, BindKey, BindProtocol, Listener};
use tidegate_control::options::Options;

use crate::allocation::live_bytes;
use crate::callgrind::{self, Collected};
use crate::clock::{now, timed};
use crate::core_loop::Core;
use crate::operations::{Counting, Native, Size, Warmup};
use cluster::{Cluster, Shape};
use probe::Probe;
use row::Row;

/// Measures the cost of one change and of one look-up.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    counting: Counting,
    /// The argument that `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
    /// Runs under callgrind: the shape and size of one cluster.
    #[arg(long, hide = true, num_args = 2, value_names = ["SHAPE", "SIZE"])]
    collect: Option<Vec<String>>,
}

/// The maximum time spent on measuring one cluster, after the first round.
const BUDGET: Duration = Duration::from_secs(4);
/// The maximum number of rounds, so that small clusters do not fill the budget.
const ROUNDS_MAX: usize = 60;

/// Runs the command. `path` is the part of the command line before its arguments.
///
/// # Errors
/// When something cannot be measured, or with `--check` when something is not flat.
pub fn run(args: &Args, path: &[&str]) -> anyhow::Result<()> {
    if let Some(cell) = &args.collect {
        return collect(cell);
    }
    let valgrind = args.counting.instructions()?;
    let cells = cells(args.counting.size);
    let mut rows = Vec::new();
    for &(shape, size) in cells {
        eprintln!("measuring {size} {}", shape.title());
        rows.extend(measure(shape, size)?);
    }
    if valgrind {
        eprintln!("counting instructions");
        count_instructions(cells, path, &mut rows)?;
    }
    row::compare(&mut rows);
    args.counting.output.tell(rows.as_slice(), |rows| println!("{}", row::table(rows)))?;
    if args.counting.check { flat::check(&rows) } else { Ok(()) }
}

const fn cells(size: Size) -> &'static [(Shape, usize)] {
    match size {
        // 1,000 against 10,000 hosts, and as many rules on one host.
        Size::Small => &[
            (Shape::Hosts, 1_000),
            (Shape::Hosts, 10_000),
            (Shape::TwoServices, 1_000),
            (Shape::TwoServices, 10_000),
            (Shape::OneHost, 1_000),
            (Shape::OneHost, 10_000),
        ],
        // Up to 100,000 hosts, each with a Service of its own or all on two, and 10,000 paths on one host and on none.
        Size::Full => &[
            (Shape::Hosts, 1_000),
            (Shape::Hosts, 10_000),
            (Shape::Hosts, 100_000),
            (Shape::TwoServices, 1_000),
            (Shape::TwoServices, 10_000),
            (Shape::TwoServices, 100_000),
            (Shape::OneHost, 1_000),
            (Shape::OneHost, 10_000),
            (Shape::NoHost, 1_000),
            (Shape::NoHost, 10_000),
        ],
    }
}

/// Operations of one probe in one round.
const COUNT: usize = 100;

fn measure(shape: Shape, size: usize) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![memory(shape, size)?];
    let cluster = Cluster::new(shape, size)?;
    let mut core = started(&cluster)?;
    probe::round(&cluster, &mut core, COUNT, &mut Warmup, now())?;
    let mut native = Native::default();
    let start = now();
    for _ in 0..ROUNDS_MAX {
        probe::round(&cluster, &mut core, COUNT, &mut native, now())?;
        if now() - start > BUDGET {
            break;
        }
    }
    drop(core);
    rows.extend(native.figures().into_iter().map(|(probe, figures)| Row::probe(shape, size, probe, figures)));
    Ok(rows)
}

/// Adds the instructions to rows with times. Other processes change a time and no count, so these run side by side.
fn count_instructions(cells: &[(Shape, usize)], path: &[&str], rows: &mut [Row]) -> anyhow::Result<()> {
    let arguments = |&(shape, size): &(Shape, usize)| {
        let shape = shape.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let words = path.iter().map(|&word| word.to_owned()).chain(["--collect".to_owned(), shape, size.to_string()]);
        words.map(OsString::from).collect()
    };
    let runs: Vec<Vec<OsString>> = cells.iter().map(arguments).collect();
    let counted: Vec<BTreeMap<Probe, f64>> = callgrind::instructions_of_each(&runs)?;
    for row in rows {
        let cell = cells.iter().zip(&counted).find(|(cell, _)| **cell == (row.shape, row.size));
        row.instructions = cell.and_then(|(_, counts)| counts.get(&row.probe?).copied());
    }
    Ok(())
}

/// The memory of a route without certificates, whose size is their owners' choice.
fn memory(shape: Shape, size: usize) -> anyhow::Result<Row> {
    let before = live_bytes();
    let (core, took) = timed(|| started(&Cluster::plain(shape, size)));
    let core = core?;
    let row = Row::start(shape, size, live_bytes().saturating_sub(before), took);
    drop(core);
    Ok(row)
}

/// A core that has read all of a cluster and published it.
fn started(cluster: &Cluster) -> anyhow::Result<Core> {
    let key = BindKey { address: (Ipv4Addr::LOCALHOST, 0).into(), protocol: BindProtocol::Http };
    let listener = Listener::for_every_host("http");
    let options = Options { binds: [Bind { key, listeners: [listener].into() }].into(), ..Options::default() };
    Core::start(options, cluster.lists(now()), now())
}

/// The part that runs under callgrind.
fn collect(cell: &[String]) -> anyhow::Result<()> {
    let [shape, size] = cell else { anyhow::bail!("--collect takes a shape and a size") };
    let shape = Shape::from_str(shape, false).map_err(anyhow::Error::msg)?;
    let cluster = Cluster::new(shape, size.parse()?)?;
    let mut core = started(&cluster)?;
    probe::round(&cluster, &mut core, COUNT, &mut Warmup, now())?;
    let mut collected = Collected::default();
    probe::round(&cluster, &mut core, COUNT, &mut collected, now())?;
    collected.tell()
}
