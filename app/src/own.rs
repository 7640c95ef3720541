//! The addresses of this process itself: no object of a tenant may lead there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nix::ifaddrs::getifaddrs;

/// The addresses of every network interface of this host, or of the pod, as they are now.
///
/// # Errors
/// When the system does not report them.
pub(crate) fn host_addresses() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address).filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    Ok(addresses.collect())
}

/// The addresses that reach sockets listening on `listening`: a socket on an unspecified address is reached by every
/// address of the host, by IPv4 as well when it is `[::]`. Its unspecified address stands for those that no interface
/// lists, such as the other addresses of 127.0.0.0/8. Port 0 is not a port yet.
pub(crate) fn sockets(listening: impl Iterator<Item = SocketAddr>, host: &[IpAddr]) -> Arc<[SocketAddr]> {
    let reached = |at: SocketAddr| -> Vec<SocketAddr> {
        let own = at.ip().to_canonical();
        let by = host.iter().filter(|address| own.is_unspecified() && (own.is_ipv6() || address.is_ipv4()));
        std::iter::once(&own).chain(by).map(|address| SocketAddr::new(*address, at.port())).collect()
    };
    listening.filter(|at| at.port() != 0).flat_map(reached).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_control::options::AddressPolicy;

    use super::*;

    #[track_caller]
    fn check(listening: &str, want: &[&str]) {
        let host: Vec<IpAddr> = ["127.0.0.1", "10.0.0.7", "2001:db8::7"].map(|ip| ip.parse().unwrap()).into();
        let got = sockets([listening.parse().unwrap()].into_iter(), &host);
        assert_eq!(got.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{listening}");
    }

    #[test]
    fn a_socket_is_reached_by_the_addresses_it_listens_on() {
        check("10.0.0.7:80", &["10.0.0.7:80"]);
        check("[::ffff:10.0.0.7]:80", &["10.0.0.7:80"]);
        check("0.0.0.0:80", &["0.0.0.0:80", "127.0.0.1:80", "10.0.0.7:80"]);
        check("[::ffff:0.0.0.0]:80", &["0.0.0.0:80", "127.0.0.1:80", "10.0.0.7:80"]);
        check("[::]:80", &["[::]:80", "127.0.0.1:80", "10.0.0.7:80", "[2001:db8::7]:80"]);
        check("0.0.0.0:0", &[]);
    }

    /// Checks that an EndpointSlice may, or may not, name an address while sockets listen on another one.
    #[track_caller]
    fn check_endpoint(listening: &str, endpoint: &str, allowed: bool) {
        let sockets = sockets([listening.parse().unwrap()].into_iter(), &["127.0.0.1".parse().unwrap()]);
        let policy = AddressPolicy { allow_loopback: true, sockets, ..AddressPolicy::default() };
        assert_eq!(
            policy.refusal(endpoint.parse().unwrap(), &std::collections::BTreeSet::new()).is_none(),
            allowed,
            "{endpoint} beside {listening}"
        );
    }

    #[test]
    fn no_loopback_address_leads_to_a_socket_on_an_unspecified_address() {
        for listening in ["0.0.0.0:9180", "[::]:9180", "[::ffff:0.0.0.0]:9180"] {
            for endpoint in
                ["127.0.0.1:9180", "127.0.0.2:9180", "127.1.2.3:9180", "[::1]:9180", "[::ffff:127.0.0.2]:9180"]
            {
                check_endpoint(listening, endpoint, false);
            }
            check_endpoint(listening, "127.0.0.2:9181", true);
        }
        check_endpoint("127.0.0.1:9180", "127.0.0.1:9180", false);
        check_endpoint("127.0.0.1:9180", "127.0.0.2:9180", true);
    }

    #[test]
    fn the_host_has_loopback() {
        assert!(host_addresses().unwrap().iter().any(IpAddr::is_loopback));
    }
}
