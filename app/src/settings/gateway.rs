//! The addresses of Gateways.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpAddrRange, IpNet, Ipv4AddrRange, Ipv6AddrRange};
use tidegate_control::options::{GatewayApi, GatewayServices, Publish, ServiceType, ToPods};

use super::routing::namespaced;
use super::{InvalidValue, Mode};
use crate::args::RoutingArgs;

/// The maximum number of addresses in the pool.
const GATEWAY_ADDRESSES_MAX: usize = 4096;
/// The pool in `dev`.
const DEV_GATEWAY_ADDRESSES: &str = "127.0.1.1-127.0.1.32";

const ADDRESSES: &str = "--gateway-addresses";
const SERVICES: &str = "--gateway-services";

pub(super) fn read(
    args: &RoutingArgs,
    controller: Arc<str>,
    publish: &Publish,
    mode: Mode,
) -> Result<GatewayApi, InvalidValue> {
    let optional = args.source.is_empty();
    let by_service = args.gateway_addresses.iter().any(|text| text == "service");
    let made = args.gateway_services.as_deref();
    if !by_service {
        let services = match made {
            None | Some("off") => GatewayServices::Off,
            Some("headless") => GatewayServices::Headless,
            Some(other) if service_type(other).is_some() => {
                return Err(InvalidValue::new(SERVICES, other, "needs --gateway-addresses service"));
            }
            Some(other) => {
                return Err(InvalidValue::new(SERVICES, other, "is neither off nor headless nor a type of Services"));
            }
        };
        return Ok(GatewayApi { controller, addresses: pool(args, mode)?, services, optional });
    }
    if args.gateway_addresses.len() > 1 {
        return Err(InvalidValue::new(
            ADDRESSES,
            args.gateway_addresses.join(","),
            "mixes Services with local addresses",
        ));
    }
    let text = made.unwrap_or(ServiceType::LoadBalancer.as_str());
    let Some(kind) = service_type(text) else {
        let why = "is neither LoadBalancer, NodePort nor ClusterIP, which --gateway-addresses service can have";
        return Err(InvalidValue::new(SERVICES, text, why));
    };
    let edge = match (&args.edge_service, publish) {
        (Some(text), _) => namespaced("--edge-service", text)?,
        (None, Publish::Service(service)) => service.clone(),
        (None, Publish::Nothing | Publish::Addresses(_)) => {
            return Err(InvalidValue::new(ADDRESSES, "service", "needs --edge-service or --publish-service"));
        }
    };
    let to_pods = ToPods { kind, edge, ports: ports(&args.gateway_ports)? };
    Ok(GatewayApi { controller, addresses: Arc::default(), services: GatewayServices::ToPods(to_pods), optional })
}

fn service_type(text: &str) -> Option<ServiceType> {
    ServiceType::ALL.into_iter().find(|kind| kind.as_str() == text)
}

fn ports(text: &str) -> Result<(u16, u16), InvalidValue> {
    let parts = text.split_once('-').map(|(first, last)| (first.trim().parse(), last.trim().parse()));
    match parts {
        Some((Ok(first), Ok(last))) if first > 0 && first <= last => Ok((first, last)),
        _ => Err(InvalidValue::new(
            "--gateway-ports",
            text,
            "is not two ports separated by a hyphen, the lower one first",
        )),
    }
}

/// The addresses of the pool, in the order given, without duplicates.
fn pool(args: &RoutingArgs, mode: Mode) -> Result<Arc<[IpAddr]>, InvalidValue> {
    let default = [DEV_GATEWAY_ADDRESSES.to_owned()];
    let given =
        if args.gateway_addresses.is_empty() && mode == Mode::Dev { &default[..] } else { &args.gateway_addresses[..] };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in given {
        addresses.extend(range(text)?.take(GATEWAY_ADDRESSES_MAX + 1));
        if addresses.len() > GATEWAY_ADDRESSES_MAX {
            return Err(InvalidValue::new(ADDRESSES, text, "would make more than 4096 addresses"));
        }
    }
    let mut known = BTreeSet::new();
    addresses.retain(|address| known.insert(*address));
    Ok(addresses.into())
}

/// The addresses of one entry: a single one, those between two, or those that hosts of a network may have.
fn range(text: &str) -> Result<IpAddrRange, InvalidValue> {
    let invalid = |why| InvalidValue::new(ADDRESSES, text, why);
    if text.contains('/') {
        let network: IpNet = text.trim().parse().map_err(|_| invalid("is not a network such as 192.0.2.16/28"))?;
        if network.addr() != network.network() {
            return Err(invalid("is an address within a network, not a network such as 192.0.2.16/28"));
        }
        return Ok(network.hosts());
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = (first.trim().parse::<IpAddr>(), last.trim().parse::<IpAddr>());
    let (Ok(first), Ok(last)) = range else {
        return Err(invalid("is neither an IP address, nor two separated by a hyphen, nor a network"));
    };
    if first.is_ipv4() == last.is_ipv4() && first > last {
        return Err(invalid("is a range whose end is lower than its start"));
    }
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ok(IpAddrRange::from(Ipv4AddrRange::new(first, last))),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ok(IpAddrRange::from(Ipv6AddrRange::new(first, last))),
        _ => Err(invalid("is a range across address families")),
    }
}
