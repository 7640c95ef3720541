//! The flags of the commands that query a running process.

use clap::builder::BoolishValueParser;

#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The URL, such as `https://shop.example/cart`; the default scheme is http.
    pub(crate) url: String,
    /// The request method.
    #[arg(long, value_name = "METHOD", env = "TIDEGATE_METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// A request header, also as `-H`; repeatable. `Host` replaces the URL's host, which still gives the address or,
    /// over TLS, the server name.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", env = "TIDEGATE_HEADER")]
    pub(crate) header: Vec<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TopologyArgs {
    /// Shows only Gateways and routes of this namespace, and the routes and ListenerSets attached to such Gateways and
    /// their ListenerSets.
    #[arg(long, value_name = "NAMESPACE", env = "TIDEGATE_OF_NAMESPACE")]
    pub(crate) of_namespace: Option<String>,
    /// Shows only Gateways and routes of this name, and the routes and ListenerSets attached to such Gateways and their
    /// ListenerSets.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OF_NAME")]
    pub(crate) of_name: Option<String>,
    /// The maximum number of Gateways and routes, at most 2000.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_LIMIT", default_value = "500")]
    pub(crate) limit: usize,
    /// Shows only entries after this one, as printed by the previous page.
    #[arg(long, value_name = "KIND/NAMESPACE/NAME", env = "TIDEGATE_AFTER")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct HistoryArgs {
    /// The number of latest publications to show.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_LAST", default_value = "20")]
    pub(crate) last: usize,
    /// Shows only publications that changed, or may have changed, the routes or certificates of this host pattern: each
    /// publication records only its first eight hosts.
    #[arg(long, value_name = "HOST", env = "TIDEGATE_HOST")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RollbackArgs {
    /// The generation to serve; `tidegate history` lists them.
    pub(crate) generation: u64,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// The way to reach a running process.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct AskArgs {
    /// The debug address of the running process.
    #[arg(long, value_name = "ADDR|unix:PATH", env = "TIDEGATE_DEBUG", default_value = "127.0.0.1:9181")]
    pub(crate) debug: String,
    /// Prints JSON.
    #[arg(long, env = "TIDEGATE_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
}
