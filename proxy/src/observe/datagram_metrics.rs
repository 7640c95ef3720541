//! Metrics of UDP datagram flows.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use tidegate_config::model::BindKey;

use super::connection_metrics::{counter, counters, gauges};

/// The outcome of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowEnd {
    /// No datagram passed in either direction for the idle time.
    Idle,
    /// Its endpoint has no listener or is unreachable (ICMP).
    Refused,
    /// Its endpoint was no longer one of its route's.
    EndpointLeft,
    /// It was closed for a newer flow.
    Evicted,
    /// It was aborted after the grace period of a drain, or its thread failed.
    Cut,
}

impl FlowEnd {
    /// Its name in metrics and in the access log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Refused => "refused",
            Self::EndpointLeft => "endpoint-left",
            Self::Evicted => "evicted",
            Self::Cut => "cut",
        }
    }
}

/// The reason why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// Its bind has no route.
    NoRoute,
    /// Its share of the route has no endpoint.
    NoEndpoint,
    /// Its share of the route has a backend that cannot be used.
    InvalidBackend,
    /// There is no room for a new flow, and no idle one to close.
    Full,
    /// Its client has its maximum number of flows.
    Client,
    /// Its bind drains and begins no flow.
    Draining,
    /// Its source is not an address that can get an answer, or is one of the edge's own.
    Source,
    /// A socket had no room for it, or it was too large for the path.
    Unsent,
}

impl Dropped {
    const ALL: [Self; 8] = [
        Self::NoRoute,
        Self::NoEndpoint,
        Self::InvalidBackend,
        Self::Full,
        Self::Client,
        Self::Draining,
        Self::Source,
        Self::Unsent,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::NoRoute => "no-route",
            Self::NoEndpoint => "no-endpoint",
            Self::InvalidBackend => "invalid-backend",
            Self::Full => "full",
            Self::Client => "client",
            Self::Draining => "draining",
            Self::Source => "source",
            Self::Unsent => "unsent",
        }
    }
}

/// The counters of flows, by the address of their bind. There is a series for each bind that ever existed, which are
/// few.
#[derive(Debug)]
pub(crate) struct DatagramMetrics {
    flows: IntCounterVec,
    active: IntGaugeVec,
    datagrams: IntCounterVec,
    bytes: IntCounterVec,
    dropped: IntCounterVec,
    /// Flows that were closed for newer ones.
    pub(crate) evicted: IntCounter,
}

/// The counters of one bind.
#[derive(Debug)]
pub(crate) struct BindSeries {
    bind: String,
    flows: IntCounterVec,
    /// Open flows.
    pub(crate) active: IntGauge,
    datagrams: [IntCounter; 2],
    bytes: [IntCounter; 2],
    dropped: [IntCounter; Dropped::ALL.len()],
}

/// The direction of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To the endpoint.
    Up,
    /// To the client.
    Down,
}

impl DatagramMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            flows: counters(registry, "tidegate_udp_flows_total", "UDP flows that have ended", &["bind", "outcome"])?,
            active: gauges(registry, "tidegate_udp_flows_active", "Open UDP flows", "bind")?,
            datagrams: counters(
                registry,
                "tidegate_udp_datagrams_total",
                "UDP datagrams that were passed on",
                &["bind", "direction"],
            )?,
            bytes: counters(
                registry,
                "tidegate_udp_bytes_total",
                "Bytes of UDP datagrams that were passed on",
                &["bind", "direction"],
            )?,
            dropped: counters(
                registry,
                "tidegate_udp_datagrams_dropped_total",
                "UDP datagrams that were dropped",
                &["bind", "reason"],
            )?,
            evicted: counter(
                registry,
                "tidegate_udp_flows_evicted_total",
                "Longest idle UDP flows, closed to make room for newer ones",
            )?,
        })
    }

    /// The counters of a bind.
    pub(crate) fn bind(&self, bind: &BindKey) -> BindSeries {
        let bind = bind.address.to_string();
        let ways = |of: &IntCounterVec| ["up", "down"].map(|way| of.with_label_values(&[&*bind, way]));
        BindSeries {
            flows: self.flows.clone(),
            active: self.active.with_label_values(&[&bind]),
            datagrams: ways(&self.datagrams),
            bytes: ways(&self.bytes),
            dropped: Dropped::ALL.map(|reason| self.dropped.with_label_values(&[&*bind, reason.as_str()])),
            bind,
        }
    }
}

impl BindSeries {
    /// Counts a flow that has ended.
    pub(crate) fn ended(&self, end: FlowEnd) {
        self.flows.with_label_values(&[&self.bind, end.as_str()]).inc();
        self.active.dec();
    }

    /// Counts a datagram that was passed on.
    pub(crate) fn passed(&self, way: Way, bytes: usize) {
        self.datagrams[way as usize].inc();
        self.bytes[way as usize].inc_by(bytes as u64);
    }

    /// Counts a datagram that was dropped.
    pub(crate) fn dropped(&self, why: Dropped) {
        self.dropped[why as usize].inc();
    }
}
