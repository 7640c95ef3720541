//! The banner that `dev` prints when it is ready: addresses, routes, and commands to try next.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_config::model::{Bind, BindProtocol, Generation, Snapshot, TableName};
use tidegate_config::published::Published;
use tidegate_proxy::{Bound, BoundBind};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::debug::{Table, table};
use crate::listen_place::ListenPlace;

/// The banner is printed after this time, ready or not.
const PATIENCE: Duration = Duration::from_secs(15);
/// After this time without a publication, the routes are those of the files.
const QUIET: Duration = Duration::from_millis(150);
/// A shutdown that takes longer says what it waits for.
const SHUTDOWN_SILENT: Duration = Duration::from_millis(500);
/// The number of hosts shown; the debug page has them all.
const HOSTS_MAX: usize = 30;

/// The parts of the banner.
#[derive(Debug)]
pub(super) struct Banner {
    pub(super) folder: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) admin: Option<SocketAddr>,
    pub(super) debug: Option<ListenPlace>,
    pub(super) bound: watch::Receiver<Bound>,
    pub(super) published: Published,
    pub(super) generation: watch::Receiver<Generation>,
    /// The number of Deployments in the folder, once it has been applied.
    pub(super) loaded: watch::Receiver<Option<usize>>,
    /// The number of Deployments with all their replicas ready.
    pub(super) steady: watch::Receiver<usize>,
    /// Cancelled when the process has been told to end.
    pub(super) draining: CancellationToken,
}

impl Banner {
    /// Waits until everything is in place and prints once. Then waits for the end of the process, and says why it takes
    /// a while.
    pub(super) async fn print(mut self) -> Infallible {
        let draining = self.draining.clone();
        tokio::select! {
            () = self.show() => draining.cancelled().await,
            () = draining.cancelled() => {}
        }
        sleep(SHUTDOWN_SILENT).await;
        println!("Waiting for requests and tunnels in flight. Ctrl-C again ends at once.");
        std::future::pending().await
    }

    async fn show(&mut self) {
        let in_time = timeout(PATIENCE, self.settle()).await.is_ok_and(|settled| settled.is_ok());
        println!("{}", self.text(&self.published.pin()));
        if !in_time {
            println!("Not every replica is ready yet; the log above may say why.");
        }
    }

    /// Fails if a task has ended for good; then there is nothing to wait for.
    async fn settle(&mut self) -> Result<(), watch::error::RecvError> {
        let deployments = self.loaded.wait_for(Option::is_some).await?.unwrap_or_default();
        self.steady.wait_for(|steady| *steady >= deployments).await?;
        let tried = |bind: &BoundBind| bind.address().is_some() || bind.error().is_some();
        let listens = |bound: &Bound| bound.iter().all(|(_, bind)| tried(bind));
        self.bound.wait_for(|bound| bound.iter().next().is_some() && listens(bound)).await?;
        while let Ok(changed) = timeout(QUIET, self.generation.changed()).await {
            changed?;
        }
        Ok(())
    }

    fn text(&self, snapshot: &Snapshot) -> String {
        let mut text = format!("\ntidegate dev serves {}\n\n", self.folder.display());
        let _ = self.places(&mut text);
        let routes = table(snapshot, None, HOSTS_MAX);
        let _ = write_routes(&mut text, &routes, snapshot.hosts().len());
        let _ = self.next(&mut text, snapshot, &routes);
        text
    }

    fn addresses(&self, protocol: BindProtocol) -> Vec<SocketAddr> {
        let bound = self.bound.borrow();
        bound.iter().filter(|(key, _)| key.protocol == protocol).filter_map(|(_, bind)| bind.address()).collect()
    }

    fn places(&self, text: &mut String) -> std::fmt::Result {
        for address in self.addresses(BindProtocol::Http) {
            writeln!(text, "  http     http://{address}")?;
        }
        for address in self.addresses(BindProtocol::Https) {
            writeln!(text, "  https    https://{address}")?;
        }
        for address in self.addresses(BindProtocol::Tcp) {
            writeln!(text, "  tcp      {address}")?;
        }
        for address in self.addresses(BindProtocol::Udp) {
            writeln!(text, "  udp      {address}")?;
        }
        for (key, bind) in self.bound.borrow().iter().filter(|(_, bind)| bind.address().is_none()) {
            writeln!(text, "  closed   {}: {}", key.address, bind.error().unwrap_or("not open yet"))?;
        }
        if let Some(admin) = self.admin {
            writeln!(text, "  health   http://{admin}/readyz")?;
            writeln!(text, "  metrics  http://{admin}/metrics")?;
        }
        match &self.debug {
            Some(ListenPlace::Tcp(address)) => writeln!(text, "  debug    http://{address}/debug/routes")?,
            Some(place @ ListenPlace::Unix(_)) => writeln!(text, "  debug    {place}")?,
            None => {}
        }
        Ok(())
    }

    /// The address for plain requests to the hosts of a route table.
    fn listener_address(&self, snapshot: &Snapshot, table: &TableName) -> Option<SocketAddr> {
        let takes = |bind: &&Bind| bind.listeners.iter().any(|listener| listener.table == *table);
        let mut binds = snapshot.binds().iter().filter(|bind| bind.key.protocol == BindProtocol::Http).filter(takes);
        let bound = self.bound.borrow();
        binds.find_map(|bind| bound.iter().find(|(key, _)| **key == bind.key)?.1.address())
    }

    fn next(&self, text: &mut String, snapshot: &Snapshot, routes: &Table<'_>) -> std::fmt::Result {
        writeln!(text, "\nTry:\n")?;
        // The shortest path of a real name is likely the most useful.
        let named = routes.hosts.iter().filter(|host| !host.host.contains('*'));
        let all = named.flat_map(|host| host.routes.iter().map(|route| (&*host.host, route.path, host.table)));
        let example = all.min_by_key(|(_, path, _)| path.len());
        let example =
            example.and_then(|(host, path, table)| Some((host, path, self.listener_address(snapshot, table)?)));
        if let Some((host, path, http)) = example {
            // Names under localhost resolve to loopback (RFC 6761 section 6.3), which is one address of many.
            if host.ends_with(".localhost") && http.ip() == Ipv4Addr::LOCALHOST {
                writeln!(text, "  curl http://{host}:{}{path}", http.port())?;
            } else {
                writeln!(text, "  curl -H 'Host: {host}' http://{http}{path}")?;
            }
            if let Some(debug) = &self.debug {
                writeln!(text, "  tidegate explain --debug {debug} http://{host}{path}")?;
            }
        }
        writeln!(text, "  export KUBECONFIG={}", self.kubeconfig.display())?;
        writeln!(text, "  kubectl get ingress,service,deployment -A")?;
        write!(
            text,
            "\nChanges to files and through the API take effect at once. Ctrl-C stops everything and leaves nothing behind."
        )
    }
}

fn write_routes(text: &mut String, routes: &Table<'_>, hosts_total: usize) -> std::fmt::Result {
    let mut rows = vec![["HOST", "PATH", "BACKEND", "ENDPOINTS", "OBJECT"].map(str::to_owned)];
    for host in &routes.hosts {
        for route in host.routes.iter().chain(&host.fallback) {
            let endpoints: usize = route.targets.iter().map(|target| target.endpoints.len()).sum();
            let backends: Vec<String> =
                route.targets.iter().filter_map(|target| target.backend).map(ToString::to_string).collect();
            let path = format!("{} ({})", route.path, route.path_kind);
            let name = match host.table {
                TableName::Shared => host.host.clone(),
                TableName::Named(table) => format!("{} ({table})", host.host),
            };
            rows.push([name, path, backends.join(" "), endpoints.to_string(), route.object.clone()]);
        }
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    writeln!(text)?;
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(text, "  {}", cells.join("  ").trim_end())?;
    }
    let more = hosts_total.saturating_sub(routes.hosts.len());
    if more > 0 { writeln!(text, "  and {more} more hosts") } else { Ok(()) }
}
