//! The settings of `tidegate lite`.

use std::net::Ipv4Addr;

use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{CacheOptions, CachedKind, Limits};

use super::address::one;
use super::pace::read_unconfirmed_removals;
use super::process::{log_form, log_level};
use super::{Cluster, InvalidValue, ListenAddress, LogForm, Serve, cache, cached, serve, time};
use crate::args::LiteArgs;

/// The default address of the served API.
const SERVE_API: &str = "127.0.0.1:8001";

/// The settings of `lite`.
#[derive(Clone, Debug)]
pub(crate) struct Lite {
    pub(crate) cluster: Cluster,
    pub(crate) kinds: Vec<CachedKind>,
    pub(crate) removals: UnconfirmedRemovals,
    pub(crate) limits: Limits,
    pub(crate) cache: Option<CacheOptions>,
    pub(crate) serve: Serve,
    pub(crate) admin: Option<ListenAddress>,
    pub(crate) log_level: String,
    pub(crate) log_form: LogForm,
}

impl TryFrom<&LiteArgs> for Lite {
    type Error = InvalidValue;

    fn try_from(args: &LiteArgs) -> Result<Self, InvalidValue> {
        let of = &args.cluster;
        let kubeconfig = of.kubeconfig.clone().map(|path| (path, of.context.clone()));
        let cluster = Cluster { kubeconfig, server: serve::server(&args.server)?, namespaces: Vec::new() };
        let serve = serve::read_at(&args.serve, args.serve.serve_api.as_deref().unwrap_or(SERVE_API))?;
        let removals = read_unconfirmed_removals(&of.unconfirmed_removals)?;
        let process = &args.process;
        Ok(Self {
            cluster,
            kinds: cached::of_lite(cached::read(&args.cached)?, serve.secrets)?,
            removals,
            limits: Limits { relist_interval: time("--relist-interval", &of.relist_interval)?, ..Limits::default() },
            cache: cache::read(&args.cache)?,
            serve,
            admin: one(
                "--admin",
                Some(&process.admin),
                ListenAddress { address: (Ipv4Addr::UNSPECIFIED, 9180).into(), flexible: false },
            )?,
            log_level: log_level(&process.log_level)?,
            log_form: log_form(&process.log_form)?,
        })
    }
}
