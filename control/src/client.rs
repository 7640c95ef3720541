//! How Tidegate reaches the API server: where the address and the credentials come from, and which deadlines stand on
//! every connection. The requests themselves are made elsewhere.
//!
//! kube's own stack is not used because it sets neither TCP keepalive nor a read timeout, and retries 429 and 5xx where
//! nobody sees it; here every answer reaches the caller, who backs off and counts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Scheme;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::{Cluster, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::timeout::TimeoutLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder};

use crate::api_server::{ApiServer, Lookup};
use crate::renew::{Renewed, Stack};

/// How long each step of a request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// Resolving the name and the TCP handshake.
    pub tcp: Duration,
    /// The above and the TLS handshake.
    pub connect: Duration,
    /// From the request to the headers of its answer, including a fresh token.
    pub headers: Duration,
    /// Silence while reading, also of a body.
    pub read: Duration,
    /// A write that makes no progress.
    pub write: Duration,
}

impl Deadlines {
    /// For lists and watches. Reading may be silent for longer than the longest watch: these deadlines are the last
    /// resort, behind the nearer ones of the loop that lists and watches.
    pub const WATCH: Self = Self {
        tcp: Duration::from_secs(10),
        connect: Duration::from_secs(15),
        headers: Duration::from_secs(25),
        read: Duration::from_secs(230),
        write: Duration::from_secs(30),
    };

    /// For writes of status, Events and leases, whose answers are short.
    pub const WRITE: Self = Self { headers: Duration::from_secs(15), read: Duration::from_secs(20), ..Self::WATCH };
}

/// A connection that is silent for this long is probed by the kernel, three times, ten seconds apart.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Sent bytes that stay unacknowledged for this long end a connection (`TCP_USER_TIMEOUT`, RFC 5482).
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(45);

/// Why there is no client. None of the messages holds a credential.
#[derive(Debug)]
pub enum ConnectError {
    /// The process does not run in a pod with a service account.
    InCluster(InClusterError),
    /// The kubeconfig cannot be read, or names no such context.
    Kubeconfig(Box<KubeconfigError>),
    /// The kubeconfig asks for a proxy, which is not supported: going around it silently would be wrong.
    Proxy,
    /// The credentials or certificates cannot be used.
    Credentials(Box<kube::Error>),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCluster(why) => write!(f, "no service account of a pod: {why}"),
            Self::Kubeconfig(why) => write!(f, "kubeconfig: {why}"),
            Self::Proxy => f.write_str("kubeconfig: proxy-url is not supported"),
            Self::Credentials(why) => write!(f, "credentials for the API server: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<kube::Error> for ConnectError {
    fn from(why: kube::Error) -> Self {
        Self::Credentials(Box::new(why))
    }
}

impl From<KubeconfigError> for ConnectError {
    fn from(why: KubeconfigError) -> Self {
        Self::Kubeconfig(Box::new(why))
    }
}

/// The API server of the cluster that this pod runs in, with the pod's service account. A kubeconfig that happens to
/// lie in the image is not looked at.
///
/// # Errors
/// When the pod's environment or its service account files are missing.
pub fn in_cluster() -> Result<Config, ConnectError> {
    Config::incluster().map_err(ConnectError::InCluster)
}

/// The API server and user of a kubeconfig file; of its current context when none is named. What the environment says (by
/// `KUBECONFIG`, `HTTPS_PROXY` or the debugging variables of kube) counts for nothing.
///
/// # Errors
/// When the file cannot be read or lacks what the context names.
pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    let mut authority = None;
    let mut proxied = true;
    if let Some(cluster) = cluster(&mut kubeconfig, context) {
        authority = authority_file(cluster);
        proxied = cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty());
        if !proxied {
            // Where there is none, kube looks into the environment, whatever `NO_PROXY` says there.
            cluster.proxy_url = Some(NO_PROXY.to_owned());
        }
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.root_cert_file = authority;
    if !proxied {
        config.proxy_url = None;
        // A plugin may be told of its cluster.
        if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
            cluster.proxy_url = None;
        }
    }
    Ok(config)
}

/// Stands for a proxy where there is none, so that nobody looks for one elsewhere.
const NO_PROXY: &str = "http://proxy.invalid";

/// The cluster of a context, of the current one when none is named.
fn cluster<'k>(kubeconfig: &'k mut Kubeconfig, context: Option<&str>) -> Option<&'k mut Cluster> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster)?.cluster.as_mut()
}

/// The file of the authority of a cluster, where the kubeconfig holds none itself. kube reads it only once.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    let file = cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

/// A client with these deadlines. It speaks HTTP/1.1, so that every watch has a connection of its own, and it retries
/// nothing. No connection is made before the first request.
///
/// A token or an authority that comes from a file is read again each minute, and at once for the request after one that
/// failed, was given up or was answered 401.
///
/// `api_server` learns where the server is: now, where the configuration names its address, or else with each connection.
///
/// # Errors
/// When the credentials or certificates cannot be used, or a proxy is asked for.
///
/// # Panics
/// Outside of a Tokio runtime. The client belongs to the runtime in which it is made.
pub fn connect(config: Config, deadlines: Deadlines, api_server: &ApiServer) -> Result<kube::Client, ConnectError> {
    if config.proxy_url.is_some() {
        return Err(ConnectError::Proxy);
    }
    let namespace = config.default_namespace.clone();
    let lookup = Lookup { api_server: api_server.clone(), port: port(&config) };
    api_server.learn(address(&config).map(|address| SocketAddr::new(address, lookup.port)));
    let first = stack(&config, deadlines, &lookup)?;
    // A plugin that is asked for credentials would block; it says itself how long they last.
    let from_files = config.auth_info.token_file.is_some() || config.root_cert_file.is_some();
    if !from_files || config.auth_info.exec.is_some() {
        return Ok(kube::Client::new(first, namespace));
    }
    Ok(kube::Client::new(Renewed::new(first, move || stack(&config, deadlines, &lookup)), namespace))
}

/// Everything between a request and the wire, with credentials as they are in their files now.
fn stack(config: &Config, deadlines: Deadlines, lookup: &Lookup) -> Result<Stack, ConnectError> {
    let mut transport =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp(deadlines, lookup.clone()))?);
    transport.set_connect_timeout(Some(deadlines.connect));
    transport.set_read_timeout(Some(deadlines.read));
    // Otherwise the time that a pooled connection sat idle counts against the next answer.
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

/// The address that a configuration names the server by. A name is none.
fn address(config: &Config) -> Option<IpAddr> {
    config.cluster_url.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The port as connections take it from the URL.
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
