//! `tidegate run`: the edge of a cluster.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::process::ExitCode;

use anyhow::Context as _;
use tidegate_control::client::{self, Access};
use tidegate_control::{ApiServer, Following};
use tidegate_proxy::Bound;
use tokio::sync::watch;

use crate::args::RunArgs;
use crate::forward_writes;
use crate::logs;
use crate::settings::{Cluster, Run, Server};
use crate::signal::Signals;
use crate::wire::{Clients, Wired};

pub(crate) async fn main(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let Run { mut edge, cluster } = Run::try_from(args)?;
    logs::start(&edge.process.log_level, edge.process.log_form)?;
    refuse_huge_pages();
    let mut signals = Signals::listen().context("signals")?;
    let forwards_writes = edge.serve.as_ref().is_some_and(|serve| serve.forward_writes);
    let (clients, server) = connect(&cluster, forwards_writes)?;
    if let Some(cache) = &mut edge.cache {
        cache.server = server;
    }
    let wired = Wired::start(edge, clients, cluster.namespaces)?;
    let (admin, dumps) = (wired.admin.map(|at| at.to_string()), wired.debug.as_ref().map(ToString::to_string));
    let api = wired.api.as_ref().map(ToString::to_string);
    tracing::info!(admin, dumps, api, "started; traffic is accepted once the first snapshot is published");
    let bound = wired.bound();
    tokio::select! {
        over = wired.until_over(&mut signals) => over,
        never = announce(bound) => match never {},
    }
}

/// Declines transparent huge pages, which a node may enable for every process (`always` in
/// `/sys/kernel/mm/transparent_hugepage/enabled`). A whole page of 2 MiB is resident while any part of it is in use.
/// The budget compares resident memory with its limit, and would refuse traffic because of memory that nothing uses.
fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "transparent huge pages stay enabled; resident memory may be up to twice as large");
    }
}

/// Logs each socket as it opens, with its real port.
async fn announce(mut bound: watch::Receiver<Bound>) -> Infallible {
    let mut open = BTreeSet::new();
    loop {
        let now: BTreeSet<_> =
            bound.borrow_and_update().iter().filter_map(|(key, bind)| Some((bind.address()?, key.protocol))).collect();
        for (address, protocol) in now.difference(&open) {
            tracing::info!(%address, ?protocol, "listening");
        }
        open = now;
        if bound.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The clients of the cluster, and its address. No connection is made yet, so an absent API server is not an error
/// here.
fn connect(cluster: &Cluster, forwards_writes: bool) -> anyhow::Result<(Clients, String)> {
    let following = Following::new().context("metrics")?;
    let access = access(cluster, &following)?;
    let (api_server, server) = (ApiServer::default(), access.config().cluster_url.to_string());
    let forward = if forwards_writes { Some(forward_writes::client(&access, &api_server)?) } else { None };
    let watch = client::connect(&access, client::Deadlines::WATCH, &api_server)?;
    let write = client::connect(&access, client::Deadlines::WRITE, &api_server)?;
    Ok((Clients { watch, write, forward, api_server, following }, server))
}

/// The address of the API server, and the credentials for it.
pub(crate) fn access(cluster: &Cluster, following: &Following) -> anyhow::Result<Access> {
    match (&cluster.server, &cluster.kubeconfig) {
        (Some(server), _) => of_server(server, following),
        (None, Some((path, context))) => Ok(Access::kubeconfig(following, path, context.as_deref())?),
        (None, None) => Access::in_cluster(following).context("without --kubeconfig"),
    }
}

/// A server that is named by its URL.
fn of_server(server: &Server, following: &Following) -> anyhow::Result<Access> {
    let mut config = kube::Config::new(server.url.clone());
    config.root_cert_file.clone_from(&server.ca);
    if let Some(path) = &server.token_file {
        let path = path.to_str().context("--server-token-file: the path is not UTF-8")?;
        config.auth_info.token_file = Some(path.to_owned());
    }
    Access::of(following, "server", config).context("--server-token-file and --server-ca")
}
