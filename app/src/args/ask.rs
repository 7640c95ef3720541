//! The flags of the commands that ask a running process.

use clap::builder::BoolishValueParser;

#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The URL, such as `https://shop.example/cart`; without a scheme, http is meant.
    pub(crate) url: String,
    /// The method of the request.
    #[arg(long, value_name = "METHOD", env = "TIDEGATE_METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// A header of the request, also as `-H`; several times for several. `Host` takes the place of the URL's host, which still says the
    /// address or, over TLS, the server name.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", env = "TIDEGATE_HEADER")]
    pub(crate) header: Vec<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TopologyArgs {
    /// Only Gateways and routes of this namespace, and what is attached to such Gateways and their ListenerSets.
    #[arg(long, value_name = "NAMESPACE", env = "TIDEGATE_OF_NAMESPACE")]
    pub(crate) of_namespace: Option<String>,
    /// Only Gateways and routes of this name, and what is attached to such Gateways and their ListenerSets.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OF_NAME")]
    pub(crate) of_name: Option<String>,
    /// At most so many Gateways and routes, and no more than 2000.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_LIMIT", default_value = "500")]
    pub(crate) limit: usize,
    /// Only those after this one, which the page before has told.
    #[arg(long, value_name = "KIND/NAMESPACE/NAME", env = "TIDEGATE_AFTER")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct HistoryArgs {
    /// At most so many publications, the latest.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_LAST", default_value = "20")]
    pub(crate) last: usize,
    /// Only those that changed the routes or certificates of this host, as rules write it, or may have: of each, the first eight
    /// hosts are written down.
    #[arg(long, value_name = "HOST", env = "TIDEGATE_HOST")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RollbackArgs {
    /// The generation whose routes shall serve; `tidegate history` lists them.
    pub(crate) generation: u64,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// How a running process is asked.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct AskArgs {
    /// The debug address of the running process.
    #[arg(long, value_name = "ADDR|unix:PATH", env = "TIDEGATE_DEBUG", default_value = "127.0.0.1:9181")]
    pub(crate) debug: String,
    /// Prints JSON.
    #[arg(long, env = "TIDEGATE_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
}
