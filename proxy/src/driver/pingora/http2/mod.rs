//! Requests to HTTP/2 endpoints, on streams of our own connections: Pingora's would decode heads of 16 MiB and read
//! seven pieces ahead of a client that takes none. The client's half is Pingora's session, as for other requests.

mod head;
mod relay;
mod response;
mod upload;

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use pingora::proxy::Session;
use pingora::{Error, Result};
use tidegate_config::model::{Head as _, request_host};
use tokio::time::sleep;

use super::context::{GRACE, RequestContext};
use super::failed::{broke, connect_failed, stop};
use super::fault;
use super::head::Parsed;
use super::proxy_http::PingoraDriver;
use super::session::{answer_expectation, unless_gone};
use crate::clock;
use crate::options::UpstreamLimits;
use crate::reason::Reason;
use crate::request::forwarding::{Forwarding, UpstreamAttempt};
use crate::upstream::connection::ConnectionKey;
use crate::upstream::http2::{self, StreamSlot};
use relay::Relay;
use response::Response;
use upload::Upload;

/// The settings of an attempt.
struct AttemptSettings {
    key: ConnectionKey,
    connect: Duration,
    timeouts: Timeouts,
    scheme: &'static str,
    /// Whether it needs a connection without other requests.
    alone: bool,
}

/// The maximum waits for the endpoint and the client.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// For its next bytes.
    read: Duration,
    /// Until it takes the next bytes of the request.
    write: Duration,
    /// For the client's next bytes of the request.
    body: Duration,
}

impl AttemptSettings {
    fn of(attempt: &UpstreamAttempt<'_>, body: Duration, host: impl FnOnce() -> String) -> Self {
        Self {
            key: ConnectionKey::new(attempt.target, attempt.endpoint, host),
            connect: attempt.connect_timeout(),
            timeouts: Timeouts { read: attempt.effective.read_timeout, write: attempt.effective.write_timeout, body },
            scheme: if attempt.target.protocol.is_tls() { "https" } else { "http" },
            alone: attempt.alone,
        }
    }
}

/// Carries a request to its end. Endpoints are tried until one has answered.
///
/// # Errors
/// The error of the last attempt.
pub(super) async fn forward(driver: &PingoraDriver, session: &mut Session, ctx: &mut RequestContext) -> Result<()> {
    let limits = &driver.shared().options.upstream;
    let mut tries = 1;
    loop {
        match attempt(driver, session, ctx, limits).await {
            // The request decides; the count bounds the number of resets that endpoints can excuse.
            Err(error) if error.retry() && tries < limits.tries_max => tries += 1,
            ended => return ended,
        }
    }
}

async fn attempt(
    driver: &PingoraDriver,
    session: &mut Session,
    ctx: &mut RequestContext,
    limits: &UpstreamLimits,
) -> Result<()> {
    if let Some(pause) = ctx.forwarding()?.pause(clock::now(), fastrand::u64(..)) {
        unless_gone(session, sleep(pause)).await.map_err(|reason| stop(ctx, reason))?;
    }
    // The deadline is kept here; the one of the connection is for clients that take nothing.
    ctx.grace = GRACE;
    let plan = plan(driver, session, ctx.forwarding()?);
    ctx.agree();
    let plan = plan.map_err(|reason| stop(ctx, reason))?;
    let placed = unless_gone(session, place(&plan, limits)).await.map_err(|reason| stop(ctx, reason))?;
    let (place, send, reused) = match placed {
        Ok(found) => found,
        Err(reason) => return Err(connect_failed(ctx, fault::connecting(reason))),
    };
    ctx.forwarding()?.connected(reused, clock::now());
    ctx.agree();
    let relayed = match head::request(driver, session, ctx, (plan.scheme, plan.key.address())).await {
        Ok(request) => relay(driver, session, ctx, (&place, plan.timeouts), (send, request)).await,
        Err(error) => Err(error),
    };
    relayed.map_err(|error| broke(session, error, ctx, reused))
}

fn plan(driver: &PingoraDriver, session: &Session, forwarding: &mut Forwarding) -> Result<AttemptSettings, Reason> {
    let attempt = forwarding.attempt(clock::now(), fastrand::u64(..))?;
    let head = Parsed::new(session.req_header());
    let host = || head.authority().and_then(request_host).unwrap_or_default().into_owned();
    Ok(AttemptSettings::of(&attempt, driver.shared().options.client.body_read_stall, host))
}

/// A place on a connection that is ready for a request, and whether it served one before.
async fn place(
    plan: &AttemptSettings,
    limits: &UpstreamLimits,
) -> Result<(StreamSlot, SendRequest<Bytes>, bool), Reason> {
    let end = clock::now() + plan.connect;
    if !plan.alone {
        while let Some(place) = http2::take(&plan.key, limits) {
            // An endpoint may have said since that it takes no more.
            match place.ready().await {
                Ok(send) => return Ok((place, send, true)),
                Err(_) => place.retire(),
            }
        }
        let place = http2::connect(&plan.key, plan.connect, limits).await?;
        match place.ready().await {
            Ok(send) => return Ok((place, send, false)),
            // It may have said so to a request that waited for the same connection, and came first.
            Err(_) => place.retire(),
        }
    }
    let left = end.saturating_duration_since(clock::now());
    let place = http2::connect_alone(&plan.key, left, limits).await?;
    let send = place.ready().await.map_err(|_| Reason::ConnectFailed)?;
    Ok((place, send, false))
}

async fn relay(
    driver: &PingoraDriver,
    session: &mut Session,
    ctx: &mut RequestContext,
    (place, timeouts): (&StreamSlot, Timeouts),
    (mut send, request): (SendRequest<Bytes>, Request<()>),
) -> Result<()> {
    let is_empty = session.as_mut().is_body_empty();
    let sent = send.send_request(request, is_empty);
    let (answered, stream) = sent.map_err(|error| fault::of_stream(error, false))?;
    drop(send);
    session.as_mut().enable_retry_buffering();
    if !is_empty && session.as_mut().get_retry_buffer().is_none() {
        // The endpoint's own would be dropped, as all interim responses are.
        answer_expectation(session).await.map_err(Error::into_down)?;
    }
    let relay = Relay {
        driver,
        session,
        ctx,
        place,
        timeouts,
        upload: Upload::new(stream, is_empty),
        response: Response::new(answered),
        last_read: clock::now(),
    };
    relay.run().await
}
