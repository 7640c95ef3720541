//! Connections that are passed on unread: from a TCP bind to an endpoint of its route, and back.
//!
//! A connection keeps the endpoint that it was given, whatever becomes of the route: a publication cuts nothing.

mod copy;
mod endpoint;

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::model::StreamRoute;

use crate::clock;
use crate::connection::Notice;
use crate::driver::{Accepted, Known, Opened, Traffic, open};
use crate::observe::access_log::StreamEntry;
use crate::observe::stream_metrics::Outcome;

/// Serves a connection to its end.
pub(crate) async fn serve(accepted: Accepted, known: Known, traffic: Arc<Traffic>, notice: Notice) {
    let (bind, began) = (accepted.bind, accepted.at);
    // It may be silent for long without waiting for anything of ours, so it never gives way to another connection.
    known.activity.begin();
    let Some(opened) = open(accepted, known.client, &traffic, &notice).await else { return };
    let peer = opened.peer;
    let route = traffic.published.pin().stream(&bind).cloned();
    let (outcome, [up, down], upstream) = match &route {
        Some(route) => carry(opened, route, &traffic).await,
        None => (Outcome::NoRoute, [0; 2], None),
    };
    traffic.metrics.streams.finished(&bind, outcome, [up, down]);
    tracing::debug!(%peer, bind = %bind.address, outcome = outcome.as_str(), up, down, "TCP connection ended");
    // A form of the operator's is one of requests, which have what a connection has not.
    if traffic.published.pin().edge().log_format.is_some() {
        return;
    }
    let entry = StreamEntry {
        time: clock::wall(),
        client: peer,
        bind: bind.address,
        bytes_in: up,
        bytes_out: down,
        duration: clock::now().saturating_duration_since(began),
        upstream,
        object: route.as_ref().map(|route| &route.origin.object),
        outcome: outcome.as_str(),
    };
    traffic.shared.access_log.put(|out| entry.write(out));
}

/// Carries bytes both ways; how that ended, how many there were each way, and with which endpoint.
async fn carry(mut opened: Opened, route: &StreamRoute, traffic: &Traffic) -> (Outcome, [u64; 2], Option<SocketAddr>) {
    let snapshot = traffic.published.pin();
    // Its place among the connections of its client is kept for as long as this runs.
    let _client = opened.client.take();
    match endpoint::connect(route, &snapshot, &opened, &traffic.shared).await {
        Ok((mut endpoint, in_flight)) => {
            drop(snapshot);
            let address = in_flight.last().map(|attempt| attempt.address);
            let (outcome, moved) = copy::both_ways(&mut opened.stream, &mut endpoint, route.idle_timeout).await;
            (outcome, moved, address)
        }
        Err(outcome) => (outcome, [0; 2], None),
    }
}
