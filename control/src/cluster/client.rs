//! The client for the API server: the timeouts of every connection. The requests themselves are made elsewhere, and the
//! address and credentials come from [`Access`].
//!
//! kube's own stack is not used because it sets neither TCP keepalive nor a read timeout, and silently retries 429 and
//! 5xx; here the caller gets every answer, backs off and counts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::uri::Scheme;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt};
use tower::timeout::TimeoutLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder};

pub use crate::cluster::access::{Access, ConnectError};
use crate::cluster::api_server::{ApiServer, Lookup};
use crate::cluster::renew::{Renewed, Stack};

/// The timeouts of the steps of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// Resolving the name and the TCP handshake.
    pub tcp: Duration,
    /// The above and the TLS handshake.
    pub connect: Duration,
    /// From the request to the headers of its response, including a token renewal.
    pub headers: Duration,
    /// Idle time while reading, also of a body.
    pub read: Duration,
    /// A write without progress.
    pub write: Duration,
}

impl Deadlines {
    /// For lists and watches. The read timeout exceeds the longest watch: these timeouts are the last resort, behind
    /// the shorter ones of the informers.
    pub const WATCH: Self = Self {
        tcp: Duration::from_secs(10),
        connect: Duration::from_secs(15),
        headers: Duration::from_secs(25),
        read: Duration::from_secs(230),
        write: Duration::from_secs(30),
    };

    /// For writes of status, Events and leases, whose responses are short.
    pub const WRITE: Self = Self { headers: Duration::from_secs(15), read: Duration::from_secs(20), ..Self::WATCH };
}

/// A connection that is idle for this long is probed by the kernel, three times, ten seconds apart.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// A connection ends when sent bytes are unacknowledged for this long (`TCP_USER_TIMEOUT`, RFC 5482).
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(45);

/// A client with these timeouts. It uses HTTP/1.1, so that every watch has a connection of its own, and does not retry.
/// No connection is made before the first request.
///
/// Files and credential plugins are followed ([`Access`]). In addition, after a request that failed, was aborted or was
/// answered 401, the files are read again, and later requests have connections of their own. The next request is the
/// first of them, unless that takes longer than it waits.
///
/// `api_server` learns the server's sockets: now, if the configuration has its IP address, or else with each
/// connection.
///
/// # Errors
/// If the credentials or certificates cannot be used.
///
/// # Panics
/// Outside of a Tokio runtime. The client belongs to the runtime in which it is created.
pub fn connect(access: &Access, deadlines: Deadlines, api_server: &ApiServer) -> Result<kube::Client, ConnectError> {
    let namespace = access.config().default_namespace.clone();
    let api_server = api_server.clone();
    api_server.learn(socket(&access.config()));
    let build = move |config: &Config| stack(config, deadlines, &api_server);
    Ok(kube::Client::new(Renewed::new(access.clone(), build)?, namespace))
}

/// All layers between a request and the connection.
fn stack(config: &Config, deadlines: Deadlines, api_server: &ApiServer) -> Result<Stack, ConnectError> {
    api_server.learn(socket(config));
    let lookup = Lookup { api_server: api_server.clone(), port: port(config) };
    let mut transport = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp(deadlines, lookup))?);
    transport.set_connect_timeout(Some(deadlines.connect));
    transport.set_read_timeout(Some(deadlines.read));
    // Otherwise the idle time of a pooled connection counts towards the next response.
    transport.set_reset_reader_on_write(true);
    transport.set_write_timeout(Some(deadlines.write));
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(transport);

    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(TimeoutLayer::new(deadlines.headers))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(BoxService::new(service))
}

/// The socket of the server in the configuration; `None` for a DNS name.
fn socket(config: &Config) -> Option<SocketAddr> {
    let address = config.cluster_url.host()?.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok()?;
    Some(SocketAddr::new(address, port(config)))
}

/// The port of connections, from the URL.
fn port(config: &Config) -> u16 {
    let usual = if config.cluster_url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    config.cluster_url.port_u16().unwrap_or(usual)
}

fn tcp(deadlines: Deadlines, lookup: Lookup) -> HttpConnector<Lookup> {
    let mut connector = HttpConnector::new_with_resolver(lookup);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(deadlines.tcp));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    connector
}
