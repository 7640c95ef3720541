//! The command line as text: the flags, their environment variables and their help. [`crate::settings`] parses and
//! validates the values.

mod ask;
mod cache;
mod limits_store;
mod lite;
mod policies;
mod routing;
mod serve;

use std::path::PathBuf;

pub(crate) use ask::{AskArgs, ExplainArgs, HistoryArgs, RollbackArgs, TopologyArgs};
pub(crate) use cache::CacheArgs;
use clap::builder::BoolishValueParser;
use clap::{Parser, Subcommand};
pub(crate) use limits_store::LimitsStoreArgs;
pub(crate) use lite::LiteArgs;
pub(crate) use policies::PolicyArgs;
pub(crate) use routing::RoutingArgs;
pub(crate) use serve::{CachedArgs, ServeArgs, ServerArgs};

/// A Kubernetes edge ingress that never reloads: every change of the cluster becomes a new routing snapshot.
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serves the Ingresses and Gateway API routes of a cluster.
    Run(Box<RunArgs>),
    /// Serves a cached copy of a cluster's objects for reads and watches, and routes no traffic.
    Lite(Box<LiteArgs>),
    /// Serves a folder of manifests without a cluster, with an embedded API server and an echo process for every
    /// replica.
    Dev(Box<DevArgs>),
    /// Explains how a running process would route a URL, and why.
    Explain(ExplainArgs),
    /// Shows the attachments of a running process: class, Gateway, listener, route, rule, backend.
    Topology(TopologyArgs),
    /// Lists the latest publications of a running process, and the objects that caused them.
    History(HistoryArgs),
    /// Freezes the current routes and certificates, whatever changes in the cluster; endpoints still follow the
    /// cluster.
    Freeze(AskArgs),
    /// Returns to the routes and certificates of the cluster.
    Thaw(AskArgs),
    /// Serves the routes and certificates of an earlier generation, with current endpoints, until `thaw`.
    Rollback(RollbackArgs),
    /// Answers every request with a description of it; `dev` starts one process for each replica.
    #[command(hide = true)]
    Echo(EchoArgs),
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(flatten)]
    pub(crate) cached: CachedArgs,
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct DevArgs {
    /// The folder of manifests (.yaml, .yml, .json); changes of its files take effect at once.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The address of the embedded API server; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_API", default_value = "127.0.0.1:0")]
    pub(crate) api: String,
    /// Starts the embedded API server without the CustomResourceDefinitions of the Gateway API and
    /// of Kuadrant's policies.
    #[arg(long, env = "TIDEGATE_WITHOUT_GATEWAY_API", value_parser = BoolishValueParser::new())]
    pub(crate) without_gateway_api: bool,
    /// A folder in which the embedded API server keeps its objects across restarts. Only its user can read it; Secrets
    /// in it are not encrypted.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Runs the command of the annotation `tidegate.io/command` for Pods of Deployments whose template has it, on this
    /// machine and as the user who runs `dev`: anyone who can write the manifests, or has the kubeconfig, can run
    /// programs.
    #[arg(long, env = "TIDEGATE_RUN_COMMANDS", value_parser = BoolishValueParser::new())]
    pub(crate) run_commands: bool,
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
}

/// The flags that `run` and `dev` share.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct EdgeArgs {
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) routing: RoutingArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    #[command(flatten)]
    pub(crate) status: StatusArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) clients: ClientArgs,
    #[command(flatten)]
    pub(crate) endpoints: EndpointArgs,
    #[command(flatten)]
    pub(crate) drain: DrainArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) limits_store: LimitsStoreArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Sockets")]
pub(crate) struct SocketArgs {
    /// An address for plain HTTP; repeatable. `off` opens no socket; port 0 picks a free port [default: 0.0.0.0:8080;
    /// dev: 127.0.0.1:8080, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", value_delimiter = ',')]
    pub(crate) http: Vec<String>,
    /// An address for HTTPS, in the same form; repeatable [default: 0.0.0.0:8443; dev: 127.0.0.1:8443, or any free
    /// port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTPS", value_delimiter = ',')]
    pub(crate) https: Vec<String>,
    /// With --source deis, the address for connections to the platform's builder, or `off`; it is open only while there
    /// is a builder [default: 0.0.0.0:2222; dev: 127.0.0.1:2222, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_DEIS_BUILDER_ADDRESS")]
    pub(crate) deis_builder_address: Option<String>,
    /// Requires a PROXY protocol header (version 1 or 2) at the start of every connection to the addresses above, as
    /// TCP load balancers send it. The header names the client if the connection comes from
    /// --trusted-proxies and is ignored otherwise; a connection without one is closed.
    #[arg(long, env = "TIDEGATE_PROXY_PROTOCOL", value_parser = BoolishValueParser::new())]
    pub(crate) proxy_protocol: bool,
    /// The address for health and metrics, or `off` [default: 0.0.0.0:9180; dev: 127.0.0.1:9180, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN")]
    pub(crate) admin: Option<String>,
    /// The address for debug dumps: a loopback address, `unix:PATH` (readable by its owner alone), or `off` [default:
    /// 127.0.0.1:9181; dev: that, or any free port].
    #[arg(long, value_name = "ADDR|unix:PATH", env = "TIDEGATE_DEBUG")]
    pub(crate) debug: Option<String>,
    /// Allows a --debug address that other machines can reach. Anyone who can reach it sees every route.
    #[arg(long, env = "TIDEGATE_DEBUG_ANYWHERE", value_parser = BoolishValueParser::new())]
    pub(crate) debug_anywhere: bool,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Status")]
pub(crate) struct StatusArgs {
    /// Writes to the cluster: status, Events and the Lease; `off` turns all of them off, whatever the flags below say.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_STATUS", default_value = "on")]
    pub(crate) status: String,
    /// Reports findings to the owners of objects as Events, which `kubectl describe` shows.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_EVENTS", default_value = "on")]
    pub(crate) events: String,
    /// The Service in front of this edge. The status of each Ingress has its addresses: those of its load balancer and
    /// its externalIPs, or its clusterIP, by its type. Without this flag and the next one no status is written [dev:
    /// the status has 127.0.0.1].
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_PUBLISH_SERVICE")]
    pub(crate) publish_service: Option<String>,
    /// An address for the status of each Ingress, instead of those of a Service; repeatable.
    #[arg(long, value_name = "IP|HOST", env = "TIDEGATE_PUBLISH_STATUS_ADDRESS", value_delimiter = ',')]
    pub(crate) publish_status_address: Vec<String>,
    /// The Lease for the leader election; edges of different classes need different Leases. The default namespace is
    /// that of the pod, or of the kubeconfig's context.
    #[arg(long, value_name = "[NAMESPACE/]NAME", env = "TIDEGATE_LEASE", default_value = "tidegate")]
    pub(crate) lease: String,
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct UnconfirmedRemovalsArgs {
    /// The share of a kind's objects, from 0 to 1, that a complete list may remove before a second list has to confirm
    /// it.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_UNCONFIRMED_REMOVALS_SHARE", default_value = "0.5")]
    pub(crate) unconfirmed_removals_share: String,
    /// The number of objects that a complete list may remove without confirmation, whatever their share, unless it
    /// would remove all of them.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_UNCONFIRMED_REMOVALS_COUNT", default_value = "10")]
    pub(crate) unconfirmed_removals_count: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Pace")]
pub(crate) struct PaceArgs {
    /// The time that the first snapshot waits for Secrets and IngressClasses that cannot be listed, and for a namespace
    /// without read access; it begins when every other kind has been listed. Routing works without them.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_OPTIONAL_KINDS_GRACE", default_value = "15s")]
    pub(crate) optional_kinds_grace: String,
    /// The time that the first snapshot waits for the same kinds while their lists are merely slow; at least
    /// --optional-kinds-grace.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_OPTIONAL_KINDS_SLOW_GRACE", default_value = "2m")]
    pub(crate) optional_kinds_slow_grace: String,
    #[command(flatten)]
    pub(crate) unconfirmed_removals: UnconfirmedRemovalsArgs,
    /// The interval between two relists of a kind, plus up to half of it at random. Relists run beside the watch and
    /// find changes that it missed.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_RELIST_INTERVAL", default_value = "10m")]
    pub(crate) relist_interval: String,
    /// The duration of an audit round, plus up to half of it at random: while no change waits, the audit recompiles
    /// everything that is served, a little at a time, and compares the results.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_AUDIT_ROUND", default_value = "5m")]
    pub(crate) audit_round: String,
    /// The number of live changes compiled between two publications.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_BATCH_MAX", default_value = "512")]
    pub(crate) batch_max: String,
    /// The number of objects from lists compiled between two publications; live changes wait for that long.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_SLOW_BATCH_MAX", default_value = "64")]
    pub(crate) slow_batch_max: String,
    /// The number of batches of live changes after which one batch of objects from lists is compiled.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_FAST_BATCHES_MAX", default_value = "8")]
    pub(crate) fast_batches_max: String,
    /// The age at which objects from lists take turns with live changes.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SLOW_AGE_MAX", default_value = "1s")]
    pub(crate) slow_age_max: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "History")]
pub(crate) struct KeepArgs {
    /// The number of generations kept for `rollback`.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_GENERATIONS", default_value = "300")]
    pub(crate) history_generations: String,
    /// The maximum number of routes that are kept for `rollback` and no longer serve, about a kilobyte each, in
    /// addition to as many as the largest generation has. The last two generations and the most recently held one do
    /// not count.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_ROUTES", default_value = "50000")]
    pub(crate) history_routes: String,
    /// The number of entries in the history of route changes and in that of endpoint changes; at least
    /// --history-generations.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_PUBLICATIONS", default_value = "10000")]
    pub(crate) history_publications: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArgs {
    /// Disconnection of clients that send a request body or read a response more slowly than --min-rate:
    /// `under-pressure`, once half of the open files or of the memory for traffic is in use; `close`, always; `keep`,
    /// never. Upgraded connections and gRPC streams are exempt.
    #[arg(
        long,
        value_name = "under-pressure|close|keep",
        env = "TIDEGATE_SLOW_CLIENTS",
        default_value = "under-pressure"
    )]
    pub(crate) slow_clients: String,
    /// The minimum rate in bytes a second in either direction, averaged over the time spent waiting for the client;
    /// time spent waiting for an endpoint does not count.
    #[arg(long, value_name = "BYTES", env = "TIDEGATE_MIN_RATE", default_value = "500")]
    pub(crate) min_rate: String,
    /// The total time spent waiting for a client before its rate is judged.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_MIN_RATE_GRACE", default_value = "60s")]
    pub(crate) min_rate_grace: String,
    /// The time between two requests of a connection over HTTP/1.1 after which it is closed.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_IDLE_TIMEOUT", default_value = "75s")]
    pub(crate) idle_timeout: String,
    /// The time without a request after which a connection of a trusted proxy is closed, over HTTP/1.1 and HTTP/2, if
    /// it is longer than that of other clients. It should be longer than the proxy keeps idle connections.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_PROXY_IDLE_TIMEOUT", default_value = "920s")]
    pub(crate) proxy_idle_timeout: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Endpoints")]
pub(crate) struct EndpointArgs {
    /// The timeout for the answer of an external authorisation service. Without an answer the request is refused.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_EXTERNAL_AUTH_TIMEOUT", default_value = "5s")]
    pub(crate) external_auth_timeout: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Shutdown")]
pub(crate) struct DrainArgs {
    /// The time after SIGTERM during which the process is not ready but still accepts connections, so that load
    /// balancers stop sending traffic; it asks clients to close their connections meanwhile [default: 5s; dev: 0s].
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SHUTDOWN_DELAY")]
    pub(crate) shutdown_delay: Option<String>,
    /// The time after --shutdown-delay for requests in flight to finish.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_GRACE", default_value = "30s")]
    pub(crate) grace: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Process")]
pub(crate) struct ProcessArgs {
    /// The number of threads that carry traffic [default: one per CPU].
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_THREADS")]
    pub(crate) threads: Option<String>,
    /// The name of this edge in the CDN-Loop header. A request that has passed it three times is refused. Chained edges
    /// may have different names.
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_LOOP_TOKEN", default_value = "tidegate")]
    pub(crate) loop_token: String,
    /// The driver of requests: with `both`, the native driver carries unambiguous requests to HTTP/1.1 endpoints and
    /// the Pingora driver the rest; with `pingora`, the Pingora driver carries all requests, for use when the native
    /// driver is suspected of a fault.
    #[arg(long, value_name = "both|pingora", env = "TIDEGATE_DRIVER", default_value = "both")]
    pub(crate) driver: String,
    /// Adds `Server: tidegate` to responses without a Server header and to local replies.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_SERVER_HEADER", default_value = "on")]
    pub(crate) server_header: String,
    /// Whether responses tell clients the tightest rate limit of the request: with `draft`, in the fields `RateLimit`
    /// and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    #[arg(long, value_name = "off|draft", env = "TIDEGATE_LIMIT_HEADERS", default_value = "off")]
    pub(crate) limit_headers: String,
    /// The destination of the access log: `stdout`, `off`, or a file to append to [default: stdout; dev: off].
    #[arg(long, value_name = "stdout|off|PATH", env = "TIDEGATE_ACCESS_LOG")]
    pub(crate) access_log: Option<String>,
    /// The format of a line of the access log: `json`, `combined` as in nginx, `deis` as in the Deis router, or text
    /// with nginx variables such as `$status` (docs/operations.md lists them).
    #[arg(long, value_name = "FORM", env = "TIDEGATE_ACCESS_LOG_FORMAT", default_value = "json")]
    pub(crate) access_log_format: String,
    /// The level of the log on stderr: `error`, `warn`, `info`, `debug`, or directives such as
    /// `warn,tidegate_control=debug` [default: info; dev: warn].
    #[arg(long, value_name = "LEVEL", env = "TIDEGATE_LOG_LEVEL")]
    pub(crate) log_level: Option<String>,
    /// The format of the log on stderr: `text` or `json` [default: json; dev: text].
    #[arg(long, value_name = "FORM", env = "TIDEGATE_LOG_FORM")]
    pub(crate) log_form: Option<String>,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// The maximum number of concurrent connections from one client address, or IPv6 /64 network; 0 for no limit.
    /// Trusted proxies are exempt.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_CLIENT_CONNECTIONS_MAX", default_value = "0")]
    pub(crate) client_connections_max: String,
    /// The maximum number of concurrent requests from one client address to endpoints; 0 for no limit.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_CLIENT_REQUESTS_MAX", default_value = "0")]
    pub(crate) client_requests_max: String,
    /// The share of all connections, requests and memory, in percent, that one client address may hold once half of
    /// them are in use; 100 for no limit.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_CLIENT_SHARE_MAX", default_value = "25")]
    pub(crate) client_share_max: String,
    /// The maximum number of concurrent requests to the endpoints of one Service port, unless the Service has an
    /// annotation `tidegate.io/requests-max`; 0 for no limit.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_SERVICE_REQUESTS_MAX", default_value = "1024")]
    pub(crate) service_requests_max: String,
    /// The maximum number of counters of one rate limit and window: one for each tuple of values that it counts by.
    /// Beyond that, counters that are not exhausted are removed for new ones, and if all are exhausted, new values are
    /// counted together.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_LIMIT_COUNTERS_MAX", default_value = "65536")]
    pub(crate) limit_counters_max: String,
    /// The maximum number of counters of all rate limits together, each of about 100 bytes. Half of them are kept for
    /// limits that have less than an equal share.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_COUNTERS_MAX", default_value = "524288")]
    pub(crate) counters_max: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster; without it, the service account of the pod.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", env = "TIDEGATE_CONTEXT", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
    /// A namespace to serve; repeatable [default: all].
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,
    /// How Secrets are read: `all` lists and watches them; `referenced` gets by name the Secrets that served objects
    /// refer to, so that a role needs to allow only `get`.
    #[arg(long, value_name = "all|referenced", env = "TIDEGATE_WATCH_SECRETS", default_value = "all")]
    pub(crate) watch_secrets: String,
    /// With `--watch-secrets referenced`, the interval at which a Secret is read again, plus up to half of it at
    /// random.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SECRETS_POLL_INTERVAL", default_value = "5m")]
    pub(crate) secrets_poll_interval: String,
    /// Allows objects to name loopback addresses, which lead to this process's own host.
    #[arg(long, env = "TIDEGATE_ALLOW_LOOPBACK_ENDPOINTS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_loopback_endpoints: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct EchoArgs {
    /// The pod name to answer with.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_POD")]
    pub(crate) pod: String,
}

#[cfg(test)]
#[path = "flags_page.rs"]
mod flags_page;
