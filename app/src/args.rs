//! The command line as text: which flags there are, what they are called in the environment, and their help. What
//! the text means is decided in [`crate::settings`].

mod ask;
mod cache;
mod lite;
mod routing;
mod serve;

use std::path::PathBuf;

pub(crate) use ask::{AskArgs, ExplainArgs, HistoryArgs, RollbackArgs, TopologyArgs};
pub(crate) use cache::CacheArgs;
use clap::builder::BoolishValueParser;
use clap::{Parser, Subcommand};
pub(crate) use lite::LiteArgs;
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
    /// Serves the Ingresses of a cluster.
    Run(Box<RunArgs>),
    /// Serves a cache of a cluster to be read and watched, and routes nothing.
    Lite(Box<LiteArgs>),
    /// Serves a folder of manifests without a cluster: an embedded API server, and an echo process for every replica.
    Dev(Box<DevArgs>),
    /// Asks a running process what it would do with a URL, and why.
    Explain(ExplainArgs),
    /// Shows what a running process has attached to what: class, Gateway, listener, route, rule, backend.
    Topology(TopologyArgs),
    /// Lists what a running process has published of late, and which objects caused it.
    History(HistoryArgs),
    /// Keeps the routes and certificates that serve now, whatever becomes of the cluster's; endpoints still follow.
    Freeze(AskArgs),
    /// Serves the routes and certificates of the cluster again.
    Thaw(AskArgs),
    /// Serves the routes and certificates of an earlier generation, with the endpoints of today, until it is thawed.
    Rollback(RollbackArgs),
    /// Answers requests with what they asked: what `dev` starts for every replica.
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
    /// The folder of manifests (.yaml, .yml, .json); its changes are followed.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Where the embedded API server listens; port 0 is any free port.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_API", default_value = "127.0.0.1:0")]
    pub(crate) api: String,
    /// The embedded API server begins without the definitions of Gateway API.
    #[arg(long, env = "TIDEGATE_WITHOUT_GATEWAY_API", value_parser = BoolishValueParser::new())]
    pub(crate) without_gateway_api: bool,
    /// The embedded API server keeps its objects in this folder, and has them again the next time. Only its user can read it; Secrets
    /// in it are not encrypted.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Pods of Deployments whose template has the annotation `tidegate.io/command` run that command on this machine, as the user who
    /// runs `dev`: whoever can write the manifests, or has the kubeconfig, can run programs.
    #[arg(long, env = "TIDEGATE_RUN_COMMANDS", value_parser = BoolishValueParser::new())]
    pub(crate) run_commands: bool,
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
}

/// What `run` and `dev` have in common.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct EdgeArgs {
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) routing: RoutingArgs,
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
    pub(crate) process: ProcessArgs,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Sockets")]
pub(crate) struct SocketArgs {
    /// Where plain HTTP is served; several times for several sockets, `off` for none; port 0 is any free port
    /// [default: 0.0.0.0:8080; dev: 127.0.0.1:8080, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", value_delimiter = ',')]
    pub(crate) http: Vec<String>,
    /// Where HTTPS is served, as above [default: 0.0.0.0:8443; dev: 127.0.0.1:8443, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTPS", value_delimiter = ',')]
    pub(crate) https: Vec<String>,
    /// With --source deis, where connections for the platform's builder are taken, or `off`; nobody listens there while there is
    /// no builder [default: 0.0.0.0:2222; dev: 127.0.0.1:2222, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_DEIS_BUILDER_ADDRESS")]
    pub(crate) deis_builder_address: Option<String>,
    /// Every connection of the above begins with a header of the PROXY protocol (version 1 or 2), as a load balancer sends it that
    /// passes TCP on. It says who the client is where it comes from --trusted-proxies, is ignored from others, and a connection
    /// without it is closed.
    #[arg(long, env = "TIDEGATE_PROXY_PROTOCOL", value_parser = BoolishValueParser::new())]
    pub(crate) proxy_protocol: bool,
    /// Where health and metrics are served, or `off` [default: 0.0.0.0:9180; dev: 127.0.0.1:9180, or any free port].
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN")]
    pub(crate) admin: Option<String>,
    /// Where dumps are served: a loopback address, `unix:PATH` (readable by its owner alone), or `off`
    /// [default: 127.0.0.1:9181; dev: that, or any free port].
    #[arg(long, value_name = "ADDR|unix:PATH", env = "TIDEGATE_DEBUG")]
    pub(crate) debug: Option<String>,
    /// Lets --debug be an address that others can reach. Whoever reaches it sees every route.
    #[arg(long, env = "TIDEGATE_DEBUG_ANYWHERE", value_parser = BoolishValueParser::new())]
    pub(crate) debug_anywhere: bool,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Status")]
pub(crate) struct StatusArgs {
    /// Whether anything is written to the cluster: `off` for nothing at all, whatever the flags below say.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_STATUS", default_value = "on")]
    pub(crate) status: String,
    /// Whether what owners of objects should know is told to them by Events, which `kubectl describe` shows.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_EVENTS", default_value = "on")]
    pub(crate) events: String,
    /// The Service before this edge, whose addresses the status of each Ingress shall tell: those of its load balancer and
    /// its externalIPs, or its clusterIP, by its type. Without this flag and the next one no status is written [dev: it says
    /// 127.0.0.1].
    #[arg(long, value_name = "NAMESPACE/NAME", env = "TIDEGATE_PUBLISH_SERVICE")]
    pub(crate) publish_service: Option<String>,
    /// Addresses for the status of each Ingress instead; several times for several.
    #[arg(long, value_name = "IP|HOST", env = "TIDEGATE_PUBLISH_STATUS_ADDRESS", value_delimiter = ',')]
    pub(crate) publish_status_address: Vec<String>,
    /// The Lease by which replicas agree on who writes; edges of different classes need different ones. Without a
    /// namespace it is in that of the pod, or of the kubeconfig's context.
    #[arg(long, value_name = "[NAMESPACE/]NAME", env = "TIDEGATE_LEASE", default_value = "tidegate")]
    pub(crate) lease: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Pace")]
pub(crate) struct PaceArgs {
    /// How long the first snapshot waits for Secrets and IngressClasses, which routing can do without, when they cannot be
    /// listed, and for a namespace that may not be read; from when all else has been listed.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_OPTIONAL_KINDS_GRACE", default_value = "15s")]
    pub(crate) optional_kinds_grace: String,
    /// How long it waits for them when their lists are merely slow; no less than the above.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_OPTIONAL_KINDS_SLOW_GRACE", default_value = "2m")]
    pub(crate) optional_kinds_slow_grace: String,
    /// The share of a kind, from 0 to 1, that a complete list may remove before a second one has to confirm it.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_SWEEP_SHARE_MAX", default_value = "0.5")]
    pub(crate) sweep_share_max: String,
    /// How many objects a complete list may remove unconfirmed, whatever their share, as long as it leaves any.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_SWEEP_FREE", default_value = "10")]
    pub(crate) sweep_free: String,
    /// How long after a list of a kind, and up to half as long again, another one is made beside its watch: what no watch
    /// told of is found by it.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_LIST_AGAIN", default_value = "10m")]
    pub(crate) list_again: String,
    /// How long a round of the audit takes, and up to half as long again: while nothing waits, all that is served is compiled
    /// once more and compared, a little at a time.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_AUDIT_ROUND", default_value = "5m")]
    pub(crate) audit_round: String,
    /// Live changes compiled between two publications.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_BATCH_MAX", default_value = "512")]
    pub(crate) batch_max: String,
    /// Of what lists brought, objects compiled between two publications: live changes wait for that long.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_SLOW_BATCH_MAX", default_value = "64")]
    pub(crate) slow_batch_max: String,
    /// Batches of live changes after which one of what lists brought is taken.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_FAST_BATCHES_MAX", default_value = "8")]
    pub(crate) fast_batches_max: String,
    /// Age at which what lists brought takes turns with live changes.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SLOW_AGE_MAX", default_value = "1s")]
    pub(crate) slow_age_max: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "History")]
pub(crate) struct KeepArgs {
    /// Generations whose routes can be taken back.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_GENERATIONS", default_value = "300")]
    pub(crate) history_generations: String,
    /// Routes that they may hold and that do not serve any more, at about a kilobyte each, besides as many as the largest of
    /// them has. The last two and the one that was held last do not count.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_ROUTES", default_value = "50000")]
    pub(crate) history_routes: String,
    /// Entries of the history: so many changes of routes, no fewer than generations, and as many of endpoints.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_HISTORY_PUBLICATIONS", default_value = "10000")]
    pub(crate) history_publications: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArgs {
    /// When clients are disconnected that send a request body or take a response more slowly than --min-rate: `under-pressure`,
    /// once half of the files or of the memory for traffic is in use; `close`, always; `keep`, never. Upgraded connections and
    /// gRPC streams are left alone.
    #[arg(
        long,
        value_name = "under-pressure|close|keep",
        env = "TIDEGATE_SLOW_CLIENTS",
        default_value = "under-pressure"
    )]
    pub(crate) slow_clients: String,
    /// Bytes a second in either direction, averaged over the time in which a client is waited for: an endpoint that is slow costs
    /// its clients nothing.
    #[arg(long, value_name = "BYTES", env = "TIDEGATE_MIN_RATE", default_value = "500")]
    pub(crate) min_rate: String,
    /// How long a client must have been waited for, in all, before its rate is judged.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_MIN_RATE_GRACE", default_value = "60s")]
    pub(crate) min_rate_grace: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Endpoints")]
pub(crate) struct EndpointArgs {
    /// How long an authorisation service is waited for that is asked about a request. Without its answer the request is refused.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_EXTERNAL_AUTH_TIMEOUT", default_value = "5s")]
    pub(crate) external_auth_timeout: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Ending")]
pub(crate) struct DrainArgs {
    /// After SIGTERM: how long connections are still accepted, unready, so that load balancers can look away,
    /// and clients are told to close theirs [default: 5s; dev: 0s].
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SHUTDOWN_DELAY")]
    pub(crate) shutdown_delay: Option<String>,
    /// Then: how long what is in flight may take.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_GRACE", default_value = "30s")]
    pub(crate) grace: String,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Process")]
pub(crate) struct ProcessArgs {
    /// Threads that carry traffic [default: one a CPU].
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_THREADS")]
    pub(crate) threads: Option<String>,
    /// The name under which passes through this edge are counted in CDN-Loop; a request that has passed it three times
    /// is refused. Edges behind one another may have different ones.
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_LOOP_TOKEN", default_value = "tidegate")]
    pub(crate) loop_token: String,
    /// Who carries requests: `both`, the native driver what is plain and the full one the rest, or `full`, that one alone, should
    /// the native one be under suspicion.
    #[arg(long, value_name = "both|full", env = "TIDEGATE_DRIVER", default_value = "both")]
    pub(crate) driver: String,
    /// Whether responses that name no server, and answers of the edge's own, have `Server: tidegate`.
    #[arg(long, value_name = "on|off", env = "TIDEGATE_SERVER_HEADER", default_value = "on")]
    pub(crate) server_header: String,
    /// Where the access log goes: `stdout`, `off`, or a file that is appended to [default: stdout; dev: off].
    #[arg(long, value_name = "stdout|off|PATH", env = "TIDEGATE_ACCESS_LOG")]
    pub(crate) access_log: Option<String>,
    /// The form of a line of the access log: `json`, `combined` as nginx has it, `deis` as the Deis router had it, or text with
    /// variables of nginx such as `$status` (docs/operations.md lists them).
    #[arg(long, value_name = "FORM", env = "TIDEGATE_ACCESS_LOG_FORMAT", default_value = "json")]
    pub(crate) access_log_format: String,
    /// What is logged to stderr: `error`, `warn`, `info`, `debug`, or directives such as `warn,tidegate_control=debug`
    /// [default: info; dev: warn].
    #[arg(long, value_name = "LEVEL", env = "TIDEGATE_LOG_LEVEL")]
    pub(crate) log_level: Option<String>,
    /// How it is logged: `text` or `json` [default: json; dev: text].
    #[arg(long, value_name = "FORM", env = "TIDEGATE_LOG_FORM")]
    pub(crate) log_form: Option<String>,
}

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Connections of one client address, or IPv6 network of 64 bits, at a time; 0 for any number. Trusted proxies are not
    /// counted.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_CLIENT_CONNECTIONS_MAX", default_value = "0")]
    pub(crate) client_connections_max: String,
    /// Requests of one client address that may be at endpoints at a time; 0 for any number.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_CLIENT_REQUESTS_MAX", default_value = "0")]
    pub(crate) client_requests_max: String,
    /// The share of all connections, requests and memory, in percent, that one client address may hold once half of them are
    /// taken; 100 for all.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_CLIENT_SHARE_MAX", default_value = "25")]
    pub(crate) client_share_max: String,
    /// Requests that may be at the endpoints of one Service port at a time, where the Service has no annotation
    /// `tidegate.io/requests-max`; 0 for any number.
    #[arg(long, value_name = "COUNT", env = "TIDEGATE_SERVICE_REQUESTS_MAX", default_value = "1024")]
    pub(crate) service_requests_max: String,
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
    /// A namespace to serve; several times for several [default: all].
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,
    /// How Secrets are read: `all` lists and watches them; `referenced` asks by name for those that Ingresses refer to, so that
    /// a role need allow no more than to get them.
    #[arg(long, value_name = "all|referenced", env = "TIDEGATE_WATCH_SECRETS", default_value = "all")]
    pub(crate) watch_secrets: String,
    /// With `--watch-secrets referenced`: how long after an answer, and up to half as long again, a Secret is asked for again.
    #[arg(long, value_name = "TIME", env = "TIDEGATE_SECRETS_AGAIN", default_value = "5m")]
    pub(crate) secrets_again: String,
    /// Lets objects name loopback addresses, which lead into this process's own host.
    #[arg(long, env = "TIDEGATE_ALLOW_LOOPBACK_ENDPOINTS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_loopback_endpoints: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct EchoArgs {
    /// The name to answer with.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_POD")]
    pub(crate) pod: String,
}

#[cfg(test)]
#[path = "flags_page.rs"]
mod flags_page;
