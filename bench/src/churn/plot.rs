//! Latency over time in the last round, by the sampler: a row for each proxy, a column for each rate.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Turn;
use crate::spread::{percentile, sorted};

/// The size of one drawing in pixels.
const SIZE: (u32, u32) = (420, 220);
/// Samples within this time are one point, in milliseconds.
const BIN_MS: f64 = 50.0;
/// The start of the logarithmic axis.
const LEAST_MS: f64 = 0.05;

/// Draws the turns of the last round.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(turns: &[Turn], file: &Path) -> anyhow::Result<()> {
    let last = turns.iter().map(|turn| turn.round).max().unwrap_or_default();
    let turns: Vec<&Turn> = turns.iter().filter(|turn| turn.round == last).collect();
    let (mut peers, mut paces) = (Vec::new(), Vec::new());
    for turn in &turns {
        if !peers.contains(&&turn.peer) {
            peers.push(&turn.peer);
        }
        if !paces.contains(&turn.pace) {
            paces.push(turn.pace);
        }
    }
    let most = turns.iter().flat_map(|turn| &turn.samples).filter_map(|sample| sample.latency_ms).fold(1.0, f64::max);
    let extent = |count: usize, size: u32| size * u32::try_from(count.max(1)).unwrap_or(1);
    let root = SVGBackend::new(file, (extent(paces.len(), SIZE.0), extent(peers.len(), SIZE.1))).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (peer, pace)) in root
        .split_evenly((peers.len(), paces.len()))
        .iter()
        .zip(peers.iter().flat_map(|peer| paces.iter().map(move |pace| (peer, pace))))
    {
        if let Some(turn) = turns.iter().find(|turn| turn.peer == **peer && turn.pace == *pace) {
            panel(area, turn, most)?;
        }
    }
    root.present()?;
    Ok(())
}

/// Draws the greatest latency of each moment in blue and the median in grey, on a logarithmic axis; changes in red at
/// the bottom, failed requests as red crosses at the top.
fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, turn: &Turn, most: f64) -> anyhow::Result<()> {
    let seconds = turn.samples.last().map_or(1.0, |sample| sample.at_ms / 1e3);
    let title = format!("{}: {} changes/s, {} rolls/s (ms over s)", turn.peer, turn.pace.rate, turn.pace.rolls);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 13))
        .margin(6)
        .x_label_area_size(20)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..seconds, (LEAST_MS..most * 1.5).log_scale())?;
    chart.configure_mesh().light_line_style(TRANSPARENT).y_label_formatter(&|ms| format!("{ms}")).draw()?;
    let mark = |ms: &f64| PathElement::new(vec![(ms / 1e3, LEAST_MS), (ms / 1e3, LEAST_MS * 1.6)], RED);
    chart.draw_series(turn.changes_ms.iter().map(mark))?;
    let bins = bins(turn);
    let line = |percent: f64| -> Vec<(f64, f64)> {
        bins.iter().filter_map(|(at, bin)| Some((*at, percentile(bin, percent)?.max(LEAST_MS)))).collect()
    };
    chart.draw_series(LineSeries::new(line(50.0), BLACK.mix(0.4)))?;
    chart.draw_series(LineSeries::new(line(100.0), BLUE))?;
    let failed = turn.samples.iter().filter(|sample| sample.latency_ms.is_none());
    chart.draw_series(failed.map(|sample| Cross::new((sample.at_ms / 1e3, most), 3, RED)))?;
    Ok(())
}

/// Latencies by the moment in which they were due, in ascending order.
fn bins(turn: &Turn) -> Vec<(f64, Vec<f64>)> {
    let mut bins: Vec<(f64, Vec<f64>)> = Vec::new();
    for sample in &turn.samples {
        let (at, Some(latency)) = ((sample.at_ms / BIN_MS).floor() * BIN_MS / 1e3, sample.latency_ms) else { continue };
        match bins.last_mut() {
            Some((last, bin)) if last.total_cmp(&at).is_eq() => bin.push(latency),
            Some(_) | None => bins.push((at, vec![latency])),
        }
    }
    bins.into_iter().map(|(at, bin)| (at, sorted(bin))).collect()
}
