//! The tables of `churn`: one line a rate and proxy, in figures and in ratios.

use super::{Pace, Report, Turn};
use crate::grpc::Seen;
use crate::load::Load;
use crate::spread::{Spread, percentile, sorted};
use crate::steal::Steals;
use crate::table::table;

const FIGURES: [&str; 16] = [
    "changes/s",
    "rolls/s",
    "proxy",
    "reached (+ rolls)",
    "failures",
    "WebSockets broken",
    "gRPC streams broken",
    "messages late + missed",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "sampled p99 ms",
    "sampled max ms",
    "requests/s",
    "CPU µs/request",
    "MiB (processes)",
];
const RATIOS: [&str; 10] = [
    "changes/s",
    "rolls/s",
    "proxy",
    "p50 ÷ quiet",
    "p99 ÷ quiet",
    "p99.9 ÷ quiet",
    "sampled p99 ÷ quiet",
    "CPU ÷ quiet",
    "p99 ÷ best",
    "CPU ÷ best",
];

/// The turns of one proxy at one rate.
#[derive(Debug)]
struct Line<'a> {
    pace: Pace,
    peer: &'a str,
    turns: Vec<&'a Turn>,
}

/// Prints everything: medians over the rounds, with the least and the greatest in brackets.
pub(super) fn print(report: &Report) {
    report.setup.print();
    println!("{}", report.turns.iter().filter_map(|turn| turn.stolen).collect::<Steals>());
    let lines = lines(&report.turns);
    println!("{}", table(3, FIGURES, lines.iter().map(figures)));
    println!("{}", table(3, RATIOS, lines.iter().map(|line| ratios(line, &lines))));
}

fn lines(turns: &[Turn]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for turn in turns {
        match lines.iter_mut().find(|line| line.pace == turn.pace && line.peer == turn.peer) {
            Some(line) => line.turns.push(turn),
            None => lines.push(Line { pace: turn.pace, peer: &turn.peer, turns: vec![turn] }),
        }
    }
    lines
}

impl Line<'_> {
    fn spread(&self, of: impl Fn(&Turn) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().map(|turn| of(turn)))
    }

    fn names(&self) -> Vec<String> {
        vec![self.pace.rate.to_string(), self.pace.rolls.to_string(), self.peer.to_owned()]
    }
}

fn figures(line: &Line<'_>) -> Vec<String> {
    let turns = &line.turns;
    let spread = |digits: usize, of: &dyn Fn(&Turn) -> f64| show(line.spread(of), digits, 1.0);
    let milliseconds = |of: fn(&Load) -> u64| spread(2, &|turn| milliseconds(turn, of));
    let broken = turns.iter().filter(|turn| turn.socket_broken.is_some()).count();
    let mut grpc = Seen::default();
    turns.iter().for_each(|turn| grpc += turn.grpc.clone());
    let processes = turns.iter().map(|turn| turn.processes).max().unwrap_or_default();
    let mut row = line.names();
    row.extend([
        match line.pace.rolls {
            0.0 => spread(0, &|turn| turn.reached),
            _ => format!("{} + {}", spread(0, &|turn| turn.reached), spread(1, &|turn| turn.rolled)),
        },
        turns.iter().map(|turn| turn.failures()).sum::<u64>().to_string(),
        format!("{broken} of {}", turns.len()),
        format!("{} of {}", grpc.broken, grpc.opened),
        format!("{} + {} of {}", grpc.late, grpc.missed, grpc.due),
        milliseconds(|load| load.p50_us),
        milliseconds(|load| load.p99_us),
        milliseconds(|load| load.p999_us),
        spread(2, &|turn| sampled(turn, 99.0)),
        spread(2, &|turn| sampled(turn, 100.0)),
        spread(0, &|turn| turn.load.rate()),
        spread(1, &|turn| turn.cpu_us),
        format!("{} ({processes})", spread(0, &|turn| turn.resident_mib)),
    ]);
    row
}

/// The ratios to the median of the same proxy's quiet turns, whose own spread is in their line, and to the least median
/// of all proxies at the same rate.
fn ratios(line: &Line<'_>, lines: &[Line<'_>]) -> Vec<String> {
    let quiet = lines.iter().find(|other| other.peer == line.peer && other.pace.is_quiet());
    let to_quiet = |of: &dyn Fn(&Turn) -> f64| match quiet.and_then(|quiet| quiet.spread(of)) {
        Some(quiet) => show(line.spread(of), 2, quiet.median),
        None => "–".to_owned(),
    };
    let to_best = |of: &dyn Fn(&Turn) -> f64| {
        let same = lines.iter().filter(|other| other.pace == line.pace);
        let best = same.filter_map(|other| other.spread(of)).map(|spread| spread.median).min_by(f64::total_cmp);
        match line.spread(of).zip(best) {
            Some((spread, best)) => format!("{:.2}", spread.median / best),
            None => "–".to_owned(),
        }
    };
    let mut row = line.names();
    row.extend([
        to_quiet(&|turn| milliseconds(turn, |load| load.p50_us)),
        to_quiet(&|turn| milliseconds(turn, |load| load.p99_us)),
        to_quiet(&|turn| milliseconds(turn, |load| load.p999_us)),
        to_quiet(&|turn| sampled(turn, 99.0)),
        to_quiet(&|turn| turn.cpu_us),
        to_best(&|turn| milliseconds(turn, |load| load.p99_us)),
        to_best(&|turn| turn.cpu_us),
    ]);
    row
}

#[allow(clippy::cast_precision_loss, reason = "microseconds far below 2^52")]
fn milliseconds(turn: &Turn, of: fn(&Load) -> u64) -> f64 {
    of(&turn.load) as f64 / 1e3
}

/// A percentile of the sampler's latency, which counts from the time that the request was due.
fn sampled(turn: &Turn, percent: f64) -> f64 {
    let latencies = sorted(turn.samples.iter().filter_map(|sample| sample.latency_ms));
    percentile(&latencies, percent).unwrap_or(f64::NAN)
}

/// A median with its least and greatest, where they differ, divided by `by`.
fn show(spread: Option<Spread>, digits: usize, by: f64) -> String {
    let Some(Spread { least, median, greatest }) = spread else { return "–".to_owned() };
    let [least, median, greatest] = [least, median, greatest].map(|figure| figure / by);
    if least.total_cmp(&greatest).is_eq() {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
}
