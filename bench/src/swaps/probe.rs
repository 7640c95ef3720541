//! The probes: changes of the cluster and what a request looks up, each with its reversal so that every round starts
//! from the same cluster.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tidegate_config::model::{BindKey, Head, Route, Snapshot};
use tidegate_control::Event;

use super::cluster::{Cluster, ONE_HOST, Shape, app, wildcard};
use crate::core_loop::Core;
use crate::operations::Meter;

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Probe {
    /// A path of an Ingress leads to another Service.
    BackendMoved,
    /// A third endpoint joins two.
    EndpointAdded,
    /// That endpoint leaves.
    EndpointRemoved,
    /// The Secret of a host holds another certificate.
    CertificateRotated,
    /// An Ingress with a host (or path) that is new.
    IngressCreated,
    /// That Ingress is deleted.
    IngressDeleted,
    /// The oldest Ingress of a host of many is deleted or created: the host's owner changes, and it is compiled whole.
    HostCompiledWhole,
    /// The look-up of a request's endpoints, by an exact host.
    FindExact,
    /// The same by a wildcard.
    FindWildcard,
    /// The same for an unknown host.
    FindNoHost,
    /// The look-up of a handshake's certificates.
    FindCertificate,
    /// The settings of a route that was found: the defaults, overridden by its scopes' and its own.
    Settings,
}

impl Probe {
    /// Its name in tables.
    #[must_use]
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::BackendMoved => "backend of a path moved",
            Self::EndpointAdded => "endpoint added",
            Self::EndpointRemoved => "endpoint removed",
            Self::CertificateRotated => "certificate rotated",
            Self::IngressCreated => "Ingress created",
            Self::IngressDeleted => "Ingress deleted",
            Self::HostCompiledWhole => "whole host compiled",
            Self::FindExact => "find: exact host",
            Self::FindWildcard => "find: wildcard host",
            Self::FindNoHost => "find: unknown host",
            Self::FindCertificate => "find: certificate",
            Self::Settings => "settings of a route",
        }
    }

    /// Returns `true` if it changes one rule of a host.
    #[must_use]
    pub(super) const fn changes_a_rule(self) -> bool {
        matches!(self, Self::BackendMoved | Self::IngressCreated | Self::IngressDeleted)
    }

    /// Returns `true` if it is a look-up of a request or a handshake, which must not allocate.
    #[must_use]
    pub(super) const fn looks_up(self) -> bool {
        matches!(self, Self::FindExact | Self::FindWildcard | Self::FindNoHost | Self::FindCertificate | Self::Settings)
    }
}

/// Pairs of changes of which the second undoes the first.
const CHANGES: [(Probe, Probe); 5] = [
    (Probe::BackendMoved, Probe::BackendMoved),
    (Probe::EndpointAdded, Probe::EndpointRemoved),
    (Probe::CertificateRotated, Probe::CertificateRotated),
    (Probe::IngressCreated, Probe::IngressDeleted),
    (Probe::HostCompiledWhole, Probe::HostCompiledWhole),
];

/// Runs one round of every probe that the cluster's shape has: `count` changes each, spread over the cluster, and their
/// reversal.
///
/// # Errors
/// When a change made no generation or a look-up found nothing: then it would measure something else.
pub(super) fn round(
    cluster: &Cluster,
    core: &mut Core,
    count: usize,
    meter: &mut dyn Meter<Probe>,
    now: Instant,
) -> anyhow::Result<()> {
    let fits = |probe| match probe {
        Probe::CertificateRotated => cluster.tls(),
        Probe::HostCompiledWhole => !cluster.shape.many_hosts(),
        Probe::BackendMoved
        | Probe::EndpointAdded
        | Probe::EndpointRemoved
        | Probe::IngressCreated
        | Probe::IngressDeleted
        | Probe::FindExact
        | Probe::FindWildcard
        | Probe::FindNoHost
        | Probe::FindCertificate
        | Probe::Settings => true,
    };
    for (there, back) in CHANGES.into_iter().filter(|(there, _)| fits(*there)) {
        let count = if there == Probe::HostCompiledWhole { 1 } else { count };
        for (probe, undo) in [(there, false), (back, true)] {
            let mut events: Vec<Option<Event>> =
                places(cluster, count).map(|i| event(cluster, there, undo, i, now)).collect();
            let mut silent = 0;
            meter.measure(probe, events.len(), &mut |number| {
                let event = events.get_mut(number).and_then(Option::take);
                silent += usize::from(event.and_then(|event| core.take(event).ok()?).is_none());
            });
            anyhow::ensure!(silent == 0, "{}: {silent} of {count} changes published nothing", probe.title());
        }
    }
    for probe in [Probe::FindExact, Probe::FindWildcard, Probe::FindNoHost, Probe::FindCertificate] {
        look_up(cluster, core, probe, count, meter)?;
    }
    settings(cluster, core, count, meter)
}

/// Some routes, spread evenly.
fn places(cluster: &Cluster, count: usize) -> impl Iterator<Item = usize> + use<> {
    let step = (cluster.size / count.max(1)).max(1);
    (0..cluster.size).step_by(step).take(count)
}

fn event(cluster: &Cluster, change: Probe, undo: bool, i: usize, now: Instant) -> Option<Event> {
    let applied = |projected| Event::Applied { projected: Box::new(projected), received: now };
    match change {
        // Of each pair of neighbours, which share a namespace, one leads to the other's Service.
        Probe::BackendMoved => Some(applied(cluster.ingress(i, if undo { i } else { i ^ 1 }))),
        Probe::EndpointAdded => Some(applied(cluster.slice(i, if undo { 2 } else { 3 }))),
        Probe::CertificateRotated => cluster.secret(i, usize::from(!undo)).map(applied),
        Probe::IngressCreated if undo => {
            let object = cluster.new_ingress_name(i);
            Some(Event::Deleted { object, resource_version: "2".into(), received: now })
        }
        Probe::IngressCreated => Some(applied(cluster.new_ingress(i))),
        Probe::HostCompiledWhole if undo => Some(applied(cluster.ingress(i, i))),
        Probe::HostCompiledWhole => {
            let object = cluster.ingress(i, i).meta.object;
            Some(Event::Deleted { object, resource_version: "2".into(), received: now })
        }
        Probe::EndpointRemoved
        | Probe::IngressDeleted
        | Probe::FindExact
        | Probe::FindWildcard
        | Probe::FindNoHost
        | Probe::FindCertificate
        | Probe::Settings => None,
    }
}

/// A request with nothing but a host and a path.
struct Plain<'a> {
    path: &'a str,
}

impl Head for Plain<'_> {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn authority(&self) -> Option<&str> {
        None
    }
    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }
    fn each_value(&self, _: &str, _: &mut dyn FnMut(&[u8])) {}
}

fn look_up(
    cluster: &Cluster,
    core: &Core,
    probe: Probe,
    count: usize,
    meter: &mut dyn Meter<Probe>,
) -> anyhow::Result<()> {
    let requests: Vec<(String, String)> = places(cluster, count).filter_map(|i| request(cluster, probe, i)).collect();
    if requests.is_empty() {
        return Ok(());
    }
    let bind = core.published().pin().binds().first().map(|bind| bind.key).context("the core has no bind")?;
    let mut missed = 0;
    meter.measure(probe, requests.len(), &mut |number| {
        let Some((host, path)) = requests.get(number) else { return };
        let snapshot = core.published().pin();
        let found = if probe == Probe::FindCertificate {
            snapshot.certificates_for(&bind, black_box(host)).len()
        } else {
            endpoints(&snapshot, &bind, black_box(host), black_box(path))
        };
        missed += usize::from(black_box(found) == 0);
    });
    anyhow::ensure!(missed == 0, "{}: {missed} of {} found nothing", probe.title(), requests.len());
    Ok(())
}

fn settings(cluster: &Cluster, core: &Core, count: usize, meter: &mut dyn Meter<Probe>) -> anyhow::Result<()> {
    let snapshot = core.published().pin();
    let bind = snapshot.binds().first().map(|bind| bind.key).context("the core has no bind")?;
    let asked: Vec<_> = places(cluster, count).filter_map(|i| request(cluster, Probe::FindExact, i)).collect();
    let routes: Vec<&Arc<Route>> =
        asked.iter().filter_map(|(host, path)| snapshot.find(&bind, host, path, &Plain { path }).route).collect();
    anyhow::ensure!(routes.len() == asked.len(), "only {} of {} requests have a route", routes.len(), asked.len());
    meter.measure(Probe::Settings, routes.len(), &mut |number| {
        if let Some(route) = routes.get(number) {
            black_box(snapshot.effective(black_box(route)));
        }
    });
    Ok(())
}

/// The host and path of a request; `None` if the shape has no such request.
fn request(cluster: &Cluster, probe: Probe, i: usize) -> Option<(String, String)> {
    let root = "/cart/items".to_owned();
    match (cluster.shape, probe) {
        (Shape::Hosts | Shape::TwoServices, Probe::FindExact | Probe::FindCertificate) => {
            let exact = if wildcard(i) { i - 1 } else { i };
            Some((format!("{}.example.com", app(exact)), root))
        }
        (Shape::Hosts | Shape::TwoServices, Probe::FindWildcard) => {
            Some((format!("blue.{}.example.com", app(i - i % 10 + 9)), root))
        }
        (Shape::Hosts | Shape::TwoServices, Probe::FindNoHost) => Some((format!("nobody-{i}.example.net"), root)),
        (Shape::OneHost, Probe::FindExact) => Some((ONE_HOST.to_owned(), format!("/{}{root}", app(i)))),
        (Shape::NoHost, Probe::FindNoHost) => Some((format!("nobody-{i}.example.net"), format!("/{}{root}", app(i)))),
        _ => None,
    }
}

/// The number of endpoints that a request may go to.
fn endpoints(snapshot: &Snapshot, bind: &BindKey, host: &str, path: &str) -> usize {
    let route = snapshot.find(bind, host, path, &Plain { path }).route;
    let target = route.and_then(|route| route.action.targets().next());
    let backend = target.and_then(|target| snapshot.backend(&target.backend));
    backend.map_or(0, |backend| backend.endpoints.len())
}
