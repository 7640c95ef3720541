//! Listeners, which objects ask for.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::authority::CaBundle;
use super::certificate::Certificate;
use super::host::HostPattern;
use super::route_table::TableName;
use crate::object::ObjectRef;

/// The name of a listener: `http`, `https`, or an object's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct ListenerName(pub Arc<str>);

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A listener of an object: requests for a host that come in over a bind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listener {
    /// Its name, which routes refer to.
    pub name: ListenerName,
    /// The hosts it takes.
    pub host: HostPattern,
    /// The table of its routes.
    #[serde(skip_serializing_if = "TableName::is_shared")]
    pub table: TableName,
    /// The TLS settings of this listener alone. `None` if the virtual hosts of its table have the certificates, as for
    /// Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Arc<ListenerTls>>,
    /// The port that clients connect to, if it differs from that of the socket because a Service maps one to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The object that asks for it; `None` for one of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<ListenerOrigin>>,
}

/// The object that asks for a listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerOrigin {
    /// The Gateway that it belongs to.
    pub gateway: ObjectRef,
    /// The ListenerSet of the Gateway that defines it; `None` for one of the Gateway's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<ObjectRef>,
    /// Its name in that object.
    pub name: Arc<str>,
}

impl fmt::Display for ListenerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set {
            None => write!(f, "{}, listener {}", self.gateway, self.name),
            Some(set) => write!(f, "{}, listener {} of {set}", self.gateway, self.name),
        }
    }
}

/// TLS with the clients of one listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerTls {
    /// The mode.
    pub mode: TlsMode,
    /// Its certificates, the preferred one first. Without any, a handshake fails.
    pub certificates: Box<[Arc<Certificate>]>,
    /// How client certificates are verified; `None` requests no certificate.
    pub clients: Option<Arc<ClientVerification>>,
}

/// How the connections of a TLS listener are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// TLS ends here, and HTTP requests are read.
    Http,
    /// TLS ends here, and the decrypted bytes go on by the [`StreamRoute`](super::StreamRoute) of the server name.
    Terminate,
    /// All bytes go on unread by the [`StreamRoute`](super::StreamRoute) of the server name.
    Passthrough,
}

impl ListenerTls {
    /// The certificates in the order of preference for a client that sends a server name in lower case: those for the
    /// name, then the others.
    pub fn certificates_for<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Certificate>> {
        let named = move |certificate: &&Arc<Certificate>| name.is_some_and(|name| certificate.is_for(name));
        let others = self.certificates.iter().filter(move |certificate| !named(certificate));
        self.certificates.iter().filter(named).chain(others)
    }
}

/// How the certificates of clients are verified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientVerification {
    /// The trusted authorities.
    pub authorities: CaBundle,
    /// The treatment of a client without a valid certificate.
    pub mode: VerificationMode,
}

/// The treatment of a client without a valid certificate (Gateway API, `FrontendValidationModeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerificationMode {
    /// Its handshake is refused.
    ValidOnly,
    /// It is accepted, also with an invalid certificate or none.
    InsecureFallback,
}

impl Listener {
    /// The port that clients connect to, if an object names it. A listener of the operator names none: usually a
    /// Service maps its port to that of the socket. `socket` is the port of the socket.
    #[must_use]
    pub fn named_port(&self, socket: u16) -> Option<u16> {
        self.port.or_else(|| self.origin.is_some().then_some(socket))
    }

    /// A listener that takes every host, with the routes of the shared table.
    #[must_use]
    pub fn for_every_host(name: &str) -> Self {
        Self {
            name: ListenerName(name.into()),
            host: HostPattern::Any,
            table: TableName::Shared,
            tls: None,
            port: None,
            origin: None,
        }
    }
}

/// The listener of the server name of a client's handshake, as it was at that time.
#[derive(Clone, Debug)]
pub struct TlsListener {
    /// Its name.
    pub name: ListenerName,
    /// How it verified the client.
    pub clients: Option<Arc<ClientVerification>>,
    /// Whether it uses the shared route table.
    shared: bool,
}

impl TlsListener {
    /// A record of the listener as it is now.
    #[must_use]
    pub fn of(listener: &Listener) -> Self {
        let clients = listener.tls.as_ref().and_then(|tls| tls.clients.clone());
        Self { name: listener.name.clone(), clients, shared: listener.table.is_shared() }
    }

    /// Returns `true` if a request for this listener needs another connection: it is another listener, or its
    /// verification of clients has changed since the handshake. On listeners of the shared table a client may use its
    /// connections for any host (RFC 9113 section 9.1.1).
    #[must_use]
    pub fn is_other_than(&self, listener: &Listener) -> bool {
        let clients = listener.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        let both_shared = self.shared && listener.table.is_shared();
        clients != self.clients.as_ref() || (!both_shared && listener.name != self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, ObjectName};

    #[test]
    fn only_listeners_of_objects_name_the_port_of_clients() {
        let gateway = ObjectRef::new(Kind::Gateway, ObjectName::new("a", "b"));
        let origin = Some(Arc::new(ListenerOrigin { gateway, set: None, name: "c".into() }));
        let listener = |origin, port| Listener { origin, port, ..Listener::for_every_host("http") };
        assert_eq!(listener(None, None).named_port(8080), None);
        assert_eq!(listener(origin.clone(), None).named_port(8080), Some(8080));
        assert_eq!(listener(origin, Some(80)).named_port(8080), Some(80));
    }
}
