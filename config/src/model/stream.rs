//! What becomes of connections whose bytes are passed on unread.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::backend::BackendKey;
use super::route::Origin;

/// Where the connections of a TCP bind go, or those to a TLS listener that are passed on as bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamRoute {
    /// Who made it.
    pub origin: Arc<Origin>,
    /// The Service ports that connections go to by weight. Where there is none, or the weights sum to 0, they are closed.
    pub backends: Box<[WeightedBackend]>,
    /// Time to open a connection to an endpoint.
    pub connect_timeout: Duration,
    /// Time without a byte in either direction after which a connection is closed.
    pub idle_timeout: Duration,
    /// The header that tells an endpoint who the client is; `None` for none.
    pub proxy_header: Option<ProxyHeader>,
}

/// A Service port and its share of connections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WeightedBackend {
    /// The Service port.
    pub backend: BackendKey,
    /// Its share, relative to the sum of all.
    pub weight: u32,
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
