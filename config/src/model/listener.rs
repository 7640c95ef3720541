//! Where traffic comes in: listeners are what objects ask for, binds are the sockets they share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;

use super::authority::Authorities;
use super::backend::Transport;
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

/// What an object asks for: requests for a host that come in over a bind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listener {
    /// Its name, which routes refer to.
    pub name: ListenerName,
    /// The hosts it takes.
    pub host: HostPattern,
    /// Where its routes are.
    #[serde(skip_serializing_if = "TableName::is_shared")]
    pub table: TableName,
    /// TLS as this listener has it to itself. `None` where a handshake goes by the virtual hosts of its table, as for Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Arc<ListenerTls>>,
    /// The port that clients connect to, where that of the socket is another one because a Service leads from one to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Which object asks for it; `None` for one of the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<ListenerOrigin>>,
}

/// The object that asks for a listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerOrigin {
    /// The Gateway that it belongs to.
    pub gateway: ObjectRef,
    /// The ListenerSet of the Gateway in which it stands; `None` for one of the Gateway's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<ObjectRef>,
    /// Its name in there.
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
    /// What becomes of a connection.
    pub mode: TlsMode,
    /// Its certificates, the preferred one first. Without any, a handshake fails.
    pub certificates: Box<[Arc<Certificate>]>,
    /// How clients are verified; `None` asks them for no certificate.
    pub clients: Option<Arc<ClientVerification>>,
}

/// What becomes of the connections of a TLS listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// TLS ends here, and requests of HTTP are read.
    Http,
    /// TLS ends here, and what is in it goes on by the [`StreamRoute`](super::StreamRoute) of the server name.
    Terminate,
    /// All bytes go on unread by the [`StreamRoute`](super::StreamRoute) of the server name.
    Passthrough,
}

impl ListenerTls {
    /// The certificates in the order in which they are to be shown to a client that asks for a server name in lower case: those for
    /// the name, then the others.
    pub fn certificates_for<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Certificate>> {
        let named = move |certificate: &&Arc<Certificate>| name.is_some_and(|name| certificate.is_for(name));
        let others = self.certificates.iter().filter(move |certificate| !named(certificate));
        self.certificates.iter().filter(named).chain(others)
    }
}

/// How the certificates of clients are verified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientVerification {
    /// Whose certificates are valid.
    pub authorities: Authorities,
    /// What becomes of a client without a valid one.
    pub mode: VerificationMode,
}

/// What becomes of a client without a valid certificate (Gateway API, `FrontendValidationModeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerificationMode {
    /// Its handshake is refused.
    ValidOnly,
    /// It is accepted, with a certificate that does not verify and without any.
    InsecureFallback,
}

impl Listener {
    /// One that takes every host, with the routes of the shared table.
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

/// The listener that a client meant with the server name of its handshake, as it was then.
#[derive(Clone, Debug)]
pub struct TlsListener {
    /// Its name.
    pub name: ListenerName,
    /// How it verified the client.
    pub clients: Option<Arc<ClientVerification>>,
    /// Whether it has the routes of the table that all listeners share which know of no others.
    shared: bool,
}

impl TlsListener {
    /// As it is now.
    #[must_use]
    pub fn of(listener: &Listener) -> Self {
        let clients = listener.tls.as_ref().and_then(|tls| tls.clients.clone());
        Self { name: listener.name.clone(), clients, shared: listener.table.is_shared() }
    }

    /// Whether a request for this listener has to come over a connection of its own: it is another listener, or it verifies clients in
    /// another way than at the time of the handshake. Between listeners of the shared table a client may use its connections for
    /// whatever host it likes (RFC 9113 section 9.1.1).
    #[must_use]
    pub fn is_other_than(&self, listener: &Listener) -> bool {
        let clients = listener.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        let both_shared = self.shared && listener.table.is_shared();
        clients != self.clients.as_ref() || (!both_shared && listener.name != self.name)
    }
}

/// The listeners that a route is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub enum ListenerScope {
    /// All of them: the rule of Ingress.
    #[default]
    All,
    /// These, in ascending order.
    These(Arc<[ListenerName]>),
}

impl ListenerScope {
    /// Whether a listener is among them.
    #[must_use]
    pub fn holds(&self, listener: &ListenerName) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.binary_search(listener).is_ok(),
        }
    }
}

/// What a bind speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BindProtocol {
    /// Plain HTTP/1.1, and HTTP/2 by prior knowledge.
    Http,
    /// TLS: HTTP/2 or HTTP/1.1 by ALPN, or bytes that are passed on, as the listener says that the server name chooses.
    Https,
    /// Anything: its connections are passed on unread, by the [`StreamRoute`](super::StreamRoute) of the bind.
    Tcp,
    /// Datagrams, which are passed on unread by the same. One number is another port in TCP than in UDP.
    Udp,
}

/// What makes two binds the same socket. Port 0 asks for a free port, chosen once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct BindKey {
    /// The address to listen on.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: BindProtocol,
}

impl BindKey {
    /// What its port is a port of.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self.protocol {
            BindProtocol::Http | BindProtocol::Https | BindProtocol::Tcp => Transport::Tcp,
            BindProtocol::Udp => Transport::Udp,
        }
    }
}

/// One socket and the listeners that share it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Bind {
    /// Its identity.
    pub key: BindKey,
    /// Its listeners, the most specific host first.
    pub listeners: Box<[Listener]>,
}

impl Bind {
    /// The listener that takes a host in lower case: the most specific one.
    #[must_use]
    pub fn listener(&self, host: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.host.matches(host))
    }
}
