//! The connection to an endpoint: its choice, the retries, and the PROXY header.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ppp::{v1, v2};
use tidegate_config::model::{Balance, ProxyHeader, Snapshot, StreamRoute, StreamTarget, WeightedBackend};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::clock;
use crate::driver::ConnectionOrigin;
use crate::observe::stream_metrics::Outcome;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::upstream::attempt::Attempts;
use crate::upstream::balance::{self, Random};
use crate::upstream::connect;
use crate::upstream::tls::{self, Alpn};

/// The maximum number of endpoints tried for one connection.
const TRIES_MAX: usize = 3;

/// A connection to an endpoint.
pub(super) enum Endpoint {
    /// In plain text.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to an endpoint within the connect timeout of the route, and sends the PROXY header if the route requires
/// one. The connection counts as in flight at the endpoint until the attempts are dropped.
///
/// # Errors
/// The reason why there is no connection.
pub(super) async fn connect(
    route: &StreamRoute,
    snapshot: &Snapshot,
    from: &ConnectionOrigin,
    shared: &Shared,
) -> Result<(Endpoint, Attempts), Outcome> {
    let mut draw = Random::new(fastrand::u64(..));
    let share = share(route, &mut draw).ok_or(Outcome::NoEndpoint)?;
    let target = share.to.as_ref().ok_or(Outcome::InvalidBackend)?;
    let backend = snapshot.backend(&target.backend).ok_or(Outcome::NoEndpoint)?;
    let here = shared.own_addresses(from.local.ip());
    let end = clock::now() + route.connect_timeout;
    let mut attempts = Attempts::default();
    let mut outcome = Outcome::NoEndpoint;
    while attempts.count() < TRIES_MAX {
        let random = (clock::now(), &mut draw);
        let Some(endpoint) = attempts.next(backend, Balance::PowerOfTwo, here, &shared.endpoints, random) else {
            break;
        };
        // Each attempt has an equal part of the time left, so that a silent endpoint leaves time for the others.
        let left = end.saturating_duration_since(clock::now());
        let tries = u32::try_from(TRIES_MAX - attempts.count() + 1).unwrap_or(1);
        let opening = opening(endpoint.address, left / tries, target, from).await;
        let now = clock::now();
        match opening {
            Ok(stream) => {
                attempts.connected(false, now);
                return Ok((stream, attempts));
            }
            // A lack of resources of the edge says nothing about an endpoint.
            Err(Reason::OutOfResources) => return Err(Outcome::ConnectFailed),
            Err(Reason::ConnectTimeout) => outcome = Outcome::ConnectTimeout,
            Err(_) => outcome = Outcome::ConnectFailed,
        }
        attempts.refused(now, Some(shared.endpoints.moment(now)));
    }
    Err(outcome)
}

/// The share of a connection or flow of a route, chosen by weight; `None` if no weight is above 0.
pub(crate) fn share<'r>(route: &'r StreamRoute, draw: &mut Random) -> Option<&'r WeightedBackend> {
    route.backends.get(balance::share(&route.backends, |share: &WeightedBackend| share.weight, draw)?)
}

async fn opening(
    address: SocketAddr,
    within: Duration,
    target: &StreamTarget,
    from: &ConnectionOrigin,
) -> Result<Endpoint, Reason> {
    let end = clock::now() + within;
    let mut stream = connect::connect(address, within).await?;
    if let Some(version) = target.proxy_header {
        let header = proxy_header(version, from.peer, from.destination);
        // A new connection has room for these few bytes, so this does not wait.
        let written = stream.write_all(&header.map_err(|error| connect::failure(&error))?).await;
        written.map_err(|error| connect::failure(&error))?;
    }
    let Some(tls) = &target.tls else { return Ok(Endpoint::Plain(stream)) };
    // There is no request host to use instead.
    let name = tls.server_name.as_deref().map_or_else(|| Cow::Owned(address.ip().to_string()), Cow::Borrowed);
    let stream = tls::handshake(stream, end, tls, &name, Alpn::Anything).await?;
    Ok(Endpoint::Tls(Box::new(stream)))
}

/// The PROXY protocol header for a connection from one address to another.
fn proxy_header(version: ProxyHeader, from: SocketAddr, to: SocketAddr) -> io::Result<Vec<u8>> {
    match version {
        ProxyHeader::V1 => Ok(v1::Addresses::from((from, to)).to_string().into_bytes()),
        ProxyHeader::V2 => {
            let command = v2::Version::Two | v2::Command::Proxy;
            v2::Builder::with_addresses(command, v2::Protocol::Stream, (from, to)).build()
        }
    }
}

#[cfg(test)]
mod tests;
