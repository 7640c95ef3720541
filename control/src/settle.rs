//! Make before break: whether a change of a host would break a route that works, because what it would move to is
//! still on its way. The loop keeps such a host as it was for a bounded moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::{Action, HostPattern, HostRoutes, Route};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::compile::{Compiled, HostUnit};
use crate::topology::{Key, Topology};
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

/// What routes which work now would move to and World has never seen: Services, their endpoints, or the addresses of their
/// external names. Kinds arrive in no order and names are looked up once they are led to, so these are probably on their
/// way. `None` when no route would break.
pub(crate) fn awaited(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    unit: &HostUnit,
    host: &HostPattern,
) -> Option<BTreeSet<ObjectRef>> {
    let (before, after) = (compiled.parts.hosts.get(host)?, unit.routes.as_ref()?);
    let unseen = |service: &ObjectName| match world.services.get(service).map(|service| &service.kind) {
        Some(ServiceKind::ExternalName(name)) => !world.names.contains_key(name),
        Some(ServiceKind::Slices) | None => {
            let key = ObjectRef::new(Kind::Service, service.clone());
            topology.referrers_of(key, Kind::EndpointSlice).next().is_none()
        }
    };
    let leads_nowhere = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) => false,
        Action::Forward(targets) => targets.iter().all(|weighted| unseen(&weighted.target.backend.service)),
    };
    let mut nowhere = slots(after).filter(|(_, route)| leads_nowhere(route)).peekable();
    nowhere.peek()?;
    let works = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) => true,
        Action::Forward(targets) => targets.iter().any(|weighted| {
            let backend = compiled.parts.backends.get(&weighted.target.backend);
            backend.is_some_and(|backend| !backend.endpoints.is_empty())
        }),
    };
    let now: BTreeMap<Slot<'_>, &Arc<Route>> = slots(before).collect();
    let mut broken = nowhere
        .filter(|(slot, route)| now.get(slot).is_some_and(|old| old.action != route.action && works(old)))
        .peekable();
    broken.peek()?;
    // A route to a Service that is not there has no target, so only its object knows which one is meant.
    let objects: BTreeSet<&ObjectRef> = broken.map(|(_, route)| &route.origin.object).collect();
    let keys = objects.into_iter().flat_map(|object| topology.references_of(object));
    let services = keys.filter_map(|key| match key {
        Key::Object(object) => (object.kind == Kind::Service && unseen(&object.name)).then(|| object.clone()),
        Key::InNamespace(..) | Key::Any(_) | Key::Host(_) | Key::Name(_) => None,
    });
    Some(services.collect())
}
