//! Stream routes: connections whose bytes are passed on unread, and flows of UDP datagrams.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::backend::BackendKey;
use super::route::Origin;
use super::upstream_tls::UpstreamTls;

/// The destination of connections that are passed on as bytes, for one host of a TLS listener or for a whole TCP
/// listener; or of the flows of a UDP listener. A flow is the datagrams that one client address and port sends to one
/// address, and those that come back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamRoute {
    /// The object and rule it comes from.
    pub origin: Arc<Origin>,
    /// The name of its rule, if the object names it (Gateway API, `TCPRouteRule.name`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The shares of connections or flows by weight. If there are none, or the weights sum to 0, connections are
    /// closed, and datagrams dropped.
    pub backends: Box<[WeightedBackend]>,
    /// The timeout for opening a connection to an endpoint. It does not apply to flows.
    pub connect_timeout: Duration,
    /// Time without a byte or datagram in either direction after which a connection is closed, or a flow ends.
    pub idle_timeout: Duration,
}

/// A share of connections or flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WeightedBackend {
    /// The destination. `None` closes its connections and drops its datagrams: the backend exists in the route, but
    /// cannot be used.
    pub to: Option<StreamTarget>,
    /// The share, relative to the sum of all.
    pub weight: u32,
}

/// A Service port as the destination of connections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamTarget {
    /// The Service port.
    pub backend: BackendKey,
    /// TLS with its endpoints; `None` passes the bytes on as they are. Datagrams never have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
    /// The PROXY protocol header with the client's address; `None` for no header. Datagrams never have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_header: Option<ProxyHeader>,
}

impl StreamRoute {
    /// The targets of its shares.
    pub fn targets(&self) -> impl Iterator<Item = &StreamTarget> {
        self.backends.iter().filter_map(|share| share.to.as_ref())
    }
}

impl From<BackendKey> for StreamTarget {
    /// A target without TLS and without a PROXY header.
    fn from(backend: BackendKey) -> Self {
        Self { backend, tls: None, proxy_header: None }
    }
}

/// A version of the PROXY protocol (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyHeader {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}
