//! The proxies that are compared: each is started with routes and changes them the way its controller does.

mod nginx;
mod tidegate;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::place::version;
use crate::poll;
use crate::upstream::Upstream;

/// How long the routes of a start may take.
const RIGHT_MAX: Duration = Duration::from_secs(120);

/// A proxy that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// nginx, with a server block a host, rewritten and reloaded.
    Nginx,
    /// `tidegate dev`, changed by writes to its API server.
    Tidegate,
}

/// Which proxies are measured, and how they run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Which proxies.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,tidegate")]
    peers: Vec<Kind>,
    /// Threads (nginx: worker processes) that carry traffic.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The tidegate binary [default: built by cargo, in release].
    #[arg(long, value_name = "PATH")]
    tidegate: Option<PathBuf>,
    /// Who runs us.
    #[arg(long, hide = true, env = "CARGO", default_value = "cargo")]
    cargo: PathBuf,
}

/// Where a route leads. All of them answer alike, so that a change is one for the proxy alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The upstream.
    Right,
    /// The same upstream under another name.
    Again,
    /// The echo for WebSockets.
    Echo,
}

impl Target {
    const ALL: [Self; 3] = [Self::Right, Self::Again, Self::Echo];

    const fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Again => "again",
            Self::Echo => "echo",
        }
    }

    const fn address(self, upstream: &Upstream) -> SocketAddr {
        match self {
            Self::Right | Self::Again => upstream.http,
            Self::Echo => upstream.echo,
        }
    }
}

/// Everything of a host leads to a target.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The host, in lower case.
    pub(crate) host: String,
    /// Where it leads.
    pub(crate) target: Target,
}

impl Route {
    /// A route.
    pub(crate) fn new(host: impl Into<String>, target: Target) -> Self {
        Self { host: host.into(), target }
    }
}

/// A running proxy; stopped when dropped.
#[derive(Debug)]
pub(crate) enum Peer {
    /// nginx.
    Nginx(Box<nginx::Peer>),
    /// Tidegate.
    Tidegate(Box<tidegate::Peer>),
}

/// What can be measured here, and what was left out and why.
///
/// # Errors
/// When Tidegate cannot be built.
pub(crate) fn choose(args: &Args) -> anyhow::Result<(Vec<Choice>, Vec<String>)> {
    let mut left_out = Vec::new();
    let mut choices = Vec::new();
    for kind in &args.peers {
        match kind {
            Kind::Nginx => match version("nginx", "-v") {
                Some(version) => choices.push(Choice { kind: *kind, version, program: "nginx".into() }),
                None => left_out.push("nginx: it is not installed (bench/setup installs it)".to_owned()),
            },
            Kind::Tidegate => {
                let program = match &args.tidegate {
                    Some(program) => program.clone(),
                    None => tidegate::build(&args.cargo)?,
                };
                let version = version(&program.display().to_string(), "--version").unwrap_or_default();
                choices.push(Choice { kind: *kind, version, program });
            }
        }
    }
    Ok((choices, left_out))
}

/// A proxy that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Which.
    pub(crate) kind: Kind,
    /// What it says its version is.
    pub(crate) version: String,
    program: PathBuf,
}

impl Choice {
    /// Starts it with routes and waits until the last of them answers.
    ///
    /// # Errors
    /// When it does not start or a route does not become right.
    pub(crate) async fn start(&self, args: &Args, upstream: &Upstream, routes: &[Route]) -> anyhow::Result<Peer> {
        let mut peer = match self.kind {
            Kind::Nginx => Peer::Nginx(Box::new(nginx::Peer::start(args.workers, upstream).await?)),
            Kind::Tidegate => {
                Peer::Tidegate(Box::new(tidegate::Peer::start(&self.program, args.workers, upstream).await?))
            }
        };
        peer.put(routes).await?;
        if let Some(last) = routes.iter().rev().find(|route| route.target == Target::Right) {
            poll::until_right(peer.address(), &last.host, RIGHT_MAX).await?;
        }
        Ok(peer)
    }
}

impl Peer {
    /// Which it is.
    #[must_use]
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Nginx(_) => Kind::Nginx,
            Self::Tidegate(_) => Kind::Tidegate,
        }
    }

    /// Where it serves plain HTTP.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        match self {
            Self::Nginx(peer) => peer.address(),
            Self::Tidegate(peer) => peer.address,
        }
    }

    /// Its process, whose children are its own too.
    #[must_use]
    pub(crate) fn process(&self) -> u32 {
        match self {
            Self::Nginx(peer) => peer.process(),
            Self::Tidegate(peer) => peer.process(),
        }
        .unwrap_or_default()
    }

    /// How long it gathers changes before it acts: the time between two reloads of a controller that must reload.
    #[must_use]
    pub(crate) const fn gathers(&self, reload_every: Duration) -> Duration {
        match self {
            Self::Nginx(_) => reload_every,
            Self::Tidegate(_) => Duration::from_millis(2),
        }
    }

    /// Makes routes, or lets those that are there lead elsewhere. Returns when the change is handed over, not when it is in effect.
    ///
    /// # Errors
    /// When the change is refused.
    pub(crate) async fn put(&mut self, routes: &[Route]) -> anyhow::Result<()> {
        match self {
            Self::Nginx(peer) => peer.put(routes).await,
            Self::Tidegate(peer) => peer.put(routes).await,
        }
    }

    /// Takes a route away, at the latest with the next change.
    ///
    /// # Errors
    /// When the change is refused.
    pub(crate) async fn remove(&mut self, host: &str) -> anyhow::Result<()> {
        match self {
            Self::Nginx(peer) => {
                peer.remove(host);
                Ok(())
            }
            Self::Tidegate(peer) => peer.remove(host).await,
        }
    }
}
