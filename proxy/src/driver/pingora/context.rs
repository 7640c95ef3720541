//! The state of a request in the Pingora driver between Pingora's calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::{Error, ErrorType, Result};

use super::body_rates::BodyRates;
use super::endpoint_socket::Link;
use crate::connection::response_deadline::ResponseDeadline;
use crate::http::gzip::Gzip;
use crate::reason::Reason;
use crate::request::exchange::{Arrived, Replied};
use crate::request::forwarding::Forwarding;

/// The additional time after which an overdue response is aborted from outside.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The state of a request. Pingora calls back at points of its own, so the type of a request cannot say which callbacks
/// are still to come.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all requests are forwarded")]
pub(super) enum State {
    /// Nothing is decided.
    Arrived(Arrived),
    /// It is being decided upon.
    Deciding,
    /// The edge answers it.
    Replied(Replied),
    /// It goes to an endpoint.
    Forwarding(Forwarding),
    /// It is recorded.
    Recorded,
}

/// A request in Pingora's hands, and the deadline of its response.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(super) state: State,
    /// The current attempt, if the endpoint speaks HTTP/1.1.
    pub(super) link: Option<Arc<Link>>,
    pub(super) due: ResponseDeadline,
    /// The additional time of the deadline.
    pub(super) grace: Duration,
    /// Whether it has a body that is sent over HTTP/1.1; during pauses of the upload the endpoint may be silent.
    pub(super) uploads: bool,
    /// Whether an endpoint has sent the head of any response.
    pub(super) response_seen: bool,
    /// Whether the response is discarded, because the request is retried with another endpoint.
    pub(super) passed_over: bool,
    /// Whether it failed and got a local reply, after which Pingora closes an HTTP/1.1 connection.
    pub(super) refused: bool,
    /// Whether its response is over, and the rest of its body is discarded.
    pub(super) discards_body: bool,
    /// The rates of its bodies.
    pub(super) rates: BodyRates,
    /// The encoder of the response.
    pub(super) gzip: Option<Gzip>,
}

impl RequestContext {
    /// The request, in the callbacks of Pingora about one that is forwarded.
    ///
    /// # Errors
    /// If Pingora makes such a call for another request, which would be a fault of the edge.
    pub(super) fn forwarding(&mut self) -> Result<&mut Forwarding> {
        match &mut self.state {
            State::Forwarding(forwarding) => Ok(forwarding),
            State::Arrived(_) | State::Deciding | State::Replied(_) | State::Recorded => {
                Error::e_explain(ErrorType::InternalError, "a request that is not forwarded has no endpoint")
            }
        }
    }

    /// The deadline of the next part of the response.
    pub(super) const fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Forwarding(forwarding) => forwarding.due(),
            State::Arrived(_) | State::Deciding | State::Replied(_) | State::Recorded => None,
        }
    }

    /// Sets the deadline of the connection to that of the request.
    pub(super) fn agree(&self) {
        match self.due() {
            // Pingora's own read timeout may expire first, which still allows an answer to the client.
            Some(at) => self.due.set(at + self.grace),
            None => self.due.clear(),
        }
    }

    /// The request failed. Returns the status of the answer; an earlier answer stays.
    pub(super) fn failed(&mut self, reason: Reason) -> u16 {
        let status = match &mut self.state {
            State::Forwarding(forwarding) => forwarding.failed(reason).status,
            State::Replied(replied) => replied.reply().status,
            State::Arrived(_) | State::Deciding | State::Recorded => reason.status(),
        };
        self.agree();
        status
    }

    /// Returns `true` if the connection of the current attempt served a request before; `known` is Pingora's knowledge
    /// of it.
    pub(super) fn is_reused(&self, known: bool) -> bool {
        known || self.link.as_ref().is_some_and(|link| link.is_reused())
    }

    /// A piece of the response's body has passed.
    pub(super) fn passed(&self) {
        self.link.as_ref().inspect(|link| link.passed(self.rates.response()));
    }

    /// The end of the response has been read.
    pub(super) fn response_is_over(&self) {
        if let Some(link) = &self.link {
            link.over();
        }
    }

    /// Returns `true` if its endpoint speaks HTTP/2.
    pub(super) fn is_over_http2(&self) -> bool {
        matches!(&self.state, State::Forwarding(forwarding) if forwarding.target().protocol.is_http2())
    }
}
