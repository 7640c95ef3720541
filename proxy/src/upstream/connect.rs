//! Opens connections to endpoints.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::reason::Reason;

/// Opens a connection to an endpoint.
///
/// # Errors
/// The reason why there is none.
pub(crate) async fn connect(address: SocketAddr, within: Duration) -> Result<TcpStream, Reason> {
    let connected = timeout(within, TcpStream::connect(address)).await.map_err(|_| Reason::ConnectTimeout)?;
    // Nagle's algorithm would only add latency.
    let ready = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    ready.map_err(|error| failure(&error))
}

/// The reason for an error of the operating system. A lack of the edge's own resources is not the endpoint's fault. A
/// missing local address concerns one endpoint: no port is left towards it, or the edge has no address of its family.
pub(crate) fn failure(error: &io::Error) -> Reason {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Reason::OutOfResources,
        Some(_) | None => Reason::ConnectFailed,
    }
}
