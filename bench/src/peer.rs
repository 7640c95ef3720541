//! The compared proxies: each is started with routes and changes them the way its controller does.

mod choice;
pub(crate) mod deis;
mod envoy;
mod haproxy;
mod nginx;
mod objects;
mod policies;
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
use crate::limits::Limits;
use crate::metrics::{Histogram, histograms, total};
use crate::nginx::How;
use crate::poll;
use crate::process::is_over;
use crate::upstream::{PODS, Upstream};

pub(crate) use choice::{Args, Choice, Kind, Source, Work, choose, versions};
pub(crate) use objects::{one_route, own_route};
pub(crate) use policies::{Policies, PolicyTarget, of_gateway};

/// The maximum time for a proxy to listen after its start, and then for all of its routes to be right. A proxy that
/// takes longer is skipped for that number of routes.
pub(crate) const START_MAX: Duration = Duration::from_secs(120);
/// A host that every proxy serves over TLS too, where it has a route. wrk can use no other server name than the host it
/// connects to.
pub(crate) const SECURE: &str = "localhost";
/// Another: the host whose gRPC streams are held.
pub(crate) const STREAMED: &str = "streamed.example";

/// One more: the host whose endpoint speaks HTTP/2.
pub(crate) const H2C: &str = "h2c.example";
/// The host whose endpoint speaks TLS.
pub(crate) const HTTPS: &str = "https.example";

/// The destination of a route. All of them respond alike, so that a change is visible to the proxy alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The upstream.
    Right,
    /// The same upstream under another name.
    Again,
    /// The echo for WebSockets.
    Echo,
    /// The echo for gRPC, over plain HTTP/2.
    Grpc,
    /// The upstream, over plain HTTP/2.
    H2c,
    /// The upstream, over TLS. Its certificate is not verified, as by default in every peer.
    Https,
    /// The upstream, by a Service that no other route has.
    Own,
    /// The upstream, by a Service whose endpoints can be changed.
    Rolled,
}

impl Target {
    /// The targets that many routes share, and that never change.
    const SHARED: [Self; 6] = [Self::Right, Self::Again, Self::Echo, Self::Grpc, Self::H2c, Self::Https];

    /// The name of the Service of a host: an own Service is named after the host's first label, which no other host may
    /// have.
    fn service(self, host: &str) -> &str {
        match self {
            Self::Right => "right",
            Self::Again => "again",
            Self::Echo => "echo",
            Self::Grpc => "grpc",
            Self::H2c => "h2c",
            Self::Https => "https",
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
            Self::Https => upstream.https,
        }
    }

    /// Returns `true` if it is for long-lived exchanges: no total timeout may end them, and a plain request has no
    /// response.
    const fn lasts(self) -> bool {
        matches!(self, Self::Echo | Self::Grpc)
    }

    /// The protocol that it speaks.
    const fn protocol(self) -> Protocol {
        match self {
            Self::Grpc | Self::H2c => Protocol::Http2,
            Self::Https => Protocol::Tls,
            Self::Right | Self::Again | Self::Echo | Self::Own | Self::Rolled => Protocol::Http1,
        }
    }
}

/// The protocol of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// Plain HTTP/1.1.
    Http1,
    /// Plain HTTP/2.
    Http2,
    /// HTTP/1.1 over TLS.
    Tls,
}

/// A route of a whole host to a target.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The host, in lower case.
    pub(crate) host: String,
    /// Its target.
    pub(crate) target: Target,
}

impl Route {
    /// A route with a number in its host.
    pub(crate) fn numbered(number: usize, target: Target) -> Self {
        Self::new(format!("app-{number:06}.example"), target)
    }

    /// A route.
    pub(crate) fn new(host: impl Into<String>, target: Target) -> Self {
        Self { host: host.into(), target }
    }
}

/// Returns `true` if a host is served over TLS too.
fn is_secure(host: &str) -> bool {
    [SECURE, STREAMED, H2C].contains(&host)
}

/// Two of the upstream's pods: the endpoints of the service [`Target::Rolled`] after this number of rolls.
pub(crate) fn rolled(upstream: &Upstream, rolls: usize) -> [SocketAddr; 2] {
    let pods = upstream.pods();
    let [a, b] = [rolls % PODS, (rolls + 1) % PODS];
    pods.get(a).copied().zip(pods.get(b).copied()).map_or([upstream.http; 2], <[SocketAddr; 2]>::from)
}

/// The settings of a proxy at its start, except for routes.
#[derive(Clone, Copy, Debug)]
struct Setting<'a> {
    upstream: &'a Upstream,
    /// The endpoints of [`Target::Rolled`].
    endpoints: &'a [SocketAddr],
    workers: usize,
    work: Work,
    apart: bool,
    /// `true` if it keeps a cluster cache on disk.
    cached: bool,
    /// The objects of Tidegate's routes.
    source: Source,
    /// Listeners of the Gateway, where there is one.
    listeners: u16,
    /// Limits of each request.
    limits: Limits,
    /// Applications of the Deis router that are there from the start, in place of routes.
    apps: Option<usize>,
    /// The cores it starts on.
    share: Share,
}

/// Simultaneous changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// Routes that are created, or change their target.
    pub(crate) routes: &'a [Route],
    /// The new endpoints of [`Target::Rolled`].
    pub(crate) endpoints: Option<&'a [SocketAddr]>,
}

/// The path of a proxy's access log, in its folder.
fn log_file(folder: &Path) -> PathBuf {
    folder.join("access.log")
}

/// The path of a proxy's error log, beside its access log.
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
        limits: Limits::default(),
        apps: None,
        share: Share::ANY,
    };
    let peer = nginx::Peer::start(How::Under(under), &setting, &[Route::new(SECURE, Target::Own)]).await?;
    poll::until_right(peer.address(), SECURE, START_MAX).await?;
    Ok(peer)
}

/// Calls the same method on any of the proxies.
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
    /// The choice that it was started from: its kind, and its work on every request.
    #[must_use]
    pub(crate) const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The address of plain HTTP.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        each!(&self.proxy, peer => peer.address())
    }

    /// The address of [`SECURE`] over TLS.
    #[must_use]
    pub(crate) const fn secure_address(&self) -> SocketAddr {
        each!(&self.proxy, peer => peer.secure())
    }

    /// Its process, whose children belong to it too.
    #[must_use]
    pub(crate) fn process(&self) -> u32 {
        each!(&self.proxy, peer => peer.process()).unwrap_or_default()
    }

    /// Its own metrics, by the names of Tidegate's; `None` for another proxy.
    ///
    /// # Errors
    /// When there is no response, or one of them is missing.
    pub(crate) async fn histograms<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<Option<[Histogram; N]>> {
        match &self.proxy {
            Proxy::Tidegate(peer) => histograms(peer.admin(), names).await.map(Some),
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => Ok(None),
        }
    }

    /// The time for which it gathers changes before it acts: the time between two reloads of a controller that must
    /// reload, a tenth of a second where everything is rewritten, as the controllers of Envoy wait.
    #[must_use]
    pub(crate) const fn gathers(&self, reload_every: Duration) -> Duration {
        match self.choice.kind {
            Kind::Nginx => reload_every,
            Kind::Envoy => Duration::from_millis(100),
            Kind::Haproxy | Kind::Tidegate => Duration::from_millis(2),
        }
    }

    /// Creates routes, or changes the targets of existing ones. Returns when the change is handed over, not when it is
    /// in effect.
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

    /// Ends its process and starts another with the current routes, at the same addresses. Returns as soon as that has
    /// begun.
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

    /// The lists that it has begun since its start, if it is Tidegate.
    ///
    /// # Errors
    /// When there is no response, or this is not Tidegate.
    pub(crate) async fn lists(&self) -> anyhow::Result<f64> {
        total(self.tidegate()?.admin(), "tidegate_lists_total").await
    }

    /// The policies of its Gateway and HTTPRoutes.
    ///
    /// # Errors
    /// When it is not Tidegate.
    pub(crate) fn policies(&self) -> anyhow::Result<Policies> {
        Ok(self.tidegate()?.policies())
    }

    /// Ends Tidegate's process, and leaves its API server until [`Self::restart`] starts another one.
    ///
    /// # Errors
    /// When it fails, or this is not Tidegate.
    pub(crate) async fn pause(&mut self) -> anyhow::Result<()> {
        match &mut self.proxy {
            Proxy::Tidegate(peer) => peer.pause().await,
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => bail!("it has no API server"),
        }
    }

    fn tidegate(&self) -> anyhow::Result<&tidegate::Peer> {
        match &self.proxy {
            Proxy::Tidegate(peer) => Ok(peer),
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => bail!("{} reads no objects", self.choice.name()),
        }
    }

    /// Ends Tidegate's API server for good, once its cache holds the objects of these routes.
    ///
    /// # Errors
    /// When it fails, or this is not Tidegate.
    pub(crate) async fn cut_off(&mut self, routes: usize) -> anyhow::Result<()> {
        match &mut self.proxy {
            Proxy::Tidegate(peer) => peer.cut_off(routes).await,
            Proxy::Nginx(_) | Proxy::Haproxy(_) | Proxy::Envoy(_) => bail!("it has no API server"),
        }
    }

    /// Removes a route, at the latest with the next change.
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

    /// Its applications, and the address of its metrics.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn apps(&self) -> anyhow::Result<(&Arc<deis::Apps>, SocketAddr)> {
        let peer = self.tidegate()?;
        Ok((peer.apps(), peer.admin()))
    }

    fn log_path(&self) -> PathBuf {
        each!(&self.proxy, peer => peer.log())
    }

    /// Empties the access log and returns the number of its lines.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn take_log(&self) -> anyhow::Result<u64> {
        let path = self.log_path();
        let Ok(text) = tokio::fs::read(&path).await else { return Ok(0) };
        tokio::fs::OpenOptions::new().write(true).truncate(true).open(&path).await?;
        Ok(u64::try_from(text.iter().filter(|byte| **byte == b'\n').count())?)
    }

    /// Requests each of these routes once.
    ///
    /// # Errors
    /// Names the routes without a right response.
    pub(crate) async fn all_right(&self, routes: &[Route]) -> anyhow::Result<()> {
        let hosts = routes.iter().map(|route| route.host.clone()).collect();
        let wrong = poll::wrong(self.address(), hosts).await?;
        let (name, count, all) = (self.choice.name(), wrong.len(), routes.len());
        ensure!(wrong.is_empty(), "{name} does not answer {count} of {all} hosts: {wrong:?}");
        Ok(())
    }

    /// Waits until the last of these routes responds, or without routes until connections are accepted.
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
