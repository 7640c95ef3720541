//! The backends of one Service: the endpoints of each of its ports that is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Backend, BackendKey, Endpoint, SnapshotParts, Transport, VirtualHost};
use tidegate_config::object::{Kind as Object, ObjectName, ObjectRef};
use tidegate_config::project::{EndpointSlice, Service, ServiceKind, ServicePort, SliceEndpoint, SlicePort};

use super::unit::{Unit, UnitKind};
use super::{BackendUser, Compiled, Inputs, Pass};
use crate::addresses::Allowed;
use crate::attachment::{Attachment, Key};
use crate::topology::Topology;
use crate::world::World;

/// The compiled form of a Service.
#[derive(Default)]
pub(super) struct ServiceUnit {
    pub(super) backends: Vec<Backend>,
    pub(super) findings: Vec<Finding>,
}

/// Services: the endpoints of those in use.
pub(super) struct Services;

impl UnitKind for Services {
    type Key = ObjectName;
    type Output = ServiceUnit;
    const LABEL: &'static str = "service";
    const ROUTING: bool = false;

    fn after(last: Option<&ObjectName>, inputs: Inputs<'_>, compiled: &Compiled) -> Option<ObjectName> {
        let beyond = last.map_or_else(|| key(&ObjectName::default(), FIRST), |last| key(last, LAST));
        // No port has the number 0, and a host that uses the last port was passed with its Service.
        let used = compiled.uses.range(from(&beyond)..).map(|(key, _)| key).find(|key| Some(&key.service) != last);
        let after = (Excluded(beyond), Unbounded);
        let others = [inputs.frozen_backends.range(after.clone()).next(), compiled.backends.range(after).next()];
        others.into_iter().chain([used]).flatten().min().map(|key| key.service.clone())
    }

    fn owners_of(_: Inputs<'_>, service: &ObjectName) -> Vec<ObjectRef> {
        vec![ObjectRef::new(Object::Service, service.clone())]
    }

    fn make(inputs: Inputs<'_>, compiled: &Compiled, service: &ObjectName) -> ServiceUnit {
        compile(inputs, compiled, service)
    }

    /// A backend that its Service no longer has is kept while a user of it is still to be compiled. Deferred users have
    /// been.
    fn put(compiled: &mut Compiled, service: &ObjectName, unit: ServiceUnit, pass: &mut Pass<'_>) -> bool {
        let mut changed = false;
        let there = |key: &BackendKey| unit.backends.iter().any(|backend| backend.key == *key);
        let gone: Vec<BackendKey> = compiled.backends_of(service).filter(|key| !there(key)).cloned().collect();
        for key in gone {
            let mut users = compiled.uses.range(from(&key)..).take_while(|(used, _)| *used == key);
            if users.all(|(_, user)| pass.is_deferred(user)) {
                compiled.backends.remove(&key);
                changed |= compiled.parts.backends.remove_mut(&key);
            }
        }
        for backend in unit.backends {
            if compiled.parts.backends.get(&backend.key).is_none_or(|before| **before != backend) {
                compiled.backends.insert(backend.key.clone());
                compiled.parts.backends.insert_mut(backend.key.clone(), Arc::new(backend));
                changed = true;
            }
        }
        compiled.findings.put(Unit::Service(service.clone()), unit.findings);
        changed
    }

    fn serves(service: &ObjectName, compiled: &Compiled, serving: &SnapshotParts) -> bool {
        let of = |parts: &SnapshotParts, key| parts.backends.get(key).map(Arc::as_ptr);
        compiled.backends_of(service).all(|key| of(serving, key) == of(&compiled.parts, key))
    }

    fn only_in(one: &SnapshotParts, other: &SnapshotParts) -> Vec<ObjectName> {
        if one.backends.size() <= other.backends.size() {
            return Vec::new();
        }
        let left = one.backends.keys().filter(|key| !other.backends.contains_key(*key));
        left.map(|key| key.service.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn dependent_objects<'t>(
        service: &'t ObjectName,
        topology: &'t Topology,
    ) -> Box<dyn Iterator<Item = &'t ObjectRef> + 't> {
        let service = ObjectRef::new(Object::Service, service.clone());
        Box::new(topology.dependents(&Key::Object(service)))
    }

    fn services(service: &ObjectName, _: &Topology, _: &SnapshotParts) -> BTreeSet<ObjectName> {
        BTreeSet::from([service.clone()])
    }

    /// Endpoints determine no routes.
    fn changed_between(_: &SnapshotParts, _: &SnapshotParts) -> Vec<ObjectName> {
        Vec::new()
    }

    /// Services and EndpointSlices make their Services dirty when they change, attached or not.
    fn differing(_: &ObjectRef, _: &Attachment, _: &Attachment) -> Vec<ObjectName> {
        Vec::new()
    }

    fn describe(service: &ObjectName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoints of {service}")
    }
}

/// A port of a Service.
type Port = (u16, Transport);

/// The least possible port.
const FIRST: Port = (0, Transport::Tcp);

/// The greatest possible port.
const LAST: Port = (u16::MAX, Transport::Udp);

/// The port after another one.
fn next_port((number, transport): Port) -> Option<Port> {
    match transport {
        Transport::Tcp => Some((number, Transport::Udp)),
        Transport::Udp => Some((number.checked_add(1)?, Transport::Tcp)),
    }
}

fn key(service: &ObjectName, (port, transport): Port) -> BackendKey {
    BackendKey { service: service.clone(), port, transport }
}

/// The least and the greatest possible key of a Service's backends.
pub(super) fn bounds(service: &ObjectName) -> [BackendKey; 2] {
    [FIRST, LAST].map(|port| key(service, port))
}

/// The start of the range of users of a backend.
fn from(key: &BackendKey) -> (BackendKey, BackendUser) {
    (key.clone(), BackendUser::Host(VirtualHost::first()))
}

/// The least used port of a Service from a port on, or of all. Looks at one user of the port, because there may be
/// thousands.
pub(super) fn first_use(
    compiled: &Compiled,
    frozen_backends: &BTreeSet<BackendKey>,
    service: &ObjectName,
    from_port: Option<Port>,
) -> Option<Port> {
    let first = key(service, from_port.unwrap_or(FIRST));
    let used = compiled.uses.range(from(&first)..).next().map(|(key, _)| key);
    let least =
        used.into_iter().chain(frozen_backends.range(&first..).next()).filter(|key| key.service == *service).min();
    least.map(|key| (key.port, key.transport))
}

/// The used ports of a Service.
fn used_ports(compiled: &Compiled, frozen_backends: &BTreeSet<BackendKey>, service: &ObjectName) -> BTreeSet<Port> {
    let next = |port: Port| first_use(compiled, frozen_backends, service, Some(port));
    std::iter::successors(next(FIRST), |port| next_port(*port).and_then(next)).collect()
}

/// The backends of a Service, one for each of its used ports. Without any, the Service is not looked at.
fn compile(inputs: Inputs<'_>, compiled: &Compiled, name: &ObjectName) -> ServiceUnit {
    let mut unit = ServiceUnit::default();
    let wanted = used_ports(compiled, inputs.frozen_backends, name);
    let Inputs { world, topology, .. } = inputs;
    let Some(service) = world.services.get(name).filter(|_| !wanted.is_empty()) else { return unit };
    let allowed = Allowed::of(Some(name), &inputs.options.addresses, world);
    match &service.kind {
        ServiceKind::Slices => {
            let slices = topology.dependents(&Key::EndpointsOf(name.clone()));
            let slices: Vec<&Arc<EndpointSlice>> = slices.filter_map(|slice| world.slices.get(&slice.name)).collect();
            for port in service.ports.iter().filter(|port| wanted.contains(&(port.number, port.transport))) {
                unit.backends.push(from_slices(compiled, &allowed, service, port, &slices));
            }
            unit.findings = slices.iter().flat_map(|slice| refusals(&allowed, slice)).collect();
        }
        ServiceKind::ExternalName(dns) => {
            let object = ObjectRef::new(Object::Service, name.clone());
            let port_of = |(number, transport): Port| {
                service.ports.iter().find(|port| (port.number, port.transport) == (number, transport))
            };
            // It need not declare any port: then every number is one.
            let declared = |port: &Port| service.ports.is_empty() || port_of(*port).is_some();
            let target = |port: Port| port_of(port).and_then(|port| port.target).unwrap_or(port.0);
            let ports: Vec<(Port, u16)> =
                wanted.iter().copied().filter(declared).map(|port| (port, target(port))).collect();
            let (addresses, mut problems) = resolved(world, dns);
            for (port, target) in &ports {
                let usable = addresses.iter().filter(|address| allowed.refusal(**address, *target).is_none());
                let key = key(name, *port);
                let before = compiled.parts.backends.get(&key);
                let endpoints =
                    usable.map(|address| endpoint(port.1, SocketAddr::new(*address, *target), None, before));
                let of_port = Backend::new(key, sorted(endpoints));
                unit.backends.push(Backend { requests_max: service.requests_max, ..of_port });
            }
            problems.extend(addresses.iter().filter_map(|address| {
                let why = ports.iter().find_map(|(_, target)| allowed.refusal(*address, *target))?.to_owned();
                Some(Problem::AddressRefused { address: format!("{address} of {dns}"), why })
            }));
            let finding = |problem| Finding::new(object.clone(), "spec.externalName", problem);
            unit.findings = problems.into_iter().map(finding).collect();
        }
    }
    unit
}

/// The endpoints of a port: those of the slice ports of its name (ports may differ by pod), each address once. While
/// none is ready, those that still serve while they terminate; beside ready ones these only keep their sessions.
fn from_slices(
    compiled: &Compiled,
    allowed: &Allowed<'_>,
    service: &Service,
    port: &ServicePort,
    slices: &[&Arc<EndpointSlice>],
) -> Backend {
    let key = key(&service.name, (port.number, port.transport));
    let before = compiled.parts.backends.get(&key);
    let of_same_port = |other: &&SlicePort| other.name == port.name && other.transport == port.transport;
    let of_port = slices.iter().flat_map(|slice| {
        let numbers = slice.ports.iter().filter(of_same_port).map(|p| p.number);
        numbers.flat_map(|number| slice.endpoints.iter().map(move |endpoint| (number, endpoint)))
    });
    let usable: Vec<_> = of_port.filter(|(number, e)| allowed.refusal(e.address, *number).is_none()).collect();
    let any_ready = usable.iter().any(|(_, endpoint)| endpoint.ready);
    let (ready, others): (Vec<_>, Vec<_>) = usable.into_iter().partition(|(_, endpoint)| endpoint.ready);
    let serving = others.into_iter().filter(|(_, endpoint)| endpoint.serving).collect();
    let (chosen, draining) = if any_ready { (ready, serving) } else { (serving, Vec::new()) };
    let endpoints = |chosen: Vec<(u16, &SliceEndpoint)>| {
        let chosen = chosen.into_iter();
        let address = |number, e: &SliceEndpoint| SocketAddr::new(e.address, number);
        sorted(chosen.map(|(number, e)| endpoint(port.transport, address(number, e), e.pod.as_ref(), before)))
    };
    let endpoints_of_port = endpoints(chosen);
    let is_ready = |it: &Endpoint| endpoints_of_port.binary_search_by_key(&it.address, |ready| ready.address).is_ok();
    let draining = endpoints(draining).into_iter().filter(|it| !is_ready(it)).collect();
    Backend { key, endpoints: endpoints_of_port, draining, requests_max: service.requests_max }
}

/// An endpoint of a backend. One that the backend has already is taken from there, because to compute its identity
/// costs more than all the rest.
fn endpoint(
    transport: Transport,
    address: SocketAddr,
    pod: Option<&Arc<str>>,
    before: Option<&Arc<Backend>>,
) -> Endpoint {
    let serves = before.and_then(|before| {
        let index = before.endpoints.binary_search_by_key(&address, |endpoint| endpoint.address).ok()?;
        before.endpoints.get(index).filter(|endpoint| endpoint.pod.as_ref() == pod)
    });
    serves.cloned().unwrap_or_else(|| Endpoint::new(transport, address, pod.cloned()))
}

/// Each address once: an endpoint may be in two slices while they are being rewritten.
fn sorted(endpoints: impl Iterator<Item = Endpoint>) -> Box<[Endpoint]> {
    let by_address: BTreeMap<SocketAddr, Endpoint> = endpoints.map(|endpoint| (endpoint.address, endpoint)).collect();
    by_address.into_values().collect()
}

fn refusals(allowed: &Allowed<'_>, slice: &EndpointSlice) -> Vec<Finding> {
    let object = ObjectRef::new(Object::EndpointSlice, slice.name.clone());
    let refusal = |address| slice.ports.iter().find_map(|port| allowed.refusal(address, port.number));
    let refused = slice.endpoints.iter().filter_map(|e| Some((e.address, refusal(e.address)?)));
    refused
        .map(|(address, why)| {
            let problem = Problem::AddressRefused { address: address.to_string(), why: why.to_owned() };
            Finding::new(object.clone(), "endpoints", problem)
        })
        .collect()
}

fn resolved<'a>(world: &'a World, dns: &Arc<str>) -> (&'a [IpAddr], Vec<Problem>) {
    match world.names.get(dns) {
        None => (&[], vec![unresolved(dns, "it has not been looked up yet")]),
        Some(Err(why)) => (&[], vec![unresolved(dns, why)]),
        Some(Ok(addresses)) => (addresses, Vec::new()),
    }
}

fn unresolved(dns: &str, why: &str) -> Problem {
    Problem::NameUnresolved { name: dns.to_owned(), why: why.to_owned() }
}
