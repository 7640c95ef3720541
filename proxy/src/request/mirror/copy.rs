//! Sends a copy of a request to an endpoint, over a connection of its own, and discards the response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_config::model::{Backend, Balance};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::budget::Charge;
use crate::observe::mirror_metrics::Outcome;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::upstream::attempt::{Attempts, Here};
use crate::upstream::balance::Draw;
use crate::upstream::connect::connect;

/// The connect timeout.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of a copy, including its response.
const WHOLE: Duration = Duration::from_secs(30);
/// The maximum number of bytes read of a response.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Sends a copy in a task of its own, to an endpoint of a backend that is not the edge itself.
pub(super) fn send(
    shared: &Arc<Shared>,
    (backend, here): (&Backend, Here<'_>),
    bytes: Bytes,
    charge: Charge,
    (now, draw): (Instant, &mut Draw),
) {
    let Some(in_flight) = shared.mirrors.enter() else { return shared.mirrors.count(Outcome::NoRoom) };
    let mut attempts = Attempts::default();
    let endpoint = attempts.next(backend, Balance::PowerOfTwo, here, &shared.endpoints, (now, draw));
    let Some(address) = endpoint.map(|endpoint| endpoint.address) else {
        return shared.mirrors.count(Outcome::NoEndpoint);
    };
    let (shared, until) = (Arc::clone(shared), now + WHOLE);
    tokio::spawn(async move {
        match timeout_at(until.into(), deliver(address, &bytes)).await {
            Ok(Ok(stream)) => {
                shared.mirrors.count(Outcome::Sent);
                // The outcome of the response does not matter.
                drop(timeout_at(until.into(), forget(stream)).await);
            }
            Ok(Err(_)) | Err(_) => shared.mirrors.count(Outcome::Failed),
        }
        // Until here the copy counts as in flight at its endpoint, and towards the limits.
        drop((attempts, charge, in_flight));
    });
}

/// Sends a copy.
async fn deliver(address: SocketAddr, bytes: &[u8]) -> Result<TcpStream, Reason> {
    let mut stream = connect(address, CONNECT).await?;
    stream.write_all(bytes).await.map_err(|_| Reason::UpstreamBroken)?;
    Ok(stream)
}

/// Reads and discards the response, so that the endpoint can complete it.
async fn forget(mut stream: TcpStream) {
    let mut answer = [0; 4096];
    let mut left = ANSWER_BYTES_MAX;
    while left > 0
        && let Ok(count @ 1..) = stream.read(&mut answer).await
    {
        left = left.saturating_sub(count);
    }
}
