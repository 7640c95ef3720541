//! The choice of proxies: selected by flags, skipped if they are not installed, and started.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::Serialize;

use super::{Change, Peer, Proxy, Route, Setting, deis, envoy, haproxy, nginx, rolled, tidegate};
use crate::cores::Share;
use crate::limits::Limits;
use crate::nginx::How;
use crate::place::version;
use crate::upstream::Upstream;

/// A proxy that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// nginx, with a server block per host, rewritten and reloaded.
    Nginx,
    /// HAProxy, with its routes in a map, changed over its runtime socket.
    Haproxy,
    /// Envoy, by its file-based discovery.
    Envoy,
    /// `tidegate dev`, changed by writes to its API server.
    Tidegate,
}

/// The work of a proxy on every request in addition to forwarding it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// The same as Tidegate: `X-Forwarded-*`, `X-Real-IP` and `X-Request-Id`, a JSON line in an access log, and
    /// metrics.
    Same,
    /// Nothing of that, as far as it can be switched off.
    Bare,
}

/// The kind of objects that define Tidegate's routes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// An Ingress per host.
    Ingress,
    /// An HTTPRoute per host, all of them attached to one Gateway.
    Gateway,
}

impl Source {
    /// The kind of a route.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Gateway => "HTTPRoute",
        }
    }
}

impl Work {
    pub(super) const fn is_same(self) -> bool {
        matches!(self, Self::Same)
    }
}

/// The measured proxies, and their parameters.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct Args {
    /// The proxies to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,haproxy,envoy,tidegate")]
    peers: Vec<Kind>,
    /// The work on every request; comma-separated, one row each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same")]
    work: Vec<Work>,
    /// The number of threads (nginx: worker processes) that carry traffic.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The tidegate binary [default: built by cargo, in release].
    #[arg(long, value_name = "PATH")]
    tidegate: Option<PathBuf>,
    /// Runs Tidegate as `tidegate run`, against the API server of a `tidegate dev` that is not measured.
    #[arg(long)]
    pub(crate) apart: bool,
    /// The kind of objects that define Tidegate's routes.
    #[arg(long, value_enum, default_value = "ingress")]
    source: Source,
    /// The limits of each request: in Tidegate by a policy of its Gateway, for which routes are HTTPRoutes, and in
    /// Envoy by a filter each. Their number, with `-native` or `-interpreted` behind it for a condition and a counter
    /// each, in Tidegate alone; comma-separated, one row each.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    limits: Vec<Limits>,
    /// `true` if it keeps a cluster cache on disk.
    #[arg(skip)]
    pub(crate) cached: bool,
    /// Listeners of the Gateway, the two for HTTP and HTTPS among them.
    #[arg(skip = 2u16)]
    listeners: u16,
    /// The envoy binary [default: the one of bench/setup, or that of the machine].
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// The cargo that runs this program.
    #[arg(long, hide = true, env = "CARGO", default_value = "cargo")]
    cargo: PathBuf,
}

impl Args {
    /// The number of threads that carry traffic.
    #[must_use]
    pub(crate) const fn workers(&self) -> usize {
        self.workers
    }

    /// The kind of objects that define Tidegate's routes.
    #[must_use]
    pub(crate) fn source(&self) -> Source {
        if self.limits.iter().all(|limits| limits.is_none()) { self.source } else { Source::Gateway }
    }

    /// The limits to measure with.
    pub(crate) fn limits(&self) -> &[Limits] {
        &self.limits
    }

    /// Leaves out every other proxy.
    pub(crate) fn only_tidegate(&mut self) {
        self.peers = vec![Kind::Tidegate];
    }

    /// Has Tidegate's routes be HTTPRoutes.
    pub(crate) const fn only_gateway(&mut self) {
        self.source = Source::Gateway;
    }

    /// The same with this number of listeners of the Gateway.
    #[must_use]
    pub(crate) fn with_listeners(&self, listeners: u16) -> Self {
        Self { listeners, ..self.clone() }
    }

    /// The same with another number of them.
    #[must_use]
    pub(crate) fn with_workers(&self, workers: usize) -> Self {
        Self { workers, ..self.clone() }
    }
}

/// The proxies that can be measured here, and the skipped ones with the reason.
///
/// # Errors
/// When Tidegate cannot be built.
pub(crate) fn choose(args: &Args) -> anyhow::Result<(Vec<Choice>, Vec<String>)> {
    let (mut choices, mut left_out) = (Vec::new(), Vec::new());
    for kind in &args.peers {
        let (program, flag) = match kind {
            Kind::Nginx => ("nginx".into(), "-v"),
            Kind::Haproxy => ("haproxy".into(), "-v"),
            Kind::Envoy => (args.envoy.clone().unwrap_or_else(envoy::program), "--version"),
            Kind::Tidegate => (args.tidegate.clone().map_or_else(|| tidegate::build(&args.cargo), Ok)?, "--version"),
        };
        let Some(version) = version(&program.display().to_string(), flag) else {
            left_out.push(format!("{}: it is not installed (bench/setup installs it)", kind.name()));
            continue;
        };
        // Envoy's version begins with the path that it was called by.
        let version = version
            .split_once("version: ")
            .filter(|_| *kind == Kind::Envoy)
            .map_or_else(|| version.clone(), |(_, version)| format!("envoy {version}"));
        for work in &args.work {
            let limits = args.limits.iter().filter(|limits| kind.has(**limits));
            choices.extend(limits.map(|limits| Choice {
                kind: *kind,
                work: *work,
                limits: *limits,
                version: version.clone(),
                program: program.clone(),
            }));
        }
    }
    Ok((choices, left_out))
}

impl Kind {
    /// Whether it is measured with these limits.
    const fn has(self, limits: Limits) -> bool {
        match self {
            Self::Nginx | Self::Haproxy => limits.is_none(),
            Self::Envoy => !limits.have_expressions(),
            Self::Tidegate => true,
        }
    }

    /// Its name.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Tidegate => "tidegate",
        }
    }
}

/// The versions of the measured proxies, each once.
pub(crate) fn versions(choices: &[Choice]) -> Vec<String> {
    let mut versions: Vec<String> = choices.iter().map(|choice| choice.version.clone()).collect();
    versions.dedup();
    versions
}

/// A proxy that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its work on every request.
    pub(crate) work: Work,
    /// The limits of each request.
    limits: Limits,
    /// Its reported version.
    version: String,
    program: PathBuf,
}

impl Choice {
    /// Its binary.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The name of its rows.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        let name = self.limits.named(self.kind.name());
        match self.work {
            Work::Same => name,
            Work::Bare => format!("{name}, bare"),
        }
    }

    /// Starts it with routes on its cores, and waits until the last route responds.
    ///
    /// # Errors
    /// When it does not start or a route does not become right.
    pub(crate) async fn start(
        &self,
        args: &Args,
        share: Share,
        upstream: &Upstream,
        routes: &[Route],
    ) -> anyhow::Result<Peer> {
        let endpoints = rolled(upstream, 0);
        let (workers, work, apart, cached) = (args.workers, self.work, args.apart, args.cached);
        let (source, apps, listeners, limits) = (args.source(), None, args.listeners, self.limits);
        let setting = Setting {
            upstream,
            endpoints: &endpoints,
            workers,
            work,
            apart,
            cached,
            source,
            listeners,
            limits,
            apps,
            share,
        };
        let proxy = match self.kind {
            Kind::Nginx => Proxy::Nginx(Box::new(nginx::Peer::start(How::Workers(workers), &setting, routes).await?)),
            Kind::Haproxy => Proxy::Haproxy(Box::new(haproxy::Peer::start(&setting, routes)?)),
            Kind::Envoy => Proxy::Envoy(Box::new(envoy::Peer::start(&self.program, &setting, routes)?)),
            Kind::Tidegate => {
                let mut peer = tidegate::Peer::start(&self.program, &setting).await?;
                peer.change(&Change { routes, endpoints: None }).await?;
                Proxy::Tidegate(Box::new(peer))
            }
        };
        let peer = Peer { choice: self.clone(), proxy };
        peer.until_right(routes).await.with_context(|| format!("{} does not start", self.name()))?;
        Ok(peer)
    }

    /// Starts it with this number of applications of the Deis router in place of Ingresses, and waits until the last
    /// host responds.
    ///
    /// # Errors
    /// When it is not Tidegate, does not start, or a host does not become right.
    pub(crate) async fn start_apps(
        &self,
        args: &Args,
        share: Share,
        upstream: &Upstream,
        apps: usize,
    ) -> anyhow::Result<Peer> {
        ensure!(self.kind == Kind::Tidegate, "{} reads no applications of the Deis router", self.name());
        let endpoints = rolled(upstream, 0);
        let (workers, work, apart) = (args.workers, self.work, args.apart);
        let (present, cached, source) = (Some(apps), false, Source::Ingress);
        let (listeners, limits) = (args.listeners, Limits::default());
        let setting = Setting {
            upstream,
            endpoints: &endpoints,
            workers,
            work,
            apart,
            cached,
            source,
            listeners,
            limits,
            apps: present,
            share,
        };
        let proxy = Proxy::Tidegate(Box::new(tidegate::Peer::start(&self.program, &setting).await?));
        let peer = Peer { choice: self.clone(), proxy };
        peer.until_right(&deis::routes(apps)).await.with_context(|| format!("{} does not start", self.name()))?;
        Ok(peer)
    }
}
