//! The table: one line per probe and cluster, and its cost relative to the smallest cluster of its shape.

use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;

use super::cluster::Shape;
use super::probe::Probe;
use crate::operations::Figures;
use crate::table::figure;

/// One line: the cost of one operation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// The shape of the cluster.
    pub(super) shape: Shape,
    /// The number of its routes.
    pub(super) size: usize,
    /// The operation; `None` for the start with everything.
    pub(super) probe: Option<Probe>,
    /// The number of measurements.
    pub(super) operations: usize,
    /// Allocations per operation.
    pub(super) allocations: Option<f64>,
    /// Bytes allocated per operation; for the start, bytes that remain, per route.
    pub(super) bytes: f64,
    /// Instructions per operation, if callgrind could count them.
    pub(super) instructions: Option<f64>,
    /// The median time in microseconds; for the start, its time per route.
    pub(super) median_us: f64,
    /// Allocations, as a multiple of those with the smallest cluster of the shape.
    pub(super) allocations_ratio: Option<f64>,
    /// Instructions, likewise.
    pub(super) instructions_ratio: Option<f64>,
}

impl Row {
    /// The line of a probe, without its instructions.
    pub(super) fn probe(shape: Shape, size: usize, probe: Probe, figures: Figures) -> Self {
        Self {
            shape,
            size,
            probe: Some(probe),
            operations: figures.operations,
            allocations: Some(figures.allocations),
            bytes: figures.bytes,
            instructions: None,
            median_us: microseconds(figures.median),
            allocations_ratio: None,
            instructions_ratio: None,
        }
    }

    /// The line of a start with the whole cluster.
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub(super) fn start(shape: Shape, size: usize, live_bytes: usize, took: Duration) -> Self {
        Self {
            shape,
            size,
            probe: None,
            operations: 1,
            allocations: None,
            bytes: live_bytes as f64 / size as f64,
            instructions: None,
            median_us: microseconds(took) / size as f64,
            allocations_ratio: None,
            instructions_ratio: None,
        }
    }

    /// Its name in messages.
    pub(super) fn title(&self) -> &'static str {
        self.probe.map_or("whole model, a route", Probe::title)
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Fills in the ratios.
pub(super) fn compare(rows: &mut [Row]) {
    let smallest: Vec<Row> = rows.to_vec();
    for row in rows {
        // The cells of a shape are in ascending order.
        let base = smallest.iter().find(|base| base.shape == row.shape && base.probe == row.probe);
        let Some(base) = base else { continue };
        row.allocations_ratio = ratio(row.allocations, base.allocations);
        row.instructions_ratio = ratio(row.instructions, base.instructions);
    }
}

/// Nothing to nothing is 1; something to nothing is infinite.
fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = (value?, base?);
    Some(if value == 0.0 && base == 0.0 { 1.0 } else { value / base })
}

/// One line per size and operation.
pub(super) fn table(rows: &[Row]) -> Table {
    let lines = sorted(rows).into_iter().map(|row| {
        vec![
            format!("{} {}", row.size, row.shape.title()),
            row.title().to_owned(),
            figure(row.allocations, 1),
            figure(row.allocations_ratio, 2),
            figure(row.instructions, 0),
            figure(row.instructions_ratio, 2),
            figure(Some(row.bytes), 0),
            figure(Some(row.median_us), 2),
        ]
    });
    let header = ["routes", "operation", "allocations", "×", "instructions", "×", "bytes", "median µs"];
    crate::table::table(2, header, lines)
}

/// Sizes of one operation under each other.
fn sorted(rows: &[Row]) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| (row.shape, row.probe, row.size));
    sorted
}
