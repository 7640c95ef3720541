//! What is counted of connections that are passed on unread.

use prometheus::{IntCounterVec, Registry};
use tidegate_config::model::BindKey;

use super::connection_metrics::counters;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Both sides ended it.
    Closed,
    /// One of them broke it off.
    Reset,
    /// Neither said anything for too long.
    Idle,
    /// Its bind led nowhere.
    NoRoute,
    /// Its share is that of a backend that cannot be used.
    InvalidBackend,
    /// There was no endpoint.
    NoEndpoint,
    /// No endpoint took the connection.
    ConnectFailed,
    /// None took it in time.
    ConnectTimeout,
}

impl Outcome {
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

/// The counters of these connections, by the address of their bind. There are as many series as binds ever were, which are few.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    connections: IntCounterVec,
    bytes: IntCounterVec,
}

impl StreamMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: counters(
                registry,
                "tidegate_stream_connections_total",
                "TCP connections that were passed on unread and have ended",
                &["bind", "outcome"],
            )?,
            bytes: counters(
                registry,
                "tidegate_stream_bytes_total",
                "Bytes of TCP connections that were passed on unread and have ended",
                &["bind", "direction"],
            )?,
        })
    }

    /// Counts a connection that has ended, with its bytes to the endpoint and back.
    pub(crate) fn finished(&self, bind: &BindKey, outcome: Outcome, [up, down]: [u64; 2]) {
        let bind = bind.address.to_string();
        self.connections.with_label_values(&[&bind, outcome.as_str()]).inc();
        self.bytes.with_label_values(&[&*bind, "up"]).inc_by(up);
        self.bytes.with_label_values(&[&*bind, "down"]).inc_by(down);
    }
}
