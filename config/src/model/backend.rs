//! Backends (Service ports), their endpoints (pod addresses), and targets (a backend with the transport to reach it).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ring::digest;
use rpds::HashTrieMapSync;
use serde::Serialize;

use super::filter::Filter;
use super::policy::ExternalAuth;
use super::upstream_tls::UpstreamTls;
use crate::object::ObjectName;

/// The transport protocol of a port: equal numbers of two protocols are two ports (`spec.ports[].protocol`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A Service port, for which endpoints are collected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendKey {
    /// The Service.
    pub service: ObjectName,
    /// The number of its port (`spec.ports[].port`).
    pub port: u16,
    /// The transport protocol of the port.
    pub transport: Transport,
}

impl BackendKey {
    /// A TCP port of a Service.
    #[must_use]
    pub const fn tcp(service: ObjectName, port: u16) -> Self {
        Self { service, port, transport: Transport::Tcp }
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service, self.port)?;
        match self.transport {
            Transport::Tcp => Ok(()),
            Transport::Udp => f.write_str("/udp"),
        }
    }
}

impl fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for BackendKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The stable identity of an endpoint over snapshots, processes and releases: a digest of its transport, its address
/// and the uid of its pod, since addresses are reused by other pods. Equal numbers of TCP and UDP are two endpoints,
/// and fail independently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct EndpointId(u64);

impl EndpointId {
    /// As a number, for the tokens of sessions.
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    /// The identity for a number from [`EndpointId::to_bits`].
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// One address that serves a backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Endpoint {
    /// Its identity.
    pub id: EndpointId,
    /// The address to connect to.
    pub address: SocketAddr,
    /// The pod's uid, if the slice has one.
    pub pod: Option<Arc<str>>,
}

impl Backend {
    /// A backend with these endpoints, none of them terminating, and without a request limit of its own.
    #[must_use]
    pub fn new(key: BackendKey, endpoints: Box<[Endpoint]>) -> Self {
        Self { key, endpoints, draining: Box::default(), requests_max: None }
    }

    /// The endpoint of a session, while it serves.
    #[must_use]
    pub fn of_session(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.iter().chain(&self.draining).find(|endpoint| endpoint.id == id)
    }
}

impl Endpoint {
    /// An endpoint with the identity of its transport, address and pod.
    #[must_use]
    pub fn new(transport: Transport, address: SocketAddr, pod: Option<Arc<str>>) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        let transport = match transport {
            Transport::Tcp => 1,
            Transport::Udp => 2,
        };
        match address.ip() {
            IpAddr::V4(ip) => {
                context.update(&[transport, 4]);
                context.update(&ip.octets());
            }
            IpAddr::V6(ip) => {
                context.update(&[transport, 6]);
                context.update(&ip.octets());
            }
        }
        context.update(&address.port().to_be_bytes());
        context.update(pod.as_deref().unwrap_or_default().as_bytes());
        let whole = context.finish();
        let id = whole.as_ref().iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        Self { id: EndpointId(id), address, pod }
    }

    /// An endpoint of a TCP port.
    #[must_use]
    pub fn tcp(address: SocketAddr, pod: Option<Arc<str>>) -> Self {
        Self::new(Transport::Tcp, address, pod)
    }
}

/// The current endpoints of a Service port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Backend {
    /// The Service port.
    pub key: BackendKey,
    /// The usable endpoints in ascending order: the ready ones or, while there are none, those that still serve while
    /// they terminate (Kubernetes KEP-1669).
    pub endpoints: Box<[Endpoint]>,
    /// The endpoints that still serve while they terminate, beside ready ones: they get the requests of their sessions
    /// only.
    #[serde(skip_serializing_if = "<[Endpoint]>::is_empty")]
    pub draining: Box<[Endpoint]>,
    /// The maximum number of requests in flight to its endpoints together, from 1; 0 for no limit, `None` for the
    /// operator's setting.
    pub requests_max: Option<u32>,
}

/// The protocol of an endpoint, from the Service port's `appProtocol` (Kubernetes KEP-3726).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP/1.1 in plain text: the default.
    #[default]
    Http,
    /// HTTP/1.1 over TLS. Neither Service nor Ingress names an authority to trust.
    Https,
    /// HTTP/2 over TLS, agreed on by ALPN. No `appProtocol` stands for it.
    H2,
    /// HTTP/2 in plain text by prior knowledge (`kubernetes.io/h2c`, `grpc`).
    H2c,
    /// HTTP/1.1 in plain text for WebSocket (`kubernetes.io/ws`).
    Ws,
}

impl AppProtocol {
    /// Whether requests go to the endpoint in HTTP/1.1 and in plain text.
    #[must_use]
    pub const fn is_plain_http1(self) -> bool {
        matches!(self, Self::Http | Self::Ws)
    }

    /// Whether requests go to the endpoint in HTTP/2.
    #[must_use]
    pub const fn is_http2(self) -> bool {
        matches!(self, Self::H2c | Self::H2)
    }

    /// Whether requests go to the endpoint over TLS.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::H2)
    }
}

/// A backend with its transport: the destination of a route. Connections to different targets are kept apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Target {
    /// The Service port.
    pub backend: BackendKey,
    /// The protocol.
    pub protocol: AppProtocol,
    /// TLS, if the protocol needs it.
    pub tls: Option<UpstreamTls>,
    /// The endpoints, if an object lists their addresses itself instead of naming a Service.
    pub fixed: Option<Arc<Backend>>,
}

/// Endpoints by Service port; a clone shares everything.
pub type BackendMap = HashTrieMapSync<BackendKey, Arc<Backend>, foldhash::fast::RandomState>;

/// No backends.
pub(super) fn no_backends() -> BackendMap {
    BackendMap::new_with_hasher_and_ptr_kind(foldhash::fast::RandomState::default())
}

/// The destination of a share of a route's requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// A target.
    Target(Arc<Target>),
    /// The edge answers them with this status, because their destination does not exist.
    Status(u16),
}

/// A share of a route's requests, and the filters for it alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WeightedTarget {
    /// The destination.
    pub to: Destination,
    /// The share: the weight divided by the sum of all; 0 gets none.
    pub weight: u32,
    /// The filters of the share, in order, applied after the filters of the route.
    pub filters: Arc<[Filter]>,
    /// The authorisation service for these requests, called after the guards of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<Arc<ExternalAuth>>,
}

impl WeightedTarget {
    /// A share that goes to a target, without filters.
    #[must_use]
    pub fn new(target: Arc<Target>, weight: u32) -> Self {
        Self { to: Destination::Target(target), weight, filters: Arc::default(), external_auth: None }
    }

    /// The target; `None` for a share that is answered with a status.
    #[must_use]
    pub const fn target(&self) -> Option<&Arc<Target>> {
        match &self.to {
            Destination::Target(target) => Some(target),
            Destination::Status(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_address_and_pod_identify_an_endpoint() {
        let address: SocketAddr = ([10, 0, 0, 1], 53).into();
        let of = |transport, pod: Option<&str>| Endpoint::new(transport, address, pod.map(Into::into)).id;
        let all = [
            of(Transport::Tcp, None),
            of(Transport::Udp, None),
            of(Transport::Tcp, Some("a")),
            of(Transport::Udp, Some("a")),
            Endpoint::tcp(([10, 0, 0, 2], 53).into(), None).id,
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert_eq!(Endpoint::tcp(address, None).id, all[0]);
        // SHA-256 of 01 04 0a000001 0035: tokens of sessions outlive processes and releases.
        assert_eq!(all[0].to_bits(), 0x6f6a_d2ed_1cbd_f311);
    }
}
