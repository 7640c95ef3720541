//! The table of `churn`: one line a rate and proxy.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};

use super::{Report, Turn};
use crate::load::Load;
use crate::peer::Kind;
use crate::spread::Spread;

const HEADER: [&str; 11] = [
    "changes/s",
    "proxy",
    "reached",
    "failures",
    "WebSockets broken",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "requests/s",
    "CPU µs/request",
    "MiB (processes)",
];

/// Prints everything: medians over the rounds, with the least and the greatest in brackets.
pub(super) fn print(report: &Report) {
    println!("Machine: {}", report.machine);
    println!("Versions: {}", report.versions.join("; "));
    for left_out in &report.left_out {
        println!("Left out: {left_out}");
    }
    let mut cells: BTreeMap<(u32, Kind), Vec<&Turn>> = BTreeMap::new();
    for turn in &report.turns {
        cells.entry((turn.rate, turn.peer)).or_default().push(turn);
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(HEADER);
    for ((rate, peer), turns) in cells {
        table.add_row(line(rate, peer, &turns));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}

fn line(rate: u32, peer: Kind, turns: &[&Turn]) -> Vec<String> {
    let spread = |digits: usize, of: &dyn Fn(&Turn) -> f64| {
        let Some(spread) = Spread::of(turns.iter().map(|turn| of(turn))) else { return "–".to_owned() };
        let Spread { least, median, greatest } = spread;
        if turns.len() == 1 {
            return format!("{median:.digits$}");
        }
        format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
    };
    #[allow(clippy::cast_precision_loss, reason = "microseconds far below 2^52")]
    let milliseconds = |of: fn(&Load) -> u64| spread(2, &|turn| of(&turn.load) as f64 / 1e3);
    let broken = turns.iter().filter(|turn| turn.socket_broken.is_some()).count();
    let processes = turns.iter().map(|turn| turn.processes).max().unwrap_or_default();
    vec![
        rate.to_string(),
        format!("{peer:?}").to_lowercase(),
        spread(0, &|turn| turn.reached),
        turns.iter().map(|turn| turn.load.failures()).sum::<u64>().to_string(),
        format!("{broken} of {}", turns.len()),
        milliseconds(|load| load.p50_us),
        milliseconds(|load| load.p99_us),
        milliseconds(|load| load.p999_us),
        spread(0, &|turn| turn.load.rate()),
        spread(1, &|turn| turn.cpu_us),
        format!("{} ({processes})", spread(0, &|turn| turn.resident_mib)),
    ]
}
