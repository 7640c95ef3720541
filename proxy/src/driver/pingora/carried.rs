//! The state of a request in the full driver between Pingora's calls.

use std::sync::Arc;
use std::time::Duration;

use super::body_rates::BodyRates;
use super::endpoint_socket::Link;
use crate::connection::response_deadline::ResponseDeadline;
use crate::http::gzip::Gzip;
use crate::request::exchange::Exchange;
use crate::request::phase::Aimed;

/// The additional time after which an overdue response is aborted from outside.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// A request in Pingora's hands, and the deadline of its response.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(super) exchange: Exchange,
    /// Its destination, once that is decided.
    pub(super) aimed: Option<Aimed>,
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
    /// Whether it failed and got an answer of the edge's own, after which Pingora closes an HTTP/1.1 connection.
    pub(super) refused: bool,
    /// The rates of its bodies.
    pub(super) rates: BodyRates,
    /// The encoder of the response.
    pub(super) gzip: Option<Gzip>,
}

impl Carried {
    /// Sets the deadline to that of the exchange.
    pub(super) fn agree(&self) {
        match self.exchange.due() {
            // Pingora's own read timeout may expire first, which still allows an answer to the client.
            Some(at) => self.due.set(at + self.grace),
            None => self.due.clear(),
        }
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
        self.aimed.as_ref().is_some_and(|aimed| aimed.target.protocol.is_http2())
    }
}

impl Drop for Carried {
    /// The deadline belongs to the connection, and outlives the request.
    fn drop(&mut self) {
        self.due.clear();
    }
}
