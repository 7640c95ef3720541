//! What becomes of connections whose bytes are passed on unread, and of flows of UDP datagrams.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::backend::BackendKey;
use super::route::Origin;
use super::upstream_tls::UpstreamTls;

/// Where the connections to a listener go that are passed on as bytes: those for one host of a TLS listener, or all of a TCP listener.
/// Or where the flows of a UDP listener go: a flow is the datagrams that one client address and port sends to one address, and those
/// that come back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamRoute {
    /// Who made it.
    pub origin: Arc<Origin>,
    /// The name of its rule, where its object gives one (Gateway API, `TCPRouteRule.name`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The shares of connections or flows by weight. Where there is none, or the weights sum to 0, connections are closed, and datagrams
    /// dropped.
    pub backends: Box<[WeightedBackend]>,
    /// Time to open a connection to an endpoint. Nothing is opened for a flow.
    pub connect_timeout: Duration,
    /// Time without a byte or datagram in either direction after which a connection is closed, or a flow ends.
    pub idle_timeout: Duration,
}

/// A share of connections, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WeightedBackend {
    /// Where it goes. `None` closes its connections and drops its datagrams: the backend is named, and cannot be used.
    pub to: Option<StreamTarget>,
    /// The share, relative to the sum of all.
    pub weight: u32,
}

/// A Service port that connections go to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamTarget {
    /// The Service port.
    pub backend: BackendKey,
    /// TLS with its endpoints; `None` passes the bytes on as they are, as datagrams are in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
    /// The header that tells an endpoint who the client is; `None` for none. Datagrams have none.
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
    /// Bytes as they are, and nothing before them.
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
