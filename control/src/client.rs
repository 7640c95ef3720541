//! How Tidegate reaches the API server: where the address and the credentials come from, and which deadlines stand on
//! every connection. The requests themselves are made elsewhere.
//!
//! kube's own stack is not used because it sets neither TCP keepalive nor a read timeout, and retries 429 and 5xx where
//! nobody sees it; here every answer reaches the caller, who backs off and counts.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};

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

/// The API server and user of a kubeconfig file; of its current context when none is named. Neither `KUBECONFIG` nor
/// any debugging variable of kube is read.
///
/// # Errors
/// When the file cannot be read or lacks what the context names.
pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// A client with these deadlines. It speaks HTTP/1.1, so that every watch has a connection of its own, and it retries
/// nothing. No connection is made before the first request.
///
/// # Errors
/// When the credentials or certificates cannot be used, or a proxy is asked for.
///
/// # Panics
/// Outside of a Tokio runtime. The client belongs to the runtime in which it is made.
pub fn connect(config: Config, deadlines: Deadlines) -> Result<kube::Client, ConnectError> {
    if config.proxy_url.is_some() {
        return Err(ConnectError::Proxy);
    }
    let mut transport = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp(deadlines))?);
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
    Ok(kube::Client::new(service, config.default_namespace))
}

fn tcp(deadlines: Deadlines) -> HttpConnector {
    let mut connector = HttpConnector::new();
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
