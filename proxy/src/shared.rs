//! What the traffic threads share: limits, metrics, the states of endpoints and the access log. It outlives
//! snapshots, and all of it is atomics and bounded queues.

use std::sync::Arc;

use prometheus::Registry;
use tidegate_config::model::Snapshot;

use crate::access_log::AccessLog;
use crate::clock;
use crate::endpoint_state::EndpointStates;
use crate::listening::Listening;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::refuse::HeadLimits;

/// Shared by all traffic threads.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Limits and deadlines.
    pub(crate) options: Options,
    /// How large a head may be, and how far it may have come.
    pub(crate) head_limits: HeadLimits,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Where the process listens.
    pub(crate) listening: Arc<Listening>,
    /// What is known of endpoints.
    pub(crate) endpoints: Arc<EndpointStates>,
    /// Where requests are written down.
    pub(crate) access_log: AccessLog,
}

impl Shared {
    /// Registers the metrics and opens the access log.
    ///
    /// # Errors
    /// When a metric's name is taken, or the access log cannot be opened.
    pub(crate) fn new(options: &Options, registry: &Registry) -> Result<Arc<Self>, prometheus::Error> {
        let endpoints = Arc::new(EndpointStates::new(clock::now()));
        let metrics = Metrics::new(registry, Arc::clone(&endpoints))?;
        let dropped = metrics.log_lines_dropped.clone();
        let access_log = AccessLog::open(&options.access_log, options.access_log_queue_max, dropped)?;
        let head_limits = HeadLimits {
            lines_max: options.client.head_lines_max,
            bytes_max: options.client.head_bytes_max,
            passes_max: options.passes_max,
            token: options.loop_token.clone(),
        };
        Ok(Arc::new(Self {
            options: options.clone(),
            head_limits,
            metrics,
            listening: Arc::default(),
            endpoints,
            access_log,
        }))
    }

    /// Forgets what the snapshot no longer names. The work grows with the whole model, so this is for a control thread,
    /// now and then.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        self.endpoints.sweep(snapshot);
        self.metrics.sweep(snapshot);
    }
}
