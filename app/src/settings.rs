//! Flags and environment as typed settings, parsed once. Every error names the flag, the value and the reason.

mod address;
mod budget;
mod cache;
mod cached;
mod clients;
mod gateway;
mod limits_store;
mod lite;
mod pace;
mod policies;
mod process;
mod routing;
mod serve;
mod status;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::options::{GatewayServices, Options, Publish, Secrets};
use tidegate_control::{CacheOptions, CachedKind, Limits, served_kinds};
use tidegate_proxy::{BudgetLimits, CounterLimits, LimitStore, RateLimits};

pub(crate) use address::{DebugAddress, ListenAddress, Sockets, debug_address};
pub(crate) use clients::IdleTimeouts;
pub(crate) use lite::Lite;
pub(crate) use process::{LogForm, Process};
pub(crate) use serve::{Serve, ServeAddress, Server, TlsFiles, is_private};
pub(crate) use status::LeaseName;
use status::Written;

use crate::args::{ClusterArgs, DevArgs, DrainArgs, EdgeArgs, RunArgs};

/// The minimum interval between two reads of a Secret.
const SECRETS_POLL_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The command; some defaults differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// A cluster, with untrusted clients and a load balancer in front.
    Run,
    /// A developer's machine.
    Dev,
}

/// A flag with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InvalidValue {
    flag: &'static str,
    value: String,
    why: String,
}

impl InvalidValue {
    pub(crate) fn new(flag: &'static str, value: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { flag, value: value.into(), why: why.to_string() }
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.flag, self.value, self.why)
    }
}

impl std::error::Error for InvalidValue {}

/// The settings that `run` and `dev` share.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) sockets: Sockets,
    /// The minimum rates of clients.
    pub(crate) rates: RateLimits,
    /// The idle timeout between two requests of a connection, and that of a trusted proxy's.
    pub(crate) idle: IdleTimeouts,
    /// The timeout of authorisation services.
    pub(crate) external_auth: Duration,
    pub(crate) drain: Drain,
    pub(crate) process: Process,
    /// The limits of the traffic budget; the resources of the machine are added later.
    pub(crate) budget: BudgetLimits,
    /// The room for counters of rate limits.
    pub(crate) counters: CounterLimits,
    /// The store in which replicas share the counts of rate limits, if there is one.
    pub(crate) limit_store: Option<LimitStore>,
    /// The Lease of the writers to the cluster; `None` if nothing is to be written.
    pub(crate) lease: Option<LeaseName>,
    /// The options of the control loop; its binds are set when the sockets are.
    pub(crate) control: Options,
    /// The limits of its lists and watches.
    pub(crate) limits: Limits,
    /// The storage of the cluster's state over restarts, if it is kept.
    pub(crate) cache: Option<CacheOptions>,
    /// The served API, if there is one.
    pub(crate) serve: Option<Serve>,
    /// Kinds that are cached and served in addition.
    pub(crate) cached: Vec<CachedKind>,
}

/// The timing of shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Drain {
    /// The time during which connections are still accepted.
    pub(crate) delay: Duration,
    /// The time after that for requests in flight.
    pub(crate) grace: Duration,
}

/// The settings of `run`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) edge: Edge,
    pub(crate) cluster: Cluster,
}

/// The cluster to read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cluster {
    /// A kubeconfig, and its context where it is not the current one; `None` for the pod's service account.
    pub(crate) kubeconfig: Option<(PathBuf, Option<String>)>,
    /// A server in place of either.
    pub(crate) server: Option<Server>,
    /// The namespaces; empty for all.
    pub(crate) namespaces: Vec<Arc<str>>,
}

/// The settings of `dev`.
#[derive(Clone, Debug)]
pub(crate) struct Dev {
    pub(crate) edge: Edge,
    pub(crate) folder: PathBuf,
    /// The address of the API server.
    pub(crate) api: std::net::SocketAddr,
    /// `true` if the definitions of the Gateway API and of Kuadrant's policies are created.
    pub(crate) gateway_api: bool,
    /// The folder of the API server's objects, if they are kept.
    pub(crate) data_dir: Option<PathBuf>,
    /// `true` if pod templates may name commands to run.
    pub(crate) run_commands: bool,
}

impl TryFrom<&RunArgs> for Run {
    type Error = InvalidValue;

    fn try_from(args: &RunArgs) -> Result<Self, InvalidValue> {
        let mut edge = Edge::read(&args.edge, Mode::Run)?;
        edge.control.addresses.allow_loopback = args.cluster.allow_loopback_endpoints;
        edge.control.secrets = secrets(&args.cluster)?;
        edge.cache = cache::read(&args.cache)?;
        let mut cluster = Cluster::try_from(&args.cluster)?;
        cluster.server = serve::server(&args.server)?;
        if cluster.server.is_some() {
            // The process that feeds this one does the writing.
            edge.lease = None;
        }
        edge.serve = serve::read(&args.serve, &cluster, &edge.control.secrets)?;
        edge.cached = cached::read(&args.cached)?;
        cached::beside(&edge.cached, served_kinds(&edge.control))?;
        if let (Some(kind), None) = (edge.cached.first(), &edge.serve) {
            return Err(InvalidValue::new(
                "--cache-kinds",
                kind.to_string(),
                "needs --serve-api, because no other part of the process reads it",
            ));
        }
        Ok(Self { edge, cluster })
    }
}

impl TryFrom<&DevArgs> for Dev {
    type Error = InvalidValue;

    fn try_from(args: &DevArgs) -> Result<Self, InvalidValue> {
        if !args.folder.is_dir() {
            return Err(InvalidValue::new("DIR", args.folder.display().to_string(), "is not a folder"));
        }
        let mut edge = Edge::read(&args.edge, Mode::Dev)?;
        // The echo processes have no other addresses.
        edge.control.addresses.allow_loopback = true;
        let api = args.api.parse().map_err(|why| InvalidValue::new("--api", &args.api, why))?;
        let (folder, data_dir) = (args.folder.clone(), args.data_dir.clone());
        Ok(Self {
            edge,
            folder,
            api,
            gateway_api: !args.without_gateway_api,
            data_dir,
            run_commands: args.run_commands,
        })
    }
}

impl Edge {
    fn read(args: &EdgeArgs, mode: Mode) -> Result<Self, InvalidValue> {
        let sockets = Sockets::read(&args.sockets, mode)?;
        // A Deis router trusts some networks by default.
        let trusts = !args.routing.trusted_proxies.is_empty() || args.routing.source.iter().any(|it| it == "deis");
        if sockets.proxy_protocol && !trusts {
            return Err(InvalidValue::new(
                "--proxy-protocol",
                "true",
                "needs --trusted-proxies: without it no header is trusted",
            ));
        }
        let Written { publish, events, lease } = status::read(&args.status, mode)?;
        let routing = routing::read(&args.routing, &sockets, &publish, mode)?;
        // The status of Gateways, of their routes and of policies is written in any case.
        let has_conditions = routing.sources.gateway.is_some() || routing.sources.kuadrant.is_some();
        let lease = lease.filter(|_| events || publish != Publish::Nothing || has_conditions);
        if lease.is_none()
            && let Some(gateway) = &routing.sources.gateway
            && gateway.services != GatewayServices::Off
        {
            return Err(InvalidValue::new(
                "--status",
                "off",
                "prevents the creation of Services for Gateways (--gateway-services)",
            ));
        }
        Ok(Self {
            sockets,
            rates: clients::read(&args.clients)?,
            idle: clients::read_idle(&args.clients)?,
            external_auth: time("--external-auth-timeout", &args.endpoints.external_auth_timeout)?,
            drain: Drain::read(&args.drain, mode)?,
            process: Process::read(&args.process, mode)?,
            budget: budget::read(&args.limits)?,
            counters: budget::counters(&args.limits)?,
            limit_store: limits_store::read(&args.limits_store)?,
            lease,
            control: Options {
                publish,
                events,
                pace: pace::read(&args.pace)?,
                keep: pace::read_keep(&args.keep)?,
                policy_authorities: policies::authorities(&args.policies)?,
                policy_url_hosts: policies::url_hosts(&args.policies)?,
                ..routing
            },
            limits: Limits {
                relist_interval: time("--relist-interval", &args.pace.relist_interval)?,
                ..Limits::default()
            },
            cache: None,
            serve: None,
            cached: Vec::new(),
        })
    }
}

impl Drain {
    fn read(args: &DrainArgs, mode: Mode) -> Result<Self, InvalidValue> {
        let usual = match mode {
            Mode::Run => Duration::from_secs(5),
            Mode::Dev => Duration::ZERO,
        };
        let delay = args.shutdown_delay.as_deref().map(|text| time("--shutdown-delay", text)).transpose()?;
        Ok(Self { delay: delay.unwrap_or(usual), grace: time("--grace", &args.grace)? })
    }
}

impl TryFrom<&ClusterArgs> for Cluster {
    type Error = InvalidValue;

    fn try_from(args: &ClusterArgs) -> Result<Self, InvalidValue> {
        let mut namespaces = Vec::new();
        for name in &args.namespace {
            label("--namespace", name)?;
            namespaces.push(Arc::from(&**name));
        }
        namespaces.sort();
        namespaces.dedup();
        let kubeconfig = args.kubeconfig.clone().map(|path| (path, args.context.clone()));
        Ok(Self { kubeconfig, server: None, namespaces })
    }
}

fn secrets(args: &ClusterArgs) -> Result<Secrets, InvalidValue> {
    let refresh = time("--secrets-poll-interval", &args.secrets_poll_interval)?;
    match &*args.watch_secrets {
        "all" => Ok(Secrets::Watched),
        "referenced" if refresh < SECRETS_POLL_INTERVAL_MIN => {
            Err(InvalidValue::new("--secrets-poll-interval", &args.secrets_poll_interval, "is less than a second"))
        }
        "referenced" => Ok(Secrets::Referenced { refresh }),
        other => Err(InvalidValue::new("--watch-secrets", other, "is neither all nor referenced")),
    }
}

/// Parses a time, such as `250ms` or `1m 30s`, of at most a day.
fn time(flag: &'static str, text: &str) -> Result<Duration, InvalidValue> {
    const MAX: Duration = Duration::from_secs(24 * 3600);
    let time = humantime::parse_duration(text).map_err(|why| InvalidValue::new(flag, text, why))?;
    if time > MAX {
        return Err(InvalidValue::new(flag, text, "is more than a day"));
    }
    Ok(time)
}

/// Checks a DNS label (RFC 1123), the form of namespace names.
fn label(flag: &'static str, text: &str) -> Result<(), InvalidValue> {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if text.is_empty() || text.len() > 63 || !plain || text.starts_with('-') || text.ends_with('-') {
        return Err(InvalidValue::new(
            flag,
            text,
            "is not the name of a namespace (lowercase letters, digits and inner hyphens)",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
