//! The policy for addresses in objects. Objects are written by tenants, so their addresses must not lead to the edge's
//! own host, to a cloud's metadata service, which gives out the credentials of the machine, or to the API server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use ipnet::{IpNet, Ipv6Net};
use tidegate_config::object::ObjectName;
use tidegate_config::project::{EndpointSlice, SliceEndpoint};

use crate::world::World;

/// The Service of the API server itself, and its only EndpointSlice, which the API server writes. Any other author of
/// it could redirect every client in the cluster.
pub(crate) static KUBERNETES: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("default", "kubernetes"));

/// Metadata and platform services of clouds that are not link-local.
const METADATA_V4: [Ipv4Addr; 2] = [
    // Azure: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    Ipv4Addr::new(168, 63, 129, 16),
    // Alibaba Cloud: the metadata of ECS instances.
    Ipv4Addr::new(100, 100, 100, 200),
];
const METADATA_V6: [Ipv6Net; 3] = [
    // AWS: metadata (::254), credentials of EKS pods (::23), names and time.
    v6_net([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 64),
    // Google Cloud.
    v6_net([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // Scaleway.
    v6_net([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
];

/// The refusal of the API server's address.
const API_SERVER: &str = "it is the API server";

/// The addresses that objects may use.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    /// Loopback addresses are allowed: for local development only.
    pub allow_loopback: bool,
    /// The edge's own addresses, on all ports.
    pub own: Arc<[IpAddr]>,
    /// The edge's own sockets, on addresses that it may share with other programs. They are refused whatever is
    /// allowed. A socket on the unspecified address is reached through every loopback address.
    pub sockets: Arc<[SocketAddr]>,
    /// Networks that the operator refuses.
    pub refused: Arc<[IpNet]>,
}

impl AddressPolicy {
    /// The reason why an address is refused; `None` if it is allowed. An IPv6 address that a translator or a tunnel
    /// maps to an IPv4 address is refused with it.
    ///
    /// `api_server` is the set of known addresses of the API server. They are refused whatever is allowed. A server on
    /// a loopback address may listen on the unspecified one, so its port is refused on every other loopback address
    /// too.
    #[must_use]
    pub fn refusal(&self, to: SocketAddr, api_server: &BTreeSet<SocketAddr>) -> Option<&'static str> {
        taken_for(to).find_map(|to| self.refusal_of(to.ip(), to.port(), api_server))
    }

    fn refusal_of(&self, address: IpAddr, port: u16, api_server: &BTreeSet<SocketAddr>) -> Option<&'static str> {
        if reaches(api_server, address, port) {
            return Some(API_SERVER);
        }
        if self.reaches_own_socket(address, port) {
            return Some("it is a socket of the edge itself");
        }
        if address.is_loopback() {
            return (!self.allow_loopback).then_some("loopback addresses lead into the edge's own host");
        }
        let (link_local, metadata) = match address {
            IpAddr::V4(v4) => (v4.is_link_local() || v4.is_broadcast(), METADATA_V4.contains(&v4)),
            IpAddr::V6(v6) => (v6.is_unicast_link_local(), METADATA_V6.iter().any(|net| net.contains(&v6))),
        };
        if link_local {
            Some("link-local addresses lead to the edge's own node")
        } else if metadata {
            Some("it is a metadata service of a cloud")
        } else if is_this_network(address) || address.is_multicast() {
            Some("it is not the address of one host")
        } else if self.own.iter().any(|own| own.to_canonical() == address) {
            Some("it is the edge's own address")
        } else if self.refused.iter().any(|net| net.contains(&address)) {
            Some("the operator refuses its network")
        } else {
            None
        }
    }

    fn reaches_own_socket(&self, address: IpAddr, port: u16) -> bool {
        self.sockets.contains(&SocketAddr::new(address, port))
            || address.is_loopback() && self.sockets.iter().any(|at| at.port() == port && at.ip().is_unspecified())
    }
}

/// The addresses that an object may use.
pub(crate) struct Allowed<'a> {
    policy: &'a AddressPolicy,
    /// The sockets by which the loop reaches the API server.
    reached: &'a BTreeSet<SocketAddr>,
    /// The API server's own EndpointSlice.
    api_server: Option<&'a EndpointSlice>,
}

impl<'a> Allowed<'a> {
    /// The addresses for the endpoints of a Service, or for another object. Only the API server's own Service may use
    /// the addresses in its EndpointSlice.
    pub(crate) fn of(service: Option<&ObjectName>, policy: &'a AddressPolicy, world: &'a World) -> Self {
        let api_server = world.slices.get(&*KUBERNETES).filter(|_| service != Some(&*KUBERNETES));
        Self { policy, reached: &world.api_server, api_server: api_server.map(|slice| &**slice) }
    }

    /// The reason why an address is refused; `None` if it is allowed.
    pub(crate) fn refusal(&self, address: IpAddr, port: u16) -> Option<&'static str> {
        let to = SocketAddr::new(address, port);
        let is_of = |slice: &&EndpointSlice| taken_for(to).any(|to| names(slice, to));
        self.policy.refusal(to, self.reached).or_else(|| self.api_server.filter(is_of).map(|_| API_SERVER))
    }
}

/// The sockets of the API server that no object may name: those by which it is reached, and those in its own
/// EndpointSlice.
pub(crate) fn api_server_sockets(reached: &BTreeSet<SocketAddr>, own: Option<&EndpointSlice>) -> BTreeSet<SocketAddr> {
    let endpoints = own.into_iter().flat_map(|slice| {
        let at = |endpoint: &SliceEndpoint| {
            let address = endpoint.address.to_canonical();
            slice.ports.iter().map(move |port| SocketAddr::new(address, port.number))
        };
        slice.endpoints.iter().flat_map(at)
    });
    reached.iter().copied().chain(endpoints).collect()
}

fn names(slice: &EndpointSlice, to: SocketAddr) -> bool {
    let here = |endpoint: &SliceEndpoint| endpoint.address.to_canonical() == to.ip();
    slice.ports.iter().any(|port| port.number == to.port()) && slice.endpoints.iter().any(here)
}

/// Returns `true` if an address and port lead to one of the sockets of a server.
fn reaches(server: &BTreeSet<SocketAddr>, address: IpAddr, port: u16) -> bool {
    let on_every_loopback = |at: &SocketAddr| at.ip().is_loopback() || at.ip().is_unspecified();
    server.contains(&SocketAddr::new(address, port))
        || address.is_loopback() && server.iter().any(|at| at.port() == port && on_every_loopback(at))
}

/// Returns `true` for an address that is not a destination: the unspecified one, and all of 0.0.0.0/8 (RFC 1122 section
/// 3.2.1.3), which some systems connect to themselves.
const fn is_this_network(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unspecified(),
    }
}

/// The sockets that a connection to this one may reach: itself, and the one that a translator or a tunnel maps it to.
fn taken_for(to: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let address = to.ip().to_canonical();
    let embedded = match address {
        IpAddr::V4(_) => [None; 3],
        IpAddr::V6(v6) => embedded(v6),
    };
    let all = std::iter::once(address).chain(embedded.into_iter().flatten().map(IpAddr::V4));
    all.map(move |address| SocketAddr::new(address, to.port()))
}

const fn v6_net(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// The IPv4 addresses to which a translator or a tunnel may send a packet for an IPv6 address. A prefix has one or two;
/// the interface identifier of ISATAP can follow any prefix.
fn embedded(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let [by_prefix, by_server] = embedded_by_prefix(v6);
    [by_prefix, by_server, embedded_by_interface(v6)]
}

/// NAT64 under its well-known prefix (RFC 6052) and its local one (RFC 8215), 6to4 (RFC 3056), IPv4-compatible
/// addresses (RFC 4291 section 2.5.5.1), IPv4-translated ones (RFC 2765 section 2.1), and both ends of Teredo (RFC 4380
/// section 4).
fn embedded_by_prefix(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    const NAT64: Ipv6Net = v6_net([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
    const NAT64_LOCAL: Ipv6Net = v6_net([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);
    const SIX_TO_FOUR: Ipv6Net = v6_net([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
    const COMPATIBLE: Ipv6Net = v6_net([0; 8], 96);
    const TRANSLATED: Ipv6Net = v6_net([0, 0, 0, 0, 0xffff, 0, 0, 0], 96);
    const TEREDO: Ipv6Net = v6_net([0x2001, 0, 0, 0, 0, 0, 0, 0], 32);
    let [_, _, a1, a2, b1, b2, c1, c2, _, d1, d2, e1, w, x, y, z] = v6.octets();
    let last = Ipv4Addr::new(w, x, y, z);
    if SIX_TO_FOUR.contains(&v6) {
        return [Some(Ipv4Addr::new(a1, a2, b1, b2)), None];
    }
    if TEREDO.contains(&v6) {
        // The client's address is written with every bit inverted.
        return [Some(Ipv4Addr::from_bits(!last.to_bits())), Some(Ipv4Addr::new(b1, b2, c1, c2))];
    }
    // A local prefix of 96 bits has the address at the end; one of 48 around the ninth octet, with zeros at the end
    // (RFC 6052 section 2.2).
    let at_48 = e1 == 0 && last.is_unspecified();
    if NAT64_LOCAL.contains(&v6) && at_48 {
        return [Some(Ipv4Addr::new(c1, c2, d1, d2)), None];
    }
    // `::` and `::1` have the same prefix as IPv4-compatible addresses, but are not.
    let compatible = COMPATIBLE.contains(&v6) && !v6.is_loopback() && !v6.is_unspecified();
    let at_96 = compatible || [NAT64, NAT64_LOCAL, TRANSLATED].iter().any(|net| net.contains(&v6));
    [at_96.then_some(last), None]
}

/// ISATAP (RFC 5214 section 6.1): an interface identifier of `00-00-5E-FE`, or `02-00-5E-FE` for a globally unique
/// address, before the IPv4 address.
fn embedded_by_interface(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low, _, _] = v6.segments();
    let [.., w, x, y, z] = v6.octets();
    (matches!(high, 0 | 0x200) && low == 0x5efe).then(|| Ipv4Addr::new(w, x, y, z))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_server() -> BTreeSet<SocketAddr> {
        ["127.0.0.1:6443", "10.96.0.1:443"].map(|at| at.parse().unwrap()).into()
    }

    fn policy(allow_loopback: bool) -> AddressPolicy {
        AddressPolicy {
            allow_loopback,
            own: ["10.0.0.9".parse().unwrap()].into(),
            sockets: ["127.0.0.1:8080".parse().unwrap(), "10.0.0.7:9180".parse().unwrap()].into(),
            refused: ["172.16.0.0/12".parse().unwrap(), "2001:db8:5::/48".parse().unwrap()].into(),
        }
    }

    #[track_caller]
    fn check(addresses: &[&str], want: Option<&str>) {
        for address in addresses {
            let to = SocketAddr::new(address.parse().unwrap(), 80);
            let got = policy(false).refusal(to, &api_server());
            assert_eq!(got.is_none(), want.is_none(), "{address}: {got:?}");
            assert!(got.unwrap_or_default().contains(want.unwrap_or_default()), "{address}: {got:?}");
        }
    }

    #[test]
    fn addresses_of_the_edge_and_its_host_are_refused() {
        check(&["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], Some("loopback"));
        check(&["169.254.169.254", "fe80::1", "255.255.255.255"], Some("link-local"));
        check(
            &["0.0.0.0", "0.0.0.1", "0.255.255.255", "::", "224.0.0.1", "ff02::1"],
            Some("not the address of one host"),
        );
        check(&["10.0.0.9", "::ffff:10.0.0.9"], Some("own address"));
        check(&["172.16.0.1", "172.31.255.255", "2001:db8:5::1"], Some("operator"));
        check(&["10.0.0.8", "10.0.0.7", "192.0.2.1", "172.32.0.1", "2001:db8::1", "fd00::1", "1.0.0.0"], None);
    }

    #[test]
    fn cloud_metadata_addresses_are_refused() {
        check(&["168.63.129.16", "100.100.100.200"], Some("metadata"));
        check(&["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"], Some("metadata"));
        check(&["168.63.129.17", "100.100.100.100", "fd00:ec3::254", "fd20:ce::255"], None);
    }

    #[track_caller]
    fn check_embedded(address: &str, want: &[&str]) {
        let got: Vec<_> = embedded(address.parse().unwrap()).into_iter().flatten().map(|v4| v4.to_string()).collect();
        assert_eq!(got, want, "{address}");
    }

    #[test]
    fn ipv4_addresses_embedded_in_ipv6_addresses_are_found() {
        check_embedded("64:ff9b::192.0.2.1", &["192.0.2.1"]);
        check_embedded("64:ff9b:1::192.0.2.1", &["192.0.2.1"]);
        check_embedded("64:ff9b:1:c000:2:100::", &["192.0.2.1"]);
        check_embedded("2002:c000:201::", &["192.0.2.1"]);
        check_embedded("::192.0.2.1", &["192.0.2.1"]);
        check_embedded("::2", &["0.0.0.2"]);
        check_embedded("::ffff:0:192.0.2.1", &["192.0.2.1"]);
        // The example of RFC 4380 section 4: a server at 65.54.227.120, a client at 192.0.2.45.
        check_embedded("2001:0:4136:e378:8000:63bf:3fff:fdd2", &["192.0.2.45", "65.54.227.120"]);
        check_embedded("fd00::5efe:192.0.2.1", &["192.0.2.1"]);
        check_embedded("fd00::200:5efe:192.0.2.1", &["192.0.2.1"]);
        check_embedded("2002:c000:201::5efe:198.51.100.1", &["192.0.2.1", "198.51.100.1"]);
        for none in
            ["::", "::1", "::1:0:0:1", "::fffe:0:192.0.2.1", "2001:1::1", "2001:db8::192.0.2.1", "fd00::100:5efe:1:1"]
        {
            check_embedded(none, &[]);
        }
    }

    #[test]
    fn addresses_that_translate_to_a_refused_one_are_refused() {
        check(&["64:ff9b::127.0.0.1", "64:ff9b:1::127.0.0.1", "2002:7f00:1::"], Some("loopback"));
        check(
            &["::127.0.0.1", "::ffff:0:127.0.0.1", "fd00::5efe:127.0.0.1", "fd00::200:5efe:127.0.0.1"],
            Some("loopback"),
        );
        check(&["2001:0:7f00:1::3fff:fdfe", "2001:0:c000:201::80ff:fffe"], Some("loopback"));
        check(&["::169.254.169.254", "::ffff:0:169.254.169.254", "fd00::5efe:169.254.169.254"], Some("link-local"));
        check(&["::2", "64:ff9b::0.0.0.1"], Some("not the address of one host"));
        check(&["64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::"], Some("link-local"));
        check(&["64:ff9b::168.63.129.16", "2002:a83f:8110::1"], Some("metadata"));
        check(&["64:ff9b::10.0.0.9"], Some("own address"));
        check(&["2002:ac10:1::"], Some("operator"));
        check(&["64:ff9b::192.0.2.1", "64:ff9b:1::192.0.2.1", "64:ff9b:1:c000:2:100::", "2002:c000:201::"], None);
        check(&["::192.0.2.1", "::ffff:0:192.0.2.1", "2001:0:c000:201::3fff:fdfe", "fd00::5efe:192.0.2.1"], None);
    }

    #[test]
    fn allowing_loopback_allows_nothing_else() {
        let refusal = |to: &str| policy(true).refusal(to.parse().unwrap(), &api_server());
        assert_eq!(refusal("127.0.0.1:80"), None);
        for loopback in ["127.0.0.2:80", "[::1]:80", "[64:ff9b::127.0.0.1]:80", "[::127.0.0.1]:80"] {
            assert_eq!(refusal(loopback), None, "{loopback}");
        }
        assert!(refusal("169.254.169.254:80").is_some());
    }

    #[test]
    fn only_our_own_sockets_are_refused() {
        for allow_loopback in [true, false] {
            let refusal = |to: &str| policy(allow_loopback).refusal(to.parse().unwrap(), &api_server());
            for own in ["127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", "10.0.0.7:9180", "[64:ff9b::10.0.0.7]:9180"] {
                assert_eq!(refusal(own), Some("it is a socket of the edge itself"), "{own}");
            }
            assert_eq!(refusal("10.0.0.7:9181"), None);
        }
    }

    #[test]
    fn a_socket_on_an_unspecified_address_is_refused_on_every_loopback_address() {
        for (listening, other) in [("0.0.0.0:9180", "127.0.0.1:8080"), ("[::]:9180", "[::1]:8080")] {
            let sockets = [listening.parse().unwrap(), other.parse().unwrap()].into();
            let policy = AddressPolicy { allow_loopback: true, sockets, ..AddressPolicy::default() };
            let refusal = |to: &str| policy.refusal(to.parse().unwrap(), &api_server());
            for own in [
                "127.0.0.1:9180",
                "127.0.0.2:9180",
                "127.255.255.254:9180",
                "[::1]:9180",
                "[::ffff:127.0.0.2]:9180",
                "[64:ff9b::127.0.0.2]:9180",
                other,
            ] {
                assert_eq!(refusal(own), Some("it is a socket of the edge itself"), "{own} beside {listening}");
            }
            for free in ["127.0.0.1:9181", "127.0.0.2:8080", "192.0.2.1:9180"] {
                assert_eq!(refusal(free), None, "{free} beside {listening}");
            }
        }
    }

    #[test]
    fn an_api_server_on_loopback_is_refused_on_every_loopback_address() {
        for at in ["127.0.0.1:6443", "[::1]:6443", "0.0.0.0:6443", "[::]:6443"] {
            let api_server = [at.parse().unwrap()].into();
            let policy = AddressPolicy { allow_loopback: true, ..AddressPolicy::default() };
            let refusal = |to: &str| policy.refusal(to.parse().unwrap(), &api_server);
            for own in ["127.0.0.1:6443", "127.0.0.2:6443", "[::1]:6443", "[64:ff9b::127.0.0.2]:6443"] {
                assert_eq!(refusal(own), Some(API_SERVER), "{own}, the server at {at}");
            }
            for free in ["127.0.0.2:6444", "192.0.2.1:6443"] {
                assert_eq!(refusal(free), None, "{free}, the server at {at}");
            }
        }
    }

    #[test]
    fn the_api_server_is_always_refused() {
        for allow_loopback in [true, false] {
            let refusal = |to: &str| policy(allow_loopback).refusal(to.parse().unwrap(), &api_server());
            for at in ["10.96.0.1:443", "[::ffff:10.96.0.1]:443", "[64:ff9b::a60:1]:443", "[2002:a60:1::]:443"] {
                assert_eq!(refusal(at), Some("it is the API server"), "{at}");
            }
            assert_eq!(refusal("127.0.0.1:6443"), Some("it is the API server"));
            assert_eq!(refusal("10.96.0.1:444"), None);
            assert_eq!(refusal("10.96.0.2:443"), None);
        }
    }
}
