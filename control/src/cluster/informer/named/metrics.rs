//! The metrics of Secrets by name.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

use crate::queue::Meter;

/// The metrics of Secrets by name.
#[derive(Clone, Debug)]
pub struct SecretPollerMetrics {
    pub(super) reads: IntCounterVec,
    pub(super) polled: IntGauge,
    pub(super) failing: IntGauge,
    pub(super) meter: Meter,
}

impl SecretPollerMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// If one of these names is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let reads = Opts::new("tidegate_secret_reads_total", "Reads of Secrets by name, by result.");
        let reads = IntCounterVec::new(reads, &["outcome"])?;
        let polled = IntGauge::new("tidegate_secrets_polled", "Secrets that are read by name.")?;
        let failing = "Secrets that are read by name and whose last read failed.";
        let failing = IntGauge::new("tidegate_secrets_failing", failing)?;
        registry.register(Box::new(reads.clone()))?;
        registry.register(Box::new(polled.clone()))?;
        registry.register(Box::new(failing.clone()))?;
        Ok(Self { reads, polled, failing, meter: Meter::register(registry, "secrets")? })
    }
}
