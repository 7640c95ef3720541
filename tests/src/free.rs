//! Addresses for processes that cannot choose a free port by themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

/// The first of as many ports: below those that Linux gives to sockets which ask for any port, as most
/// tests do that run meanwhile (`net.ipv4.ip_local_port_range`).
const FIRST: u16 = 16_384;

/// Loopback addresses whose ports were free a moment ago, all different. Another process may take them first.
#[must_use]
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins elsewhere.
    let begin = std::process::id().wrapping_mul(617).to_le_bytes();
    let begin = u16::from_le_bytes([begin[0], begin[1]]);
    std::array::from_fn(|_| {
        let mut ports = (0..FIRST).map(|_| FIRST + begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % FIRST);
        let bound = ports.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        bound.and_then(|listener| listener.local_addr().ok()).expect("a free port")
    })
}
