//! Which addresses objects may name. Objects are written by tenants, so an address of theirs must lead neither into the
//! edge's own host, nor to the cloud's metadata, which hands out the credentials of the machine, nor to the API server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};

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

/// Why the API server is refused.
pub(crate) const API_SERVER: &str = "it is the API server";

/// Which addresses objects may name.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    /// Loopback addresses are allowed: for local development only.
    pub allow_loopback: bool,
    /// The edge's own addresses: no port of them.
    pub own: Arc<[IpAddr]>,
    /// The edge's own sockets, on addresses that others may share with it. They are refused whatever is allowed.
    pub sockets: Arc<[SocketAddr]>,
    /// Where the edge reaches the API server, as the loop has learned it. It is refused whatever is allowed.
    pub api_server: Arc<BTreeSet<SocketAddr>>,
    /// What else the operator refuses.
    pub refused: Arc<[IpNet]>,
}

impl AddressPolicy {
    /// Why an address is refused; `None` when it is allowed. An IPv6 address that a translator takes for an IPv4 address
    /// is refused with it.
    #[must_use]
    pub fn refusal(&self, to: SocketAddr) -> Option<&'static str> {
        taken_for(to).find_map(|to| self.refusal_of(to.ip(), to.port()))
    }

    fn refusal_of(&self, address: IpAddr, port: u16) -> Option<&'static str> {
        if self.api_server.contains(&SocketAddr::new(address, port)) {
            return Some(API_SERVER);
        }
        if self.sockets.contains(&SocketAddr::new(address, port)) {
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
        } else if address.is_unspecified() || address.is_multicast() {
            Some("it is not the address of one host")
        } else if self.own.iter().any(|own| own.to_canonical() == address) {
            Some("it is the edge's own address")
        } else if self.refused.iter().any(|net| net.contains(&address)) {
            Some("the operator refuses its network")
        } else {
            None
        }
    }
}

/// What a socket is connected to as: itself, and what a translator takes it for.
pub(crate) fn taken_for(to: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let address = to.ip().to_canonical();
    let translated = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => embedded(v6).map(IpAddr::V4),
    };
    [Some(address), translated].into_iter().flatten().map(move |address| SocketAddr::new(address, to.port()))
}

const fn v6_net(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// The IPv4 address that a translator sends an IPv6 address to: NAT64 under its well-known prefix (RFC 6052) and its
/// local one (RFC 8215), and 6to4 (RFC 3056).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: Ipv6Net = v6_net([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
    const NAT64_LOCAL: Ipv6Net = v6_net([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);
    const SIX_TO_FOUR: Ipv6Net = v6_net([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
    let [_, _, a1, a2, b1, b2, c1, c2, _, d1, d2, e1, w, x, y, z] = v6.octets();
    if SIX_TO_FOUR.contains(&v6) {
        return Some(Ipv4Addr::new(a1, a2, b1, b2));
    }
    // A local prefix of 96 bits puts the address at the end; one of 48 around the ninth octet, with nothing at the end
    // (RFC 6052 section 2.2).
    let at_48 = e1 == 0 && [w, x, y, z] == [0; 4];
    if NAT64_LOCAL.contains(&v6) && at_48 {
        return Some(Ipv4Addr::new(c1, c2, d1, d2));
    }
    (NAT64.contains(&v6) || NAT64_LOCAL.contains(&v6)).then(|| Ipv4Addr::new(w, x, y, z))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow_loopback: bool) -> AddressPolicy {
        AddressPolicy {
            allow_loopback,
            own: ["10.0.0.9".parse().unwrap()].into(),
            sockets: ["127.0.0.1:8080".parse().unwrap(), "10.0.0.7:9180".parse().unwrap()].into(),
            api_server: Arc::new(["127.0.0.1:6443", "10.96.0.1:443"].map(|at| at.parse().unwrap()).into()),
            refused: ["172.16.0.0/12".parse().unwrap(), "2001:db8:5::/48".parse().unwrap()].into(),
        }
    }

    #[track_caller]
    fn check(addresses: &[&str], want: Option<&str>) {
        for address in addresses {
            let to = SocketAddr::new(address.parse().unwrap(), 80);
            let got = policy(false).refusal(to);
            assert_eq!(got.is_none(), want.is_none(), "{address}: {got:?}");
            assert!(got.unwrap_or_default().contains(want.unwrap_or_default()), "{address}: {got:?}");
        }
    }

    #[test]
    fn addresses_of_the_edge_and_its_host_are_refused() {
        check(&["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], Some("loopback"));
        check(&["169.254.169.254", "fe80::1", "255.255.255.255"], Some("link-local"));
        check(&["0.0.0.0", "::", "224.0.0.1", "ff02::1"], Some("no address of one host"));
        check(&["10.0.0.9", "::ffff:10.0.0.9"], Some("own address"));
        check(&["172.16.0.1", "172.31.255.255", "2001:db8:5::1"], Some("operator"));
        check(&["10.0.0.8", "10.0.0.7", "192.0.2.1", "172.32.0.1", "2001:db8::1", "fd00::1"], None);
    }

    #[test]
    fn metadata_of_clouds_is_refused() {
        check(&["168.63.129.16", "100.100.100.200"], Some("metadata"));
        check(&["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"], Some("metadata"));
        check(&["168.63.129.17", "100.100.100.100", "fd00:ec3::254", "fd20:ce::255"], None);
    }

    #[test]
    fn what_is_translated_to_a_refused_address_is_refused() {
        check(&["64:ff9b::127.0.0.1", "64:ff9b:1::127.0.0.1", "2002:7f00:1::"], Some("loopback"));
        check(&["64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::"], Some("link-local"));
        check(&["64:ff9b::168.63.129.16", "2002:a83f:8110::1"], Some("metadata"));
        check(&["64:ff9b::10.0.0.9"], Some("own address"));
        check(&["2002:ac10:1::"], Some("operator"));
        check(&["64:ff9b::192.0.2.1", "64:ff9b:1::192.0.2.1", "64:ff9b:1:c000:2:100::", "2002:c000:201::"], None);
    }

    #[test]
    fn loopback_can_be_allowed_and_nothing_else_is() {
        let refusal = |to: &str| policy(true).refusal(to.parse().unwrap());
        assert_eq!(refusal("127.0.0.1:80"), None);
        assert_eq!(refusal("[64:ff9b::127.0.0.1]:80"), None);
        assert!(refusal("169.254.169.254:80").is_some());
    }

    #[test]
    fn own_sockets_are_refused_and_their_neighbours_are_not() {
        for allow_loopback in [true, false] {
            let refusal = |to: &str| policy(allow_loopback).refusal(to.parse().unwrap());
            for own in ["127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", "10.0.0.7:9180", "[64:ff9b::10.0.0.7]:9180"] {
                assert_eq!(refusal(own), Some("it is a socket of the edge itself"), "{own}");
            }
            assert_eq!(refusal("10.0.0.7:9181"), None);
        }
    }

    #[test]
    fn the_api_server_is_refused_whatever_is_allowed() {
        for allow_loopback in [true, false] {
            let refusal = |to: &str| policy(allow_loopback).refusal(to.parse().unwrap());
            for at in ["10.96.0.1:443", "[::ffff:10.96.0.1]:443", "[64:ff9b::a60:1]:443", "[2002:a60:1::]:443"] {
                assert_eq!(refusal(at), Some("it is the API server"), "{at}");
            }
            assert_eq!(refusal("127.0.0.1:6443"), Some("it is the API server"));
            assert_eq!(refusal("10.96.0.1:444"), None);
            assert_eq!(refusal("10.96.0.2:443"), None);
        }
    }
}
