//! The beginning of a connection: the facts at its acceptance, and the bytes before the client's first one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::BindKey;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout_at};

use super::Traffic;
use crate::budget::Cost;
use crate::clock;
use crate::connection::Shutdown;
use crate::connection::clients::ClientPermit;
use crate::connection::idle::Activity;
use crate::connection::proxy_header::{self, ConnectionAddresses, HeaderFailure};
use crate::connection::transport::has_arrived;

/// An accepted TCP connection.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Its stream.
    pub(crate) stream: TcpStream,
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    /// The bind it came in over.
    pub(crate) bind: BindKey,
    /// Whether it must begin with a PROXY protocol header.
    pub(crate) proxy_header: bool,
    /// When it was accepted.
    pub(crate) at: Instant,
}

/// Further facts about an accepted connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Its place among those of its client, if the client is known and counted.
    pub(crate) client: Option<ClientPermit>,
    /// Whether it is idle.
    pub(crate) activity: Arc<Activity>,
}

/// A connection whose client is known.
pub(crate) struct ClientConnection {
    /// Its stream, after the PROXY header.
    pub(crate) stream: TcpStream,
    /// The client's address and the connection's destination.
    pub(crate) origin: ConnectionOrigin,
}

/// The client's address and the connection's destination.
pub(crate) struct ConnectionOrigin {
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    /// The address that it came in over.
    pub(crate) local: SocketAddr,
    /// The address that the client connected to.
    pub(crate) destination: SocketAddr,
    /// The port of it, if the PROXY header or a listener names it.
    pub(crate) named_port: Option<u16>,
    /// See [`ConnectionFacts::forwards`](crate::connection::ConnectionFacts::forwards).
    pub(crate) forwards: bool,
    /// Its place among those of its client.
    pub(crate) client: Option<ClientPermit>,
}

/// Reads the bytes before the client's first one; `None` if the connection must be closed.
pub(crate) async fn open(
    accepted: Accepted,
    mut client: Option<ClientPermit>,
    traffic: &Traffic,
    shutdown: &Shutdown,
) -> Option<ClientConnection> {
    let Accepted { mut stream, peer, bind, proxy_header, at } = accepted;
    let limits = &traffic.options.client;
    // A socket without a local address is closed already.
    let local = canonical(stream.local_addr().ok()?);
    let peer = canonical(peer);
    let until = clock::now() + limits.head_deadline;
    if proxy_header && !begins(&stream, until, shutdown.ends_silence(at)).await {
        return None;
    }
    // Boxed, because most connections have no such header.
    let addresses = if proxy_header { Box::pin(ends(&mut stream, peer, until, traffic)).await } else { Ok(None) };
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(failure) => {
            traffic.metrics.proxy_header_failed(failure);
            tracing::debug!(%peer, reason = failure.as_str(), "a connection is closed: it does not begin with a valid PROXY header");
            return None;
        }
    };
    let forwards = addresses.is_some() || !proxy_header;
    let named_port = addresses.as_ref().map_or_else(|| traffic.port_of(&bind), |ends| Some(ends.destination.port()));
    let reached = || SocketAddr::new(local.ip(), named_port.unwrap_or(local.port()));
    let ConnectionAddresses { source: peer, destination } =
        addresses.unwrap_or_else(|| ConnectionAddresses { source: peer, destination: reached() });
    if proxy_header {
        client = traffic
            .client(peer.ip(), Cost::of_connection(bind.protocol))
            .map_err(|why| traffic.metrics.refused(why))
            .ok()?;
    }
    let origin = ConnectionOrigin { peer, local, destination, named_port, forwards, client };
    Some(ClientConnection { stream, origin })
}

/// The addresses in a connection's PROXY header, if its peer is trusted. The header is read in any case.
async fn ends(
    stream: &mut TcpStream,
    peer: SocketAddr,
    until: Instant,
    traffic: &Traffic,
) -> Result<Option<ConnectionAddresses>, HeaderFailure> {
    let read = timeout_at(until.into(), proxy_header::read(stream));
    let ends = read.await.unwrap_or(Err(HeaderFailure::Timeout))?;
    let believed = traffic.trusts(peer.ip());
    let canonical = |ends: ConnectionAddresses| ConnectionAddresses {
        source: canonical(ends.source),
        destination: canonical(ends.destination),
    };
    Ok(ends.filter(|_| believed).map(canonical))
}

/// Waits until a client sends something or the deadline, which the later reader handles; `false` if the end comes
/// first: a client that has sent nothing, such as a port check of a load balancer, loses nothing.
pub(super) async fn begins(stream: &TcpStream, until: Instant, ends: impl Future<Output = ()>) -> bool {
    let mut first = [0];
    tokio::select! {
        biased;
        // A peek, because a new stream is reported as readable before there are bytes.
        _ = stream.peek(&mut first) => true,
        () = ends => has_arrived(stream),
        () = sleep_until(until.into()) => true,
    }
}

/// Maps the IPv4-mapped IPv6 addresses of a dual-stack socket to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
