//! Failures of requests, and of attempts at endpoints: whether there is another attempt, and the local reply.

use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use super::carried::Carried;
use super::fault;
use super::session::stage;
use crate::clock;
use crate::reason::Reason;
use crate::request::forwarding::Forwarding;
use crate::upstream::retry::FailureStage;

/// No connection could be opened; decides whether another endpoint is tried.
pub(super) fn connect_failed(carried: &mut Carried, mut error: Box<Error>) -> Box<Error> {
    let (reason, now) = (fault::reason(&error), clock::now());
    error.set_retry(carried.forwarding().is_ok_and(|forwarding| forwarding.connect_failed(reason, now)));
    error
}

/// An attempt failed after its connection was open; decides whether there is another one.
pub(super) fn broke(session: &Session, mut error: Box<Error>, carried: &mut Carried, reused: bool) -> Box<Error> {
    if std::mem::take(&mut carried.passed_over) {
        carried.response_seen = false;
        error.set_retry(true);
        return error;
    }
    let stage =
        if carried.response_seen { FailureStage::Later } else { stage(session, &error, carried.is_reused(reused)) };
    let (reason, now) = (fault::reason(&error), clock::now());
    let again = |forwarding: &mut Forwarding| forwarding.broke(forwarding.in_time(reason, now), stage, now);
    error.set_retry(carried.forwarding().is_ok_and(again));
    error
}

/// Ends the request with a local reply, through an error that Pingora does not retry.
pub(super) fn stop(carried: &mut Carried, reason: Reason) -> Box<Error> {
    Error::explain(ErrorType::HTTPStatus(carried.failed(reason)), reason.as_str())
}
