//! Medians and their spread.

use serde::Serialize;

/// The median of some figures, and their extremes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    /// The least.
    pub(crate) least: f64,
    /// The middle one.
    pub(crate) median: f64,
    /// The greatest.
    pub(crate) greatest: f64,
}

impl Spread {
    /// The spread of at least one figure.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let figures = sorted(figures);
        let (least, greatest) = (*figures.first()?, *figures.last()?);
        Some(Self { least, median: percentile(&figures, 50.0)?, greatest })
    }
}

/// Sorts figures in ascending order.
pub(crate) fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures
}

/// The figure that `percent` of them do not exceed (nearest rank); they are in ascending order.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank among fewer figures than 2^52"
)]
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(figures: &[f64], percent: f64, want: Option<f64>) {
        assert_eq!(percentile(&sorted(figures.iter().copied()), percent), want);
    }

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        check(&[], 50.0, None);
        check(&[7.0], 99.0, Some(7.0));
        check(&[3.0, 1.0, 2.0], 50.0, Some(2.0));
        check(&[4.0, 3.0, 1.0, 2.0], 50.0, Some(2.0));
        check(&[4.0, 3.0, 1.0, 2.0], 76.0, Some(4.0));
        check(&[1.0, 2.0], 0.0, Some(1.0));
    }
}
