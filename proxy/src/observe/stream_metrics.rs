//! Metrics of connections that are passed on unread.

use std::sync::Arc;

use prometheus::{IntCounterVec, Registry};
use tidegate_config::model::{BindKey, Snapshot};
use tidegate_config::object::ObjectRef;

use super::connection_metrics::counters;
use super::route_series::RouteSeries;
use crate::connection::copy::CopyEnd;
use crate::sweep_trigger::SweepTrigger;

const DIRECTIONS: [&str; 2] = ["up", "down"];

/// The outcome of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Both sides closed it.
    Closed,
    /// One side reset it.
    Reset,
    /// It was idle for too long.
    Idle,
    /// Its bind has no route.
    NoRoute,
    /// Its share has a backend that cannot be used.
    InvalidBackend,
    /// There was no endpoint.
    NoEndpoint,
    /// No endpoint took the connection.
    ConnectFailed,
    /// No endpoint took it in time.
    ConnectTimeout,
}

impl From<CopyEnd> for Outcome {
    fn from(end: CopyEnd) -> Self {
        match end {
            CopyEnd::Closed => Self::Closed,
            CopyEnd::Reset => Self::Reset,
            CopyEnd::Idle => Self::Idle,
        }
    }
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Closed,
        Self::Reset,
        Self::Idle,
        Self::NoRoute,
        Self::InvalidBackend,
        Self::NoEndpoint,
        Self::ConnectFailed,
        Self::ConnectTimeout,
    ];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::NoRoute => "no-route",
            Self::InvalidBackend => "invalid-backend",
            Self::NoEndpoint => "no-endpoint",
            Self::ConnectFailed => "connect-failed",
            Self::ConnectTimeout => "connect-timeout",
        }
    }
}

/// The counters of these connections, by the address of their bind and the object of their route.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    connections: IntCounterVec,
    bytes: IntCounterVec,
    series: RouteSeries,
}

impl StreamMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry, sweep_trigger: Arc<SweepTrigger>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: counters(
                registry,
                "tidegate_stream_connections_total",
                "TCP connections that were passed on unread and have ended",
                &["bind", "namespace", "object", "outcome"],
            )?,
            bytes: counters(
                registry,
                "tidegate_stream_bytes_total",
                "Bytes of TCP connections that were passed on unread and have ended",
                &["bind", "namespace", "object", "direction"],
            )?,
            series: RouteSeries::new(sweep_trigger),
        })
    }

    /// Counts a connection that has ended, with its bytes to the endpoint and back, for the object of its route.
    pub(crate) fn finished(&self, bind: &BindKey, object: Option<&ObjectRef>, outcome: Outcome, bytes: [u64; 2]) {
        let labels = self.series.labels(bind, object);
        self.connections.with_label_values(&labels.with(outcome.as_str())).inc();
        for (direction, count) in DIRECTIONS.into_iter().zip(bytes) {
            self.bytes.with_label_values(&labels.with(direction)).inc_by(count);
        }
    }

    /// Removes the series of objects without a route in the snapshot.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        self.series.sweep(snapshot, |labels| {
            // An error means that there is no such series.
            for outcome in Outcome::ALL {
                drop(self.connections.remove_label_values(&labels.with(outcome.as_str())));
            }
            for direction in DIRECTIONS {
                drop(self.bytes.remove_label_values(&labels.with(direction)));
            }
        });
    }
}
