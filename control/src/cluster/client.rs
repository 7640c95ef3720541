//! The client for the API server: the source of address and credentials, and the timeouts of every connection. The
//! requests themselves are made elsewhere.
//!
//! kube's own stack is not used because it sets neither TCP keepalive nor a read timeout, and silently retries 429 and
//! 5xx; here the caller gets every answer, backs off and counts.

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

/// The reason why there is no client. The messages contain no credentials.
#[derive(Debug)]
pub enum ConnectError {
    /// The process does not run in a pod with a service account.
    InCluster(InClusterError),
    /// The kubeconfig cannot be read, or has no such context.
    Kubeconfig(Box<KubeconfigError>),
    /// The kubeconfig has a proxy, which is not supported; ignoring it would be wrong.
    Proxy,
    /// The credentials or certificates cannot be used.
    Credentials(Box<kube::Error>),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCluster(why) => write!(f, "the service account of the pod cannot be used: {why}"),
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

/// The API server of the cluster that this pod runs in, with the pod's service account. A kubeconfig in the image is
/// ignored.
///
/// # Errors
/// If the pod's environment or its service account files are missing.
pub fn in_cluster() -> Result<Config, ConnectError> {
    Config::incluster().map_err(ConnectError::InCluster)
}

/// The API server and user of a kubeconfig file; of its current context by default. The environment (`KUBECONFIG`,
/// `HTTPS_PROXY` or the debugging variables of kube) is ignored.
///
/// # Errors
/// If the file cannot be read or lacks an entry that the context refers to.
pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    let mut authority = None;
    let mut proxied = true;
    if let Some(cluster) = cluster(&mut kubeconfig, context) {
        authority = authority_file(cluster);
        proxied = cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty());
        if !proxied {
            // Without a proxy URL, kube reads the environment, whatever `NO_PROXY` is there.
            cluster.proxy_url = Some(NO_PROXY.to_owned());
        }
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.root_cert_file = authority;
    if !proxied {
        config.proxy_url = None;
        // A credential plugin may get the cluster.
        if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
            cluster.proxy_url = None;
        }
    }
    Ok(config)
}

/// A placeholder for no proxy, so that kube does not read one from the environment.
const NO_PROXY: &str = "http://proxy.invalid";

/// The cluster of a context, by default of the current one.
fn cluster<'k>(kubeconfig: &'k mut Kubeconfig, context: Option<&str>) -> Option<&'k mut Cluster> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster)?.cluster.as_mut()
}

/// The file of a cluster's certificate authority, if the kubeconfig does not contain the certificate. kube reads it
/// only once.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    let file = cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none())?;
    Some(PathBuf::from(file))
}

/// A client with these timeouts. It uses HTTP/1.1, so that every watch has a connection of its own, and does not retry.
/// No connection is made before the first request.
///
/// A token or an authority from a file is read again each minute, and at once for the request after one that failed,
/// was aborted or was answered 401.
///
/// `api_server` learns the server's sockets: now, if the configuration has its IP address, or else with each
/// connection.
///
/// # Errors
/// If the credentials or certificates cannot be used, or a proxy is configured.
///
/// # Panics
/// Outside of a Tokio runtime. The client belongs to the runtime in which it is created.
pub fn connect(config: Config, deadlines: Deadlines, api_server: &ApiServer) -> Result<kube::Client, ConnectError> {
    if config.proxy_url.is_some() {
        return Err(ConnectError::Proxy);
    }
    let namespace = config.default_namespace.clone();
    let lookup = Lookup { api_server: api_server.clone(), port: port(&config) };
    api_server.learn(address(&config).map(|address| SocketAddr::new(address, lookup.port)));
    let first = stack(&config, deadlines, &lookup)?;
    // Running a credential plugin would block; its credentials have an expiry of their own.
    let from_files = config.auth_info.token_file.is_some() || config.root_cert_file.is_some();
    if !from_files || config.auth_info.exec.is_some() {
        return Ok(kube::Client::new(first, namespace));
    }
    Ok(kube::Client::new(Renewed::new(first, move || stack(&config, deadlines, &lookup)), namespace))
}

/// All layers between a request and the connection, with the current contents of credential files.
fn stack(config: &Config, deadlines: Deadlines, lookup: &Lookup) -> Result<Stack, ConnectError> {
    let mut transport =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp(deadlines, lookup.clone()))?);
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

/// The IP address of the server in the configuration; `None` for a DNS name.
fn address(config: &Config) -> Option<IpAddr> {
    config.cluster_url.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
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
