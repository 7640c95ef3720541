//! The view of a request that policies decide by.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use super::super::backend::WeightedTarget;
use super::super::listener::ListenerName;
use super::super::route::Route;
use super::super::settings::Effective;
use super::{AuthDocument, PathPolicies};

/// The facts about a request, its client and its route.
#[derive(Debug)]
pub struct Attributes<'a, H: ?Sized> {
    /// The head.
    pub head: &'a H,
    /// The host by which the request was routed: in lower case, without a port.
    pub host: &'a str,
    /// The path by which it was routed: decoded and without dot segments.
    pub path: &'a str,
    /// Its id; `None` before it arrives.
    pub request_id: Option<&'a str>,
    /// Its HTTP version, such as `HTTP/1.1` and `HTTP/2`; `None` if it is not known.
    pub protocol: Option<&'static str>,
    /// The client's address; `None` for one that every route allows.
    pub address: Option<IpAddr>,
    /// Whether the request came over TLS, here or to a trusted proxy.
    pub secure: bool,
    /// The connection that it came over.
    pub connection: ConnectionAttributes<'a>,
    /// The listener that the request came to.
    pub listener: &'a ListenerName,
    /// The length of its body in bytes, if it announces one.
    pub body_bytes: Option<u64>,
    /// The route.
    pub route: &'a Route,
    /// The share of the route that it goes to; `None` if none gets requests.
    pub share: Option<&'a WeightedTarget>,
    /// The policies of its path, if there are any.
    pub policies: Option<&'a PathPolicies>,
    /// The facts about its client that policies have established; `None` before they have.
    pub auth: Option<&'a AuthDocument>,
    /// The settings that apply.
    pub effective: &'a Effective,
    /// The clock, which is only read by policies that depend on the time.
    pub now: fn() -> SystemTime,
}

/// The facts about a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionAttributes<'a> {
    /// The client's port; `None` if the client's address was forwarded by a trusted proxy.
    pub client_port: Option<u16>,
    /// The address that it came in over.
    pub local: Option<SocketAddr>,
    /// The server name of the TLS handshake, in lower case.
    pub server_name: Option<&'a str>,
    /// The TLS version, such as `TLSv1.3`.
    pub tls_version: Option<&'static str>,
}

impl<'a, H: ?Sized> Attributes<'a, H> {
    /// The same request, with what its policies know of its client.
    #[must_use]
    pub fn with_auth<'b>(&self, auth: &'b AuthDocument) -> Attributes<'b, H>
    where
        'a: 'b,
    {
        Attributes { auth: Some(auth), ..*self }
    }
}

#[cfg(test)]
impl<'a, H: ?Sized> Attributes<'a, H> {
    /// A request of a client in plain text for `/` of `a.test`, at the epoch.
    pub(super) fn sample(route: &'a Route, head: &'a H) -> Self {
        static LISTENER: std::sync::LazyLock<ListenerName> = std::sync::LazyLock::new(|| ListenerName("http".into()));
        Self {
            head,
            host: "a.test",
            path: "/",
            request_id: None,
            protocol: None,
            address: Some([192, 0, 2, 9].into()),
            secure: false,
            connection: ConnectionAttributes::default(),
            listener: &LISTENER,
            body_bytes: None,
            route,
            share: None,
            policies: None,
            auth: None,
            effective: &Effective::DEFAULT,
            now: || SystemTime::UNIX_EPOCH,
        }
    }
}
