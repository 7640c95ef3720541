//! The addresses at which this process takes traffic, as requests ask for them: no endpoint may be one of them, or a
//! request would come back to where it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses with their real ports. Requests read it without a lock.
#[derive(Debug, Default)]
pub(crate) struct Listening(papaya::HashSet<SocketAddr>);

impl Listening {
    /// A bind is open there.
    pub(crate) fn add(&self, address: SocketAddr) {
        self.0.pin().insert(address);
    }

    /// No bind is open there any more.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.0.pin().remove(&address);
    }

    /// Whether an address leads back here. A bind without an address of its own takes loopback and the one that the
    /// request came in over; what else the host is called only the host knows, and [`crate::passes`] ends such a loop.
    pub(crate) fn leads_back(&self, address: SocketAddr, local: Option<IpAddr>) -> bool {
        let listening = self.0.pin();
        let on_any = |any: IpAddr| listening.contains(&SocketAddr::new(any, address.port()));
        let ours = address.ip().is_loopback() || local == Some(address.ip());
        listening.contains(&address)
            || ours && (on_any(Ipv4Addr::UNSPECIFIED.into()) || on_any(Ipv6Addr::UNSPECIFIED.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_of_every_address_takes_loopback_and_the_address_it_is_known_by() {
        let check = |open: &str, local: &str, address: &str, want: bool| {
            let listening = Listening::default();
            listening.add(open.parse().unwrap());
            let leads_back =
                |listening: &Listening| listening.leads_back(address.parse().unwrap(), Some(local.parse().unwrap()));
            assert_eq!(leads_back(&listening), want, "{open} {local} {address}");
            listening.remove(open.parse().unwrap());
            assert!(!leads_back(&listening), "{open} is closed");
        };
        check("10.0.0.9:80", "10.0.0.9", "10.0.0.9:80", true);
        check("10.0.0.9:80", "10.0.0.9", "10.0.0.9:81", false);
        check("10.0.0.9:80", "10.0.0.8", "10.0.0.9:80", true);
        check("10.0.0.9:80", "10.0.0.9", "127.0.0.1:80", false);
        check("0.0.0.0:80", "10.0.0.9", "10.0.0.9:80", true);
        check("0.0.0.0:80", "10.0.0.9", "127.0.0.1:80", true);
        check("0.0.0.0:80", "10.0.0.9", "10.0.0.1:80", false);
        check("[::]:80", "10.0.0.9", "10.0.0.9:80", true);
        check("[::]:80", "fd00::9", "[fd00::9]:80", true);
        check("[::]:80", "fd00::9", "[fd00::9]:8080", false);
    }
}
