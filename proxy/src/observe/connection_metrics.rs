//! What is counted of threads, binds and connections, before and outside of requests.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tidegate_config::model::{BindKey, BindProtocol};

use crate::connection::tls::Failure;
use crate::connection::{Abuse, MALFORMED, ProxyHeaderFailure, Refusal};
use crate::observe::datagram_metrics::DatagramMetrics;

/// Why a connection is closed as it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Files or memory are used up, and every connection is at a request.
    Full,
    /// Its client holds as much as it may.
    Client,
}

impl Refused {
    const ALL: [Self; 2] = [Self::Full, Self::Client];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Client => "client",
        }
    }
}

/// The counters of connections, resolved before the first one comes.
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
    /// Sockets that were not as the snapshot wanted them, although nothing had said so.
    pub(crate) bind_drift: IntCounter,
    /// Connections that a drain's grace period cut.
    pub(crate) cut: IntCounter,
    accepted: IntCounterVec,
    active: IntGaugeVec,
    listening: IntGaugeVec,
    proxy_header_failures: IntCounterVec,
    handshake_failures: IntCounterVec,
    heads_refused: IntCounterVec,
    http2_ended: IntCounterVec,
    /// Those of flows of datagrams.
    pub(crate) datagrams: DatagramMetrics,
}

impl ConnectionMetrics {
    /// Registers all of them.
    ///
    /// # Errors
    /// When the registry has one of the names already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name, help| counter(registry, name, help);
        let counters = |name, help, label| counters(registry, name, help, &[label]);
        let gauges = |name, help, label| gauges(registry, name, help, label);
        let made = Self {
            thread_restarts: counter(
                "tidegate_traffic_thread_restarts_total",
                "Traffic threads started again after a panic or an error",
            )?,
            panics: counter(
                "tidegate_connection_panics_total",
                "Connections, and requests of HTTP/2, that ended because their task panicked",
            )?,
            refused: counters(
                "tidegate_connections_refused_total",
                "Connections closed as they came: there was no room for them, or their client has its share",
                "reason",
            )?,
            accept_errors: counter(
                "tidegate_accept_errors_total",
                "Connections that could not be accepted, for want of file descriptors or memory mostly",
            )?,
            bind_failures: counter("tidegate_bind_failures_total", "Attempts of a thread to open a bind that failed")?,
            bind_drift: counter(
                "tidegate_bind_drift_total",
                "Sockets of threads found otherwise than the snapshot wants them although nothing had said so, and mended",
            )?,
            cut: counter("tidegate_connections_cut_total", "Connections that outlived the grace period of a drain")?,
            accepted: counters("tidegate_connections_accepted_total", "Connections from clients", "protocol")?,
            active: gauges("tidegate_connections_active", "Connections from clients that are open", "protocol")?,
            listening: gauges(
                "tidegate_bind_listening_threads",
                "Traffic threads that listen on a bind; 0 where it could not be opened",
                "bind",
            )?,
            proxy_header_failures: counters(
                "tidegate_proxy_header_failures_total",
                "Connections closed because they did not begin with the PROXY header that they have to begin with",
                "reason",
            )?,
            handshake_failures: counters(
                "tidegate_tls_handshake_failures_total",
                "TLS handshakes with clients that came to nothing",
                "reason",
            )?,
            heads_refused: counters(
                "tidegate_heads_refused_total",
                "Request heads that were answered before any route was looked for",
                "reason",
            )?,
            http2_ended: counters(
                "tidegate_http2_connections_ended_total",
                "HTTP/2 connections ended with ENHANCE_YOUR_CALM for what their client did",
                "reason",
            )?,
            datagrams: DatagramMetrics::register(registry)?,
        };
        made.show_zeros();
        Ok(made)
    }

    /// Notes a connection that was closed as it came.
    pub(crate) fn refused(&self, refused: Refused) {
        self.refused.with_label_values(&[refused.as_str()]).inc();
    }

    /// Notes a panic; what it was has been written to the standard error.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
        tracing::error!("the task of a connection or of an HTTP/2 request panicked; it is closed");
    }

    /// Series that exist from the start can be watched for their first increase.
    fn show_zeros(&self) {
        for protocol in [BindProtocol::Http, BindProtocol::Https, BindProtocol::Tcp] {
            self.accepted.with_label_values(&[name(protocol)]);
            self.active.with_label_values(&[name(protocol)]);
        }
        for refused in Refused::ALL {
            self.refused.with_label_values(&[refused.as_str()]);
        }
        for failure in ProxyHeaderFailure::ALL {
            self.proxy_header_failures.with_label_values(&[failure.as_str()]);
        }
        for failure in Failure::ALL {
            self.handshake_failures.with_label_values(&[failure.as_str()]);
        }
        for reason in Refusal::HEADS.map(Refusal::reason).into_iter().chain([MALFORMED]) {
            self.heads_refused.with_label_values(&[reason]);
        }
        for abuse in Abuse::ALL {
            self.http2_ended.with_label_values(&[abuse.as_str()]);
        }
    }

    /// Counts a connection in; the returned value counts it out when it is dropped.
    pub(crate) fn accepted(&self, protocol: BindProtocol) -> Active {
        self.accepted.with_label_values(&[name(protocol)]).inc();
        let active = self.active.with_label_values(&[name(protocol)]);
        active.inc();
        Active(active)
    }

    /// Counts a connection without the header that it has to begin with.
    pub(crate) fn proxy_header_failed(&self, failure: ProxyHeaderFailure) {
        self.proxy_header_failures.with_label_values(&[failure.as_str()]).inc();
    }

    /// Counts a handshake that came to nothing.
    pub(crate) fn handshake_failed(&self, failure: Failure) {
        self.handshake_failures.with_label_values(&[failure.as_str()]).inc();
    }

    /// Counts a head that came to no request.
    pub(crate) fn head_refused(&self, reason: &'static str) {
        self.heads_refused.with_label_values(&[reason]).inc();
    }

    /// Counts an HTTP/2 connection that was ended for what its client did.
    pub(crate) fn http2_ended(&self, abuse: Abuse) {
        self.http2_ended.with_label_values(&[abuse.as_str()]).inc();
    }

    /// Says how many threads listen on a bind, or that the bind is gone.
    pub(crate) fn listening(&self, bind: &BindKey, threads: Option<usize>) {
        let label = [format!("{}/{}", name(bind.protocol), bind.address)];
        match threads {
            Some(threads) => self.listening.with_label_values(&label).set(i64::try_from(threads).unwrap_or(i64::MAX)),
            // A bind that never listened has no series to remove.
            None => drop(self.listening.remove_label_values(&label)),
        }
    }
}

/// An open connection, as the gauge counts it.
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
