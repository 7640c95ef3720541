//! Failures of requests, and of attempts at endpoints: whether there is another attempt, and the edge's own answer.

use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use super::carried::Carried;
use super::fault;
use super::session::stage;
use crate::clock;
use crate::reason::Reason;
use crate::upstream::retry::Stage;

/// No connection could be opened; decides whether another endpoint is tried.
pub(super) fn connect_failed(carried: &mut Carried, mut error: Box<Error>) -> Box<Error> {
    let (reason, now) = (fault::reason(&error), clock::now());
    let Carried { exchange, aimed, .. } = carried;
    error.set_retry(aimed.as_ref().is_some_and(|aimed| exchange.connect_failed(aimed, reason, now)));
    error
}

/// An attempt failed after its connection was open; decides whether there is another one.
pub(super) fn broke(session: &Session, mut error: Box<Error>, carried: &mut Carried, reused: bool) -> Box<Error> {
    if std::mem::take(&mut carried.passed_over) {
        carried.response_seen = false;
        error.set_retry(true);
        return error;
    }
    let stage = if carried.response_seen { Stage::Later } else { stage(session, &error, carried.is_reused(reused)) };
    let (reason, now) = (fault::reason(&error), clock::now());
    let reason = carried.exchange.in_time(reason, now);
    error.set_retry(carried.exchange.broke(reason, stage, now));
    error
}

/// Ends the request with an answer of the edge's own, through an error that Pingora does not retry.
pub(super) fn stop(carried: &mut Carried, reason: Reason) -> Box<Error> {
    let status = carried.exchange.failed(reason).status;
    carried.agree();
    Error::explain(ErrorType::HTTPStatus(status), reason.as_str())
}
