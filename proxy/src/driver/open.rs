//! The beginning of a connection: what is known of it when it is accepted, and what stands before the first byte of a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::model::BindKey;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout_at};

use super::Traffic;
use crate::budget::Cost;
use crate::clock;
use crate::connection::Notice;
use crate::connection::clients::ClientPlace;
use crate::connection::idle::Activity;
use crate::connection::proxy_header::{self, Ends, Failure};
use crate::connection::transport::has_arrived;

/// A TCP connection as it was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Its stream.
    pub(crate) stream: TcpStream,
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    /// The bind it came in over.
    pub(crate) bind: BindKey,
    /// Whether it has to begin with a header of the PROXY protocol.
    pub(crate) proxy_header: bool,
    /// When it was accepted.
    pub(crate) at: Instant,
}

/// What is known of an accepted connection besides.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its place among those of its client, where that is known and counted.
    pub(crate) client: Option<ClientPlace>,
    /// Whether it waits for a request.
    pub(crate) activity: Arc<Activity>,
}

/// A connection whose client is known.
pub(crate) struct Opened {
    /// Its stream, behind the PROXY header.
    pub(crate) stream: TcpStream,
    /// Who the client is, and how it came.
    pub(crate) origin: Origin,
}

/// Who a client is, and how it came.
pub(crate) struct Origin {
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    /// The address that it came in over.
    pub(crate) local: SocketAddr,
    /// The address that the client connected to.
    pub(crate) destination: SocketAddr,
    /// See [`ConnectionFacts::forwards`](crate::connection::ConnectionFacts::forwards).
    pub(crate) forwards: bool,
    /// Its place among those of its client.
    pub(crate) client: Option<ClientPlace>,
}

/// Reads what stands before the first byte of a client; `None` when that leaves no connection.
pub(crate) async fn open(
    accepted: Accepted,
    mut client: Option<ClientPlace>,
    traffic: &Traffic,
    notice: &Notice,
) -> Option<Opened> {
    let Accepted { mut stream, peer, bind, proxy_header, at } = accepted;
    let limits = &traffic.options.client;
    // A socket without a local address is dead already.
    let local = canonical(stream.local_addr().ok()?);
    let peer = canonical(peer);
    let until = clock::now() + limits.head_deadline;
    if proxy_header && !begins(&stream, until, notice.ends_silence(at)).await {
        return None;
    }
    let told = if proxy_header { ends(&mut stream, peer, until, traffic).await } else { Ok(None) };
    let told = match told {
        Ok(told) => told,
        Err(failure) => {
            traffic.metrics.proxy_header_failed(failure);
            tracing::debug!(%peer, reason = failure.as_str(), "no PROXY header");
            return None;
        }
    };
    let forwards = told.is_some() || !proxy_header;
    let reached = || SocketAddr::new(local.ip(), traffic.port_of(&bind).unwrap_or(local.port()));
    let Ends { source: peer, destination } = told.unwrap_or_else(|| Ends { source: peer, destination: reached() });
    if proxy_header {
        client = traffic
            .client(peer.ip(), Cost::of_connection(bind.protocol))
            .map_err(|why| traffic.metrics.refused(why))
            .ok()?;
    }
    Some(Opened { stream, origin: Origin { peer, local, destination, forwards, client } })
}

/// What a connection's PROXY header says, where this peer is believed. It is read in any case.
async fn ends(
    stream: &mut TcpStream,
    peer: SocketAddr,
    until: Instant,
    traffic: &Traffic,
) -> Result<Option<Ends>, Failure> {
    let read = timeout_at(until.into(), proxy_header::read(stream));
    let ends = read.await.unwrap_or(Err(Failure::Timeout))?;
    let believed = traffic.trusts(peer.ip());
    let canonical = |ends: Ends| Ends { source: canonical(ends.source), destination: canonical(ends.destination) };
    Ok(ends.filter(|_| believed).map(canonical))
}

/// Waits until a client says something or the time is over, which is for whoever reads it to find out; `false` when the end
/// comes first: a client that has said nothing, as load balancers do that only ask whether a port is open, loses nothing by it.
pub(super) async fn begins(stream: &TcpStream, until: Instant, ends: impl Future<Output = ()>) -> bool {
    let mut first = [0];
    tokio::select! {
        biased;
        // It looks, for a new stream is called readable before anything is there.
        _ = stream.peek(&mut first) => true,
        () = ends => has_arrived(stream),
        () = sleep_until(until.into()) => true,
    }
}

/// A dual-stack socket shows IPv4 peers as IPv4-mapped IPv6 addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
