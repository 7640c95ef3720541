//! Metrics of threads, binds and connections, outside of requests.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tidegate_config::model::{BindKey, BindProtocol};

use crate::connection::tls::HandshakeFailure;
use crate::connection::{Abuse, MALFORMED, ProxyHeaderFailure, Refusal};
use crate::observe::datagram_metrics::DatagramMetrics;

/// The reason why a connection is closed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusalReason {
    /// Files or memory are used up, and no connection is idle.
    Full,
    /// Its client has reached its limit or share.
    Client,
}

impl RefusalReason {
    const ALL: [Self; 2] = [Self::Full, Self::Client];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Client => "client",
        }
    }
}

/// The counters of connections, created before the first one.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics {
    /// Traffic threads that were started again after a panic or an error.
    pub(crate) thread_restarts: IntCounter,
    /// Connections and HTTP/2 requests whose task panicked.
    pub(crate) panics: IntCounter,
    refused: IntCounterVec,
    /// Failed attempts to accept a connection.
    pub(crate) accept_errors: IntCounter,
    /// Failed attempts to open a bind.
    pub(crate) bind_failures: IntCounter,
    /// Sockets that differed from the snapshot without a change that explains it.
    pub(crate) bind_drift: IntCounter,
    /// Connections aborted after the grace period of a drain.
    pub(crate) cut: IntCounter,
    accepted: IntCounterVec,
    active: IntGaugeVec,
    listening: IntGaugeVec,
    proxy_header_failures: IntCounterVec,
    handshake_failures: IntCounterVec,
    heads_refused: IntCounterVec,
    http2_ended: IntCounterVec,
    /// The metrics of datagram flows.
    pub(crate) datagrams: DatagramMetrics,
}

impl ConnectionMetrics {
    /// Registers all of them.
    ///
    /// # Errors
    /// If the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name, help| counter(registry, name, help);
        let counters = |name, help, label| counters(registry, name, help, &[label]);
        let gauges = |name, help, label| gauges(registry, name, help, label);
        let made = Self {
            thread_restarts: counter(
                "tidegate_traffic_thread_restarts_total",
                "Traffic threads started again after a panic or an error",
            )?,
            panics: counter("tidegate_connection_panics_total", "Connections and HTTP/2 requests whose task panicked")?,
            refused: counters(
                "tidegate_connections_refused_total",
                "Connections closed at once: there was no room, or their client had reached its limit or share",
                "reason",
            )?,
            accept_errors: counter(
                "tidegate_accept_errors_total",
                "Connections that could not be accepted, mostly for lack of file descriptors or memory",
            )?,
            bind_failures: counter("tidegate_bind_failures_total", "Failed attempts of a thread to open a bind")?,
            bind_drift: counter(
                "tidegate_bind_drift_total",
                "Sockets of threads that differed from the snapshot without a change that explains it, and were repaired",
            )?,
            cut: counter("tidegate_connections_cut_total", "Connections that outlived the grace period of a drain")?,
            accepted: counters("tidegate_connections_accepted_total", "Connections from clients", "protocol")?,
            active: gauges("tidegate_connections_active", "Open connections from clients", "protocol")?,
            listening: gauges(
                "tidegate_bind_listening_threads",
                "Traffic threads that listen on a bind; 0 if it could not be opened",
                "bind",
            )?,
            proxy_header_failures: counters(
                "tidegate_proxy_header_failures_total",
                "Connections closed because they did not begin with the required PROXY header",
                "reason",
            )?,
            handshake_failures: counters(
                "tidegate_tls_handshake_failures_total",
                "Failed TLS handshakes with clients",
                "reason",
            )?,
            heads_refused: counters(
                "tidegate_heads_refused_total",
                "Request heads that were refused before routing",
                "reason",
            )?,
            http2_ended: counters(
                "tidegate_http2_connections_ended_total",
                "HTTP/2 connections ended with ENHANCE_YOUR_CALM for abuse by their client",
                "reason",
            )?,
            datagrams: DatagramMetrics::register(registry)?,
        };
        made.show_zeros();
        Ok(made)
    }

    /// Counts a connection that was closed at once.
    pub(crate) fn refused(&self, refused: RefusalReason) {
        self.refused.with_label_values(&[refused.as_str()]).inc();
    }

    /// Counts a panic; its message was written to the standard error.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
        tracing::error!("the task of a connection or of an HTTP/2 request panicked; it is closed");
    }

    /// A series that exists from the start shows its first increase.
    fn show_zeros(&self) {
        for protocol in [BindProtocol::Http, BindProtocol::Https, BindProtocol::Tcp] {
            self.accepted.with_label_values(&[name(protocol)]);
            self.active.with_label_values(&[name(protocol)]);
        }
        for refused in RefusalReason::ALL {
            self.refused.with_label_values(&[refused.as_str()]);
        }
        for failure in ProxyHeaderFailure::ALL {
            self.proxy_header_failures.with_label_values(&[failure.as_str()]);
        }
        for failure in HandshakeFailure::ALL {
            self.handshake_failures.with_label_values(&[failure.as_str()]);
        }
        for reason in Refusal::HEADS.map(Refusal::reason).into_iter().chain([MALFORMED]) {
            self.heads_refused.with_label_values(&[reason]);
        }
        for abuse in Abuse::ALL {
            self.http2_ended.with_label_values(&[abuse.as_str()]);
        }
    }

    /// Counts a connection, and its end when the returned value is dropped.
    pub(crate) fn accepted(&self, protocol: BindProtocol) -> Active {
        self.accepted.with_label_values(&[name(protocol)]).inc();
        let active = self.active.with_label_values(&[name(protocol)]);
        active.inc();
        Active(active)
    }

    /// Counts a connection without its required header.
    pub(crate) fn proxy_header_failed(&self, failure: ProxyHeaderFailure) {
        self.proxy_header_failures.with_label_values(&[failure.as_str()]).inc();
    }

    /// Counts a failed handshake.
    pub(crate) fn handshake_failed(&self, failure: HandshakeFailure) {
        self.handshake_failures.with_label_values(&[failure.as_str()]).inc();
    }

    /// Counts a refused head.
    pub(crate) fn head_refused(&self, reason: &'static str) {
        self.heads_refused.with_label_values(&[reason]).inc();
    }

    /// Counts an HTTP/2 connection that was closed for abuse.
    pub(crate) fn http2_ended(&self, abuse: Abuse) {
        self.http2_ended.with_label_values(&[abuse.as_str()]).inc();
    }

    /// Sets the number of threads that listen on a bind, or removes the bind.
    pub(crate) fn listening(&self, bind: &BindKey, threads: Option<usize>) {
        let label = [format!("{}/{}", name(bind.protocol), bind.address)];
        match threads {
            Some(threads) => self.listening.with_label_values(&label).set(i64::try_from(threads).unwrap_or(i64::MAX)),
            // A bind that never listened has no series to remove.
            None => drop(self.listening.remove_label_values(&label)),
        }
    }
}

/// An open connection in the gauge.
#[derive(Debug)]
pub(crate) struct Active(IntGauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A protocol's name in metrics.
const fn name(protocol: BindProtocol) -> &'static str {
    match protocol {
        BindProtocol::Http => "http",
        BindProtocol::Https => "https",
        BindProtocol::Tcp => "tcp",
        BindProtocol::Udp => "udp",
    }
}

/// Registers a counter without labels.
pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let made = IntCounter::new(name, help)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// Registers counters with these labels.
pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let made = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// Registers gauges with one label.
pub(super) fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
) -> Result<IntGaugeVec, prometheus::Error> {
    let made = IntGaugeVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}
