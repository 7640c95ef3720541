//! UDP datagrams: flows from a client to an endpoint of a route, and back. A flow is identified by the client's address
//! and port, the address that the client sent to, and the bind; it ends after an idle time, since UDP has no end.
//!
//! Each thread reads its own socket of a bind and owns the flows that it began, but any thread passes on a datagram of
//! any flow. Datagrams are not queued: one that cannot be passed on at once is dropped and counted, as a router would.

mod endpoint;
mod flow;
mod port;
mod socket;

use std::cell::RefCell;

pub(crate) use flow::Flows;
pub(crate) use port::serve;
pub(crate) use socket::{ClientSocket, open, probe};

/// More than the largest datagram, which has 65,507 bytes over IPv4 and 65,527 over IPv6.
const DATAGRAM_BYTES: usize = 1 << 16;

thread_local! {
    /// The read buffer for datagrams. Each is passed on before the next is read, so one buffer serves all flows of a
    /// thread.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; DATAGRAM_BYTES].into());
}
