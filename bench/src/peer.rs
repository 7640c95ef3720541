//! The proxies that are compared: each is started with routes and changes them the way its controller does.

mod choice;
pub(crate) mod deis;
mod envoy;
mod haproxy;
mod nginx;
mod objects;
mod tidegate;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cores::Share;
use crate::metrics::{Histogram, histograms};
use crate::nginx::How;
use crate::poll;
use crate::process::is_over;
use crate::upstream::{PODS, Upstream};

pub(crate) use choice::{Args, Choice, Kind, Source, Work, choose, versions};
pub(crate) use objects::one_route;

/// How long a proxy may take to listen after its start, and then all of its routes to be right. One that takes longer is left out
/// with so many.
pub(crate) const START_MAX: Duration = Duration::from_secs(120);
/// A host that every proxy serves over TLS too, where it has a route. wrk can ask for no other than the one it connects to.
pub(crate) const SECURE: &str = "localhost";
/// Another: the one whose gRPC streams are held.
pub(crate) const STREAMED: &str = "streamed.example";

/// One more: that of the endpoint that is spoken to in HTTP/2.
pub(crate) const H2C: &str = "h2c.example";

/// Where a route leads. All of them answer alike, so that a change is one for the proxy alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The upstream.
    Right,
    /// The same upstream under another name.
    Again,
    /// The echo for WebSockets.
    Echo,
    /// The echo for gRPC, which is spoken to in plain HTTP/2.
    Grpc,
    /// The upstream, spoken to in plain HTTP/2.
    H2c,
    /// The upstream, by a Service that no other route has.
    Own,
    /// The upstream, by a Service whose endpoints can be changed.
    Rolled,
}

impl Target {
    /// Those that many routes share, and that never change.
    const SHARED: [Self; 5] = [Self::Right, Self::Again, Self::Echo, Self::Grpc, Self::H2c];

    /// What the Service of a host is called: its own after its first label, which no other host may have.
    fn service(self, host: &str) -> &str {
        match self {
            Self::Right => "right",
            Self::Again => "again",
            Self::Echo => "echo",
            Self::Grpc => "grpc",
            Self::H2c => "h2c",
            Self::Rolled => "rolled",
            Self::Own => host.split('.').next().unwrap_or(host),
        }
    }

    const fn address(self, upstream: &Upstream) -> SocketAddr {
        match self {
            Self::Right | Self::Again | Self::Own | Self::Rolled => upstream.http,
            Self::Echo => upstream.echo,
            Self::Grpc => upstream.grpc,
            Self::H2c => upstream.h2c,
        }
    }

    /// Whether it is for exchanges that last: no time in all may end them, and a plain request is not answered.
    const fn lasts(self) -> bool {
        matches!(self, Self::Echo | Self::Grpc)
    }

    /// Whether it is spoken to in HTTP/2.
    const fn http2(self) -> bool {
        matches!(self, Self::Grpc | Self::H2c)
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
    /// One of many.
    pub(crate) fn numbered(number: usize, target: Target) -> Self {
        Self::new(format!("app-{number:06}.example"), target)
    }

    /// A route.
    pub(crate) fn new(host: impl Into<String>, target: Target) -> Self {
        Self { host: host.into(), target }
    }
}

/// Whether a host is served over TLS too.
fn is_secure(host: &str) -> bool {
    [SECURE, STREAMED, H2C].contains(&host)
}

/// Two of the upstream's pods: those that the service [`Target::Rolled`] has after so many rolls.
pub(crate) fn rolled(upstream: &Upstream, rolls: usize) -> [SocketAddr; 2] {
    let pods = upstream.pods();
    let [a, b] = [rolls % PODS, (rolls + 1) % PODS];
    pods.get(a).copied().zip(pods.get(b).copied()).map_or([upstream.http; 2], <[SocketAddr; 2]>::from)
}

/// What is given to a proxy as it starts, beside routes.
#[derive(Clone, Copy, Debug)]
struct Setting<'a> {
    upstream: &'a Upstream,
    /// Of [`Target::Rolled`].
    endpoints: &'a [SocketAddr],
    workers: usize,
    work: Work,
    apart: bool,
    /// Whether it keeps a cluster cache on disk.
    cached: bool,
    /// What Tidegate's routes are made of.
    source: Source,
    /// Listeners of the Gateway, where there is one.
    listeners: u16,
    /// Applications of the Deis router that are there from the start, in place of routes.
    apps: Option<usize>,
    /// What it starts on.
    share: Share,
}

/// What changes at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// Routes that are made, or lead elsewhere.
    pub(crate) routes: &'a [Route],
    /// What [`Target::Rolled`] has from now on.
    pub(crate) endpoints: Option<&'a [SocketAddr]>,
}

/// Where a proxy writes its access log, in its folder.
fn log_file(folder: &Path) -> PathBuf {
    folder.join("access.log")
}

/// Where a proxy writes what goes wrong, beside its access log.
fn error_file(folder: &Path) -> PathBuf {
    folder.join("errors.log")
}

/// A file to which a process appends.
fn appended(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// A running proxy; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    choice: Choice,
    proxy: Proxy,
}

#[derive(Debug)]
enum Proxy {
    Nginx(Box<nginx::Peer>),
    Haproxy(Box<haproxy::Peer>),
    Envoy(Box<envoy::Peer>),
    Tidegate(Box<tidegate::Peer>),
}

/// One nginx process with one route, [`SECURE`], run by another command.
///
/// # Errors
/// When it does not start or the route does not become right.
pub(crate) async fn nginx_under(under: Vec<OsString>, work: Work, upstream: &Upstream) -> anyhow::Result<nginx::Peer> {
    let endpoints = rolled(upstream, 0);
    let setting = Setting {
        upstream,
        endpoints: &endpoints,
        workers: 1,
        work,
        apart: false,
        cached: false,
        source: Source::Ingress,
        listeners: 2,
        apps: None,
        share: Share::ANY,
    };
    let peer = nginx::Peer::start(How::Under(under), &setting, &[Route::new(SECURE, Target::Own)]).await?;
    poll::until_right(peer.address(), SECURE, START_MAX).await?;
    Ok(peer)
}

/// Does the same with any of the proxies.
macro_rules! each {
    ($proxy:expr, $peer:ident => $done:expr) => {
        match $proxy {
            Proxy::Nginx($peer) => $done,
            Proxy::Haproxy($peer) => $done,
            Proxy::Envoy($peer) => $done,
            Proxy::Tidegate($peer) => $done,
        }
    };
}

impl Peer {
    /// What was chosen: which it is, and what it does on every request.
    #[must_use]
    pub(crate) const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Where it serves plain HTTP.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        each!(&self.proxy, peer => peer.address())
    }

    /// Where it serves [`SECURE`] over TLS.
    #[must_use]
    pub(crate) const fn secure_address(&self) -> SocketAddr {
        each!(&self.proxy, peer => peer.secure())
    }

    /// Its process, whose children are its own too.
    #[must_use]
    pub(crate) fn process(&self) -> u32 {
        each!(&self.proxy, peer => peer.process()).unwrap_or_default()
    }

    /// What it says of itself, by the names of Tidegate's metrics; `None` of another proxy.
    ///
    /// # Errors
    /// When there is no answer, or one of them is not in it.
    pub(crate) async fn histograms<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<Option<[Histogram; N]>> {
        match &self.proxy {
            Proxy::Tidegate(peer) => histograms(peer.admin(), names).await.map(Some),
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => Ok(None),
        }
    }

    /// How long it gathers changes before it acts: the time between two reloads of a controller that must reload, a tenth of a
    /// second where everything is written anew, as the controllers of Envoy wait.
    #[must_use]
    pub(crate) const fn gathers(&self, reload_every: Duration) -> Duration {
        match self.choice.kind {
            Kind::Nginx => reload_every,
            Kind::Envoy => Duration::from_millis(100),
            Kind::Haproxy | Kind::Tidegate => Duration::from_millis(2),
        }
    }

    /// Makes routes, or lets those that are there lead elsewhere. Returns when the change is handed over, not when it is in effect.
    ///
    /// # Errors
    /// When the change is refused.
    pub(crate) async fn put(&mut self, routes: &[Route]) -> anyhow::Result<()> {
        self.change(&Change { routes, endpoints: None }).await
    }

    /// Hands over a change.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn change(&mut self, change: &Change<'_>) -> anyhow::Result<()> {
        match &mut self.proxy {
            Proxy::Nginx(peer) => peer.change(change).await,
            Proxy::Haproxy(peer) => peer.change(change).await,
            Proxy::Envoy(peer) => peer.change(change),
            Proxy::Tidegate(peer) => peer.change(change).await,
        }
    }

    /// Ends its process and starts another with the routes that are there, at the same addresses. Returns as soon as that has begun.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Instant> {
        match &mut self.proxy {
            Proxy::Nginx(peer) => peer.restart().await,
            Proxy::Haproxy(peer) => peer.restart(),
            Proxy::Envoy(peer) => peer.restart(),
            Proxy::Tidegate(peer) => peer.restart(),
        }
    }

    /// Takes Tidegate's API server away for good, once its cache holds what these routes are made of.
    ///
    /// # Errors
    /// When it does not, or this is not Tidegate.
    pub(crate) async fn cut_off(&mut self, routes: usize) -> anyhow::Result<()> {
        match &mut self.proxy {
            Proxy::Tidegate(peer) => peer.cut_off(routes).await,
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => bail!("it has no API server"),
        }
    }

    /// Takes a route away, at the latest with the next change.
    ///
    /// # Errors
    /// When the change is refused.
    pub(crate) async fn remove(&mut self, host: &str) -> anyhow::Result<()> {
        match &mut self.proxy {
            Proxy::Nginx(peer) => {
                peer.remove(host);
                Ok(())
            }
            Proxy::Haproxy(peer) => peer.remove(host).await,
            Proxy::Envoy(peer) => {
                peer.remove(host);
                Ok(())
            }
            Proxy::Tidegate(peer) => peer.remove(host).await,
        }
    }

    /// Its applications, and where its metrics are.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn apps(&self) -> anyhow::Result<(&Arc<deis::Apps>, SocketAddr)> {
        match &self.proxy {
            Proxy::Tidegate(peer) => Ok((peer.apps(), peer.admin())),
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => bail!("{} reads no objects", self.choice.name()),
        }
    }

    fn log_path(&self) -> PathBuf {
        each!(&self.proxy, peer => peer.log())
    }

    /// Empties the access log and says how many lines were in it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn take_log(&self) -> anyhow::Result<u64> {
        let path = self.log_path();
        let Ok(text) = tokio::fs::read(&path).await else { return Ok(0) };
        tokio::fs::OpenOptions::new().write(true).truncate(true).open(&path).await?;
        Ok(u64::try_from(text.iter().filter(|byte| **byte == b'\n').count())?)
    }

    /// Asks for each of these routes once.
    ///
    /// # Errors
    /// Names those that are not answered well.
    pub(crate) async fn all_right(&self, routes: &[Route]) -> anyhow::Result<()> {
        let hosts = routes.iter().map(|route| route.host.clone()).collect();
        let wrong = poll::wrong(self.address(), hosts).await?;
        let (name, count, all) = (self.choice.name(), wrong.len(), routes.len());
        ensure!(wrong.is_empty(), "{name} does not answer {count} of {all} hosts: {wrong:?}");
        Ok(())
    }

    /// Waits until the last of these routes answers, or without one until connections are taken.
    async fn until_right(&self, routes: &[Route]) -> anyhow::Result<()> {
        let listening = async {
            while TcpStream::connect(self.address()).await.is_err() {
                if is_over(self.process()) {
                    let errors = self.log_path().with_file_name("errors.log");
                    bail!("it ended at once: {}", std::fs::read_to_string(errors).unwrap_or_default());
                }
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        timeout(START_MAX, listening).await.context("it does not listen")??;
        if let Some(last) = routes.iter().rev().find(|route| !route.target.lasts()) {
            poll::until_right(self.address(), &last.host, START_MAX).await?;
        }
        Ok(())
    }
}
