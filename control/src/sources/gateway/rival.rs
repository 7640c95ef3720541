//! An HTTPRoute and a GRPCRoute whose hostnames meet on one listener: the API lets the older one attach, and refuses the other one
//! there as a whole.

use std::collections::BTreeSet;

use tidegate_config::model::HostPattern;
use tidegate_config::object::{Age, Kind, ObjectRef};
use tidegate_config::project::gateway::Hostnames;

use super::offer::Offered;
use crate::topology::{Key, Topology};
use crate::world::World;

/// The patterns of a route without hostnames.
const ANY: [HostPattern; 1] = [HostPattern::Any];

/// The kind of routes that may not share hostnames of a listener with this one.
fn other_kind(kind: Kind) -> Option<Kind> {
    let other = if kind == Kind::HttpRoute { Kind::GrpcRoute } else { Kind::HttpRoute };
    (kind == Kind::HttpRoute || kind == Kind::GrpcRoute).then_some(other)
}

/// The hostnames of a route, with no hostnames as the pattern of any.
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

/// The oldest route of the other kind that keeps a route off a listener: it is older, attached there, and its hostnames meet `hosts`,
/// the hosts that the route would have of the listener.
pub(in crate::sources) fn winner(
    (world, topology): (&World, &Topology),
    (object, age): (&ObjectRef, &Age),
    listener: &Offered,
    hosts: &[HostPattern],
) -> Option<ObjectRef> {
    let kind = other_kind(object.kind)?;
    let attached = topology.attached_to(&listener.key(), kind);
    let older = attached.filter_map(|other| {
        let (other_age, patterns) = route(world, other)?;
        let wins = (other_age, other) < (age, object) && meet(patterns, hosts);
        wins.then_some((other_age, other))
    });
    older.min().map(|(_, other)| other.clone())
}

/// The routes of the other kind, attached to one of these listeners, whose hostnames meet those of a route.
fn met(world: &World, topology: &Topology, object: &ObjectRef, listeners: &[Key]) -> BTreeSet<ObjectRef> {
    let Some((kind, (_, own))) = other_kind(object.kind).zip(route(world, object)) else { return BTreeSet::new() };
    let attached = listeners.iter().flat_map(|listener| topology.attached_to(listener, kind));
    attached.filter(|other| route(world, other).is_some_and(|(_, patterns)| meet(patterns, own))).cloned().collect()
}

/// The routes that have to be attached again because a route is attached to other listeners than before, or is another route: those that
/// it keeps off now, and those that it, or another one, kept off so far.
pub(crate) fn disturbed(
    world: &World,
    topology: &Topology,
    object: &ObjectRef,
    (before, after): (&[Key], &[Key]),
) -> BTreeSet<ObjectRef> {
    let Some(kind) = other_kind(object.kind) else { return BTreeSet::new() };
    let mut disturbed = met(world, topology, object, after);
    let own = route(world, object).map(|(age, _)| (age, object));
    disturbed.retain(|other| route(world, other).map(|(age, _)| (age, other)) > own);
    let contested = before.iter().chain(after).filter_map(Key::contested);
    disturbed.extend(contested.flat_map(|listener| topology.attached_to(&listener, kind)).cloned());
    disturbed
}

/// The routes that a route of the other kind may keep off a listener, the oldest first. `topology` holds all of them as if each were alone.
pub(crate) fn contested(world: &World, topology: &Topology) -> Vec<ObjectRef> {
    let mut found = BTreeSet::new();
    for object in world.names_of(Kind::GrpcRoute, None) {
        let listeners = topology.get(object).map(|attachment| &*attachment.listeners).unwrap_or_default();
        let rivals = met(world, topology, object, listeners);
        if !rivals.is_empty() {
            found.insert(object.clone());
            found.extend(rivals);
        }
    }
    let mut found: Vec<ObjectRef> = found.into_iter().collect();
    found.sort_by(|a, b| {
        let order = |object| (route(world, object).map(|(age, _)| age), object);
        order(a).cmp(&order(b))
    });
    found
}
