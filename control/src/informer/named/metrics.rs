//! What can be measured of Secrets by name.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

use crate::queue::Meter;

/// What can be measured of it.
#[derive(Clone, Debug)]
pub struct SecretPollerMetrics {
    pub(super) reads: IntCounterVec,
    pub(super) followed: IntGauge,
    pub(super) failing: IntGauge,
    pub(super) meter: Meter,
}

impl SecretPollerMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// When one of these names is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let reads = Opts::new("tidegate_secret_reads_total", "Secrets asked for by name, by what came of it.");
        let reads = IntCounterVec::new(reads, &["outcome"])?;
        let followed = IntGauge::new("tidegate_secrets_followed", "Secrets that are followed by name.")?;
        let failing = "Secrets that are followed by name and could not be read when they were last asked for.";
        let failing = IntGauge::new("tidegate_secrets_failing", failing)?;
        registry.register(Box::new(reads.clone()))?;
        registry.register(Box::new(followed.clone()))?;
        registry.register(Box::new(failing.clone()))?;
        Ok(Self { reads, followed, failing, meter: Meter::register(registry, "secrets")? })
    }
}
