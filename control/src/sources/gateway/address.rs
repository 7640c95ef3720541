//! Which address a Gateway has. Each has its own, out of a pool; which one is a function of the Gateways as they are now, so that
//! replicas agree. What a Gateway has been given stands in its status, and it keeps that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_config::object::ObjectName;
use tidegate_config::project::gateway::{Gateway, GatewayAddress};

use super::condition::Fault;
use crate::sources::reader::Reader;

/// The addresses of one Gateway.
#[derive(Debug, Default)]
pub(super) struct Assigned {
    /// Those that it has.
    pub(super) addresses: Vec<IpAddr>,
    /// Why the Gateway cannot be accepted with what it asks for.
    pub(super) unsupported: Option<Fault>,
    /// Why not all of what it asks for can be given.
    pub(super) unusable: Option<Fault>,
}

/// Gives a Gateway its addresses.
pub(super) fn assign(reader: &mut Reader<'_>, gateway: &Gateway) -> Assigned {
    let unsupported = gateway.addresses.iter().find_map(|address| match address {
        GatewayAddress::Ip(_) => None,
        GatewayAddress::Hostname(name) => Some(format!("Hostname {:?}", name.as_deref().unwrap_or_default())),
        GatewayAddress::Unsupported { kind, value } => Some(format!("{kind} {value:?}")),
    });
    if let Some(address) = unsupported {
        let message = format!("spec.addresses has {address}, and only addresses of the type IPAddress can be given");
        return Assigned { unsupported: Some(Fault::new("UnsupportedAddress", message)), ..Assigned::default() };
    }
    let name = &gateway.age.name;
    let addresses = of_all(reader).remove(name).unwrap_or_default();
    let lacking = wanted(gateway).find(|address| !addresses.contains(address));
    let unusable = match (lacking, addresses.is_empty()) {
        (Some(address), _) => {
            let message = format!("{address} is not among the addresses of Gateways, or is another Gateway's");
            Some(Fault::new("AddressNotUsable", message))
        }
        (None, true) => Some(Fault::new("AddressNotAssigned", "no address is left for this Gateway")),
        (None, false) => None,
    };
    Assigned { addresses, unsupported: None, unusable }
}

/// The addresses that a Gateway names.
fn wanted(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    gateway.addresses.iter().filter_map(|address| match address {
        GatewayAddress::Ip(address) => *address,
        GatewayAddress::Hostname(_) | GatewayAddress::Unsupported { .. } => None,
    })
}

/// Whether a Gateway leaves an address to the edge.
fn leaves_one(gateway: &Gateway) -> bool {
    gateway.addresses.is_empty() || gateway.addresses.contains(&GatewayAddress::Ip(None))
}

/// The addresses of all Gateways: what they name, then what they have, then what is left; the older one before the younger.
fn of_all(reader: &mut Reader<'_>) -> BTreeMap<ObjectName, Vec<IpAddr>> {
    let Some(options) = &reader.options.sources.gateway else { return BTreeMap::new() };
    let pool: BTreeSet<IpAddr> = options.addresses.iter().copied().collect();
    let mut gateways: Vec<&Arc<Gateway>> = reader.gateways().collect();
    gateways.sort_by(|a, b| a.age.cmp(&b.age));
    let mut taken = BTreeSet::new();
    let mut given: BTreeMap<ObjectName, Vec<IpAddr>> = BTreeMap::new();
    for gateway in &gateways {
        let usable = wanted(gateway).filter(|address| pool.contains(address) && taken.insert(*address));
        given.insert(gateway.age.name.clone(), usable.collect());
    }
    let mut without = Vec::new();
    for gateway in gateways.iter().filter(|gateway| leaves_one(gateway)) {
        let kept = gateway.assigned.iter().find(|address| pool.contains(address) && !taken.contains(*address));
        match kept {
            Some(address) => {
                taken.insert(*address);
                given.entry(gateway.age.name.clone()).or_default().push(*address);
            }
            None => without.push(gateway),
        }
    }
    let mut free = options.addresses.iter().filter(|address| !taken.contains(*address));
    for gateway in without {
        given.entry(gateway.age.name.clone()).or_default().extend(free.next());
    }
    given
}
