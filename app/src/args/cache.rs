//! The flags of the cluster cache on disk.

use std::path::PathBuf;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cluster cache")]
pub(crate) struct CacheArgs {
    /// A folder for the last known state of the cluster. A process that restarts while the API server is unavailable
    /// serves that state. Each process needs its own folder [default: no state is kept].
    #[arg(long, value_name = "DIR", env = "TIDEGATE_CACHE_DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// The file with the key that encrypts kept Secrets: 32 random bytes, or their base64. Without a key Secrets are
    /// not kept, and after such a restart hosts have no certificates until the API server answers.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_CACHE_KEY_FILE", requires = "cache_dir")]
    pub(crate) cache_key_file: Option<PathBuf>,
    /// The time that a change waits to be written together with others.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_CACHE_WRITE_AFTER", default_value = "1s")]
    pub(crate) cache_write_after: String,
    /// The maximum that is written per minute, in MiB; further changes wait, and only the latest version of each object
    /// is written. A single batch that is larger counts as one minute's amount.
    #[arg(long, value_name = "MIB", env = "TIDEGATE_CACHE_WRITE_BUDGET", default_value = "16")]
    pub(crate) cache_write_budget: String,
}
