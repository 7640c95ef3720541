//! A request that waits for an authorisation service, or for the store of limits. The part of its body that the
//! service gets stays in Pingora's retry buffer, from which the endpoint gets it.

use bytes::{Bytes, BytesMut};
use pingora::proxy::Session;
use tokio::time::timeout_at;

use super::fault;
use super::head::Parsed;
use super::session::{answer_expectation, unless_gone};
use crate::clock;
use crate::reason::Reason;
use crate::request::decide::{Decided, Pending, PolicyAnswer};
use crate::shared::Shared;

/// Asks the question of a policy, and continues with the answer; if the result is a local reply with
/// [`Reason::ClientGone`], the client has disconnected. `body` has the bytes that earlier calls read.
pub(super) async fn ask(session: &mut Session, pending: Box<Pending>, body: &mut BytesMut, shared: &Shared) -> Decided {
    let asked = match hold(session, body, &pending, shared).await {
        Ok(()) => wait(session, &pending, body, shared).await,
        Err(reason) => {
            // The rest of its body is not waited for a second time.
            session.set_keepalive(None);
            Err(reason)
        }
    };
    // The held body is in a buffer that every request has.
    pending.resume(asked, 0, &Parsed::new(session.req_header()))
}

/// Waits for the answer, or for the client to disconnect.
async fn wait(session: &mut Session, pending: &Pending, body: &[u8], shared: &Shared) -> Result<PolicyAnswer, Reason> {
    let body = if pending.body_bytes_max() > 0 { Bytes::copy_from_slice(body) } else { Bytes::new() };
    unless_gone(session, pending.ask(body, shared)).await
}

/// Reads the body to its end, which must not exceed the maximum of the service and must arrive in time, within the
/// deadline of the request.
async fn hold(session: &mut Session, held: &mut BytesMut, pending: &Pending, shared: &Shared) -> Result<(), Reason> {
    let max = pending.body_bytes_max();
    if max == 0 || session.is_body_empty() {
        return Ok(());
    }
    // The endpoint gets the body from this buffer, whose limit is that of held bodies.
    session.as_mut().enable_retry_buffering();
    answer_expectation(session).await.map_err(|error| fault::reason(&error))?;
    let (until, late) = pending.hold_end(clock::now() + shared.options.client.body_read_stall);
    while held.len() <= max {
        let read = timeout_at(until.into(), session.as_mut().read_request_body()).await;
        match read.map_err(|_| late)?.map_err(|error| fault::reason(&error))? {
            Some(piece) => held.extend_from_slice(&piece),
            None => return Ok(()),
        }
    }
    Err(Reason::BodyTooLarge)
}
