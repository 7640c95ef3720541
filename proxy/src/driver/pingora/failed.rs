//! Failures of requests, and of attempts at endpoints: whether there is another attempt, and the local reply.

use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use super::context::RequestContext;
use super::fault;
use super::session::stage;
use crate::clock;
use crate::reason::Reason;
use crate::request::forwarding::Forwarding;
use crate::upstream::retry::FailureStage;

/// No connection could be opened; decides whether another endpoint is tried.
pub(super) fn connect_failed(ctx: &mut RequestContext, mut error: Box<Error>) -> Box<Error> {
    let (reason, now) = (fault::reason(&error), clock::now());
    error.set_retry(ctx.forwarding().is_ok_and(|forwarding| forwarding.connect_failed(reason, now)));
    error
}

/// An attempt failed after its connection was open; decides whether there is another one.
pub(super) fn broke(session: &Session, mut error: Box<Error>, ctx: &mut RequestContext, reused: bool) -> Box<Error> {
    if std::mem::take(&mut ctx.passed_over) {
        ctx.response_seen = false;
        error.set_retry(true);
        return error;
    }
    let stage = if ctx.response_seen { FailureStage::Later } else { stage(session, &error, ctx.is_reused(reused)) };
    let (reason, now) = (fault::reason(&error), clock::now());
    let again = |forwarding: &mut Forwarding| forwarding.broke(forwarding.in_time(reason, now), stage, now);
    error.set_retry(ctx.forwarding().is_ok_and(again));
    error
}

/// Ends the request with a local reply, through an error that Pingora does not retry.
pub(super) fn stop(ctx: &mut RequestContext, reason: Reason) -> Box<Error> {
    Error::explain(ErrorType::HTTPStatus(ctx.failed(reason)), reason.as_str())
}
