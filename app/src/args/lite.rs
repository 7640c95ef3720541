//! The flags of `tidegate lite`.

use std::path::PathBuf;

use super::{CacheArgs, CachedArgs, ServeArgs, ServerArgs, UnconfirmedRemovalsArgs};

#[derive(clap::Args, Debug, Default)]
pub(crate) struct LiteArgs {
    #[command(flatten)]
    pub(crate) cluster: LiteClusterArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(flatten)]
    pub(crate) cached: CachedArgs,
    #[command(flatten)]
    pub(crate) process: LiteProcessArgs,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct LiteClusterArgs {
    /// The kubeconfig of the cluster; without it, the service account of the pod.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", env = "TIDEGATE_CONTEXT", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) unconfirmed_removals: UnconfirmedRemovalsArgs,
    /// The interval between two relists of a kind, plus up to half of it at random. Relists find changes that the watch
    /// missed.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_RELIST_INTERVAL", default_value = "10m")]
    pub(crate) relist_interval: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Process")]
pub(crate) struct LiteProcessArgs {
    /// The address for health and metrics, or `off`.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", default_value = "0.0.0.0:9180")]
    pub(crate) admin: String,
    /// The level of the log on stderr: `error`, `warn`, `info`, `debug`, or directives such as
    /// `warn,tidegate_control=debug`.
    #[arg(long, value_name = "LEVEL", env = "TIDEGATE_LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,
    /// The format of the log on stderr: `text` or `json`.
    #[arg(long, value_name = "FORM", env = "TIDEGATE_LOG_FORM", default_value = "json")]
    pub(crate) log_form: String,
}
