//! Tidegate's data plane, with a snapshot compiled from the objects that the proxies are compared with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use prometheus::Registry;
use serde_json::{Value, json};
use tidegate_config::model::{Bind, BindKey, BindProtocol, Binds, Listener};
use tidegate_config::object::Kind;
use tidegate_config::project::{Projected, project};
use tidegate_config::published::{Published, Publisher};
use tidegate_control::options::{GatewayApi, GatewayServices, Kuadrant, Options, Sources};
use tidegate_control::{Collection, Event};
use tidegate_proxy::{AccessLogSink, Bound, Driver, Proxy};
use tokio::sync::watch;

use super::{IdentityFiles, tell};
use crate::clock::now;
use crate::core_loop::Core;
use crate::limits::Limits;
use crate::peer::{Source as Routes, of_gateway, one_route};
use crate::place::free_address;

/// Its parameters.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The upstream of every request.
    #[arg(long)]
    upstream: SocketAddr,
    /// The path of an access log.
    #[arg(long)]
    access_log: Option<PathBuf>,
    /// Carries all requests with the Pingora driver.
    #[arg(long)]
    pingora_driver: bool,
    /// The kind of object that defines the route.
    #[arg(long, value_enum, default_value = "ingress")]
    source: Routes,
    /// The limits of each request, where the route is an HTTPRoute.
    #[arg(long, default_value = "0")]
    limits: Limits,
    #[command(flatten)]
    identity: IdentityFiles,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (options, ports) = match args.source {
        Routes::Ingress => (Options { binds: binds(), ..Options::default() }, None),
        Routes::Gateway => (for_gateways(), Some([free_address()?.port(), free_address()?.port()])),
    };
    let mut objects = one_route(args.upstream, &args.identity.read()?, ports);
    objects.extend((!args.limits.is_none()).then(|| of_gateway(args.limits)));
    let (_publisher, published) = published(&objects, options)?;
    let (_told, changes) = watch::channel(published.pin().generation());
    let access_log = args.access_log.clone().map_or(AccessLogSink::Off, AccessLogSink::File);
    let driver = if args.pingora_driver { Driver::Pingora } else { Driver::default() };
    let options = tidegate_proxy::Options { threads: 1, access_log, driver, ..Default::default() };
    let proxy = Proxy::start(published, changes, options, &Registry::new())?;
    let (plain, secure) = bound(proxy.bound())?;
    tell(plain, secure)
}

/// Compiles the objects as at start-up.
fn published(objects: &[Value], mut options: Options) -> anyhow::Result<(Publisher, Published)> {
    options.addresses.allow_loopback = true;
    Ok(Core::start(options, lists(objects)?, now())?.into_published())
}

/// The lists of all kinds, with these objects.
pub(crate) fn lists(objects: &[Value]) -> anyhow::Result<Vec<Event>> {
    let list = |kind: Kind| {
        Ok(Event::Listed {
            collection: Collection { kind, namespace: None },
            objects: projected(kind, objects)?,
            complete: true,
            resource_version: "1".into(),
            received: now(),
        })
    };
    Kind::ALL.into_iter().map(list).collect()
}

/// Options with one loopback address for a Gateway.
pub(crate) fn for_gateways() -> Options {
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: [Ipv4Addr::LOCALHOST.into()].into(),
        services: GatewayServices::Off,
        optional: false,
    };
    let (gateway, kuadrant) = (Some(gateway), Some(Kuadrant::default()));
    Options { sources: Sources { gateway, kuadrant, ..Sources::default() }, ..Options::default() }
}

/// The objects of a kind, with what an API server adds.
pub(crate) fn projected(kind: Kind, objects: &[Value]) -> anyhow::Result<Vec<Projected>> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind.to_string());
    let project = |object: &Value| {
        let mut object = object.clone();
        let meta = &mut object["metadata"];
        (meta["uid"], meta["resourceVersion"]) = (json!("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e"), json!("1"));
        meta["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let projected = project(kind, object.to_string().as_bytes());
        let projected = projected.map_err(|why| anyhow::anyhow!("{object}: {why:?}"))?;
        ensure!(projected.object.is_some() && projected.findings.is_empty(), "{:?}", projected.findings);
        Ok(projected)
    };
    of_kind.map(project).collect()
}

pub(crate) fn binds() -> Binds {
    let bind = |protocol, name: &str| Bind {
        key: BindKey { address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), protocol },
        listeners: [Listener::for_every_host(name)].into(),
    };
    [bind(BindProtocol::Http, "http"), bind(BindProtocol::Https, "https")].into()
}

/// Its actual addresses, plain and over TLS.
fn bound(mut bound: watch::Receiver<Bound>) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let at = |bound: &Bound, protocol| {
        bound.iter().find(|(key, _)| key.protocol == protocol).and_then(|(_, bind)| bind.address())
    };
    let both = |bound: &Bound| at(bound, BindProtocol::Http).zip(at(bound, BindProtocol::Https));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let bound = runtime.block_on(bound.wait_for(|bound| both(bound).is_some()))?;
    both(&bound).context("it is bound")
}
