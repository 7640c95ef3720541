//! The tables of `propagate`: one line per number of routes and proxy, and the stages of Tidegate's time.

use super::{Report, Row};
use crate::spread::percentile;
use crate::table::{figure, table};

const TIMES: [&str; 11] = [
    "routes",
    "proxy",
    "start s",
    "writes",
    "p50 ms",
    "p99 ms",
    "max ms",
    "p50 ÷ best",
    "write alone, p50 ms",
    "longest gap ms",
    "cut off",
];
const STAGES: [&str; 8] = [
    "routes",
    "proxy",
    "whole, mean ms",
    "of it until the API's answer",
    "from there to the arrival, and asking",
    "arrival to publication",
    "of it waiting and relinking",
    "of it compiling and publishing",
];

/// Prints everything.
pub(super) fn print(report: &Report) {
    report.setup.print();
    println!("{}", table(2, TIMES, report.rows.iter().map(|row| times(row, &report.rows))));
    if !report.moves_ms.is_empty() {
        let [least, median, greatest] = [0.0, 50.0, 100.0].map(|percent| show(percentile(&report.moves_ms, percent)));
        let moves = report.moves_ms.len();
        println!("Moves of all applications: {moves}, of {median} ms ({least}–{greatest}) each.");
    }
    let stages: Vec<_> = report.rows.iter().filter_map(stages).collect();
    if !stages.is_empty() {
        println!("{}", table(2, STAGES, stages));
    }
}

fn show(value: Option<f64>) -> String {
    figure(value, 2)
}

fn times(row: &Row, rows: &[Row]) -> Vec<String> {
    let same = rows.iter().filter(|other| other.routes == row.routes);
    let best = same.filter_map(|other| other.right(50.0)).min_by(f64::total_cmp);
    let mut line = vec![row.routes.to_string(), row.peer.clone()];
    line.extend([format!("{:.2}", row.start_s), row.right_ms.len().to_string()]);
    line.extend([50.0, 99.0, 100.0].map(|percent| show(row.right(percent))));
    line.push(show(row.right(50.0).zip(best).map(|(own, best)| own / best)));
    line.extend([show(percentile(&row.write_ms, 50.0)), show(Some(row.gap_max_ms))]);
    line.push(row.cut_off.clone().unwrap_or_default());
    line
}

fn stages(row: &Row) -> Option<Vec<String>> {
    let stages = row.stages?;
    let mut line = vec![row.routes.to_string(), row.peer.clone()];
    let (whole, write) = (mean(&row.right_ms)?, mean(&row.write_ms)?);
    line.extend([whole, write, whole - write - stages.change_ms].map(|figure| show(Some(figure))));
    line.extend(
        [stages.change_ms, stages.change_ms - stages.publish_ms, stages.publish_ms].map(|figure| show(Some(figure))),
    );
    Some(line)
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn mean(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}
