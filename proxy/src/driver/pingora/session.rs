//! Operations on Pingora's sessions: timeouts, local replies, and the rest of a request's body.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::future::{Either, select};
use futures::poll;
use http::header::{DATE, EXPECT};
use http::{HeaderMap, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result, RetryType};

use super::fault;
use super::head::{Parsed, is_too_large};
use crate::connection::ConnectionFacts;
use crate::connection::kept_dates::KeptDates;
use crate::reason::Reason;
use crate::request::exchange::Exchange;
use crate::request::local_reply::LocalReply;
use crate::request::respond::Rendered;
use crate::shared::Shared;
use crate::upstream::retry::FailureStage;

/// Returns `true` for a stream of HTTP/2: Pingora's proxy knows a [`ClientStream`](crate::driver::client_stream) as a
/// session of another kind, and there are no others.
pub(super) fn is_http2(session: &Session) -> bool {
    session.as_ref().is_custom()
}

/// Returns `true` for an HTTP/1.0 client, which supports neither transfer codings nor interim responses.
pub(super) fn is_before_http11(session: &Session) -> bool {
    session.req_header().version < Version::HTTP_11
}

/// Returns `true` if an HTTP/1.1 client may wait for `100 Continue` with its body (RFC 9110 section 10.1.1).
fn expects(session: &Session) -> bool {
    session.req_header().headers.contains_key(EXPECT) && !is_http2(session) && !is_before_http11(session)
}

/// Sends `100 Continue` to a client that may wait for it.
pub(super) async fn answer_expectation(session: &mut Session) -> Result<()> {
    if expects(session) {
        session.as_mut().write_continue_response().await?;
    }
    Ok(())
}

/// The facts about the connection of the request.
pub(super) fn facts(session: &Session) -> Option<Arc<ConnectionFacts>> {
    session.digest().and_then(ConnectionFacts::of)
}

/// Waits for the output of a future, unless the client disconnects before it. An HTTP/1.1 client whose body is still to
/// be read may disconnect unnoticed.
///
/// # Errors
/// [`Reason::ClientGone`].
pub(super) async fn unless_gone<T>(session: &mut Session, work: impl Future<Output = T>) -> Result<T, Reason> {
    let is_whole = session.is_body_empty() || session.is_body_done();
    let work = pin!(work);
    match session.as_mut() {
        ServerSession::Custom(stream) => first(work, pin!(stream.read_body_or_idle(true))).await,
        // Bytes of the next request wait in the connection.
        ServerSession::H1(connection) if is_whole => first(work, pin!(connection.read_body_or_idle(true))).await,
        ServerSession::H1(_) | ServerSession::Subrequest(_) | ServerSession::H2(_) => Ok(work.await),
    }
}

/// The output of a future, if it is ready before another one, which ends with the client.
async fn first<T>(work: impl Future<Output = T> + Unpin, gone: impl Future + Unpin) -> Result<T, Reason> {
    match select(work, gone).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(Reason::ClientGone),
    }
}

/// Sets the timeouts that Pingora leaves open by default: without them an idle or slow client stays for ever.
pub(super) fn set_deadlines(session: &mut Session, shared: &Shared) {
    let limits = &shared.options.client;
    let is_before_http11 = is_before_http11(session);
    session.set_ignore_info_resp(is_before_http11);
    if session.get_keepalive().is_some() {
        // Zero would mean no timeout.
        session.set_keepalive(Some(limits.keep_alive_idle.as_secs().max(1)));
    }
    session.set_read_timeout(Some(limits.body_read_stall));
    session.set_write_timeout(Some(limits.write_stall));
    session.set_total_drain_timeout(Some(limits.body_discard));
}

/// Resets the stream of a response whose trailers exceed the limit of a head, and returns `true`. HTTP/1 clients get no
/// trailers, so nothing is missing.
pub(super) async fn refuses(session: &mut Session, trailers: &mut HeaderMap) -> bool {
    if !is_too_large(trailers) {
        return false;
    }
    if is_http2(session) {
        session.as_mut().shutdown().await;
    }
    // Pingora goes on after an error of its filter of trailers, and would send them.
    trailers.clear();
    true
}

/// Lets the dates of a final response pass: in HTTP/1, Pingora would replace them (see
/// [`kept_dates`](crate::connection::kept_dates)).
pub(super) fn keep_dates(session: &Session, head: &mut ResponseHeader) {
    let Some(facts) = facts(session).filter(|_| !is_http2(session)) else { return };
    if head.status.is_informational() {
        // Pingora adds none to it.
        return facts.keep_dates(None);
    }
    let more = head.headers.get_all(DATE).iter().skip(1).cloned().collect();
    // A head without a date must not get those of one that was never written.
    facts.keep_dates(head.remove_header(&DATE).map(|first| KeptDates { first, more }));
}

/// Returns `true` if the head of a final response was sent to the client.
pub(super) fn has_begun(session: &Session) -> bool {
    let written = session.response_written().map(|response| response.status);
    written.is_some_and(|status| !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS)
}

/// The stage at which an attempt with a connection failed before a response head.
pub(super) fn stage(session: &Session, error: &Error, reused: bool) -> FailureStage {
    let replayable = !session.as_ref().retry_buffer_truncated();
    if fault::is_excluded(error) {
        FailureStage::Excluded { replayable }
    } else if error.retry == RetryType::Decided(true) {
        FailureStage::Unprocessed { replayable }
    } else if fault::is_cut(error) {
        FailureStage::Unanswered { reused, idempotent: session.req_header().method.is_idempotent(), replayable }
    } else if fault::reason(error) == Reason::UpstreamTimeout {
        FailureStage::Responded { status: Reason::UpstreamTimeout.status(), replayable }
    } else {
        FailureStage::Later
    }
}

/// Writes a local reply to a request. If the client does not take it at once, the edge must have room for
/// it: `payer` is the request to which a waiting reply is charged; `None` if the request has a charge of its own.
pub(super) async fn write_reply(
    session: &mut Session,
    exchange: &Exchange,
    reply: &LocalReply,
    payer: Option<&Exchange>,
) -> Result<()> {
    let mut writing = pin!(write(session, exchange, reply));
    if let Poll::Ready(written) = poll!(&mut writing) {
        return written;
    }
    let no_room = |_| Error::explain(ErrorType::WriteError, "no room for an answer that waits").into_down();
    let _held = payer.map(Exchange::room_for_reply).transpose().map_err(no_room)?;
    writing.await
}

async fn write(session: &mut Session, exchange: &Exchange, reply: &LocalReply) -> Result<()> {
    let Rendered { status, headers, body } = exchange.render(reply, &Parsed::new(session.req_header()));
    // Bytes of a client that assumes the upgrade was accepted look like requests. So do the bytes of a client that
    // waits for "100 Continue": it may send its body or leave it out (RFC 9110 section 10.1.1).
    let undecided = expects(session) && !session.is_body_done();
    if reply.reason.closes() || exchange.asks_upgrade() || undecided {
        session.set_keepalive(None);
    }
    let mut head = ResponseHeader::build(status, Some(headers.len() + 2))?;
    for (name, value) in headers {
        head.append_header(name, value)?;
    }
    keep_dates(session, &mut head);
    if body.is_empty() {
        // Over HTTP/2 the head must end the stream, or gRPC clients wait for trailers. Pingora's own call leaves the
        // stream open.
        return match session.as_mut() {
            ServerSession::Custom(stream) => stream.write_response_header(Box::new(head), true).await,
            ServerSession::H1(_) | ServerSession::Subrequest(_) | ServerSession::H2(_) => {
                session.write_response_header(Box::new(head), true).await
            }
        };
    }
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body), true).await
}

/// Reads and discards the rest of an HTTP/1.1 body, within the session's drain timeout. Pingora closes a connection
/// whose request failed or was answered early; with unread bytes that resets it, and the reset may overtake the answer
/// (RFC 9112 section 9.6).
pub(super) async fn discard_body(session: &mut Session) {
    if !is_http2(session) && !session.is_body_done() && session.finish_body().await.is_ok() {
        // After a timeout the connection is closed as well.
        drop(session.drain_request_body().await);
    }
}
