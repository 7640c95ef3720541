//! The flags of the served API, and of an edge that is fed by another one's.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Served API")]
pub(crate) struct ServeArgs {
    /// Where the objects that this process reads from the API server are served again, to be read and watched: an address such as
    /// `127.0.0.1:8001`, or `unix:PATH` [default: nowhere].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_SERVE_API")]
    pub(crate) serve_api: Option<String>,
    /// The file with the bearer token that clients must send. Needed, or a client certificate, where others than this machine can come,
    /// and where Secrets are served at an address.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_TOKEN_FILE")]
    pub(crate) serve_token_file: Option<PathBuf>,
    /// The certificate chain to serve by, in PEM; without one it is plain HTTP, which only loopback and unix sockets may be.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_CERT", requires = "serve_key")]
    pub(crate) serve_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_KEY", requires = "serve_cert")]
    pub(crate) serve_key: Option<PathBuf>,
    /// The authorities, in PEM, one of which must have signed the certificate that each client must show.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_CLIENT_CA", requires = "serve_cert")]
    pub(crate) serve_client_ca: Option<PathBuf>,
    /// Serves Secrets as well.
    #[arg(long, env = "TIDEGATE_SERVE_SECRETS", value_parser = BoolishValueParser::new())]
    pub(crate) serve_secrets: bool,
    /// Passes writes on to the API server, each with the bearer token of the client that sends it; without one it is refused. Needs a
    /// way in without `--serve-token-file`, which would have the place of that token.
    #[arg(long, env = "TIDEGATE_PASS_WRITES", value_parser = BoolishValueParser::new())]
    pub(crate) pass_writes: bool,
    /// MiB that the JSON of what is served may take; a kind with which it is more is not served. History takes up to an eighth of it
    /// besides for each kind.
    #[arg(long, value_name = "MIB", env = "TIDEGATE_SERVE_MEMORY", default_value = "512")]
    pub(crate) serve_memory: String,
    /// Connections to the served API at a time, each of which may be a watch; further ones wait.
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_SERVE_CONNECTIONS", default_value = "2048")]
    pub(crate) serve_connections: String,
}

/// Which kinds are read because others want them.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cached kinds")]
pub(crate) struct CachedArgs {
    /// Kinds that are read, kept on disk and served although no route comes from them: plurals with their group, such as
    /// `pods,configmaps,deployments.apps`, or `certificates.cert-manager.io/v1` for one version; several times for several [default:
    /// none; lite: what an edge reads: services, endpointslices, ingresses and ingressclasses].
    #[arg(long, value_name = "KINDS", env = "TIDEGATE_CACHE_KINDS", value_delimiter = ',')]
    pub(crate) cache_kinds: Vec<String>,
    /// Which objects of such a kind, by label, such as `pods:app=web,tier!=test`; several times for several kinds, in the variable
    /// separated by semicolons [default: all].
    #[arg(long, value_name = "KIND:SELECTOR", env = "TIDEGATE_CACHE_SELECTOR", value_delimiter = ';')]
    pub(crate) cache_selector: Vec<String>,
    /// The same by field, such as `pods:spec.nodeName=node-1`.
    #[arg(long, value_name = "KIND:SELECTOR", env = "TIDEGATE_CACHE_FIELD_SELECTOR", value_delimiter = ';')]
    pub(crate) cache_field_selector: Vec<String>,
}

/// Where objects are read, if it is neither a kubeconfig nor the service account of the pod.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ServerArgs {
    /// The URL of a server to read from, such as the served API of another process. Nothing is written there.
    #[arg(long, value_name = "URL", env = "TIDEGATE_SERVER", conflicts_with = "kubeconfig")]
    pub(crate) server: Option<String>,
    /// The file with the bearer token for `--server`.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVER_TOKEN_FILE", requires = "server")]
    pub(crate) server_token_file: Option<PathBuf>,
    /// The authorities, in PEM, by which the certificate of `--server` is known.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVER_CA", requires = "server")]
    pub(crate) server_ca: Option<PathBuf>,
}
