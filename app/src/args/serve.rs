//! The flags of the served API, and of an edge that reads from one.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Served API")]
pub(crate) struct ServeArgs {
    /// The address on which this process serves the objects that it reads from the API server, for reads and watches:
    /// an address such as `127.0.0.1:8001`, or `unix:PATH` [default: none].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_SERVE_API")]
    pub(crate) serve_api: Option<String>,
    /// The file with the bearer token that clients must send. This or a client certificate is required on an address
    /// that other machines can reach, and to serve Secrets on a TCP address.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_TOKEN_FILE")]
    pub(crate) serve_token_file: Option<PathBuf>,
    /// The server's certificate chain, in PEM. Without one the API is plain HTTP, which is allowed only on loopback and
    /// unix sockets.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_CERT", requires = "serve_key")]
    pub(crate) serve_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_KEY", requires = "serve_cert")]
    pub(crate) serve_key: Option<PathBuf>,
    /// The certificate authorities, in PEM, for client certificates, which are then required.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_CLIENT_CA", requires = "serve_cert")]
    pub(crate) serve_client_ca: Option<PathBuf>,
    /// Serves Secrets as well.
    #[arg(long, env = "TIDEGATE_SERVE_SECRETS", value_parser = BoolishValueParser::new())]
    pub(crate) serve_secrets: bool,
    /// Forwards writes to the API server, each with the bearer token of its client; a write without a token is
    /// refused. Cannot be used with `--serve-token-file`, whose token would take its place in the request.
    #[arg(long, env = "TIDEGATE_FORWARD_WRITES", value_parser = BoolishValueParser::new())]
    pub(crate) forward_writes: bool,
    /// The memory for the JSON of served objects, in MiB; a kind that would exceed it is not served. The history of
    /// each kind takes up to an eighth of it in addition.
    #[arg(long, value_name = "MIB", env = "TIDEGATE_SERVE_MEMORY", default_value = "512")]
    pub(crate) serve_memory: String,
    /// The number of concurrent connections to the served API, each of which may be a watch; further ones wait.
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_SERVE_CONNECTIONS", default_value = "2048")]
    pub(crate) serve_connections: String,
}

/// The kinds that are read to be cached and served.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cached kinds")]
pub(crate) struct CachedArgs {
    /// Kinds to read, keep on disk and serve although they make no routes: plurals with their group, such as
    /// `pods,configmaps,deployments.apps`, or `certificates.cert-manager.io/v1` for one version; repeatable [default:
    /// none; lite: services, endpointslices, ingresses and ingressclasses, the kinds that an edge reads].
    #[arg(long, value_name = "KINDS", env = "TIDEGATE_CACHE_KINDS", value_delimiter = ',')]
    pub(crate) cache_kinds: Vec<String>,
    /// A label selector for one of these kinds, such as `pods:app=web,tier!=test`; repeatable, and separated by
    /// semicolons in the variable [default: all objects].
    #[arg(long, value_name = "KIND:SELECTOR", env = "TIDEGATE_CACHE_SELECTOR", value_delimiter = ';')]
    pub(crate) cache_selector: Vec<String>,
    /// A field selector for one of these kinds, such as `pods:spec.nodeName=node-1`; repeatable in the same way.
    #[arg(long, value_name = "KIND:SELECTOR", env = "TIDEGATE_CACHE_FIELD_SELECTOR", value_delimiter = ';')]
    pub(crate) cache_field_selector: Vec<String>,
}

/// A server to read objects from, instead of a kubeconfig or the service account of the pod.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ServerArgs {
    /// The URL of a server to read from, such as the served API of another process. This process writes nothing to it.
    #[arg(long, value_name = "URL", env = "TIDEGATE_SERVER", conflicts_with = "kubeconfig")]
    pub(crate) server: Option<String>,
    /// The file with the bearer token for `--server`.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVER_TOKEN_FILE", requires = "server")]
    pub(crate) server_token_file: Option<PathBuf>,
    /// The certificate authorities, in PEM, for the certificate of `--server`.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVER_CA", requires = "server")]
    pub(crate) server_ca: Option<PathBuf>,
}
