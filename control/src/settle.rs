//! Make before break: whether a change of a host would break a route that works, or take the certificate of a server name,
//! because what it would move to is still on its way. The loop keeps such a host as it was for a bounded moment.

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

/// What a host that works now would move to and World has never seen: Services, their endpoints, or the addresses of their
/// external names; and Secrets. Kinds arrive in no order, names are looked up and Secrets may be read once they are led to, so
/// these are probably on their way. `None` when nothing would break.
pub(crate) fn awaited(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    unit: &HostUnit,
    host: &HostPattern,
) -> Option<BTreeSet<ObjectRef>> {
    let (before, after) = (compiled.parts.hosts.get(host)?, unit.routes.as_ref()?);
    let (services, secrets) =
        (services(world, topology, compiled, (before, after)), secrets(world, topology, (before, after)));
    (services.is_some() || secrets.is_some()).then(|| services.into_iter().chain(secrets).flatten().collect())
}

/// The Secrets that nobody has seen, where a server name would lose its certificate.
fn secrets(
    world: &World,
    topology: &Topology,
    (before, after): (&HostRoutes, &HostRoutes),
) -> Option<BTreeSet<ObjectRef>> {
    let left: BTreeSet<&HostPattern> = after.certificates.iter().map(|(name, _)| name).collect();
    if before.certificates.iter().all(|(name, _)| left.contains(name)) {
        return None;
    }
    let key = Key::Host(after.host.clone());
    let ingresses = topology.referrers(&key).filter_map(|claimant| world.ingresses.get(&claimant.name));
    let named = ingresses.flat_map(|ingress| ingress.tls.of(&after.host));
    let secrets = named.map(|it| ObjectRef::new(Kind::Secret, it.secret.clone()));
    let unseen: BTreeSet<ObjectRef> = secrets.filter(|secret| !world.holds(secret)).collect();
    Some(unseen).filter(|unseen| !unseen.is_empty())
}

/// The Services that routes which work now would move to, and of which something has never been seen.
fn services(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    (before, after): (&HostRoutes, &HostRoutes),
) -> Option<BTreeSet<ObjectRef>> {
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
    let objects: BTreeSet<&ObjectName> = broken.map(|(_, route)| &route.origin.object.name).collect();
    let ingresses = objects.into_iter().filter_map(|name| world.ingresses.get(name));
    let services: BTreeSet<&ObjectName> =
        ingresses.flat_map(|ingress| ingress.backends_of(&after.host)).map(|backend| &backend.service).collect();
    let awaited = services.into_iter().filter(|service| unseen(service));
    Some(awaited.map(|service| ObjectRef::new(Kind::Service, service.clone())).collect())
}
