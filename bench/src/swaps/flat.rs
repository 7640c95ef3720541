//! `--check`: what must not grow with the cluster. Counts are judged, times never.

use super::probe::Probe;
use super::row::Row;

/// A count may grow by this much over the smallest cluster of its shape.
const RATIO_MAX: f64 = 1.5;

/// Complains about every count that grows with the cluster, and about a look-up that allocates. Operations that compile one host again may
/// grow with that host.
///
/// # Errors
/// Names them.
pub(super) fn check(rows: &[Row]) -> anyhow::Result<()> {
    let complaints: Vec<String> = rows.iter().filter(|row| must_be_flat(row)).flat_map(complaints).collect();
    anyhow::ensure!(complaints.is_empty(), "not flat (at most {RATIO_MAX} times):\n{}", complaints.join("\n"));
    eprintln!("flat: every count within {RATIO_MAX} times that of the smallest cluster");
    Ok(())
}

fn must_be_flat(row: &Row) -> bool {
    row.probe.is_some_and(|probe| row.shape.many_hosts() || !probe.recompiles_host())
}

fn complaints(row: &Row) -> Vec<String> {
    let name = format!("{} with {} {}", row.title(), row.size, row.shape.title());
    let of = |what: &str, ratio: Option<f64>| {
        let ratio = ratio.filter(|ratio| !ratio.is_finite() || *ratio > RATIO_MAX)?;
        Some(format!("  {name}: {ratio:.2} times the {what}"))
    };
    let looks_up = row.probe.is_some_and(Probe::looks_up);
    let allocates =
        (looks_up && row.allocations.is_none_or(|count| count > 0.0)).then(|| format!("  {name}: it allocates"));
    let all = [of("allocations", row.allocations_ratio), of("instructions", row.instructions_ratio), allocates];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::operations::Figures;
    use crate::swaps::cluster::Shape;
    use crate::swaps::row::compare;

    #[track_caller]
    fn check_growth(shape: Shape, probe: Probe, from: f64, to: f64, passes: bool) {
        let figures = |allocations| Figures { operations: 1, allocations, bytes: 0.0, median: Duration::ZERO };
        let mut rows = [(1_000, from), (10_000, to)]
            .map(|(size, count)| Row::probe(shape, size, probe, figures(count), Some(100.0)));
        compare(&mut rows);
        assert_eq!(check(&rows).is_ok(), passes, "{shape:?} {probe:?} from {from} to {to}");
    }

    #[test]
    fn what_grows_is_refused_except_with_its_own_host() {
        check_growth(Shape::Hosts, Probe::BackendMoved, 100.0, 149.0, true);
        check_growth(Shape::Hosts, Probe::BackendMoved, 100.0, 151.0, false);
        check_growth(Shape::Hosts, Probe::FindExact, 0.0, 0.0, true);
        check_growth(Shape::Hosts, Probe::FindExact, 0.0, 1.0, false);
        check_growth(Shape::Hosts, Probe::FindExact, 1.0, 1.0, false);
        check_growth(Shape::OneHost, Probe::BackendMoved, 100.0, 1000.0, true);
        check_growth(Shape::OneHost, Probe::EndpointAdded, 100.0, 1000.0, false);
    }
}
