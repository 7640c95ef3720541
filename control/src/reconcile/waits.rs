//! Make before break: whether a change of a host would break a route that works, or take the certificate of a server name,
//! because what it would move to is still on its way. Such a host stays as it was for a bounded moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::{Action, HostRoutes, Route, VirtualHost};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::compile::{Compiled, HostUnit};
use crate::topology::{Key, Topology};
use crate::world::World;

/// The hosts that stay as they were.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<VirtualHost, Wait>);

/// What a host waits for.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) until: Instant,
    pub(super) awaited: BTreeSet<ObjectRef>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&VirtualHost, &Wait)> {
        self.0.iter()
    }

    /// When the first of them waits no longer.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.0.values().map(|wait| wait.until).min()
    }

    /// The hosts that wait for an object.
    pub(super) fn awaiting(&self, object: &ObjectRef) -> Vec<VirtualHost> {
        let hosts = self.0.iter().filter(|(_, wait)| wait.awaited.contains(object));
        hosts.map(|(host, _)| host.clone()).collect()
    }

    /// Ends the waits whose time is over, and those of these hosts.
    pub(super) fn end(&mut self, now: Instant, hosts: impl Fn(&VirtualHost) -> bool) -> BTreeMap<VirtualHost, Wait> {
        self.0.extract_if(.., |host, wait| wait.until <= now || hosts(host)).collect()
    }

    pub(super) fn begin(&mut self, waits: BTreeMap<VirtualHost, Wait>) {
        self.0.extend(waits);
    }
}

/// What a host that works now would move to and World has never seen: Services, their endpoints, or the addresses of their
/// external names; and Secrets. Kinds arrive in no order, names are looked up and Secrets may be read once they are led to, so
/// these are probably on their way. `None` when nothing would break.
pub(super) fn awaited(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    unit: &HostUnit,
    host: &VirtualHost,
) -> Option<BTreeSet<ObjectRef>> {
    let (before, after) = (compiled.parts.hosts.get(host)?, unit.routes.as_ref()?);
    let (services, secrets) =
        (services(world, topology, compiled, (before, after, unit)), secrets(world, topology, (before, after)));
    (services.is_some() || secrets.is_some()).then(|| services.into_iter().chain(secrets).flatten().collect())
}

/// The Secrets that nobody has seen, where a server name would lose its certificate.
fn secrets(
    world: &World,
    topology: &Topology,
    (before, after): (&HostRoutes, &HostRoutes),
) -> Option<BTreeSet<ObjectRef>> {
    if before.certificates == after.certificates {
        return None;
    }
    let left: BTreeSet<_> = after.certificates.iter().map(|(name, _)| name).collect();
    if before.certificates.iter().all(|(name, _)| left.contains(name)) {
        return None;
    }
    let missing = topology.claims_of(&after.host).flat_map(|claim| &claim.missing);
    let unseen = missing.filter(|object| object.kind == Kind::Secret && !world.holds(object));
    let unseen: BTreeSet<ObjectRef> = unseen.cloned().collect();
    Some(unseen).filter(|unseen| !unseen.is_empty())
}

/// The Services that routes which work now would move to, and of which something has never been seen.
fn services(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    (before, after, unit): (&HostRoutes, &HostRoutes, &HostUnit),
) -> Option<BTreeSet<ObjectRef>> {
    let unseen = |service: &ObjectName| match world.services.get(service).map(|service| &service.kind) {
        Some(ServiceKind::ExternalName(name)) => !world.names.contains_key(name),
        Some(ServiceKind::Slices) | None => !topology.has_dependents(&Key::EndpointsOf(service.clone())),
    };
    let leads_nowhere = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) | Action::Respond(_) => false,
        Action::Forward(shares) => shares.iter().all(|share| {
            share.target().is_some_and(|target| target.fixed.is_none() && unseen(&target.backend.service))
        }),
    };
    let works = |route: &Arc<Route>| match &route.action {
        Action::Redirect(_) | Action::Respond(_) => true,
        Action::Forward(_) => route.action.targets().any(|target| {
            let backend = target.fixed.as_ref().or_else(|| compiled.parts.backends.get(&target.backend));
            backend.is_some_and(|backend| !backend.endpoints.is_empty())
        }),
    };
    // Each route that comes, and the last one to take requests for its path until then.
    let come = unit.routes_come(before).into_iter().filter(|route| leads_nowhere(route));
    let paths = come.filter_map(|route| Some((before.with_path(&route.path).last()?, route)));
    let others = [(&before.fallback, &after.fallback), (&before.last_resort, &after.last_resort)];
    let others = others.into_iter().filter_map(|(old, new)| old.as_ref().zip(new.as_ref()));
    let moved = paths.chain(others.filter(|(_, route)| leads_nowhere(route)));
    let mut broken = moved.filter(|(old, route)| old.action != route.action && works(old)).peekable();
    broken.peek()?;
    // A route to a Service that is not there has no target, so only the claim knows which one is meant.
    let objects: BTreeSet<&ObjectRef> = broken.map(|(_, route)| &route.origin.object).collect();
    let claims: Vec<_> = objects.into_iter().filter_map(|object| topology.get(object)?.claim(&after.host)).collect();
    let missing = claims.iter().flat_map(|claim| &claim.missing).filter(|object| object.kind == Kind::Service);
    let backends_of_host = claims.iter().flat_map(|claim| claim.backends()).map(|key| &key.service);
    let services: BTreeSet<&ObjectName> = missing.map(|object| &object.name).chain(backends_of_host).collect();
    let awaited = services.into_iter().filter(|service| unseen(service));
    Some(awaited.map(|service| ObjectRef::new(Kind::Service, service.clone())).collect())
}
