//! The compiler: from World to the parts of a snapshot, findings and verdicts. Pure: no clock, no I/O, no log line.
//!
//! [`compile`] is the specification: everything, by plain scans. [`Compiled::recompile`] does only what is dirty and
//! finds the objects of a unit through the topology. Both call the same function for each unit: a host, a Service's
//! backends, an Ingress's verdict.

mod class;
mod dirty;
mod findings;
mod host;
mod route;
mod service;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use class::is_ours;
pub use class::{Membership, membership};
pub use dirty::Dirty;
pub use findings::Findings;
pub use host::HostUnit;
use serde::Serialize;
pub(crate) use service::KUBERNETES;
use tidegate_config::caught::caught;
use tidegate_config::finding::{Finding, Problem, printable};
use tidegate_config::model::{Action, BackendKey, HostPattern, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{BackendRef, EndpointSlice, Ingress, PortRef, Service, ServiceKind};
pub use unit::Unit;

use crate::history::Changes;
use crate::options::Options;
use crate::topology::{Key, Topology};
use crate::world::World;

/// What the compiler returns.
#[derive(Debug, Default)]
pub struct Compiled {
    /// What the next snapshot is made of.
    pub parts: SnapshotParts,
    /// What users should be told.
    pub findings: Findings,
    /// What became of each Ingress.
    pub verdicts: BTreeMap<ObjectName, Verdict>,
    /// The backends in the parts in the order of their Services, so that those of ports that went away can be removed.
    backends: BTreeSet<BackendKey>,
    /// The hosts in the parts in their order, so that an audit can walk them.
    hosts: BTreeSet<HostPattern>,
}

/// What became of an object for one of its parents, also when all is well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// The class that it is served under; `None` where it is not ours to serve.
    pub class: Option<Arc<str>>,
}

/// The port numbers by which Services are led to.
type Ports = BTreeMap<ObjectName, BTreeSet<u16>>;

/// What one recompilation touched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// How the parts differ from before.
    pub changes: Changes,
    /// Hosts that were compiled.
    pub hosts: usize,
    /// Services whose backends were compiled.
    pub services: usize,
    /// Whether an Ingress has become ours, or is no longer.
    pub members: bool,
}

/// Everything, from scratch.
#[must_use]
pub fn compile(world: &World, options: &Options) -> Compiled {
    let mut claims: BTreeMap<&HostPattern, Vec<&Arc<Ingress>>> = BTreeMap::new();
    let mut led_to = Ports::new();
    for ingress in world.ingresses.values().filter(|ingress| is_ours(world, options, ingress)) {
        for host in ingress.hosts() {
            claims.entry(host).or_default().push(ingress);
        }
        for backend in ingress.backends() {
            led_to.entry(backend.service.clone()).or_default().extend(number(backend));
        }
    }
    for key in &*options.followed {
        led_to.entry(key.service.clone()).or_default().insert(key.port);
    }
    let mut slices: BTreeMap<ObjectName, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in world.slices.values() {
        if let Some(service) = &slice.service {
            slices.entry(service.clone()).or_default().push(slice);
        }
    }
    let mut compiled = Compiled::empty(options);
    for (&host, claims) in &claims {
        let claimants = claims.iter().map(|ingress| ObjectRef::new(Kind::Ingress, ingress.age.name.clone()));
        let make = || host::compile(world, options, host, claims);
        compiled.unit(Unit::Host(host.clone()), claimants, make, |compiled, unit| compiled.put_host(host, unit));
    }
    for (service, numbers) in &led_to {
        let slices = slices.remove(service).unwrap_or_default();
        let make = || service::compile(world, options, service, &slices, numbers.iter().copied());
        let object = [ObjectRef::new(Kind::Service, service.clone())];
        compiled
            .unit(Unit::Service(service.clone()), object, make, |compiled, unit| compiled.put_service(service, unit));
    }
    for kind in Kind::ALL {
        for object in world.names_of(kind, None) {
            compiled.object(world, options, object);
        }
    }
    compiled.default_certificate(world, options);
    compiled
}

impl Compiled {
    /// What an empty world compiles to.
    #[must_use]
    pub fn empty(options: &Options) -> Self {
        let parts = SnapshotParts {
            binds: Arc::clone(&options.binds),
            defaults: Arc::clone(&options.defaults),
            trusted_proxies: Arc::clone(&options.trusted_proxies),
            ..SnapshotParts::default()
        };
        Self { parts, ..Self::default() }
    }

    /// Compiles what is dirty and nothing else. A host that `defer` asks to keep stays as it was, and is returned.
    ///
    /// A unit that panics keeps its last good state, and the objects that it was made of are told.
    pub fn recompile(
        &mut self,
        world: &World,
        options: &Options,
        topology: &Topology,
        dirty: &Dirty,
        mut defer: impl FnMut(&HostPattern, &Self, &HostUnit) -> bool,
    ) -> (Touched, BTreeSet<HostPattern>) {
        let mut touched = Touched { hosts: dirty.hosts.len(), services: dirty.services.len(), ..Touched::default() };
        let mut deferred = BTreeSet::new();
        for host in &dirty.hosts {
            let key = Key::Host(host.clone());
            let claims: Vec<_> = ours(world, options, topology.referrers(&key)).collect();
            let make = || host::compile(world, options, host, &claims);
            let claimants = topology.referrers(&key).cloned();
            let before = self.parts.hosts.get(host).map_or(0, |routes| routes.routes().len());
            let moved = self.unit(Unit::Host(host.clone()), claimants, make, |compiled, unit| {
                let waits = defer(host, compiled, &unit);
                if waits {
                    deferred.insert(host.clone());
                }
                !waits && compiled.put_host(host, unit)
            });
            if moved {
                touched.changes.hosts.add(|| host.clone());
                touched.changes.replaced += before;
                touched.changes.added += self.parts.hosts.get(host).map_or(0, |routes| routes.routes().len());
            }
        }
        // The backends of a host that stays as it was stay with it, whoever leads to them now.
        let mut still_used = Ports::new();
        let stay = deferred.iter().flat_map(|host| self.led_to(host)).cloned();
        for BackendKey { service, port } in stay.chain(dirty.needed.iter().cloned()) {
            still_used.entry(service).or_default().insert(port);
        }
        let numbers = numbers(world, options, topology, &dirty.services);
        for service in &dirty.services {
            let key = ObjectRef::new(Kind::Service, service.clone());
            let slices: Vec<_> = topology
                .referrers_of(key.clone(), Kind::EndpointSlice)
                .filter_map(|slice| world.slices.get(&slice.name))
                .collect();
            // Looked at only as far as needed: all the Ingresses of a cluster may lead to one Service.
            let led_to = ours(world, options, topology.referrers_of(key.clone(), Kind::Ingress)).next().is_some();
            let kept = still_used.get(service).into_iter().flatten().copied().chain(options.followed_of(service));
            let needed = led_to || kept.clone().next().is_some();
            let numbers = numbers.get(service).into_iter().flatten().copied().chain(kept);
            let make = || match needed {
                true => service::compile(world, options, service, &slices, numbers),
                false => service::ServiceUnit::default(),
            };
            let moved = self.unit(Unit::Service(service.clone()), [key.clone()], make, |compiled, unit| {
                compiled.put_service(service, unit)
            });
            if moved {
                touched.changes.services.add(|| service.clone());
            }
        }
        for object in &dirty.objects {
            touched.members |= self.object(world, options, object);
        }
        if dirty.default_certificate {
            touched.changes.default_certificate |= self.default_certificate(world, options);
        }
        (touched, deferred)
    }

    /// The backends of a Service as they were compiled last.
    pub(crate) fn backends_of(&self, service: &ObjectName) -> impl Iterator<Item = &BackendKey> {
        let [first, last] = [0, u16::MAX].map(|port| BackendKey { service: service.clone(), port });
        self.backends.range(first..=last)
    }

    /// What the routes of a host lead to as they were compiled last.
    pub fn led_to(&self, host: &HostPattern) -> impl Iterator<Item = &BackendKey> {
        led_to(&self.parts, host)
    }

    /// Everything that users should be told, each thing once, ordered by object and field.
    #[must_use]
    pub fn all_findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    /// Compiles one unit and puts it in its place; what that says. One that panics stays as it was, and the
    /// objects that it was made of are told.
    fn unit<T>(
        &mut self,
        unit: Unit,
        made_of: impl IntoIterator<Item = ObjectRef>,
        make: impl FnOnce() -> T,
        put: impl FnOnce(&mut Self, T) -> bool,
    ) -> bool {
        let made = caught(|| {
            #[cfg(test)]
            tests::trip(&unit);
            make()
        });
        match made {
            Ok(made) => put(self, made),
            Err(said) => {
                let problem = Problem::SetAside { why: printable(&said) };
                let told = made_of.into_iter().map(|object| Finding::new(object, "", problem.clone()));
                self.findings.put(unit, told.collect());
                false
            }
        }
    }

    fn object(&mut self, world: &World, options: &Options, object: &ObjectRef) -> bool {
        let make = || class::compile(world, options, object);
        self.unit(Unit::Object(object.clone()), [object.clone()], make, |compiled, unit| {
            compiled.put_object(object, unit)
        })
    }

    fn default_certificate(&mut self, world: &World, options: &Options) -> bool {
        let secret = options.default_certificate.as_ref().map(|name| ObjectRef::new(Kind::Secret, name.clone()));
        let make = || host::default_certificate(world, options);
        self.unit(Unit::DefaultCertificate, secret, make, Self::put_default_certificate)
    }

    fn put_host(&mut self, host: &HostPattern, unit: HostUnit) -> bool {
        self.findings.put(Unit::Host(host.clone()), unit.findings);
        match (self.parts.hosts.get(host), unit.routes) {
            (None, None) => false,
            (Some(before), Some(after)) if **before == after => false,
            (_, Some(after)) => {
                self.parts.hosts.insert(host, Arc::new(after));
                self.hosts.insert(host.clone());
                true
            }
            (Some(_), None) => {
                self.hosts.remove(host);
                self.parts.hosts.remove(host)
            }
        }
    }

    fn put_service(&mut self, service: &ObjectName, unit: service::ServiceUnit) -> bool {
        let mut changed = false;
        let gone = self.backends_of(service).filter(|key| unit.backends.iter().all(|backend| backend.key != **key));
        for gone in gone.cloned().collect::<Vec<_>>() {
            self.backends.remove(&gone);
            changed |= self.parts.backends.remove_mut(&gone);
        }
        for backend in unit.backends {
            if self.parts.backends.get(&backend.key).is_none_or(|before| **before != backend) {
                self.backends.insert(backend.key.clone());
                self.parts.backends.insert_mut(backend.key.clone(), Arc::new(backend));
                changed = true;
            }
        }
        self.findings.put(Unit::Service(service.clone()), unit.findings);
        changed
    }

    /// Whether the object has become ours, or is no longer.
    fn put_object(&mut self, object: &ObjectRef, unit: class::ObjectUnit) -> bool {
        let ours = |verdict: &Verdict| verdict.class.is_some();
        let after = unit.verdict.as_ref().is_some_and(ours);
        let before = match unit.verdict {
            Some(verdict) => self.verdicts.insert(object.name.clone(), verdict),
            None if object.kind == Kind::Ingress => self.verdicts.remove(&object.name),
            None => None,
        };
        self.findings.put(Unit::Object(object.clone()), unit.findings);
        before.as_ref().is_some_and(ours) != after
    }

    fn put_default_certificate(&mut self, unit: host::DefaultCertificate) -> bool {
        let changed = self.parts.default_certificate != unit.certificate;
        self.parts.default_certificate = unit.certificate;
        self.findings.put(Unit::DefaultCertificate, unit.findings);
        changed
    }
}

/// What the routes of a host lead to.
pub(crate) fn led_to<'a>(
    parts: &'a SnapshotParts,
    host: &HostPattern,
) -> impl Iterator<Item = &'a BackendKey> + use<'a> {
    let routes = parts.hosts.get(host).into_iter().flat_map(|routes| routes.all());
    let targets = routes.flat_map(|route| match &route.action {
        Action::Forward(targets) => &**targets,
        Action::Redirect(_) => &[],
    });
    targets.map(|weighted| &weighted.target.backend)
}

/// The Ingresses of ours among some objects. Those of others claim no host, lead to nothing and cost nothing.
fn ours<'a>(
    world: &'a World,
    options: &Options,
    objects: impl Iterator<Item = &'a ObjectRef>,
) -> impl Iterator<Item = &'a Arc<Ingress>> {
    let ingresses = objects.filter(|object| object.kind == Kind::Ingress);
    let ingresses = ingresses.filter_map(|object| world.ingresses.get(&object.name));
    ingresses.filter(move |ingress| is_ours(world, options, ingress))
}

/// The numbers by which Ingresses of ours lead to those of the Services that declare no ports; for others they do not
/// matter. Each Ingress is walked once, however many of the Services it leads to.
fn numbers(world: &World, options: &Options, topology: &Topology, services: &BTreeSet<ObjectName>) -> Ports {
    let open = |service: &Service| matches!(service.kind, ServiceKind::ExternalName(_)) && service.ports.is_empty();
    let open = services.iter().filter(|name| world.services.get(*name).is_some_and(|service| open(service)));
    let mut numbers: Ports = open.map(|name| (name.clone(), BTreeSet::new())).collect();
    let of = |name: &ObjectName| topology.referrers_of(ObjectRef::new(Kind::Service, name.clone()), Kind::Ingress);
    let leading: BTreeSet<&ObjectRef> = numbers.keys().flat_map(of).collect();
    for backend in ours(world, options, leading.into_iter()).flat_map(|ingress| ingress.backends()) {
        if let Some(of_service) = numbers.get_mut(&backend.service) {
            of_service.extend(number(backend));
        }
    }
    numbers
}

/// The number by which a port is led to, where it is one.
fn number(backend: &BackendRef) -> Option<u16> {
    match backend.port {
        PortRef::Number(number) => Some(number),
        PortRef::Name(_) => None,
    }
}
