//! Metrics of UDP datagram flows.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use tidegate_config::model::{BindKey, Snapshot};
use tidegate_config::object::ObjectRef;

use super::connection_metrics::{counter, counters, gauges};
use super::route_series::RouteSeries;
use crate::sweep_trigger::SweepTrigger;

const DIRECTIONS: [&str; 2] = ["up", "down"];

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
    const ALL: [Self; 5] = [Self::Idle, Self::Refused, Self::EndpointLeft, Self::Evicted, Self::Cut];

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

/// The metrics of binds. There is a series for each bind that ever existed, which are few.
#[derive(Debug)]
pub(crate) struct DatagramMetrics {
    active: IntGaugeVec,
    dropped: IntCounterVec,
    /// Flows that were closed for newer ones.
    pub(crate) evicted: IntCounter,
}

/// The metrics of one bind.
#[derive(Debug)]
pub(crate) struct BindSeries {
    /// Open flows.
    pub(crate) active: IntGauge,
    dropped: [IntCounter; Dropped::ALL.len()],
}

/// The counters of flows, by the address of their bind and the object of their route.
#[derive(Debug)]
pub(crate) struct FlowMetrics {
    flows: IntCounterVec,
    datagrams: IntCounterVec,
    bytes: IntCounterVec,
    series: RouteSeries,
}

/// The counters of the datagrams of one flow, which other flows of the same bind and object share.
#[derive(Debug)]
pub(crate) struct FlowSeries {
    datagrams: [IntCounter; 2],
    bytes: [IntCounter; 2],
}

/// The direction of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
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
            active: gauges(registry, "tidegate_udp_flows_active", "Open UDP flows", "bind")?,
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

    /// The metrics of a bind.
    pub(crate) fn bind(&self, bind: &BindKey) -> BindSeries {
        let bind = bind.address.to_string();
        BindSeries {
            active: self.active.with_label_values(&[&bind]),
            dropped: Dropped::ALL.map(|reason| self.dropped.with_label_values(&[&*bind, reason.as_str()])),
        }
    }
}

impl BindSeries {
    /// Counts a datagram that was dropped.
    pub(crate) fn dropped(&self, why: Dropped) {
        self.dropped[why as usize].inc();
    }
}

impl FlowMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry, sweep_trigger: Arc<SweepTrigger>) -> Result<Self, prometheus::Error> {
        let of = |name, help, last| counters(registry, name, help, &["bind", "namespace", "object", last]);
        Ok(Self {
            flows: of("tidegate_udp_flows_total", "UDP flows that have ended", "outcome")?,
            datagrams: of("tidegate_udp_datagrams_total", "Forwarded UDP datagrams", "direction")?,
            bytes: of("tidegate_udp_bytes_total", "Bytes of forwarded UDP datagrams", "direction")?,
            series: RouteSeries::new(sweep_trigger),
        })
    }

    /// The counters for a flow of a route of the object.
    pub(crate) fn flow(&self, bind: &BindKey, object: &ObjectRef) -> FlowSeries {
        let labels = self.series.labels(bind, Some(object));
        let ways = |of: &IntCounterVec| DIRECTIONS.map(|way| of.with_label_values(&labels.with(way)));
        FlowSeries { datagrams: ways(&self.datagrams), bytes: ways(&self.bytes) }
    }

    /// Counts a flow that has ended.
    pub(crate) fn ended(&self, bind: &BindKey, object: &ObjectRef, end: FlowEnd) {
        let labels = self.series.labels(bind, Some(object));
        self.flows.with_label_values(&labels.with(end.as_str())).inc();
    }

    /// Removes the series of objects without a route in the snapshot.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        self.series.sweep(snapshot, |labels| {
            // An error means that there is no such series.
            for end in FlowEnd::ALL {
                drop(self.flows.remove_label_values(&labels.with(end.as_str())));
            }
            for direction in DIRECTIONS {
                drop(self.datagrams.remove_label_values(&labels.with(direction)));
                drop(self.bytes.remove_label_values(&labels.with(direction)));
            }
        });
    }
}

impl FlowSeries {
    /// Counts a datagram that was passed on.
    pub(crate) fn passed(&self, direction: Direction, bytes: usize) {
        self.datagrams[direction as usize].inc();
        self.bytes[direction as usize].inc_by(bytes as u64);
    }
}
