//! Addresses and networks: `ip`, `cidr` and their functions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cel::common::types::{CelBool, CelInt, CelString};
use cel::common::value::Val as _;
use cel::{DeclarationError, Env, ExecutionError};
use ipnet::IpNet;

use super::{NO_OVERLOAD, failed, value_type};

pub(super) const FUNCTIONS: &[&str] = &[
    "cidr",
    "containsCIDR",
    "containsIP",
    "family",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isIP",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isUnspecified",
    "masked",
    "prefixLength",
];

#[derive(Clone, Debug, PartialEq)]
struct Address(IpAddr);

/// A network as it is written: bits behind the mask stay.
#[derive(Clone, Debug, PartialEq)]
struct Network(IpNet);

value_type!(Address, "net.IP");
value_type!(Network, "net.CIDR");

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(Address::cel_type().to_owned())?;
    env.add_type(Network::cel_type().to_owned())?;
    cel::add_overload!(env, fn is_ip: (CelString<'_>) -> CelBool, name = "isIP")?;
    cel::add_overload!(env, fn ip: (CelString<'_>) -> Result<Address>)?;
    cel::add_overload!(env, fn is_canonical: (CelString<'_>) -> Result<CelBool>, name = "ip.isCanonical")?;
    cel::add_overload!(env, fn address_text: (Address) -> CelString<'_>, name = "string")?;
    cel::add_member_overload!(env, fn family: (Address) -> CelInt)?;
    cel::add_member_overload!(env, fn is_unspecified: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_loopback: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_multicast: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_link_local_unicast: (Address) -> CelBool)?;
    cel::add_member_overload!(env, fn is_global_unicast: (Address) -> CelBool)?;
    cel::add_overload!(env, fn is_cidr: (CelString<'_>) -> CelBool, name = "isCIDR")?;
    cel::add_overload!(env, fn cidr: (CelString<'_>) -> Result<Network>)?;
    cel::add_overload!(env, fn network_text: (Network) -> CelString<'_>, name = "string")?;
    cel::add_member_overload!(env, fn contains_address: (Network, Address) -> CelBool, name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_ip: (Network, CelString<'_>) -> Result<CelBool>, name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_network: (Network, Network) -> CelBool, name = "containsCIDR")?;
    cel::add_member_overload!(
        env,
        fn contains_cidr: (Network, CelString<'_>) -> Result<CelBool>,
        name = "containsCIDR"
    )?;
    cel::add_member_overload!(env, fn address: (Network) -> Address, name = "ip")?;
    cel::add_member_overload!(env, fn prefix_length: (Network) -> CelInt)?;
    cel::add_member_overload!(env, fn masked: (Network) -> Network)
}

/// An address as Kubernetes takes it: no zone, and no IPv4 address in the form of IPv6.
fn parse_address(text: &str) -> Result<IpAddr, String> {
    let Ok(address) = text.parse::<IpAddr>() else {
        let zone =
            text.split_once('%').is_some_and(|(address, zone)| !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok());
        return Err(if zone {
            format!("IP address {text:?} with zone value is not allowed")
        } else {
            let why = "unable to parse IP";
            format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {why}")
        });
    };
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    const CONVERSION: &str = "network address parse error during conversion from string";
    let wrong = |why: &str| format!("{CONVERSION}: {CONVERSION}: netip.ParsePrefix({text:?}): {why}");
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let address: IpAddr = address.parse().map_err(|_| wrong(&format!("ParseAddr({address:?}): unable to parse IP")))?;
    let canonical = bits == "0" || bits.starts_with(|first: char| matches!(first, '1'..='9'));
    let network = bits.parse().ok().filter(|_| canonical).and_then(|bits| IpNet::new(address, bits).ok());
    let network = network.ok_or_else(|| wrong(&format!("bad bits after slash: {bits:?}")))?;
    if is_mapped(address) {
        return Err(format!("{CONVERSION}: IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(network)
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    parse_address(text.inner()).is_ok().into()
}

fn ip(text: &CelString<'_>) -> Result<Address, ExecutionError> {
    parse_address(text.inner()).map(Address).map_err(|why| failed("ip", why))
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let address = parse_address(text.inner()).map_err(|why| failed("ip.isCanonical", why))?;
    Ok((address.to_string() == text.inner()).into())
}

fn address_text(this: &Address) -> CelString<'static> {
    this.0.to_string().into()
}

fn family(this: &Address) -> CelInt {
    CelInt::from(if this.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(this: &Address) -> CelBool {
    this.0.is_unspecified().into()
}

fn is_loopback(this: &Address) -> CelBool {
    this.0.is_loopback().into()
}

/// 224.0.0.0/24 and ff02::/16, with any flags.
fn is_link_local_multicast(this: &Address) -> CelBool {
    let is = match this.0 {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => matches!(address.octets(), [0xff, second, ..] if second & 0x0f == 2),
    };
    is.into()
}

fn is_link_local_unicast(this: &Address) -> CelBool {
    match this.0 {
        IpAddr::V4(address) => address.is_link_local().into(),
        IpAddr::V6(address) => address.is_unicast_link_local().into(),
    }
}

/// Every address but broadcast, the unspecified, loopback, multicast and link-local ones; private ones are global here.
fn is_global_unicast(this: &Address) -> CelBool {
    let address = this.0;
    let special = address == IpAddr::V4(Ipv4Addr::BROADCAST)
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || *is_link_local_unicast(this).inner();
    (!special).into()
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    parse_network(text.inner()).is_ok().into()
}

fn cidr(text: &CelString<'_>) -> Result<Network, ExecutionError> {
    parse_network(text.inner()).map(Network).map_err(|why| failed("cidr", why))
}

fn network_text(this: &Network) -> CelString<'static> {
    this.0.to_string().into()
}

fn contains_address(this: &Network, address: &Address) -> CelBool {
    this.0.contains(&address.0).into()
}

fn contains_ip(this: &Network, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    // The real server says no more of an address that it cannot read.
    let address = parse_address(text.inner()).map_err(|_| failed("containsIP", NO_OVERLOAD))?;
    Ok(this.0.contains(&address).into())
}

fn contains_network(this: &Network, other: &Network) -> CelBool {
    (this.0.prefix_len() <= other.0.prefix_len() && this.0.contains(&other.0.addr())).into()
}

fn contains_cidr(this: &Network, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(contains_network(this, &cidr(text)?))
}

fn address(this: &Network) -> Address {
    Address(this.0.addr())
}

fn prefix_length(this: &Network) -> CelInt {
    CelInt::from(i64::from(this.0.prefix_len()))
}

fn masked(this: &Network) -> Network {
    Network(this.0.trunc())
}
