//! The addresses on which this process listens: an endpoint must not be one of them, or a request would loop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of ports in one word of the table.
const PORTS_A_WORD: usize = u64::BITS as usize;

/// The addresses with their actual ports. Reading takes no lock.
#[derive(Debug)]
pub(crate) struct Listening {
    addresses: papaya::HashSet<SocketAddr>,
    /// A bit for each port that was ever listened on: nearly every endpoint has another port and needs no further
    /// check.
    ports: Box<[AtomicU64]>,
}

impl Default for Listening {
    fn default() -> Self {
        let words = (usize::from(u16::MAX) + 1) / PORTS_A_WORD;
        Self { addresses: papaya::HashSet::new(), ports: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Listening {
    /// A bind listens on an address.
    pub(crate) fn add(&self, address: SocketAddr) {
        self.addresses.pin().insert(address);
        let (word, bit) = self.place(address.port());
        word.fetch_or(bit, Ordering::Release);
    }

    /// No bind listens on an address any more.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.addresses.pin().remove(&address);
    }

    /// Returns `true` if an address leads back to this process. A bind on the unspecified address covers loopback and
    /// the address that the request came in over; other addresses of the host are not known here, and
    /// [`crate::http::cdn_loop`] ends such loops.
    pub(crate) fn leads_back(&self, address: SocketAddr, local: Option<IpAddr>) -> bool {
        let (word, bit) = self.place(address.port());
        if word.load(Ordering::Acquire) & bit == 0 {
            return false;
        }
        let listening = self.addresses.pin();
        let on_any = |any: IpAddr| listening.contains(&SocketAddr::new(any, address.port()));
        let ours = address.ip().is_loopback() || local == Some(address.ip());
        listening.contains(&address)
            || ours && (on_any(Ipv4Addr::UNSPECIFIED.into()) || on_any(Ipv6Addr::UNSPECIFIED.into()))
    }

    fn place(&self, port: u16) -> (&AtomicU64, u64) {
        let port = usize::from(port);
        (&self.ports[port / PORTS_A_WORD], 1 << (port % PORTS_A_WORD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_of_every_address_covers_loopback_and_the_published_address() {
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
        check("0.0.0.0:80", "10.0.0.9", "127.9.9.9:80", true);
        check("[::]:80", "10.0.0.9", "127.0.0.2:80", true);
        check("[::]:80", "10.0.0.9", "[::1]:80", true);
        check("0.0.0.0:80", "10.0.0.9", "10.0.0.1:80", false);
        check("[::]:80", "10.0.0.9", "10.0.0.9:80", true);
        check("[::]:80", "fd00::9", "[fd00::9]:80", true);
        check("[::]:80", "fd00::9", "[fd00::9]:8080", false);
    }
}
