//! The settings of the store: where it is, what it is told, and what happens without it.

use std::fmt;
use std::sync::Arc;

/// A server that speaks the protocol of Redis, or a cluster of them, which keeps the counts of limits for all replicas
/// of the edge.
#[derive(Clone)]
pub struct LimitStore {
    /// Its nodes: one, or of a cluster any that know the others.
    pub nodes: Vec<StoreNode>,
    /// Whether it is a cluster.
    pub cluster: bool,
    /// Whether connections use TLS.
    pub tls: bool,
    /// The name of the user; `None` for the default one.
    pub user: Option<String>,
    /// The number of the database; a cluster has only 0.
    pub database: u32,
    /// The beginning of all keys. Two edges that do not share their counts have different ones.
    pub prefix: String,
    /// The key of the hash of values that limits count by, which all replicas share; it may be empty.
    pub hash_key: Secret,
    /// Reads the password and the certificate authorities, for every connection.
    pub secrets: ReadSecrets,
    /// What happens to a request of a limit while the store does not answer.
    pub away: StoreAway,
}

/// The address of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreNode {
    /// A DNS name or an IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// What happens to a request of a limit while the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StoreAway {
    /// Each replica counts by itself, up to the maximum divided by the last known number of replicas.
    #[default]
    Divide,
    /// It is refused with 503, unless its lease has requests left.
    Refuse,
}

/// Bytes that are not printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub Vec<u8>);

/// The credentials for the store, as they are now.
#[derive(Clone, Debug, Default)]
pub struct StoreSecrets {
    /// The password.
    pub password: Option<Secret>,
    /// The certificate authorities in PEM; `None` for those of the system.
    pub authorities: Option<Vec<u8>>,
}

/// Reads [`StoreSecrets`], or says in one line why they cannot be read. It may block.
pub type ReadSecrets = Arc<dyn Fn() -> Result<StoreSecrets, String> + Send + Sync>;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for LimitStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, cluster, tls, user, database, prefix, away, hash_key: _, secrets: _ } = self;
        let mut out = f.debug_struct("LimitStore");
        out.field("nodes", nodes).field("cluster", cluster).field("tls", tls).field("user", user);
        out.field("database", database).field("prefix", prefix).field("away", away).finish_non_exhaustive()
    }
}
