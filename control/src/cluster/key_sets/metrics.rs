//! Metrics of the fetches of keys.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The handles of the metrics.
#[derive(Clone, Debug)]
pub struct KeySetMetrics {
    fetched: IntCounter,
    failed: IntCounter,
    missing: IntGauge,
}

impl KeySetMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If one of these names is already registered.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("tidegate_key_set_fetches_total", "Fetches of the keys of issuers of tokens, by outcome.");
        let fetches = IntCounterVec::new(opts, &["outcome"])?;
        registry.register(Box::new(fetches.clone()))?;
        let missing = IntGauge::new(
            "tidegate_key_sets_missing",
            "Issuers of tokens whose keys have never been fetched; their tokens are refused.",
        )?;
        registry.register(Box::new(missing.clone()))?;
        let of = |outcome: &str| fetches.with_label_values(&[outcome]);
        Ok(Self { fetched: of("fetched"), failed: of("failed"), missing })
    }

    pub(super) fn count(&self, fetched: bool) {
        if fetched { self.fetched.inc() } else { self.failed.inc() }
    }

    pub(super) fn set_missing(&self, count: usize) {
        self.missing.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
