//! Connections whose bytes are passed on unread: from a TCP bind, or a TLS listener, to an endpoint of a route, and
//! back.
//!
//! A connection keeps its endpoint, whatever becomes of the route: a publication does not abort connections.

mod endpoint;

pub(crate) use endpoint::share;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use endpoint::Endpoint;
use tidegate_config::model::{BindKey, StreamRoute};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::budget::Cost;
use crate::clock;
use crate::connection::Shutdown;
use crate::connection::copy::both_ways;
use crate::driver::{Accepted, ConnectionOrigin, ConnectionState, TlsBytes, Traffic, open};
use crate::observe::access_log::StreamEntry;
use crate::observe::stream_metrics::Outcome;

/// The outcome of a connection, its bytes to the endpoint and back, and the endpoint's address.
type StreamEnd = (Outcome, [u64; 2], Option<SocketAddr>);

/// Serves a connection of a TCP bind to its end.
pub(crate) async fn serve(accepted: Accepted, known: ConnectionState, traffic: Arc<Traffic>, shutdown: Shutdown) {
    let (bind, began) = (accepted.bind, accepted.at);
    // It may be idle for long while the edge does not wait for it, so it never gives way to another connection.
    known.activity.begin();
    let Some(mut opened) = open(accepted, known.client, &traffic, &shutdown).await else { return };
    let route = traffic.published.pin().stream(&bind).cloned();
    let ended = match &route {
        Some(route) => carry(&mut opened.stream, &[], &opened.origin, route, &traffic).await,
        None => (Outcome::NoRoute, [0; 2], None),
    };
    finish((bind, began), opened.origin.peer, route.as_deref(), ended, &traffic);
}

/// Serves a connection to a TLS listener to its end.
pub(crate) async fn serve_tls(at: (BindKey, Instant), mut bytes: TlsBytes, traffic: &Traffic) {
    // Only the client's side was charged when the connection was accepted.
    let Some(_room) = traffic.room_for(bytes.from.client.as_ref(), Cost::TLS_STREAM) else { return };
    let ended = carry(&mut bytes.stream, &bytes.read, &bytes.from, &bytes.route, traffic).await;
    finish(at, bytes.from.peer, Some(&bytes.route), ended, traffic);
}

/// Counts and logs a connection.
fn finish(
    (bind, began): (BindKey, Instant),
    peer: SocketAddr,
    route: Option<&StreamRoute>,
    (outcome, [up, down], upstream): StreamEnd,
    traffic: &Traffic,
) {
    let object = route.map(|route| &route.origin.object);
    traffic.shared.metrics.streams.finished(&bind, object, outcome, [up, down]);
    tracing::debug!(%peer, bind = %bind.address, outcome = outcome.as_str(), up, down, "connection ended");
    // A custom log format has variables of requests, which a connection does not have.
    if traffic.published.pin().edge().log_format.is_some() {
        return;
    }
    let entry = StreamEntry {
        time: clock::wall(),
        protocol: "TCP",
        client: peer,
        bind: bind.address,
        bytes_in: up,
        bytes_out: down,
        datagrams: None,
        duration: clock::now().saturating_duration_since(began),
        upstream,
        object,
        outcome: outcome.as_str(),
    };
    traffic.shared.access_log.put(|out| entry.write(out));
}

/// Copies bytes in both directions, beginning with those already read.
async fn carry<C: AsyncRead + AsyncWrite + Unpin>(
    client: &mut C,
    read: &[u8],
    from: &ConnectionOrigin,
    route: &StreamRoute,
    traffic: &Traffic,
) -> StreamEnd {
    let snapshot = traffic.published.pin();
    match endpoint::connect(route, &snapshot, from, &traffic.shared).await {
        Ok((endpoint, in_flight)) => {
            drop(snapshot);
            let address = in_flight.last().map(|attempt| attempt.address);
            let idle = route.idle_timeout;
            let (outcome, moved) = match endpoint {
                Endpoint::Plain(mut endpoint) => both_ways(client, read, &mut endpoint, idle).await,
                Endpoint::Tls(mut endpoint) => both_ways(client, read, &mut *endpoint, idle).await,
            };
            (outcome.into(), moved, address)
        }
        Err(outcome) => (outcome, [0; 2], None),
    }
}
