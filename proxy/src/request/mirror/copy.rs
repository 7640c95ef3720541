//! Sends a copy of a request to an endpoint and discards the response: in plain HTTP/1.1 over a connection of its own,
//! and over HTTP/2 or TLS by the clients for requests of the edge's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tidegate_config::model::{Balance, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::CopyTarget;
use super::copied_head::Message;
use crate::observe::mirror_metrics::Outcome;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::upstream::attempt::{Attempts, OwnAddresses};
use crate::upstream::balance::Random;
use crate::upstream::client::{self, EndpointClient, MIRROR_CONNECT, Purpose};
use crate::upstream::connect::connect;

/// The timeout of a copy, including its response.
const WHOLE: Duration = Duration::from_secs(30);
/// The maximum number of bytes read of a response.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How a copy is sent to its endpoint.
enum Transport {
    Plain(SocketAddr, Bytes),
    /// Boxed, as they are much larger.
    Client(Box<EndpointClient>, Box<Request<Full<Bytes>>>),
}

impl Transport {
    /// `None` if the copy cannot be sent.
    fn new(message: Message, destined: &CopyTarget, endpoint: &Endpoint, shared: &Shared) -> Option<Self> {
        match message {
            Message::Plain(bytes) => Some(Self::Plain(endpoint.address, bytes)),
            Message::ForClient(request) => {
                let limits = &shared.options.upstream;
                let client = client::of(Purpose::Mirror, (&destined.target, endpoint), request.uri(), limits);
                Some(Self::Client(Box::new(client), request))
            }
            Message::Invalid => None,
        }
    }
}

/// The response to a copy.
enum CopyResponse {
    Plain(TcpStream),
    Client(Response<Incoming>),
}

/// Sends a copy in a task of its own, to an endpoint of a backend that is not the edge itself.
pub(super) fn send(
    shared: &Arc<Shared>,
    (destined, here): (CopyTarget, OwnAddresses<'_>),
    message: Message,
    (now, draw): (Instant, &mut Random),
) {
    let mut attempts = Attempts::default();
    let endpoint = attempts.next(&destined.backend, Balance::PowerOfTwo, here, &shared.endpoints, (now, draw));
    let Some(endpoint) = endpoint else { return shared.mirrors.count(Outcome::NoEndpoint) };
    let Some(transport) = Transport::new(message, &destined, endpoint, shared) else {
        return shared.mirrors.count(Outcome::Failed);
    };
    let (shared, until) = (Arc::clone(shared), now + WHOLE);
    tokio::spawn(async move {
        match timeout_at(until.into(), deliver(transport)).await {
            Ok(Some(answer)) => {
                shared.mirrors.count(Outcome::Sent);
                // The outcome of the response does not matter.
                drop(timeout_at(until.into(), forget(answer)).await);
            }
            Ok(None) | Err(_) => shared.mirrors.count(Outcome::Failed),
        }
        // Until here the copy counts as in flight at its endpoint, and towards the limits.
        drop((attempts, destined));
    });
}

/// Sends a copy; `None` if the endpoint did not take it.
async fn deliver(transport: Transport) -> Option<CopyResponse> {
    match transport {
        Transport::Plain(address, bytes) => {
            let written = write(address, &bytes).await;
            let failed = |reason: &Reason| tracing::debug!(%address, reason = reason.as_str(), "a mirror did not accept the copy of a request");
            written.inspect_err(failed).ok().map(CopyResponse::Plain)
        }
        Transport::Client(client, request) => {
            // Only an idempotent request may arrive twice (RFC 9110 section 9.2.2).
            let answered = client::send_until_processed(&client, &request, request.method().is_idempotent()).await;
            let failed = |error: &_| {
                tracing::debug!(
                    error = error as &dyn std::error::Error,
                    "a mirror did not accept the copy of a request"
                )
            };
            answered.inspect_err(failed).ok().map(CopyResponse::Client)
        }
    }
}

async fn write(address: SocketAddr, bytes: &[u8]) -> Result<TcpStream, Reason> {
    let mut stream = connect(address, MIRROR_CONNECT).await?;
    stream.write_all(bytes).await.map_err(|_| Reason::UpstreamBroken)?;
    Ok(stream)
}

/// Reads and discards the response, so that the endpoint can complete it.
async fn forget(answer: CopyResponse) {
    let mut left = ANSWER_BYTES_MAX;
    match answer {
        CopyResponse::Plain(mut stream) => {
            let mut piece = [0; 4096];
            while left > 0
                && let Ok(count @ 1..) = stream.read(&mut piece).await
            {
                left = left.saturating_sub(count);
            }
        }
        CopyResponse::Client(response) => {
            let mut body = response.into_body();
            while left > 0
                && let Some(Ok(frame)) = body.frame().await
            {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            }
        }
    }
}
