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
    #[arg(long, value_name = "PATH", env = "TIDEGATE_SERVE_TOKEN_FILE", requires = "serve_api")]
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
    #[arg(long, env = "TIDEGATE_SERVE_SECRETS", value_parser = BoolishValueParser::new(), requires = "serve_api")]
    pub(crate) serve_secrets: bool,
    /// MiB that the JSON of what is served may take; a kind with which it is more is not served. History takes up to an eighth of it
    /// besides for each kind.
    #[arg(long, value_name = "MIB", env = "TIDEGATE_SERVE_MEMORY", default_value = "512")]
    pub(crate) serve_memory: String,
    /// Connections to the served API at a time, each of which may be a watch; further ones wait.
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_SERVE_CONNECTIONS", default_value = "2048")]
    pub(crate) serve_connections: String,
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
