//! The cost of one operation: its meters, and its allocations and times as it runs. `callgrind` counts its
//! instructions.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;

use crate::allocation::{Allocations, counted};
use crate::callgrind;
use crate::clock::timed;
use crate::table::Output;

/// The size of a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Size {
    /// Two sizes of each factor that may make an operation cost more, in a minute.
    Small,
    /// Everything in docs/benchmarks.md.
    Full,
}

/// The flags of every command that counts operations.
#[derive(clap::Args, Debug)]
pub(crate) struct Counting {
    /// The size of the count.
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) size: Size,
    /// Fails unless counts stay below their limits; times are never judged.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Counting {
    /// Returns `true` if instructions can be counted; otherwise prints that they are skipped.
    ///
    /// # Errors
    /// When they have to be judged and cannot be counted.
    pub(crate) fn instructions(&self) -> anyhow::Result<bool> {
        let valgrind = callgrind::available();
        anyhow::ensure!(valgrind || !self.check, "instructions are judged too, and valgrind is not installed");
        if !valgrind {
            eprintln!("skipped: instructions, because valgrind is not installed");
        }
        Ok(valgrind)
    }
}

/// A meter: it runs operations 0 to `count` of a probe, once each and in order.
pub(crate) trait Meter<P> {
    /// Measures them.
    fn measure(&mut self, probe: P, count: usize, work: &mut dyn FnMut(usize));
}

/// The measurements of each probe so far.
#[derive(Debug)]
pub(crate) struct Native<P> {
    seen: BTreeMap<P, Seen>,
}

impl<P> Default for Native<P> {
    fn default() -> Self {
        Self { seen: BTreeMap::new() }
    }
}

#[derive(Debug, Default)]
struct Seen {
    allocations: Allocations,
    times: Vec<Duration>,
}

/// The figures of one probe, per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The number of measured operations.
    pub(crate) operations: usize,
    /// Allocations per operation, on average.
    pub(crate) allocations: f64,
    /// Bytes per operation, on average.
    pub(crate) bytes: f64,
    /// The median of their times.
    pub(crate) median: Duration,
}

impl<P: Copy + Ord> Native<P> {
    /// The figures of each probe.
    #[must_use]
    pub(crate) fn figures(mut self) -> BTreeMap<P, Figures> {
        self.seen.iter_mut().filter_map(|(probe, seen)| Some((*probe, seen.figures()?))).collect()
    }
}

impl Seen {
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    fn figures(&mut self) -> Option<Figures> {
        let operations = self.times.len();
        self.times.sort_unstable();
        let median = *self.times.get(operations / 2)?;
        let each = |total: usize| total as f64 / operations as f64;
        let (allocations, bytes) = (each(self.allocations.count), each(self.allocations.bytes));
        Some(Figures { operations, allocations, bytes, median })
    }
}

impl<P: Copy + Ord> Meter<P> for Native<P> {
    fn measure(&mut self, probe: P, count: usize, work: &mut dyn FnMut(usize)) {
        let seen = self.seen.entry(probe).or_default();
        seen.times.reserve(count);
        let times = &mut seen.times;
        let ((), allocations) = counted(|| times.extend((0..count).map(|number| timed(|| work(number)).1)));
        seen.allocations += allocations;
    }
}

/// Runs everything and measures nothing: the first round fills caches that later ones reuse.
#[derive(Debug)]
pub(crate) struct Warmup;

impl<P> Meter<P> for Warmup {
    fn measure(&mut self, _: P, count: usize, work: &mut dyn FnMut(usize)) {
        (0..count).for_each(work);
    }
}
