//! The tables of `steady`: one line per case and proxy.

use std::collections::BTreeMap;

use comfy_table::Table;

use super::{NO_LOG, Report, Row, Turn};
use crate::load::{CASES, Load};
use crate::spread::Spread;
use crate::steal::Steals;
use crate::table::{figure, spread, table};

/// The base of ratios, and the same with no more work than necessary.
const NGINX: &str = "nginx";
const NGINX_BARE: &str = "nginx, bare";

/// Prints everything: medians over the rounds, with the least and the greatest in brackets.
pub(super) fn print(report: &Report) {
    report.setup.print();
    if !report.turns.is_empty() {
        println!("{}", report.turns.iter().map(|turn| turn.stolen).collect::<Steals>());
        println!("{}", turns(&report.turns));
    }
    if !report.counts.is_empty() {
        println!("{}", counts(&report.counts));
        for row in &report.counts {
            let calls = row.calls.iter().filter(|(_, each)| **each >= 0.05);
            let calls: Vec<String> = calls.map(|(name, each)| format!("{name} {each:.2}")).collect();
            println!("System calls of {} {}: {}", row.limits.named(&row.subject), row.case, calls.join(", "));
        }
    }
}

/// The turns of one proxy, in the order of rounds.
type Rounds<'a> = Vec<&'a Turn>;

const TURNS: [&str; 13] = [
    "workers",
    "case",
    "proxy",
    "requests/s",
    "cores busy",
    "CPU µs/request",
    "user",
    "system",
    "CPU ÷ nginx",
    "CPU ÷ best",
    "p50 ms at the rate",
    "p99 ms at the rate",
    "failures",
];

fn turns(turns: &[Turn]) -> Table {
    let place = |turn: &Turn| CASES.iter().position(|case| case.name == turn.case).unwrap_or_default();
    let mut cells: BTreeMap<(usize, usize), BTreeMap<&str, Rounds<'_>>> = BTreeMap::new();
    for turn in turns {
        cells.entry((turn.workers, place(turn))).or_default().entry(&turn.proxy).or_default().push(turn);
    }
    let mut lines = Vec::new();
    for proxies in cells.values() {
        let median =
            |rounds: &Rounds<'_>| Spread::of(rounds.iter().map(|turn| turn.cpu_us())).map_or(f64::NAN, |it| it.median);
        let best = proxies.values().min_by(|one, other| median(one).total_cmp(&median(other)));
        for (proxy, rounds) in proxies {
            let mut line = vec![String::new(); 3];
            if let Some(turn) = rounds.first() {
                line = vec![turn.workers.to_string(), turn.case.to_owned(), (*proxy).to_owned()];
            }
            line.push(spread(0, rounds.iter().map(|turn| turn.load.rate())));
            line.push(spread(2, rounds.iter().map(|turn| turn.cpu_us() * turn.load.rate() / 1e6)));
            line.push(spread(1, rounds.iter().map(|turn| turn.cpu_us())));
            line.push(spread(1, rounds.iter().map(|turn| turn.user_us)));
            line.push(spread(1, rounds.iter().map(|turn| turn.system_us)));
            line.push(ratio(rounds, nginx(proxy, |name| proxies.get(name))));
            line.push(ratio(rounds, best));
            line.push(latency(rounds, |load| load.p50_us));
            line.push(latency(rounds, |load| load.p99_us));
            let failures = |turn: &&Turn| turn.load.failures() + turn.paced.map_or(0, |load| load.failures());
            line.push(rounds.iter().map(failures).sum::<u64>().to_string());
            lines.push(line);
        }
    }
    table(3, TURNS, lines)
}

/// The nginx with the same work as a proxy, or else the only one. No nginx is comparable to a Tidegate with headers and
/// metrics but no log.
fn nginx<T>(proxy: &str, named: impl Fn(&str) -> Option<T>) -> Option<T> {
    if proxy == NO_LOG {
        return None;
    }
    let alike = if proxy.ends_with(", bare") { [NGINX_BARE, NGINX] } else { [NGINX, NGINX_BARE] };
    alike.into_iter().find_map(named)
}

/// The ratio of CPU time, round by round.
fn ratio(rounds: &Rounds<'_>, to: Option<&Rounds<'_>>) -> String {
    let Some(to) = to else { return "–".to_owned() };
    spread(2, rounds.iter().zip(to).map(|(one, other)| one.cpu_us() / other.cpu_us()))
}

#[allow(clippy::cast_precision_loss, reason = "microseconds far below 2^52")]
fn latency(rounds: &Rounds<'_>, of: fn(&Load) -> u64) -> String {
    spread(2, rounds.iter().filter_map(|turn| turn.paced.as_ref()).map(|load| of(load) as f64 / 1e3))
}

fn counts(rows: &[Row]) -> Table {
    let lines = rows.iter().map(|row| {
        let of_case = |other: &&Row| other.case == row.case && other.limits.is_none();
        let named = |name: &str| rows.iter().filter(of_case).find(|other| other.subject == name);
        let ratio = nginx(&row.subject, named).and_then(|nginx| Some(row.instructions? / nginx.instructions?));
        vec![
            row.case.to_owned(),
            row.limits.named(&row.subject),
            figure(row.allocations, 2),
            figure(row.bytes, 0),
            figure(row.syscalls, 2),
            figure(row.instructions, 0),
            figure(ratio, 2),
        ]
    });
    table(2, ["case", "proxy", "allocations", "bytes", "system calls", "instructions", "÷ nginx"], lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(proxy: &str, there: &[&str], want: Option<&str>) {
        let found = nginx(proxy, |name| there.iter().copied().find(|it| *it == name));
        assert_eq!(found, want, "{proxy} among {there:?}");
    }

    #[test]
    fn ratios_compare_with_the_nginx_of_the_same_configuration() {
        let both = [NGINX, NGINX_BARE];
        check("tidegate", &both, Some(NGINX));
        check("tidegate, bare", &both, Some(NGINX_BARE));
        check("bare pingora", &both, Some(NGINX));
        check("bare pingora", &[NGINX_BARE], Some(NGINX_BARE));
        check("tidegate, bare", &[NGINX], Some(NGINX));
        check("tidegate", &[], None);
        check(NO_LOG, &both, None);
    }
}
