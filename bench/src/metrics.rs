//! Tidegate's own metrics at `/metrics`: sums and counts of its histograms.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;

use crate::get::get;

/// The maximum time for a response.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A histogram without labels, reduced to sum and count.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Histogram {
    sum_s: f64,
    count: f64,
}

impl Histogram {
    /// The observations since an earlier reading.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self { sum_s: self.sum_s - before.sum_s, count: self.count - before.count }
    }

    /// The number of observations.
    #[must_use]
    pub(crate) const fn count(self) -> f64 {
        self.count
    }

    /// Its mean in milliseconds; `None` without observations.
    #[must_use]
    pub(crate) fn mean_ms(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum_s * 1e3 / self.count)
    }
}

/// Reads histograms by their names.
///
/// # Errors
/// When there is no response, or one of them is missing.
pub(crate) async fn histograms<const N: usize>(admin: SocketAddr, names: [&str; N]) -> anyhow::Result<[Histogram; N]> {
    let text = page(admin).await?;
    let mut found = [Histogram::default(); N];
    for (found, name) in found.iter_mut().zip(names) {
        *found = histogram(&text, name).with_context(|| format!("no metric {name}"))?;
    }
    Ok(found)
}

/// Reads one value by its whole name, labels and all.
///
/// # Errors
/// When there is no response, or it is missing.
pub(crate) async fn value(admin: SocketAddr, series: &str) -> anyhow::Result<f64> {
    let text = page(admin).await?;
    single(&text, series).with_context(|| format!("no metric {series}"))
}

/// The sum of all series of a metric.
///
/// # Errors
/// When there is no response, or no series.
pub(crate) async fn total(admin: SocketAddr, name: &str) -> anyhow::Result<f64> {
    sum(&page(admin).await?, name).with_context(|| format!("no metric {name}"))
}

async fn page(admin: SocketAddr) -> anyhow::Result<String> {
    let (_, body) = get(admin, "/metrics", ANSWER_MAX).await.context("no metrics")?;
    Ok(String::from_utf8(body)?)
}

fn histogram(text: &str, name: &str) -> Option<Histogram> {
    let value = |suffix: &str| single(text, &format!("{name}{suffix}"));
    Some(Histogram { sum_s: value("_sum")?, count: value("_count")? })
}

fn sum(text: &str, name: &str) -> Option<f64> {
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit(' ').next());
    series.map(|value| value.parse::<f64>().ok()).reduce(|one, other| Some(one? + other?)).flatten()
}

fn single(text: &str, series: &str) -> Option<f64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_its_sum_and_its_count() {
        let text = "# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} 3\na_seconds_sum 1.5\na_seconds_count 3\n\
            aa_seconds_sum 9\naa_seconds_count 9\n";
        let found = histogram(text, "a_seconds").unwrap();
        assert_eq!(found, Histogram { sum_s: 1.5, count: 3.0 });
        assert_eq!(found.since(Histogram { sum_s: 0.5, count: 1.0 }).mean_ms(), Some(500.0));
        assert_eq!(found.since(found).mean_ms(), None);
        assert_eq!(histogram(text, "b_seconds"), None);
        let text = "lists{kind=\"A b\"} 7\nlists{kind=\"C\"} 3\nlists_total{kind=\"A\"} 5\n";
        assert_eq!([sum(text, "lists"), sum(text, "list")], [Some(10.0), None]);
        let text = "depth{lane=\"fast\"} 7\ndepth{lane=\"slow\"} 3\n";
        assert_eq!([single(text, "depth{lane=\"slow\"}"), single(text, "depth")], [Some(3.0), None]);
    }
}
