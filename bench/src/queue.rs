//! `queue`: the cost of a step of the control loop's queue by the number of keys of a list that wait in it, and the
//! time that a live change and the keys in use wait behind them.

mod probe;
mod ranked;
mod row;
mod wait;

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Serialize;

use crate::callgrind::{self, Collected};
use crate::clock::now;
use crate::operations::{Counting, Native, Size, Warmup};
use probe::{Backlog, Probe};
use ranked::Ranked;
use row::Row;
use wait::Wait;

/// Measures the steps of the queue, and the time that a live change waits behind a list.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    counting: Counting,
    /// Runs under callgrind: behind this number of keys.
    #[arg(long, hide = true, value_name = "KEYS")]
    collect: Option<usize>,
}

/// The results of a run.
#[derive(Debug, Serialize)]
struct Report {
    steps: Vec<Row>,
    waits: Vec<Wait>,
    ranked: Vec<Ranked>,
}

/// Operations of one probe in one round.
const COUNT: usize = 100;
/// Rounds of every probe.
const ROUNDS: usize = 50;

/// Runs the command. `path` is the part of the command line before its arguments.
///
/// # Errors
/// When something cannot be measured, or with `--check` when a limit is exceeded.
pub fn run(args: &Args, path: &[&str]) -> anyhow::Result<()> {
    if let Some(keys) = args.collect {
        return collect(keys);
    }
    let valgrind = args.counting.instructions()?;
    let mut report = Report { steps: Vec::new(), waits: Vec::new(), ranked: Vec::new() };
    for &keys in sizes(args.counting.size) {
        eprintln!("measuring behind {keys} keys");
        report.steps.extend(measure(keys, path, valgrind)?);
        report.waits.extend(wait::measure(keys)?);
        report.ranked.extend(ranked::measure(keys));
    }
    row::compare(&mut report.steps);
    args.counting.output.tell(&report, |report| {
        println!("{}\n", row::table(&report.steps));
        println!("{}\n", wait::table(&report.waits));
        println!("{}", ranked::table(&report.ranked));
    })?;
    if args.counting.check {
        row::check(&report.steps)?;
        wait::check(&report.waits)?;
        ranked::check(&report.ranked)?;
        eprintln!("flat: every count within {} times that of the shortest backlog", row::RATIO_MAX);
    }
    Ok(())
}

const fn sizes(size: Size) -> &'static [usize] {
    match size {
        Size::Small => &[1_000, 10_000],
        Size::Full => &[1_000, 10_000, 100_000],
    }
}

fn measure(keys: usize, path: &[&str], valgrind: bool) -> anyhow::Result<Vec<Row>> {
    let mut backlog = Backlog::new(keys, now());
    probe::round(&mut backlog, COUNT, &mut Warmup)?;
    let mut native = Native::default();
    for _ in 0..ROUNDS {
        probe::round(&mut backlog, COUNT, &mut native)?;
    }
    let words = path.iter().copied().map(OsString::from).chain(["--collect".into(), keys.to_string().into()]);
    let words: Vec<OsString> = words.collect();
    let counted: BTreeMap<Probe, f64> = if valgrind { callgrind::instructions(&words)? } else { BTreeMap::new() };
    let figures = native.figures().into_iter();
    Ok(figures.map(|(probe, figures)| Row::new(keys, probe, figures, counted.get(&probe).copied())).collect())
}

/// The part that runs under callgrind.
fn collect(keys: usize) -> anyhow::Result<()> {
    let mut backlog = Backlog::new(keys, now());
    probe::round(&mut backlog, COUNT, &mut Warmup)?;
    let mut collected = Collected::<Probe>::default();
    probe::round(&mut backlog, COUNT, &mut collected)?;
    collected.tell()
}
