//! Metrics of writes to the cluster.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The outcomes of writes; see [`super::send::outcome`].
const STATUS: [&str; 5] = ["written", "gone", "throttled", "refused", "failed"];
const SERVICE: [&str; 5] = ["written", "gone", "throttled", "refused", "failed"];
const EVENT: [&str; 6] = ["written", "exists", "gone", "throttled", "refused", "failed"];

/// The metrics.
#[derive(Clone, Debug)]
pub(super) struct ReportMetrics {
    pub(super) leader: IntGauge,
    pub(super) statuses: IntCounterVec,
    pub(super) events: IntCounterVec,
    pub(super) services: IntCounterVec,
    pub(super) dropped: IntCounter,
}

impl ReportMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if a metric of the same name is already registered.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let leader =
            IntGauge::new("tidegate_leader", "1 while this replica is the leader, which writes to the cluster.")?;
        registry.register(Box::new(leader.clone()))?;
        let dropped = IntCounter::new(
            "tidegate_events_dropped_total",
            "Findings whose Events failed, and objects without Events because too many have some.",
        )?;
        registry.register(Box::new(dropped.clone()))?;
        let writes = |name: &str, help: &str, outcomes: &[&str]| {
            let writes = IntCounterVec::new(Opts::new(name, help), &["outcome"])?;
            registry.register(Box::new(writes.clone()))?;
            outcomes.iter().for_each(|outcome| drop(writes.with_label_values(&[outcome])));
            Ok::<_, prometheus::Error>(writes)
        };
        Ok(Self {
            leader,
            statuses: writes(
                "tidegate_status_writes_total",
                "Writes of the status of Ingresses and of Gateway API objects.",
                &STATUS,
            )?,
            events: writes("tidegate_event_writes_total", "Writes of Events.", &EVENT)?,
            services: writes(
                "tidegate_gateway_service_writes_total",
                "Writes of the Services of Gateways and of their EndpointSlices.",
                &SERVICE,
            )?,
            dropped,
        })
    }
}
