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
/// Why there is none.
pub(crate) async fn connect(address: SocketAddr, within: Duration) -> Result<TcpStream, Reason> {
    let connected = timeout(within, TcpStream::connect(address)).await.map_err(|_| Reason::ConnectTimeout)?;
    // A delay for the sake of fuller packets would only add to each request's time.
    let ready = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    ready.map_err(|error| failure(&error))
}

/// Why no connection could be made when the system said this. What the edge itself is short of is not the endpoint's fault. That
/// there is no address for the own end is one endpoint's matter: no port is left towards it, or it has an address of a family
/// in which the edge has none.
pub(crate) fn failure(error: &io::Error) -> Reason {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Reason::OutOfResources,
        Some(_) | None => Reason::ConnectFailed,
    }
}
