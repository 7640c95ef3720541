//! Metrics of what is written to the cluster.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

use super::ingress::Outcome;

/// Handles of the metrics.
#[derive(Clone, Debug)]
pub(super) struct StatusMetrics {
    pub(super) leader: IntGauge,
    pub(super) writes: IntCounterVec,
}

impl StatusMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When a metric of the same name is registered already.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let leader = IntGauge::new("tidegate_leader", "1 while this replica is the one that writes status.")?;
        registry.register(Box::new(leader.clone()))?;
        let opts = Opts::new("tidegate_status_writes_total", "Writes of the status of Ingresses.");
        let writes = IntCounterVec::new(opts, &["outcome"])?;
        registry.register(Box::new(writes.clone()))?;
        for outcome in Outcome::ALL {
            writes.with_label_values(&[outcome]);
        }
        Ok(Self { leader, writes })
    }
}
