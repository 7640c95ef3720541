//! The table of steps: one line per step and backlog, its cost, and the ratio to the shortest backlog.

use comfy_table::Table;
use serde::Serialize;

use super::probe::Probe;
use crate::operations::Figures;
use crate::table::figure;

/// A count may grow by this much over the shortest backlog: the lanes are trees, whose height grows.
pub(super) const RATIO_MAX: f64 = 1.5;
/// The allocations of one step may differ by this much: the nodes of a tree come and go as a whole.
const NODES: f64 = 1.0;

/// One line: the cost of one step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// The number of keys that wait behind it.
    keys: usize,
    probe: Probe,
    /// The number of measurements.
    operations: usize,
    allocations: f64,
    /// `None` if callgrind could not count them.
    instructions: Option<f64>,
    median_ns: f64,
    /// Instructions, as a multiple of those with the shortest backlog.
    instructions_ratio: Option<f64>,
    /// Allocations with the shortest backlog.
    allocations_base: f64,
}

impl Row {
    /// The line of a step; its base is filled in by [`compare`].
    pub(super) fn new(keys: usize, probe: Probe, figures: Figures, instructions: Option<f64>) -> Self {
        Self {
            keys,
            probe,
            operations: figures.operations,
            allocations: figures.allocations,
            instructions,
            median_ns: figures.median.as_secs_f64() * 1e9,
            instructions_ratio: None,
            allocations_base: figures.allocations,
        }
    }
}

/// Fills in the base of each comparison: the same step behind the shortest backlog, which is first.
pub(super) fn compare(rows: &mut [Row]) {
    let all = rows.to_vec();
    for row in rows {
        let Some(base) = all.iter().find(|base| base.probe == row.probe) else { continue };
        row.allocations_base = base.allocations;
        row.instructions_ratio = row.instructions.zip(base.instructions).map(|(count, base)| count / base);
    }
}

/// Complains about every count that grows with the backlog.
///
/// # Errors
/// Names them.
pub(super) fn check(rows: &[Row]) -> anyhow::Result<()> {
    let grows = |row: &&Row| {
        row.instructions_ratio.is_some_and(|ratio| ratio.is_nan() || ratio > RATIO_MAX)
            || row.allocations > row.allocations_base * RATIO_MAX + NODES
    };
    let complaints: Vec<String> = rows
        .iter()
        .filter(grows)
        .map(|row| format!("  {} behind {} keys: {row:?}", row.probe.title(), row.keys))
        .collect();
    anyhow::ensure!(complaints.is_empty(), "not flat (at most {RATIO_MAX} times):\n{}", complaints.join("\n"));
    Ok(())
}

/// One line per step and backlog.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| (row.probe, row.keys));
    let lines = sorted.into_iter().map(|row| {
        vec![
            row.probe.title().to_owned(),
            row.keys.to_string(),
            figure(Some(row.allocations), 2),
            figure(row.instructions, 0),
            figure(row.instructions_ratio, 2),
            figure(Some(row.median_ns), 0),
        ]
    });
    crate::table::table(1, ["step", "keys behind", "allocations", "instructions", "×", "median ns"], lines)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Checks these allocations and instructions behind the shortest backlog, then behind a longer one.
    #[track_caller]
    fn check_growth(from: (f64, f64), to: (f64, f64), passes: bool) {
        let figures = |allocations| Figures { operations: 1, allocations, bytes: 0.0, median: Duration::ZERO };
        let mut rows = [(1_000, from), (10_000, to)]
            .map(|(keys, (count, instructions))| Row::new(keys, Probe::Added, figures(count), Some(instructions)));
        compare(&mut rows);
        super::check(&rows).map_or_else(|_| assert!(!passes), |()| assert!(passes));
    }

    #[test]
    fn growth_with_the_backlog_fails_the_check() {
        check_growth((0.0, 1000.0), (0.5, 1400.0), true);
        check_growth((0.0, 1000.0), (1.5, 1000.0), false);
        check_growth((0.0, 1000.0), (0.0, 1600.0), false);
    }
}
