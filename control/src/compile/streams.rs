//! The routes of connections that are passed on as bytes. Each host of a listener is a unit.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{BackendKey, SnapshotParts, StreamRoute, VirtualHost};
use tidegate_config::object::{Age, ObjectName, ObjectRef};

use super::unit::{Unit, UnitKind, beyond};
use super::{BackendUser, Compiled, Inputs, Next, Pass};
use crate::attachment::Attachment;
use crate::topology::Topology;

/// The compiled form of the connections for a host.
#[derive(Default)]
pub(super) struct StreamUnit {
    /// The oldest of the routes that claim them.
    route: Option<Arc<StreamRoute>>,
    /// The findings for the owners of the others.
    findings: Vec<Finding>,
}

/// The hosts whose connections are passed on as bytes.
pub(super) struct Streams;

impl UnitKind for Streams {
    type Key = VirtualHost;
    type Output = StreamUnit;
    const LABEL: &'static str = "stream";
    const ROUTING: bool = true;

    fn after(last: Option<&VirtualHost>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<VirtualHost> {
        let there = compiled.streams.range::<VirtualHost, _>(beyond(last)).next();
        [inputs.topology.stream_after(last), there].into_iter().flatten().min().cloned()
    }

    fn owners_of(inputs: Inputs<'_>, host: &VirtualHost) -> Vec<ObjectRef> {
        inputs.topology.streams_of(host).map(|route| route.origin.object.clone()).collect()
    }

    fn make(inputs: Inputs<'_>, _: &Compiled, host: &VirtualHost) -> StreamUnit {
        let routes: Vec<&Arc<StreamRoute>> = inputs.topology.streams_of(host).collect();
        let Some(winner) = routes.iter().copied().min_by(|a, b| order(a).cmp(&order(b))) else {
            return StreamUnit::default();
        };
        let lost = |route: &Arc<StreamRoute>| {
            let problem = Problem::ConnectionsLost { host: host.to_string(), winner: winner.origin.object.clone() };
            Finding::new(route.origin.object.clone(), &*route.origin.field, problem)
        };
        let losers = routes.iter().filter(|route| !Arc::ptr_eq(route, winner));
        StreamUnit { route: Some(Arc::clone(winner)), findings: losers.map(|route| lost(route)).collect() }
    }

    fn put(compiled: &mut Compiled, host: &VirtualHost, unit: StreamUnit, pass: &mut Pass<'_>) -> bool {
        let StreamUnit { route, findings } = unit;
        if pass.defers(compiled, &Next::Stream(host, route.as_ref())) {
            return false;
        }
        compiled.findings.put(Unit::Stream(host.clone()), findings);
        let before = compiled.parts.streams.get(host).cloned();
        if before == route {
            return false;
        }
        let [old, new] = [&before, &route].map(|route| route.as_deref().map(used).unwrap_or_default());
        compiled.use_instead(&BackendUser::Stream(host.clone()), &old, &new, pass);
        compiled.compile_unknown(&new, pass);
        match route {
            Some(route) => {
                compiled.parts.streams.insert(host, route);
                compiled.streams.insert(host.clone());
            }
            None => {
                compiled.parts.streams.remove(host);
                compiled.streams.remove(host);
            }
        }
        true
    }

    fn serves(host: &VirtualHost, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        compiled.parts.streams.get(host) == serving.streams.get(host)
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<VirtualHost> {
        if one.streams.len() <= other.streams.len() {
            return Vec::new();
        }
        one.streams.iter().map(|(host, _)| host).filter(|host| other.streams.get(host).is_none()).collect()
    }

    fn changed_between(one: &SnapshotParts, other: &SnapshotParts) -> Vec<VirtualHost> {
        let changed = one.streams.iter().filter(|(host, route)| other.streams.get(host) != Some(*route));
        changed.map(|(host, _)| host).collect()
    }

    fn differing(_: &ObjectRef, before: &Attachment, after: &Attachment) -> Vec<VirtualHost> {
        let hosts = before.other_claims().streams.iter().chain(&after.other_claims().streams).map(|(host, _)| host);
        hosts.filter(|host| before.stream(host) != after.stream(host)).cloned().collect()
    }

    fn services_in<'a>(host: &VirtualHost, attachment: &'a Attachment) -> BTreeSet<&'a ObjectName> {
        let targets = attachment.stream(host).into_iter().flat_map(|route| route.targets());
        targets.map(|target| &target.backend.service).collect()
    }

    fn services(host: &VirtualHost, topology: &Topology, parts: &SnapshotParts) -> BTreeSet<ObjectName> {
        let routes = topology.streams_of(host).chain(parts.streams.get(host));
        routes.flat_map(|route| route.targets()).map(|target| target.backend.service.clone()).collect()
    }

    fn backends_in(parts: &SnapshotParts) -> Vec<BackendKey> {
        parts.streams.iter().flat_map(|(_, route)| used(route)).collect()
    }

    fn describe(host: &VirtualHost, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connections for {host}")
    }
}

/// The precedence of routes for one host: the older one serves, then by kind and name.
fn order(route: &StreamRoute) -> (&Age, &ObjectRef) {
    (&route.origin.age, &route.origin.object)
}

/// The Service ports of a route, without duplicates.
fn used(route: &StreamRoute) -> BTreeSet<BackendKey> {
    route.targets().map(|target| target.backend.clone()).collect()
}
