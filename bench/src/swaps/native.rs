//! Counts of allocations and wall times, taken while the operations run at full speed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::probe::{Meter, Probe};
use crate::allocation::{Allocations, counted};
use crate::clock::timed;

/// What was measured of each probe so far.
#[derive(Debug, Default)]
pub(super) struct Native {
    seen: BTreeMap<Probe, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    allocations: Allocations,
    times: Vec<Duration>,
}

/// One probe's figures, for one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Operations that were measured.
    pub(super) operations: usize,
    /// Allocations of one, on average.
    pub(super) allocations: f64,
    /// Bytes of one, on average.
    pub(super) bytes: f64,
    /// The median of their times.
    pub(super) median: Duration,
}

impl Native {
    /// The figures of each probe.
    #[must_use]
    pub(super) fn figures(mut self) -> BTreeMap<Probe, Figures> {
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

impl Meter for Native {
    fn measure(&mut self, probe: Probe, count: usize, work: &mut dyn FnMut(usize)) {
        let seen = self.seen.entry(probe).or_default();
        seen.times.reserve(count);
        let times = &mut seen.times;
        let ((), allocations) = counted(|| times.extend((0..count).map(|number| timed(|| work(number)).1)));
        seen.allocations += allocations;
    }
}

/// Runs everything and measures nothing: the first round fills what later ones reuse.
#[derive(Debug)]
pub(super) struct Warmup;

impl Meter for Warmup {
    fn measure(&mut self, _: Probe, count: usize, work: &mut dyn FnMut(usize)) {
        (0..count).for_each(work);
    }
}
