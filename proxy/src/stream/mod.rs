//! Connections that are passed on unread: from a TCP bind to an endpoint of its route, and back.
//!
//! A connection keeps the endpoint that it was given, whatever becomes of the route: a publication cuts nothing.

mod copy;
mod endpoint;

use std::sync::Arc;

use tidegate_config::model::BindKey;

use crate::connection::Notice;
use crate::driver::{Accepted, Known, Opened, Traffic, open};
use crate::observe::stream_metrics::Outcome;

/// Serves a connection to its end.
pub(crate) async fn serve(accepted: Accepted, known: Known, traffic: Arc<Traffic>, notice: Notice) {
    let bind = accepted.bind;
    // It may be silent for long without waiting for anything of ours, so it never gives way to another connection.
    known.activity.begin();
    let Some(opened) = open(accepted, known.client, &traffic, &notice).await else { return };
    let peer = opened.peer;
    let (outcome, [up, down]) = carry(opened, &bind, &traffic).await;
    traffic.metrics.streams.finished(&bind, outcome, [up, down]);
    tracing::debug!(%peer, bind = %bind.address, outcome = outcome.as_str(), up, down, "TCP connection ended");
}

/// Carries bytes both ways; how that ended, and how many there were each way.
async fn carry(mut opened: Opened, bind: &BindKey, traffic: &Traffic) -> (Outcome, [u64; 2]) {
    let snapshot = traffic.published.pin();
    let Some(route) = snapshot.stream(bind).cloned() else { return (Outcome::NoRoute, [0; 2]) };
    // Its place among the connections of its client is kept for as long as this runs.
    let _client = opened.client.take();
    match endpoint::connect(&route, &snapshot, &opened, &traffic.shared).await {
        Ok((mut endpoint, _in_flight)) => {
            drop(snapshot);
            copy::both_ways(&mut opened.stream, &mut endpoint, route.idle_timeout).await
        }
        Err(outcome) => (outcome, [0; 2]),
    }
}
