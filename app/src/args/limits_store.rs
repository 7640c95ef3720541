//! The flags of the store that shares the counts of rate limits.

use std::path::PathBuf;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Limits store")]
pub(crate) struct LimitsStoreArgs {
    /// A server that speaks the protocol of Redis, in which all replicas share the counts of rate limits:
    /// `redis://HOST:PORT`, or `rediss://` for TLS; of a cluster `redis-cluster://HOST:PORT,HOST:PORT` or
    /// `rediss-cluster://` with any of its nodes. A user's name may stand before the host as `USER@`, and the number of
    /// a database behind the port as `/NUMBER`; without a port it is 6379 [default: none; each replica counts by
    /// itself].
    #[arg(long, value_name = "URL", env = "TIDEGATE_LIMITS_STORE")]
    pub(crate) limits_store: Option<String>,
    /// The file with its password, which is read again for every connection.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_LIMITS_STORE_PASSWORD_FILE", requires = "limits_store")]
    pub(crate) limits_store_password_file: Option<PathBuf>,
    /// The certificate authorities, in PEM, for its certificate [default: those of the system].
    #[arg(long, value_name = "PATH", env = "TIDEGATE_LIMITS_STORE_CA", requires = "limits_store")]
    pub(crate) limits_store_ca: Option<PathBuf>,
    /// The beginning of its keys. Edges that share a server and not their counts have different ones.
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_LIMITS_STORE_PREFIX", default_value = "tidegate")]
    pub(crate) limits_store_prefix: String,
    /// The file with the key of the hash that stands for the values that limits count by, the same for all replicas.
    /// Without one, whoever reads the store can find out short values, such as IPv4 addresses, by trying all.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_LIMITS_STORE_KEY_FILE", requires = "limits_store")]
    pub(crate) limits_store_key_file: Option<PathBuf>,
    /// What happens while the store does not answer: `divide`, each replica counts by itself, up to the limit divided
    /// by the last known number of replicas; `refuse`, requests with a limit are answered 503.
    #[arg(long, value_name = "MODE", env = "TIDEGATE_LIMITS_STORE_AWAY", default_value = "divide")]
    pub(crate) limits_store_away: String,
}
