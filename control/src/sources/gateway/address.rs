//! The addresses and sockets of a Gateway: an address of its own from a pool, or ports of its own that a Service
//! targets. Both are functions of the current Gateways, so that replicas agree. A Gateway keeps what it was assigned,
//! which is stored in its status or in its Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tidegate_config::model::Transport;
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;
use tidegate_config::project::gateway::{Gateway, GatewayAddress, StatusAddress};

use super::infrastructure::{Targets, service_name, service_or_older, targets_of};
use crate::attachment::ConditionReason;
use crate::options::ToPods;
use crate::sources::reader::Reader;

/// The addresses of one Gateway.
#[derive(Debug, Default)]
pub(super) struct Assigned {
    /// The addresses for clients, for the status.
    pub(super) addresses: Vec<StatusAddress>,
    /// The local addresses of its sockets.
    pub(super) listening: Vec<IpAddr>,
    /// The ports of its sockets by the ports for clients; `None` if they are the same.
    pub(super) targets: Option<Targets>,
    /// The reason why the requested addresses are not supported, so that the Gateway is not accepted.
    pub(super) unsupported: Option<ConditionReason>,
    /// The reason why some requested addresses were not assigned.
    pub(super) unusable: Option<ConditionReason>,
}

impl Assigned {
    /// The addresses from the pool, which are local ones.
    pub(super) fn in_pool(&self) -> Box<[IpAddr]> {
        if self.targets.is_none() { self.listening.as_slice().into() } else { Box::default() }
    }

    /// The sockets for a port of a listener.
    pub(super) fn sockets(&self, transport: Transport, port: u16) -> impl Iterator<Item = SocketAddr> {
        let target = match &self.targets {
            None => Some(port),
            Some(targets) => targets.get(&(transport, port)).copied(),
        };
        let addresses = self.listening.iter().copied();
        addresses.filter_map(move |address| Some(SocketAddr::new(address, target?)))
    }
}

/// Assigns the addresses of a Gateway.
pub(super) fn assign(reader: &mut Reader<'_>, gateway: &Gateway) -> Assigned {
    if let Some(fault) = unsupported(gateway) {
        return Assigned { unsupported: Some(fault), ..Assigned::default() };
    }
    match reader.options.sources.gateway.as_ref().and_then(|options| options.services.to_pods()) {
        None => out_of_pool(reader, gateway),
        Some(to_pods) => by_service(reader, gateway, to_pods),
    }
}

/// The reason why the requested addresses are not supported.
pub(super) fn unsupported(gateway: &Gateway) -> Option<ConditionReason> {
    let address = gateway.addresses.iter().find_map(|address| match address {
        GatewayAddress::Ip(_) => None,
        GatewayAddress::Hostname(name) => Some(format!("Hostname {:?}", name.as_deref().unwrap_or_default())),
        GatewayAddress::Unsupported { kind, value } => Some(format!("{kind} {value:?}")),
    })?;
    let message = format!("spec.addresses has {address}, and only addresses of the type IPAddress can be given");
    Some(ConditionReason::new("UnsupportedAddress", message))
}

fn out_of_pool(reader: &mut Reader<'_>, gateway: &Gateway) -> Assigned {
    let name = &gateway.age.name;
    let listening = of_all(reader).remove(name).unwrap_or_default();
    let lacking = wanted(gateway).find(|address| !listening.contains(address));
    let unusable = match (lacking, listening.is_empty()) {
        (Some(address), _) => {
            let pool = reader.options.sources.gateway.iter().flat_map(|options| options.addresses.iter());
            let why = if pool.copied().any(|known| known == address) {
                "is the address of another Gateway"
            } else {
                "is not in the operator's pool of addresses for Gateways"
            };
            let message = format!("{address} {why}");
            Some(ConditionReason::new("AddressNotUsable", message))
        }
        (None, true) => Some(ConditionReason::new("AddressNotAssigned", "no address is left for this Gateway")),
        (None, false) => None,
    };
    let addresses = listening.iter().map(|address| status_address(&address.to_string())).collect();
    Assigned { addresses, listening, unusable, ..Assigned::default() }
}

/// With Services, the addresses of its Service are those of the Gateway. It listens before the Service exists.
fn by_service(reader: &mut Reader<'_>, gateway: &Gateway, to_pods: &ToPods) -> Assigned {
    let targets = Some(targets_of(reader, gateway, to_pods.ports));
    let listening = listening_of_operator(reader);
    let not_assigned = |message: String| Some(ConditionReason::new("AddressNotAssigned", message));
    let (addresses, unusable) = match service_or_older(reader, gateway) {
        Err(taken) => (Vec::new(), not_assigned(taken.to_string())),
        Ok(service) => {
            let addresses: Vec<StatusAddress> =
                service.iter().flat_map(|service| &service.addresses).filter_map(public).collect();
            let has = |address: &IpAddr| addresses.iter().any(|it| it.value.parse() == Ok(*address));
            let name = service_name(gateway);
            let unusable = match wanted(gateway).find(|address| !has(address)) {
                Some(address) => {
                    let message = format!("Service {name} has not been given {address}");
                    Some(ConditionReason::new("AddressNotUsable", message))
                }
                None if addresses.is_empty() => not_assigned(format!("Service {name} has no address yet")),
                None => None,
            };
            (addresses, unusable)
        }
    };
    Assigned { addresses, listening, targets, unusable, unsupported: None }
}

/// The addresses of the operator's listeners: an unspecified one if there is one, or else each.
fn listening_of_operator(reader: &Reader<'_>) -> Vec<IpAddr> {
    let (all_v6, all_v4) = (IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    let own: BTreeSet<IpAddr> = reader.options.binds.iter().map(|bind| bind.key.address.ip()).collect();
    match [all_v6, all_v4].into_iter().find(|all| own.contains(all)) {
        Some(all) => vec![all],
        None if own.is_empty() => vec![all_v4],
        None => own.into_iter().collect(),
    }
}

fn status_address(address: &str) -> StatusAddress {
    StatusAddress { kind: "IPAddress".into(), value: address.into() }
}

fn public(address: &PublicAddress) -> Option<StatusAddress> {
    match (&address.ip, &address.hostname) {
        (Some(ip), _) => Some(status_address(ip)),
        (None, Some(name)) => Some(StatusAddress { kind: "Hostname".into(), value: Arc::clone(name) }),
        (None, None) => None,
    }
}

/// The addresses in the spec of a Gateway.
pub(super) fn wanted(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    gateway.addresses.iter().filter_map(|address| match address {
        GatewayAddress::Ip(address) => *address,
        GatewayAddress::Hostname(_) | GatewayAddress::Unsupported { .. } => None,
    })
}

/// The number of addresses that a Gateway requests without naming them: one if it requests none at all.
fn unnamed(gateway: &Gateway) -> usize {
    usize::from(gateway.addresses.is_empty() || gateway.addresses.contains(&GatewayAddress::Ip(None)))
}

/// The addresses of all Gateways: first those in their status, then those that this process has assigned and whose
/// status it has not seen yet, then requested ones, then free ones; older Gateways go first. So no Gateway loses its
/// address to another one, which may be another team's and would get its clients: not to one that requests it, and not,
/// while the status is being written, to one that was created in the same second.
fn of_all(reader: &mut Reader<'_>) -> BTreeMap<ObjectName, Vec<IpAddr>> {
    let Some(options) = &reader.options.sources.gateway else { return BTreeMap::new() };
    let mut free: BTreeSet<IpAddr> = options.addresses.iter().copied().collect();
    let mut gateways: Vec<&Arc<Gateway>> = reader.gateways().collect();
    gateways.sort_by(|a, b| a.age.cmp(&b.age));
    let unwritten = &reader.world().assigned;
    let mut given: BTreeMap<ObjectName, Vec<IpAddr>> = BTreeMap::new();
    let mut open: Vec<(&Gateway, usize)> = gateways.into_iter().map(|gateway| (&**gateway, unnamed(gateway))).collect();
    for written in [true, false] {
        for (gateway, unnamed) in &mut open {
            let name = &gateway.age.name;
            let kept = if written { Some(&gateway.assigned) } else { unwritten.get(name) };
            for address in kept.into_iter().flatten() {
                let named = wanted(gateway).any(|wanted| wanted == *address);
                if (named || *unnamed > 0) && free.remove(address) {
                    *unnamed -= usize::from(!named);
                    given.entry(name.clone()).or_default().push(*address);
                }
            }
        }
    }
    for (gateway, _) in &open {
        let addresses = wanted(gateway).filter(|address| free.remove(address));
        given.entry(gateway.age.name.clone()).or_default().extend(addresses);
    }
    let mut free = options.addresses.iter().filter(|address| free.contains(*address));
    for (gateway, unnamed) in open {
        given.entry(gateway.age.name.clone()).or_default().extend(free.by_ref().take(unnamed));
    }
    given
}
