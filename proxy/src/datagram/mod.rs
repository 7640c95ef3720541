//! Datagrams of UDP: flows from a client to an endpoint of a route, and back. A flow is told apart by the client's address and port,
//! the address that the client sent to, and the bind; it ends by silence, since UDP knows no end.
//!
//! Each thread reads its own socket of a bind and keeps the flows that it began, but any thread passes on a datagram of any of them.
//! Nothing is kept of a datagram: what cannot be passed on at once is dropped and counted, as a router would.

mod endpoint;
mod flow;
mod port;
mod socket;

use std::cell::RefCell;

pub(crate) use flow::Flows;
pub(crate) use port::serve;
pub(crate) use socket::{ClientSocket, open, probe};

/// More than the largest datagram has, which is 65,507 bytes over IPv4 and 65,527 over IPv6.
const DATAGRAM_BYTES: usize = 1 << 16;

thread_local! {
    /// Where datagrams are read to. Each is passed on before the next is read, so one place is enough for all flows of a thread.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; DATAGRAM_BYTES].into());
}
