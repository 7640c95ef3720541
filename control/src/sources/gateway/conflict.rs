//! An HTTPRoute and a GRPCRoute with intersecting hostnames on one listener: the API accepts the older one, and rejects
//! the other one for that listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::model::{HostPattern, VirtualHost, WildcardDepth, parents};
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::gateway::Hostnames;

use super::gateway_object::parent_of;
use crate::attachment::{Key, MergedListener};
use crate::topology::Topology;
use crate::world::World;

/// The patterns of a route without hostnames.
const ANY: [HostPattern; 1] = [HostPattern::Any];

/// The kind of routes that may not share hostnames of a listener with this one.
fn other_kind(kind: Kind) -> Option<Kind> {
    let other = if kind == Kind::HttpRoute { Kind::GrpcRoute } else { Kind::HttpRoute };
    (kind == Kind::HttpRoute || kind == Kind::GrpcRoute).then_some(other)
}

/// The hostnames of a route; without any, the pattern for all hosts.
pub(super) fn patterns(hostnames: &Hostnames) -> &[HostPattern] {
    match hostnames {
        Hostnames::Any => &ANY,
        Hostnames::These(patterns) => patterns,
    }
}

/// The age and the hostnames of an HTTPRoute or GRPCRoute.
fn route<'w>(world: &'w World, object: &ObjectRef) -> Option<(&'w Age, &'w [HostPattern])> {
    let (age, hostnames) = if object.kind == Kind::GrpcRoute {
        world.grpc_routes.get(&object.name).map(|route| (&route.age, &route.hostnames))?
    } else {
        world.http_routes.get(&object.name).map(|route| (&route.age, &route.hostnames))?
    };
    Some((age, patterns(hostnames)))
}

fn meet(one: &[HostPattern], other: &[HostPattern]) -> bool {
    one.iter().any(|one| other.iter().any(|other| one.meet(other).is_some()))
}

/// The routes of a kind that are attached to a listener and may have one of these hosts; includes all that do. Exact
/// names are looked up; for wildcards all attached routes are returned.
fn sharing<'t>(
    topology: &'t Topology,
    listener: &MergedListener,
    kind: Kind,
    hosts: &[HostPattern],
) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
    let key = listener.key();
    let names: Option<Vec<&Arc<str>>> = hosts.iter().map(exact).collect();
    // There are no claims to hosts of a listener that does not serve.
    let Some(names) = names.filter(|_| listener.serves()) else { return Box::new(topology.attached_to(&key, kind)) };
    let patterns: BTreeSet<HostPattern> = names.into_iter().flat_map(over).collect();
    let table = listener.table.clone();
    let hosts = patterns.into_iter().map(move |pattern| Key::Host(VirtualHost::new(table.clone(), pattern)));
    let claimants = hosts.flat_map(|host| topology.dependents(&host)).filter(move |object| object.kind == kind);
    Box::new(claimants.filter(move |object| topology.get(object).is_some_and(|it| it.listeners.contains(&key))))
}

fn exact(pattern: &HostPattern) -> Option<&Arc<str>> {
    match pattern {
        HostPattern::Exact(name) => Some(name),
        HostPattern::Wildcard(..) | HostPattern::FirstLabel(_) | HostPattern::Expression(_) | HostPattern::Any => None,
    }
}

/// The patterns of routes that match a name.
fn over(name: &Arc<str>) -> impl Iterator<Item = HostPattern> {
    let wildcards = parents(name).map(|suffix| HostPattern::Wildcard(suffix.into(), WildcardDepth::Any));
    [HostPattern::Exact(Arc::clone(name)), HostPattern::Any].into_iter().chain(wildcards)
}

/// The oldest route of the other kind that keeps a route off a listener: it is older, attached there, and its hostnames
/// intersect `hosts`, those of the route on the listener.
pub(in crate::sources) fn winner(
    (world, topology): (&World, &Topology),
    (object, age): (&ObjectRef, &Age),
    listener: &MergedListener,
    hosts: &[HostPattern],
) -> Option<ObjectRef> {
    let kind = other_kind(object.kind)?;
    let older = sharing(topology, listener, kind, hosts).filter_map(|other| {
        let (other_age, patterns) = route(world, other)?;
        let wins = (other_age, other) < (age, object) && meet(patterns, hosts);
        wins.then_some((other_age, other))
    });
    older.min().map(|(_, other)| other.clone())
}

/// The offered listener of a key.
fn offered<'t>(world: &World, topology: &'t Topology, listener: &Key) -> Option<&'t MergedListener> {
    let listener = listener.listener()?;
    let owner = &listener.owner;
    let set = world.listener_sets.get(&owner.name).filter(|_| owner.kind == Kind::ListenerSet);
    let gateway = if owner.kind == Kind::Gateway { Some(owner.clone()) } else { set.and_then(|set| parent_of(set)) };
    topology.gateway_listeners(&gateway?)?.listeners.iter().find(|it| it.listener == *listener)
}

/// The routes of the other kind, attached to one of these listeners, whose hostnames intersect those of a route.
fn met(world: &World, topology: &Topology, object: &ObjectRef, listeners: &[Key]) -> BTreeSet<ObjectRef> {
    let Some((kind, (_, own))) = other_kind(object.kind).zip(route(world, object)) else { return BTreeSet::new() };
    let offered = listeners.iter().filter_map(|listener| offered(world, topology, listener));
    let sharing = offered.flat_map(|listener| sharing(topology, listener, kind, own));
    sharing.filter(|other| route(world, other).is_some_and(|(_, patterns)| meet(patterns, own))).cloned().collect()
}

/// The routes that must be attached again after a route was attached to different listeners or has changed: those that
/// it keeps off now, and those that it, or another one, kept off before.
pub(in crate::sources) fn conflicting(
    world: &World,
    topology: &Topology,
    object: &ObjectRef,
    (before, after): (&[Key], &[Key]),
) -> BTreeSet<ObjectRef> {
    let Some(kind) = other_kind(object.kind) else { return BTreeSet::new() };
    let mut conflicting = met(world, topology, object, after);
    let own = route(world, object).map(|(age, _)| (age, object));
    conflicting.retain(|other| route(world, other).map(|(age, _)| (age, other)) > own);
    let conflicts = before.iter().chain(after).filter_map(Key::conflict);
    conflicting.extend(conflicts.flat_map(|listener| topology.attached_to(&listener, kind)).cloned());
    conflicting
}

/// The routes that a route of the other kind may keep off a listener, oldest first. `topology` has all of them attached
/// as if there were no conflicts.
pub(in crate::sources) fn all_conflicting(world: &World, topology: &Topology) -> Vec<ObjectRef> {
    let mut found = BTreeSet::new();
    for object in world.names_of(Kind::GrpcRoute, None) {
        let Some(attachment) = topology.get(object) else { continue };
        let not_attached = attachment.links.iter().filter_map(Key::conflict_listener);
        let listeners: Vec<Key> = attachment.listeners.iter().cloned().chain(not_attached).collect();
        let mut conflicting = met(world, topology, object, &listeners);
        let conflicts = listeners.iter().filter_map(Key::conflict);
        conflicting.extend(conflicts.flat_map(|listener| topology.attached_to(&listener, Kind::HttpRoute)).cloned());
        if !conflicting.is_empty() {
            found.insert(object.clone());
            found.extend(conflicting);
        }
    }
    let mut found: Vec<ObjectRef> = found.into_iter().collect();
    found.sort_by(|a, b| {
        let order = |object| (route(world, object).map(|(age, _)| age), object);
        order(a).cmp(&order(b))
    });
    found
}
