//! Settings of all downstream connections, which hold before a route is known.

use std::sync::Arc;

use rustls::CipherSuite;
use serde::{Serialize, Serializer};

use super::log_format::LogFormat;

/// Settings of all downstream connections. The process has defaults for limits that are not set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EdgeSettings {
    /// Whether every connection must begin with a header of the PROXY protocol, version 1 or 2. One without is closed.
    pub proxy_protocol: bool,
    /// The size limits of a request head.
    pub request_head: RequestHeadLimits,
    /// TLS with clients.
    pub tls: TlsSettings,
    /// The form of a line of the access log; `None` for JSON.
    pub log_format: Option<Arc<LogFormat>>,
    /// The maximum number of connections, downstream and upstream together. `None` for the limit of the process, which
    /// holds in any case.
    pub connections_max: Option<ConnectionsMax>,
}

/// The maximum number of concurrent connections, downstream and upstream together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ConnectionsMax {
    /// The maximum per worker, from 1.
    pub per_worker: u32,
    /// The number of workers, from 1; `None` for the traffic threads of the process.
    pub workers: Option<u32>,
}

impl ConnectionsMax {
    /// The maximum in a process with `threads` traffic threads.
    pub fn in_all(self, threads: usize) -> u64 {
        let workers = self.workers.map_or(threads as u64, u64::from);
        u64::from(self.per_worker).saturating_mul(workers)
    }
}

/// The size limits of a request head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RequestHeadLimits {
    /// Bytes of the request line, and of each header line, from 1. `None` for no limit of its own. In a head that is
    /// not too large as a whole, a longer request line is answered 414, a longer header line 431.
    pub line_bytes_max: Option<usize>,
    /// Bytes of the whole head, from 1. A longer one is answered 431.
    pub bytes_max: Option<usize>,
}

/// TLS with clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TlsSettings {
    /// The allowed versions.
    pub versions: TlsVersions,
    /// The cipher suites, the preferred ones first; `None` for all that the library has, in the order of the client's
    /// preference.
    #[serde(serialize_with = "suite_names")]
    pub cipher_suites: Option<Box<[CipherSuite]>>,
    /// Whether sessions are resumed by tickets, which the client keeps. Without tickets the process keeps a limited
    /// number of sessions.
    pub tickets: bool,
    /// Whether HTTP/2 is offered (ALPN, RFC 7301).
    pub http2: bool,
    /// The methods of requests that are accepted before the handshake is complete (early data, RFC 8470), in upper
    /// case; others are answered 425. `None` disables early data. With early data sessions are resumed without tickets.
    pub early_data: Option<Box<[Box<str>]>>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self { versions: TlsVersions::default(), cipher_suites: None, tickets: true, http2: true, early_data: None }
    }
}

/// Versions of TLS, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsVersions {
    /// TLS 1.2 and 1.3.
    #[default]
    Both,
    /// TLS 1.2 alone (RFC 5246).
    Only12,
    /// TLS 1.3 alone (RFC 8446).
    Only13,
}

fn suite_names<S: Serializer>(suites: &Option<Box<[CipherSuite]>>, serializer: S) -> Result<S::Ok, S::Error> {
    let names = suites.as_ref().map(|suites| suites.iter().map(|suite| suite.as_str()).collect::<Vec<_>>());
    names.serialize(serializer)
}
