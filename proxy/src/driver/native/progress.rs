//! The progress of a request and its response.

use std::time::{Duration, Instant};

use super::downstream::Downstream;
use crate::clock;
use crate::connection::rate::RateMeter;
use crate::http::body::{Body, Framing};
use crate::request::exchange::End;

/// The progress of a request.
#[derive(Debug)]
pub(super) struct Progress {
    /// The request's body.
    pub(super) body: Body,
    /// Bytes of its content that were read.
    pub(super) bytes_in: usize,
    /// Bytes of content sent to the client.
    pub(super) bytes_out: usize,
    /// The status sent to the client.
    pub(super) status: Option<u16>,
    /// Whether the endpoint has sent the head of any response, or bytes that cannot be one.
    pub(super) response_seen: bool,
    /// Whether the response is discarded, because the request is retried with another endpoint.
    pub(super) passed_over: bool,
    /// Whether the endpoint's connection can be reused.
    pub(super) reusable: bool,
    /// Whether the client did not take a local reply to its end.
    pub(super) is_cut: bool,
    /// Whether the response has no body.
    pub(super) bodiless: bool,
    /// Whether the endpoint has agreed to an upgrade, so that bytes of another protocol follow the head.
    pub(super) is_tunnel: bool,
    /// Whether the client's connection ends with the response.
    pub(super) closes: bool,
    /// Whether the client waits for "100 Continue".
    pub(super) expects: bool,
    /// Whether the endpoint takes no more of the request.
    pub(super) upload_refused: bool,
    /// Whether sent bytes of it may still be buffered in the endpoint's connection.
    pub(super) upload_held: bool,
    /// The next part of the response.
    pub(super) response: ResponsePart,
    /// The position up to which the head of the response was scanned.
    pub(super) scan_offset: usize,
    /// Whether bytes sent to the client may still be buffered below, as in TLS.
    pub(super) unsent: bool,
    /// The wait for bytes from the endpoint.
    pub(super) endpoint_read: Wait,
    /// The wait for the endpoint to take bytes.
    pub(super) endpoint_write: Wait,
    /// The wait for bytes from the client.
    pub(super) client_read: Wait,
    /// The wait for the client to take bytes.
    pub(super) client_write: Wait,
    /// Bytes that the client took, including heads and framing.
    pub(super) taken: usize,
    /// Whether the client took nothing at the last write.
    pub(super) refused: bool,
    /// The rate of the request body.
    pub(super) upload: RateMeter,
    /// The rate of the response.
    pub(super) download: RateMeter,
}

/// The timeouts of each side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Between two reads from the endpoint.
    pub(super) read: Duration,
    /// Between two writes to the endpoint.
    pub(super) write: Duration,
    /// Between two reads of the request's body.
    pub(super) body: Duration,
    /// Between two writes to the client.
    pub(super) client: Duration,
}

/// The duration of a wait without progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    since: Option<Instant>,
    moved: bool,
}

/// The next part of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponsePart {
    /// A head, of the final response or an interim one.
    Head,
    /// The body, and whether it is sent to the client in chunks.
    Body { body: Body, chunked: bool },
    /// Only bytes that have been received.
    Tail,
}

impl Progress {
    /// The state before the request.
    pub(super) fn new(framing: Framing, closes: bool) -> Self {
        Self {
            body: Body::new(framing),
            bytes_in: 0,
            bytes_out: 0,
            status: None,
            response_seen: false,
            passed_over: false,
            reusable: false,
            is_cut: false,
            bodiless: false,
            is_tunnel: false,
            closes,
            expects: false,
            upload_refused: false,
            upload_held: false,
            response: ResponsePart::Head,
            scan_offset: 0,
            unsent: false,
            endpoint_read: Wait::default(),
            endpoint_write: Wait::default(),
            client_read: Wait::default(),
            client_write: Wait::default(),
            taken: 0,
            refused: false,
            upload: RateMeter::DEFAULT,
            download: RateMeter::DEFAULT,
        }
    }

    /// Starts again with another endpoint; the request's body keeps its state.
    pub(super) fn again(&mut self, closes: bool) {
        let Self { body, bytes_in, upload, expects, .. } = *self;
        *self = Self { body, bytes_in, upload, expects, ..Self::new(Framing::None, closes) };
    }

    /// The facts for the record of the request, with its target as sent, and the time of its end, if that is not now.
    pub(super) fn end<'a>(&self, target: &'a str, over: Option<Instant>) -> End<'a> {
        End {
            status: self.status,
            is_cut: self.is_cut,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            target,
            now: over.unwrap_or_else(clock::now),
            wall: clock::wall(),
        }
    }

    /// Returns `true` if the response may get a large buffer. Over HTTP/2 a client may request many long responses and
    /// read none, so it must have taken bytes; over HTTP/1.1 it has one response at a time.
    pub(super) const fn takes_more<C: Downstream>(&self) -> bool {
        C::CHUNKS || (self.taken > 0 && !self.refused)
    }

    /// The client, or its TLS session, took this number of bytes.
    pub(super) const fn sent(&mut self, count: usize) {
        self.taken += count;
        self.refused = false;
        self.unsent = true;
        self.client_write.moved();
    }
}

impl Wait {
    /// There was progress.
    pub(super) const fn moved(&mut self) {
        self.moved = true;
    }

    /// The time at which the timeout expires, if the wait goes on. It starts if there was no wait before, or after
    /// progress.
    pub(super) fn until(&mut self, waits: bool, timeouts: Duration, now: Instant) -> Option<Instant> {
        let since = self.since.filter(|_| waits && !self.moved).unwrap_or(now);
        *self = Self { since: waits.then_some(since), moved: false };
        waits.then(|| since + timeouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_of_progress_restarts_the_wait() {
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let minute = Duration::from_secs(60);
        let mut wait = Wait::default();
        assert_eq!(wait.until(true, minute, at(0)), Some(at(60)));
        assert_eq!(wait.until(true, minute, at(50)), Some(at(60)));
        wait.moved();
        assert_eq!(wait.until(true, minute, at(55)), Some(at(115)));
        assert_eq!(wait.until(false, minute, at(90)), None);
        assert_eq!(wait.until(true, minute, at(100)), Some(at(160)));
    }
}
