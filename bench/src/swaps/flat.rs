//! `--check`: the figures that must not grow with the cluster. Counts are judged, times never.

use super::probe::Probe;
use super::row::Row;

/// A count may grow by this factor over the smallest cluster of its shape.
const RATIO_MAX: f64 = 1.5;
/// A change of one rule may cost this share of the instructions for compiling a host of 10,000 rules whole.
const SHARE_MAX: f64 = 0.01;
/// The minimum number of rules for that check: on a small host, a change costs more than the rules.
const MANY: usize = 10_000;

/// Complains about every count that grows with the cluster or with the rules of a host, about a look-up that allocates,
/// and about a change of one rule that costs too much beside its whole host.
///
/// # Errors
/// Names them.
pub(super) fn check(rows: &[Row]) -> anyhow::Result<()> {
    let mut complaints: Vec<String> = rows.iter().filter(|row| must_be_flat(row)).flat_map(complaints).collect();
    complaints.extend(rows.iter().filter_map(|row| dear(row, rows)));
    anyhow::ensure!(complaints.is_empty(), "not flat (at most {RATIO_MAX} times):\n{}", complaints.join("\n"));
    eprintln!("flat: every count within {RATIO_MAX} times that of the smallest cluster");
    Ok(())
}

fn must_be_flat(row: &Row) -> bool {
    row.probe.is_some_and(|probe| probe != Probe::HostCompiledWhole)
}

/// Complains about a change of one rule that costs too much compared with a compilation of the whole host.
fn dear(row: &Row, rows: &[Row]) -> Option<String> {
    let (size, title) = (row.size, row.title());
    row.probe.filter(|probe| probe.changes_a_rule() && !row.shape.many_hosts() && size >= MANY)?;
    let of_host = |it: &&Row| (it.probe, it.shape, it.size) == (Some(Probe::HostCompiledWhole), row.shape, size);
    let share = row.instructions? / rows.iter().find(of_host)?.instructions?;
    let dear = !share.is_finite() || share > SHARE_MAX;
    dear.then(|| format!("  {title} with {size} {}: {share:.4} of compiling the host whole", row.shape.title()))
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
            .map(|(size, count)| Row { instructions: Some(100.0), ..Row::probe(shape, size, probe, figures(count)) });
        compare(&mut rows);
        assert_eq!(check(&rows).is_ok(), passes, "{shape:?} {probe:?} from {from} to {to}");
    }

    #[test]
    fn growth_fails_the_check_except_for_a_whole_host() {
        check_growth(Shape::Hosts, Probe::BackendMoved, 100.0, 149.0, true);
        check_growth(Shape::Hosts, Probe::BackendMoved, 100.0, 151.0, false);
        check_growth(Shape::Hosts, Probe::FindExact, 0.0, 0.0, true);
        check_growth(Shape::Hosts, Probe::FindExact, 0.0, 1.0, false);
        check_growth(Shape::Hosts, Probe::FindExact, 1.0, 1.0, false);
        check_growth(Shape::OneHost, Probe::BackendMoved, 100.0, 151.0, false);
        check_growth(Shape::OneHost, Probe::HostCompiledWhole, 100.0, 1000.0, true);
        check_growth(Shape::OneHost, Probe::EndpointAdded, 100.0, 1000.0, false);
    }

    #[test]
    fn a_rule_costs_at_most_a_hundredth_of_its_host() {
        let check_share = |size, instructions, passes| {
            let figures = Figures { operations: 1, allocations: 1.0, bytes: 0.0, median: Duration::ZERO };
            let row = |probe, instructions| Row {
                instructions: Some(instructions),
                ..Row::probe(Shape::OneHost, size, probe, figures)
            };
            let rows = [row(Probe::IngressCreated, instructions), row(Probe::HostCompiledWhole, 1e6)];
            assert_eq!(check(&rows).is_ok(), passes, "{instructions} with {size} rules");
        };
        check_share(10_000, 10_000.0, true);
        check_share(10_000, 10_001.0, false);
        check_share(1_000, 10_001.0, true);
    }
}
