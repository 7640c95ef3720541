//! The flags of policies.

use std::path::PathBuf;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Policies")]
pub(crate) struct PolicyArgs {
    /// Certificate authorities, in PEM, that are trusted for URLs in policies, such as those of the issuers of tokens,
    /// in addition to those of the system. The file is read at the start.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_POLICY_CA")]
    pub(crate) policy_ca: Option<PathBuf>,
    /// The hosts that URLs in policies may lead to: names such as login.example.com, *.example.com for all hosts below
    /// it, and networks of addresses; comma-separated [default: all but loopback, link-local addresses, the metadata
    /// services of clouds, the API server and this edge, which no entry allows].
    #[arg(long, value_name = "NAME|CIDR", env = "TIDEGATE_POLICY_URL_HOSTS", value_delimiter = ',')]
    pub(crate) policy_url_hosts: Vec<String>,
}
