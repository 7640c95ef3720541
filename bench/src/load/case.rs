//! What is asked: a protocol, and what goes up and comes down.

use std::net::SocketAddr;

use super::Ask;
use crate::peer::SECURE;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What it is called.
    pub(crate) name: &'static str,
    protocol: Protocol,
    path: &'static str,
    body: Option<usize>,
    /// Whether its latency is measured at a fixed rate too.
    pub(crate) paced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// HTTP/1.1 over connections that are kept.
    H1,
    /// HTTP/1.1 with a connection for each request.
    H1Close,
    /// HTTP/1.1 over TLS, over connections that are kept.
    Tls,
    /// HTTP/2 over TLS.
    H2,
}

/// Requests at the same time on one HTTP/2 connection, which has as many connections less.
const STREAMS: usize = 4;

/// All of them.
pub(crate) const CASES: [Case; 16] = [
    Case::new("h1-small", Protocol::H1, "/", None),
    Case::new("h1-64k", Protocol::H1, "/64k", None),
    Case::new("h1-1m", Protocol::H1, "/1m", None),
    Case::new("h1-post-small", Protocol::H1, "/post", Some(100)),
    Case::new("h1-post-64k", Protocol::H1, "/post", Some(64 << 10)),
    Case::new("h1-close-small", Protocol::H1Close, "/", None),
    Case::new("tls-small", Protocol::Tls, "/", None),
    Case::new("tls-64k", Protocol::Tls, "/64k", None),
    Case::new("tls-1m", Protocol::Tls, "/1m", None),
    Case::new("tls-post-small", Protocol::Tls, "/post", Some(100)),
    Case::new("tls-post-64k", Protocol::Tls, "/post", Some(64 << 10)),
    Case::new("h2-small", Protocol::H2, "/", None),
    Case::new("h2-64k", Protocol::H2, "/64k", None),
    Case::new("h2-1m", Protocol::H2, "/1m", None),
    Case::new("h2-post-small", Protocol::H2, "/post", Some(100)),
    Case::new("h2-post-64k", Protocol::H2, "/post", Some(64 << 10)),
];

impl Case {
    const fn new(name: &'static str, protocol: Protocol, path: &'static str, body: Option<usize>) -> Self {
        // A connection for each request is no steady rate for h2load, and large bodies are about throughput.
        let paced = path.len() == 1 && !matches!(protocol, Protocol::H1Close);
        Self { name, protocol, path, body, paced }
    }

    /// The case of this name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        CASES.into_iter().find(|case| case.name == name)
    }

    /// Whether HTTP/2 is spoken.
    #[must_use]
    pub(crate) const fn http2(&self) -> bool {
        matches!(self.protocol, Protocol::H2)
    }

    /// Connections that carry it, where one that carries one request after the other would be one of so many.
    #[must_use]
    pub(crate) fn connections(&self, all: usize) -> usize {
        if self.http2() { (all / STREAMS).max(1) } else { all }
    }

    /// Whether each request has a connection of its own.
    #[must_use]
    pub(crate) const fn closes(&self) -> bool {
        matches!(self.protocol, Protocol::H1Close)
    }

    /// Whether TLS is spoken.
    #[must_use]
    pub(crate) const fn tls(&self) -> bool {
        matches!(self.protocol, Protocol::Tls | Protocol::H2)
    }

    /// The request itself, to a proxy that serves plain HTTP at one address and TLS at the other.
    #[must_use]
    pub(crate) fn ask(&self, plain: SocketAddr, secure: SocketAddr) -> Ask<'static> {
        let tls = self.tls();
        Ask {
            address: if tls { secure } else { plain },
            tls,
            streams: self.http2().then_some(STREAMS),
            close: self.closes(),
            host: SECURE,
            path: self.path,
            body: self.body,
        }
    }
}
