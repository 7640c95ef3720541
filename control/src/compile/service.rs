//! The backends of one Service: the endpoints of each of its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Backend, BackendKey, Endpoint};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::{EndpointSlice, Service, ServiceKind, ServicePort, SliceEndpoint};

use crate::addresses::{API_SERVER, AddressPolicy, taken_for};
use crate::options::Options;
use crate::world::World;

/// The Service of the API server itself, and its only EndpointSlice, which the API server writes. Whoever else could write that
/// could lead every client in the cluster astray.
pub(crate) static KUBERNETES: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("default", "kubernetes"));

/// What is compiled of a Service.
#[derive(Default)]
pub(super) struct ServiceUnit {
    pub(super) backends: Vec<Backend>,
    pub(super) findings: Vec<Finding>,
}

/// Which addresses the objects of one Service may name.
struct Allowed<'a> {
    policy: &'a AddressPolicy,
    /// Where the API server says that it is.
    api_server: Option<&'a EndpointSlice>,
}

impl<'a> Allowed<'a> {
    /// Only the API server's own Service leads to where that says it is.
    fn of(service: &ObjectName, world: &'a World, options: &'a Options) -> Self {
        let api_server = world.slices.get(&*KUBERNETES).filter(|_| *service != *KUBERNETES);
        Self { policy: &options.addresses, api_server: api_server.map(|slice| &**slice) }
    }

    fn refusal(&self, address: IpAddr, port: u16) -> Option<&'static str> {
        let to = SocketAddr::new(address, port);
        let is_of = |slice: &&EndpointSlice| taken_for(to).any(|to| names(slice, to));
        self.policy.refusal(to).or_else(|| self.api_server.filter(is_of).map(|_| API_SERVER))
    }
}

fn names(slice: &EndpointSlice, to: SocketAddr) -> bool {
    let here = |endpoint: &SliceEndpoint| endpoint.address.to_canonical() == to.ip();
    slice.ports.iter().any(|port| port.number == to.port()) && slice.endpoints.iter().any(here)
}

/// The backends of a Service, one for each of its ports. Which Services are asked for (those that any route leads to)
/// is the caller's to say, and so is by which numbers; these are asked for only where they matter.
pub(super) fn compile(
    world: &World,
    options: &Options,
    name: &ObjectName,
    slices: &[&Arc<EndpointSlice>],
    numbers: impl Iterator<Item = u16>,
) -> ServiceUnit {
    let mut unit = ServiceUnit::default();
    let Some(service) = world.services.get(name) else { return unit };
    let allowed = Allowed::of(name, world, options);
    match &service.kind {
        ServiceKind::Slices => {
            for port in &service.ports {
                unit.backends.push(from_slices(&allowed, service, port, slices));
            }
            unit.findings = slices.iter().flat_map(|slice| refusals(&allowed, slice)).collect();
        }
        ServiceKind::ExternalName(dns) => {
            let object = ObjectRef::new(Kind::Service, name.clone());
            let target = |port| service.ports.iter().find(|p| p.number == port).and_then(|p| p.target).unwrap_or(port);
            let ports: Vec<(u16, u16)> =
                external_ports(service, numbers).into_iter().map(|port| (port, target(port))).collect();
            let (addresses, mut problems) = resolved(world, dns);
            for (port, target) in &ports {
                let usable = addresses.iter().filter(|address| allowed.refusal(**address, *target).is_none());
                let endpoints = usable.map(|address| Endpoint::new(SocketAddr::new(*address, *target), None));
                let key = BackendKey { service: name.clone(), port: *port };
                unit.backends.push(Backend { key, endpoints: sorted(endpoints), requests_max: service.requests_max });
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

/// The endpoints of a port: those of the slice ports of its name (ports may differ by pod), each address once.
/// While none is ready, those that still serve while they terminate.
fn from_slices(
    allowed: &Allowed<'_>,
    service: &Service,
    port: &ServicePort,
    slices: &[&Arc<EndpointSlice>],
) -> Backend {
    let of_port = slices.iter().flat_map(|slice| {
        let numbers = slice.ports.iter().filter(|p| p.name == port.name).map(|p| p.number);
        numbers.flat_map(|number| slice.endpoints.iter().map(move |endpoint| (number, endpoint)))
    });
    let usable: Vec<_> = of_port.filter(|(number, e)| allowed.refusal(e.address, *number).is_none()).collect();
    let any_ready = usable.iter().any(|(_, endpoint)| endpoint.ready);
    let chosen = usable.into_iter().filter(|(_, e)| if any_ready { e.ready } else { e.serving });
    let endpoints = chosen.map(|(number, e)| Endpoint::new(SocketAddr::new(e.address, number), e.pod.clone()));
    let key = BackendKey { service: service.name.clone(), port: port.number };
    Backend { key, endpoints: sorted(endpoints), requests_max: service.requests_max }
}

/// Each address once: an endpoint may stand in two slices while they are being rewritten.
fn sorted(endpoints: impl Iterator<Item = Endpoint>) -> Box<[Endpoint]> {
    let by_address: BTreeMap<SocketAddr, Endpoint> = endpoints.map(|endpoint| (endpoint.address, endpoint)).collect();
    by_address.into_values().collect()
}

fn refusals(allowed: &Allowed<'_>, slice: &EndpointSlice) -> Vec<Finding> {
    let object = ObjectRef::new(Kind::EndpointSlice, slice.name.clone());
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

/// The ports of an ExternalName Service. It need not declare any: then those that are led to by number.
fn external_ports(service: &Service, numbers: impl Iterator<Item = u16>) -> BTreeSet<u16> {
    if service.ports.is_empty() { numbers.collect() } else { service.ports.iter().map(|port| port.number).collect() }
}
