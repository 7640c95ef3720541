//! Make before break: whether a change of a host would break a working route, or remove the certificate of a server
//! name, because its new backends or Secrets have not arrived yet. Such a host stays unchanged for a bounded time, and
//! so does the stream of connections for a host that are passed on as bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::{
    Action, BackendKey, Destination, HostRoutes, Route, StreamRoute, StreamTarget, VirtualHost,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::ServiceKind;

use crate::attachment::Key;
use crate::compile::{Compiled, HostUnit, Next, Unit};
use crate::topology::Topology;
use crate::world::World;

/// The hosts and streams that stay unchanged for now. An event costs what waits for its object, however many others
/// wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    units: BTreeMap<Unit, AwaitedObjects>,
    by_deadline: BTreeSet<(Instant, Unit)>,
    by_object: BTreeMap<ObjectRef, BTreeSet<Unit>>,
}

/// The objects that a host or stream waits for.
#[derive(Debug)]
pub(super) struct AwaitedObjects {
    pub(super) until: Instant,
    pub(super) awaited: BTreeSet<ObjectRef>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Unit, &AwaitedObjects)> {
        self.units.iter()
    }

    pub(super) fn contains(&self, unit: &Unit) -> bool {
        self.units.contains_key(unit)
    }

    /// The earliest deadline of a wait.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(until, _)| *until)
    }

    /// The units that wait for an object.
    pub(super) fn awaiting(&self, object: &ObjectRef) -> Vec<Unit> {
        self.by_object.get(object).into_iter().flatten().cloned().collect()
    }

    /// Ends the waits whose deadline has passed, and those of these units.
    pub(super) fn end(&mut self, now: Instant, units: &BTreeSet<Unit>) -> BTreeMap<Unit, AwaitedObjects> {
        let expired = self.by_deadline.iter().take_while(|(until, _)| *until <= now).map(|(_, unit)| unit.clone());
        let named = units.iter().filter(|unit| self.contains(unit)).cloned();
        let ended: BTreeSet<Unit> = expired.chain(named).collect();
        ended.into_iter().filter_map(|unit| Some((unit.clone(), self.remove(&unit)?))).collect()
    }

    /// Begins waits, in place of earlier ones of the same units.
    pub(super) fn begin(&mut self, waits: BTreeMap<Unit, AwaitedObjects>) {
        for (unit, wait) in waits {
            self.remove(&unit);
            self.by_deadline.insert((wait.until, unit.clone()));
            for object in &wait.awaited {
                self.by_object.entry(object.clone()).or_default().insert(unit.clone());
            }
            self.units.insert(unit, wait);
        }
    }

    fn remove(&mut self, unit: &Unit) -> Option<AwaitedObjects> {
        let wait = self.units.remove(unit)?;
        self.by_deadline.remove(&(wait.until, unit.clone()));
        for object in &wait.awaited {
            if let Some(units) = self.by_object.get_mut(object) {
                units.remove(unit);
                if units.is_empty() {
                    self.by_object.remove(object);
                }
            }
        }
        Some(wait)
    }
}

/// The state that the decision is based on.
#[derive(Clone, Copy)]
struct WaitInputs<'a> {
    world: &'a World,
    topology: &'a Topology,
    compiled: &'a Compiled,
}

/// The backends and Secrets of a working host's next routes that World has never seen: Services, their endpoints, the
/// addresses of their external names, or Secrets. Kinds arrive in any order, and names are looked up and Secrets may be
/// read only once routes use them, so these are probably about to arrive. `None` if nothing would break.
pub(super) fn awaited(
    world: &World,
    topology: &Topology,
    compiled: &Compiled,
    next: &Next<'_>,
) -> Option<BTreeSet<ObjectRef>> {
    let known = WaitInputs { world, topology, compiled };
    let (host, unit) = match next {
        Next::Host(host, unit) => (host, unit),
        Next::Stream(host, route) => return known.awaited_by_connections(host, route.as_deref()?),
    };
    let (before, after) = (compiled.parts.hosts.get(host)?, unit.routes.as_ref()?);
    let (services, secrets) = (known.services((before, after, unit)), known.secrets((before, after)));
    (services.is_some() || secrets.is_some()).then(|| services.into_iter().chain(secrets).flatten().collect())
}

impl WaitInputs<'_> {
    /// Whether the endpoints of a Service, or the addresses of its external name, have never been seen.
    fn is_unseen(&self, service: &ObjectName) -> bool {
        match self.world.services.get(service).map(|service| &service.kind) {
            Some(ServiceKind::ExternalName(name)) => !self.world.names.contains_key(name),
            Some(ServiceKind::Slices) | None => !self.topology.has_dependents(&Key::EndpointsOf(service.clone())),
        }
    }

    /// The Secrets that World has never seen, if a server name would lose its certificate.
    fn secrets(&self, (before, after): (&HostRoutes, &HostRoutes)) -> Option<BTreeSet<ObjectRef>> {
        if before.certificates == after.certificates {
            return None;
        }
        let left: BTreeSet<_> = after.certificates.iter().map(|(name, _)| name).collect();
        if before.certificates.iter().all(|(name, _)| left.contains(name)) {
            return None;
        }
        let missing = self.topology.claims_of(&after.host).flat_map(|claim| &claim.missing);
        let unseen = missing.filter(|object| object.kind == Kind::Secret && !self.world.holds(object));
        let unseen: BTreeSet<ObjectRef> = unseen.cloned().collect();
        Some(unseen).filter(|unseen| !unseen.is_empty())
    }

    /// The unseen Services of the routes that would replace working ones.
    fn services(&self, (before, after, unit): (&HostRoutes, &HostRoutes, &HostUnit)) -> Option<BTreeSet<ObjectRef>> {
        let claim = |object: &ObjectRef| self.topology.get(object)?.claim(&after.host);
        // A route to a Service that does not exist has no target, so only the claim names that Service.
        let lacks_service = |route: &Route| {
            let missing = claim(&route.origin.object).into_iter().flat_map(|claim| &claim.missing);
            missing.filter(|object| object.kind == Kind::Service).count() > 0
        };
        let leads_nowhere = |route: &Arc<Route>| match &route.action {
            Action::Redirect(_) | Action::Respond(_) => false,
            Action::Forward(shares) => shares.iter().filter(|share| share.weight > 0).all(|share| match &share.to {
                Destination::Target(target) => target.fixed.is_none() && self.is_unseen(&target.backend.service),
                Destination::Status(_) => lacks_service(route),
            }),
        };
        let works = |route: &Arc<Route>| match &route.action {
            Action::Redirect(_) | Action::Respond(_) => true,
            Action::Forward(_) => route.action.targets().any(|target| match &target.fixed {
                Some(backend) => !backend.endpoints.is_empty(),
                None => self.has_endpoints(&target.backend),
            }),
        };
        // Each added route, with the one that takes its requests until then: one that matches the same requests, or the
        // last one with its path.
        let added = unit.routes_added(before).into_iter().filter(|route| leads_nowhere(route));
        let paths = added.filter_map(|route| {
            let same_path = || before.with_path(&route.path);
            let taking = same_path().find(|old| old.same_match(route)).or_else(|| same_path().last());
            Some((taking?, route))
        });
        let others = [(&before.fallback, &after.fallback), (&before.last_resort, &after.last_resort)];
        let others = others.into_iter().filter_map(|(old, new)| old.as_ref().zip(new.as_ref()));
        let moved = paths.chain(others.filter(|(_, route)| leads_nowhere(route)));
        let mut broken = moved.filter(|(old, route)| old.action != route.action && works(old)).peekable();
        broken.peek()?;
        let objects: BTreeSet<&ObjectRef> = broken.map(|(_, route)| &route.origin.object).collect();
        let claims: Vec<_> = objects.into_iter().filter_map(claim).collect();
        let missing = claims.iter().flat_map(|claim| &claim.missing).filter(|object| object.kind == Kind::Service);
        let backends_of_host = claims.iter().flat_map(|claim| claim.backends()).map(|key| &key.service);
        let unseen = self.unseen(missing.map(|object| &object.name).chain(backends_of_host));
        Some(unseen).filter(|unseen| !unseen.is_empty())
    }

    /// The unseen Services of a stream that would replace a working one.
    fn awaited_by_connections(&self, host: &VirtualHost, after: &StreamRoute) -> Option<BTreeSet<ObjectRef>> {
        let before = self.compiled.parts.streams.get(host)?;
        let works = before.targets().any(|target| self.has_endpoints(&target.backend));
        let mut shares = after.backends.iter().filter(|share| share.weight > 0);
        let somewhere = |target: &StreamTarget| !self.is_unseen(&target.backend.service);
        if !works || before.backends == after.backends || shares.any(|share| share.to.as_ref().is_some_and(somewhere)) {
            return None;
        }
        // A backend whose Service does not exist has no target, so only the attachment names that Service.
        let missing = self.topology.get(&after.origin.object)?.other_claims().missing.iter().map(|object| &object.name);
        let unseen = self.unseen(missing.chain(after.targets().map(|target| &target.backend.service)));
        Some(unseen).filter(|unseen| !unseen.is_empty())
    }

    fn has_endpoints(&self, key: &BackendKey) -> bool {
        self.compiled.parts.backends.get(key).is_some_and(|backend| !backend.endpoints.is_empty())
    }

    /// The Services among these that are unseen.
    fn unseen<'s>(&self, services: impl Iterator<Item = &'s ObjectName>) -> BTreeSet<ObjectRef> {
        let services: BTreeSet<&ObjectName> = services.filter(|service| self.is_unseen(service)).collect();
        services.into_iter().map(|service| ObjectRef::new(Kind::Service, service.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::HostPattern;

    use super::*;
    use crate::clock;

    fn host(name: char) -> Unit {
        Unit::Host(HostPattern::Exact(name.to_string().into()).into())
    }

    fn service(name: char) -> ObjectRef {
        ObjectRef::new(Kind::Service, ObjectName::new("shop", name.to_string()))
    }

    fn hosts(names: &str) -> BTreeSet<Unit> {
        names.chars().map(host).collect()
    }

    /// A host that waits until so many seconds after `start` for these Services.
    fn wait(start: Instant, (name, seconds, services): (char, u64, &str)) -> (Unit, AwaitedObjects) {
        let until = start + Duration::from_secs(seconds);
        (host(name), AwaitedObjects { until, awaited: services.chars().map(service).collect() })
    }

    /// The hosts `a`, `b` and `c`, which wait until second 1, 3 and 2.
    fn waits(start: Instant) -> Waits {
        let mut waits = Waits::default();
        waits.begin([('a', 1, "x"), ('b', 3, "xy"), ('c', 2, "y")].map(|of| wait(start, of)).into());
        waits
    }

    /// Ends waits in a second and those of some hosts. Checks which end, and when the next of the others does.
    #[track_caller]
    fn check(second: u64, compiled: &str, ended: &str, next: Option<u64>) {
        let start = clock::now();
        let mut waits = waits(start);
        let got = waits.end(start + Duration::from_secs(second), &hosts(compiled));
        assert_eq!(got.into_keys().collect::<BTreeSet<_>>(), hosts(ended));
        let left: BTreeSet<Unit> = waits.iter().map(|(unit, _)| unit.clone()).collect();
        assert_eq!(left, &hosts("abc") - &hosts(ended));
        assert_eq!(waits.first_end(), next.map(|seconds| start + Duration::from_secs(seconds)));
        assert_eq!(waits.is_empty(), next.is_none());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_or_if_its_host_is_compiled_anyway() {
        check(0, "", "", Some(1));
        check(0, "c", "c", Some(1));
        check(0, "ac", "ac", Some(3));
        check(1, "", "a", Some(2));
        check(2, "", "ac", Some(3));
        check(2, "bz", "abc", None);
        check(9, "", "abc", None);
    }

    #[test]
    fn an_object_is_awaited_by_the_hosts_whose_current_wait_names_it() {
        let start = clock::now();
        let mut waits = waits(start);
        let awaiting = |waits: &Waits, of| waits.awaiting(&service(of)).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(['x', 'y', 'z'].map(|of| awaiting(&waits, of)), [hosts("ab"), hosts("bc"), hosts("")]);
        waits.begin([wait(start, ('a', 5, "z"))].into());
        assert_eq!(['x', 'y', 'z'].map(|of| awaiting(&waits, of)), [hosts("b"), hosts("bc"), hosts("a")]);
        waits.end(start, &hosts("b"));
        assert_eq!(['x', 'y', 'z'].map(|of| awaiting(&waits, of)), [hosts(""), hosts("c"), hosts("a")]);
        waits.end(start, &hosts("ac"));
        assert!(waits.by_object.is_empty() && waits.by_deadline.is_empty());
    }
}
