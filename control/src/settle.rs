//! Make before break: whether a change of a host would break a route that works, because what it would move to is
//! still on its way. The loop keeps such a host as it was for a bounded moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::model::{Action, HostPattern, HostRoutes, Route};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::compile::{Compiled, HostUnit};
use crate::topology::Topology;
use crate::world::World;

/// What of a host a route is for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Slot<'a> {
    Path(&'static str, &'a str),
    Fallback,
    LastResort,
}

fn slots(routes: &HostRoutes) -> impl Iterator<Item = (Slot<'_>, &Arc<Route>)> {
    let paths = routes.routes().iter().map(|route| (Slot::Path(route.path.kind(), route.path.text()), route));
    let fallback = routes.fallback().map(|route| (Slot::Fallback, route));
    paths.chain(fallback).chain(routes.last_resort.iter().map(|route| (Slot::LastResort, route)))
}

/// Whether a route that works now would move to what World has never seen: a Service, its endpoints, or the addresses
/// of its external name. Kinds arrive in no order and names are looked up once they are led to, so these are probably on
/// their way.
pub(crate) fn would_break(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    unit: &HostUnit,
    host: &HostPattern,
) -> bool {
    let (Some(before), Some(after)) = (compiled.parts.hosts.get(host), &unit.routes) else { return false };
    let unseen = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) => false,
        Action::Forward(targets) => targets.iter().all(|weighted| {
            let service = &weighted.target.backend.service;
            match world.services.get(service).map(|service| &service.kind) {
                Some(ServiceKind::ExternalName(name)) => !world.names.contains_key(name),
                Some(ServiceKind::Slices) | None => {
                    let key = ObjectRef::new(Kind::Service, service.clone());
                    topology.referrers_of(key, Kind::EndpointSlice).next().is_none()
                }
            }
        }),
    };
    let mut unseen = slots(after).filter(|(_, route)| unseen(route)).peekable();
    if unseen.peek().is_none() {
        return false;
    }
    let works = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) => true,
        Action::Forward(targets) => targets.iter().any(|weighted| {
            let backend = compiled.parts.backends.get(&weighted.target.backend);
            backend.is_some_and(|backend| !backend.endpoints.is_empty())
        }),
    };
    let now: BTreeMap<Slot<'_>, &Arc<Route>> = slots(before).collect();
    unseen.any(|(slot, route)| now.get(&slot).is_some_and(|old| old.action != route.action && works(old)))
}
