//! What the full driver knows of a request between Pingora's calls.

use std::sync::Arc;
use std::time::Duration;

use super::body_rates::BodyRates;
use super::endpoint_socket::Link;
use crate::connection::response_deadline::ResponseDeadline;
use crate::http::gzip::Gzip;
use crate::request::exchange::Exchange;
use crate::request::phase::Aimed;

/// How much later than it is due a response that has to be over by a time is given up from outside.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// A request in Pingora's hands, and the clock by which whoever waits for its response looks up.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(super) exchange: Exchange,
    /// Where it goes, once that is decided.
    pub(super) aimed: Option<Aimed>,
    /// The present try, where the endpoint speaks HTTP/1.1.
    pub(super) link: Option<Arc<Link>>,
    pub(super) due: ResponseDeadline,
    /// What is added to the clock of the response.
    pub(super) grace: Duration,
    /// Whether it has a body that goes up over HTTP/1.1, during whose pauses the endpoint may be silent.
    pub(super) uploads: bool,
    /// Whether a head came from an endpoint, of any response.
    pub(super) response_seen: bool,
    /// Whether a response is not sent on, because another endpoint is asked.
    pub(super) passed_over: bool,
    /// Whether it failed and got an answer of the edge's own, after which Pingora drops an HTTP/1.1 connection.
    pub(super) refused: bool,
    /// How fast the client sends and takes bodies.
    pub(super) rates: BodyRates,
    /// What compresses the response.
    pub(super) gzip: Option<Gzip>,
}

impl Carried {
    /// Tells the clock what the exchange has decided.
    pub(super) fn agree(&self) {
        match self.exchange.due() {
            // Pingora's own clock of the silence may tell of it first, which leaves the client an answer.
            Some(at) => self.due.set(at + self.grace),
            None => self.due.clear(),
        }
    }

    /// Whether the connection of the present try served a request before, beside what Pingora knows of it.
    pub(super) fn is_reused(&self, known: bool) -> bool {
        known || self.link.as_ref().is_some_and(|link| link.is_reused())
    }

    /// Notes that the end of the response has been read.
    pub(super) fn response_is_over(&self) {
        if let Some(link) = &self.link {
            link.over();
        }
    }

    /// Whether its endpoint speaks HTTP/2.
    pub(super) fn is_over_http2(&self) -> bool {
        self.aimed.as_ref().is_some_and(|aimed| aimed.target.protocol.is_http2())
    }
}

impl Drop for Carried {
    /// The clock is the connection's, and outlives the request.
    fn drop(&mut self) {
        self.due.clear();
    }
}
