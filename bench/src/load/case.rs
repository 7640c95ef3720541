//! The kinds of requests: their protocol, and the sizes of request and response.

use std::net::SocketAddr;

use super::Ask;
use crate::grpc;
use crate::peer::{H2C, HTTPS, SECURE, STREAMED};

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: &'static str,
    protocol: Protocol,
    path: &'static str,
    body: Option<usize>,
    /// Headers that clients send in addition to those of the load generators.
    headers: &'static [&'static str],
    /// The host, by whose route the endpoint is chosen.
    host: &'static str,
    /// `true` if its latency is measured at a fixed rate too.
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

/// The number of concurrent requests on one HTTP/2 connection; the number of connections is divided by it.
const STREAMS: usize = 4;

/// The headers of a browser's page request.
const BROWSER: [&str; 14] = [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Accept-Language: en-GB,en;q=0.9,de;q=0.8",
    "Cache-Control: max-age=0",
    "Cookie: session=4f2a9c1be07d4d6c8a35f1e29b7c0d84; theme=dark; consent=analytics%3Dno",
    "Referer: https://shop.example/catalogue?page=3&sort=price",
    "Sec-Ch-Ua: \"Chromium\";v=\"141\", \"Not?A_Brand\";v=\"8\"",
    "Sec-Ch-Ua-Mobile: ?0",
    "Sec-Ch-Ua-Platform: \"Linux\"",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: same-origin",
    "Upgrade-Insecure-Requests: 1",
];

/// The headers of a gRPC call.
const GRPC: [&str; 2] = ["Content-Type: application/grpc", "TE: trailers"];

/// All cases.
pub(crate) const CASES: [Case; 20] = [
    Case::new("h1-small", Protocol::H1, "/", None),
    Case { headers: &BROWSER, ..Case::new("h1-browser", Protocol::H1, "/", None) },
    Case::new("h1-64k", Protocol::H1, "/64k", None),
    Case::new("h1-1m", Protocol::H1, "/1m", None),
    Case::new("h1-post-small", Protocol::H1, "/post", Some(100)),
    Case::new("h1-post-64k", Protocol::H1, "/post", Some(64 << 10)),
    Case::new("h1-close-small", Protocol::H1Close, "/", None),
    Case { host: HTTPS, ..Case::new("h1-to-https-small", Protocol::H1, "/", None) },
    Case::new("tls-small", Protocol::Tls, "/", None),
    Case::new("tls-64k", Protocol::Tls, "/64k", None),
    Case::new("tls-1m", Protocol::Tls, "/1m", None),
    Case::new("tls-post-small", Protocol::Tls, "/post", Some(100)),
    Case::new("tls-post-64k", Protocol::Tls, "/post", Some(64 << 10)),
    Case::new("h2-small", Protocol::H2, "/", None),
    Case { host: H2C, ..Case::new("h2-to-h2-small", Protocol::H2, "/", None) },
    Case::new("h2-64k", Protocol::H2, "/64k", None),
    Case::new("h2-1m", Protocol::H2, "/1m", None),
    Case::new("h2-post-small", Protocol::H2, "/post", Some(100)),
    Case::new("h2-post-64k", Protocol::H2, "/post", Some(64 << 10)),
    Case { host: STREAMED, headers: &GRPC, ..Case::new("grpc-small", Protocol::H2, grpc::PATH, Some(13)) },
];

impl Case {
    const fn new(name: &'static str, protocol: Protocol, path: &'static str, body: Option<usize>) -> Self {
        // h2load has no steady rate with a connection for each request, and large bodies are about throughput.
        let paced = path.len() == 1 && !matches!(protocol, Protocol::H1Close);
        Self { name, protocol, path, body, headers: &[], host: SECURE, paced }
    }

    /// The case of this name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        CASES.into_iter().find(|case| case.name == name)
    }

    /// Returns `true` if the client speaks HTTP/2.
    #[must_use]
    pub(crate) const fn http2(&self) -> bool {
        matches!(self.protocol, Protocol::H2)
    }

    /// The number of connections for this case, where a case with one request at a time per connection has `all`.
    #[must_use]
    pub(crate) fn connections(&self, all: usize) -> usize {
        if self.http2() { (all / STREAMS).max(1) } else { all }
    }

    /// Returns `true` if endpoints speak plain HTTP/1.1.
    #[must_use]
    pub(crate) fn endpoint_is_plain(&self) -> bool {
        self.host == SECURE
    }

    /// Returns `true` if each request has a connection of its own.
    #[must_use]
    pub(crate) const fn closes(&self) -> bool {
        matches!(self.protocol, Protocol::H1Close)
    }

    /// Returns `true` if the client speaks TLS.
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
            host: self.host,
            headers: self.headers,
            path: self.path,
            body: self.body,
        }
    }
}
