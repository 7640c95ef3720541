//! The options of the control loop for routing.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tidegate_config::object::ObjectName;
use tidegate_control::options::{AddressPolicy, Deis, HostOwnership, Ingresses, Kuadrant, Options, Publish, Sources};

use super::{InvalidValue, Mode, Sockets, gateway};
use crate::args::RoutingArgs;

pub(super) fn read(
    args: &RoutingArgs,
    sockets: &Sockets,
    publish: &Publish,
    mode: Mode,
) -> Result<Options, InvalidValue> {
    let host_ownership = match &*args.host_ownership {
        "shared" => HostOwnership::Shared,
        "namespace" => HostOwnership::Namespace,
        other => return Err(InvalidValue::new("--host-ownership", other, "is neither shared nor namespace")),
    };
    let trusted = args.trusted_proxies.iter().map(|text| trusted(text)).collect::<Result<Arc<[IpNet]>, _>>()?;
    let refused = args.refuse_addresses.iter().map(|text| network("--refuse-addresses", text));
    let refused = refused.collect::<Result<Arc<[IpNet]>, _>>()?;
    let own = args.own_address.iter().map(|text| own_address(text)).collect::<Result<Vec<IpAddr>, _>>()?;
    let sources = sources(args, sockets, publish, mode)?;
    let of_gateways = sources.gateway.iter().flat_map(|gateway| gateway.addresses.iter().copied());
    let own = own.into_iter().chain(of_gateways).collect();
    Ok(Options {
        sources,
        default_certificate: args
            .default_certificate
            .as_deref()
            .map(|text| namespaced("--default-certificate", text))
            .transpose()?,
        host_ownership,
        addresses: AddressPolicy { own, refused, ..AddressPolicy::default() },
        trusted_proxies: trusted,
        ..Options::default()
    })
}

fn sources(args: &RoutingArgs, sockets: &Sockets, publish: &Publish, mode: Mode) -> Result<Sources, InvalidValue> {
    // Invalid options are reported whether the source is enabled or not.
    let ingresses = Ingresses {
        class: name("--ingress-class", &args.ingress_class)?,
        controller: name("--controller-class", &args.controller_class)?,
    };
    let mut sources = Sources { ingress: None, deis: None, gateway: None, kuadrant: None };
    let by_default = args.source.is_empty();
    let named: Vec<&str> = match &*args.source {
        [] => vec!["ingress", "gateway", "kuadrant"],
        named => named.iter().map(|source| &**source).collect(),
    };
    for source in named {
        match source {
            "ingress" => sources.ingress = Some(ingresses.clone()),
            "gateway" => {
                let controller = name("--gateway-controller", &args.gateway_controller)?;
                sources.gateway = Some(gateway::read(args, controller, publish, mode)?);
            }
            "kuadrant" => sources.kuadrant = Some(Kuadrant { optional: by_default }),
            "deis" => {
                let router = namespaced("--deis-router", &args.deis_router)?;
                let service = namespaced("--deis-builder", &args.deis_builder)?;
                let builder = sockets.deis_builder.map(|requested| (service, requested.address));
                sources.deis = Some(Deis { router, builder });
            }
            other => {
                return Err(InvalidValue::new("--source", other, "is neither ingress, gateway, kuadrant nor deis"));
            }
        }
    }
    Ok(sources)
}

fn name(flag: &'static str, text: &str) -> Result<Arc<str>, InvalidValue> {
    if text.is_empty() || text.len() > 253 || text.contains(char::is_whitespace) {
        return Err(InvalidValue::new(flag, text, "is not between 1 and 253 characters without spaces"));
    }
    Ok(text.into())
}

fn trusted(text: &str) -> Result<IpNet, InvalidValue> {
    let net = network("--trusted-proxies", text)?;
    if net.prefix_len() == 0 {
        // With it, every client could forge its address.
        return Err(InvalidValue::new("--trusted-proxies", text, "would trust every client"));
    }
    Ok(net)
}

/// Parses a network, or one address.
fn network(flag: &'static str, text: &str) -> Result<IpNet, InvalidValue> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    Ok(net.map_err(|_| InvalidValue::new(flag, text, "is not a network such as 10.0.0.0/8"))?.trunc())
}

fn own_address(text: &str) -> Result<IpAddr, InvalidValue> {
    text.parse().map_err(|_| InvalidValue::new("--own-address", text, "is not an IP address"))
}

pub(super) fn namespaced(flag: &'static str, text: &str) -> Result<ObjectName, InvalidValue> {
    let parts = text.split_once('/').filter(|(ns, name)| !ns.is_empty() && !name.is_empty() && !name.contains('/'));
    let (namespace, name) = parts.ok_or_else(|| InvalidValue::new(flag, text, "is not of the form NAMESPACE/NAME"))?;
    Ok(ObjectName::new(namespace, name))
}
