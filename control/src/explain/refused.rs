//! Routes for the host of a question that a Gateway does not accept.

use serde::Serialize;
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{GroupKind, Hostnames, ObjectReference, ParentRef, Text};

use crate::attachment::{ConditionReason, Key, Verdict};
use crate::sources::parent_of;
use crate::topology::Topology;
use crate::world::World;

/// The maximum number of listed routes.
pub(super) const LISTED_MAX: usize = 20;

/// A route that refers to a Gateway or one of its ListenerSets, and is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// The route.
    pub object: ObjectRef,
    /// The reason of its condition `Accepted`.
    pub reason: Text,
    /// Its message.
    pub message: Text,
}

/// The routes for a host that a Gateway does not accept, in ascending order; limited in number.
pub(crate) fn refused(world: &World, topology: &Topology, gateway: &ObjectRef, host: &str) -> Vec<Refused> {
    let readers =
        topology.dependents(&Key::GatewayListeners(gateway.name.clone())).filter(|object| object.kind.is_route());
    let of_host = readers.filter(|route| is_for(world, route, host));
    of_host.flat_map(|route| refusals(world, topology, gateway, route)).take(LISTED_MAX).collect()
}

fn is_for(world: &World, route: &ObjectRef, host: &str) -> bool {
    let name = &route.name;
    let hostnames = if route.kind == Kind::HttpRoute {
        world.http_routes.get(name).map(|route| &route.hostnames)
    } else if route.kind == Kind::GrpcRoute {
        world.grpc_routes.get(name).map(|route| &route.hostnames)
    } else if route.kind == Kind::TlsRoute {
        world.tls_routes.get(name).map(|route| &route.hostnames)
    } else {
        Some(&Hostnames::Any)
    };
    hostnames.is_some_and(|hostnames| takes(hostnames, host))
}

/// Returns `true` if a route with these hostnames is for a host.
pub(super) fn takes(hostnames: &Hostnames, host: &str) -> bool {
    match hostnames {
        Hostnames::Any => true,
        Hostnames::These(patterns) => patterns.iter().any(|pattern| pattern.matches(host)),
    }
}

/// The reasons why a Gateway or its ListenerSets do not accept a route that refers to them; empty if they do.
pub(crate) fn refusals(world: &World, topology: &Topology, gateway: &ObjectRef, route: &ObjectRef) -> Vec<Refused> {
    let report = topology.get(route).and_then(|attachment| attachment.report.as_ref());
    let Some(Verdict::Route(status)) = report.and_then(|report| report.verdict.as_ref()) else { return Vec::new() };
    let names = |parent: &ParentRef| {
        let ObjectReference { kind, name } = &parent.parent;
        match kind {
            GroupKind::Known(Kind::ListenerSet) => {
                let set = world.listener_sets.get(name);
                set.and_then(|set| parent_of(set)).is_some_and(|parent| parent == *gateway)
            }
            GroupKind::Known(_) | GroupKind::Other { .. } => *name == gateway.name,
        }
    };
    let refused = |fault: &ConditionReason| Refused {
        object: route.clone(),
        reason: fault.reason.into(),
        message: fault.message.clone().into(),
    };
    status.refusals(names).map(refused).collect()
}
