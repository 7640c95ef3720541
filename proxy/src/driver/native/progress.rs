//! How far a request and its response have come.

use std::time::{Duration, Instant};

use super::downstream::Downstream;
use crate::connection::rate::RateMeter;
use crate::http::body::{Body, Framing};

/// How far a request has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// The request's body.
    pub(super) body: Body,
    /// Bytes of content that were read of it.
    pub(super) bytes_in: usize,
    /// Bytes of content that the client was sent.
    pub(super) bytes_out: usize,
    /// The status that the client is sent.
    pub(super) status: Option<u16>,
    /// Whether a head came from the endpoint, of any response, or what can be none.
    pub(super) response_seen: bool,
    /// Whether the response is not sent on, because another endpoint is asked.
    pub(super) passed_over: bool,
    /// Whether the endpoint's connection can take another request.
    pub(super) reusable: bool,
    /// Whether the response has no body.
    pub(super) bodiless: bool,
    /// Whether the endpoint has agreed to an upgrade, so that bytes of another protocol follow the head.
    pub(super) is_tunnel: bool,
    /// Whether the client's connection ends with the response.
    pub(super) closes: bool,
    /// Whether the client waits for the word that its body is welcome.
    pub(super) expects: bool,
    /// Whether the endpoint takes no more of the request.
    pub(super) upload_refused: bool,
    /// Whether what was sent of it may still wait in the endpoint's connection.
    pub(super) upload_held: bool,
    /// What of the response comes next.
    pub(super) response: Stage,
    /// Where the head of the response was last looked for its end.
    pub(super) scan_offset: usize,
    /// Whether what the client was sent may still wait below, as it does in TLS.
    pub(super) unsent: bool,
    /// The wait for the endpoint to send something.
    pub(super) endpoint_read: Wait,
    /// The wait for the endpoint to take something.
    pub(super) endpoint_write: Wait,
    /// The wait for the client to send something.
    pub(super) client_read: Wait,
    /// The wait for the client to take something.
    pub(super) client_write: Wait,
    /// Bytes that the client took, heads and framing included.
    pub(super) taken: usize,
    /// Whether the client took nothing when it was last offered something.
    pub(super) refused: bool,
    /// How fast the client sends its request body.
    pub(super) upload: RateMeter,
    /// How fast the client takes the response.
    pub(super) download: RateMeter,
}

/// How long each side may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between two pieces from the endpoint.
    pub(super) read: Duration,
    /// Between two pieces that the endpoint takes.
    pub(super) write: Duration,
    /// Between two pieces of the request's body.
    pub(super) body: Duration,
    /// Between two pieces that the client takes.
    pub(super) client: Duration,
}

/// How long one thing has been waited for without a sign of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    since: Option<Instant>,
    moved: bool,
}

/// What of the response comes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// A head, of the last response or one before it.
    Head,
    /// The body, and whether it goes down in chunks.
    Body { body: Body, chunked: bool },
    /// Nothing that has not arrived.
    Tail,
}

impl Progress {
    /// Nothing has happened yet.
    pub(super) fn new(framing: Framing, closes: bool) -> Self {
        Self {
            body: Body::new(framing),
            bytes_in: 0,
            bytes_out: 0,
            status: None,
            response_seen: false,
            passed_over: false,
            reusable: false,
            bodiless: false,
            is_tunnel: false,
            closes,
            expects: false,
            upload_refused: false,
            upload_held: false,
            response: Stage::Head,
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

    /// Begins anew with another endpoint, but for the body: what was read of it is read.
    pub(super) fn again(&mut self, closes: bool) {
        let Self { body, bytes_in, upload, expects, .. } = *self;
        *self = Self { body, bytes_in, upload, expects, ..Self::new(Framing::None, closes) };
    }

    /// Whether the response is worth a large buffer. Over HTTP/2 a client may ask for many long responses and take nothing of
    /// them, so it has to have taken something; over HTTP/1.1 it has one.
    pub(super) const fn takes_more<C: Downstream>(&self) -> bool {
        C::CHUNKS || (self.taken > 0 && !self.refused)
    }

    /// The client, or what encrypts for it, took so many bytes.
    pub(super) const fn told(&mut self, count: usize) {
        self.taken += count;
        self.refused = false;
        self.unsent = true;
        self.client_write.moved();
    }
}

impl Wait {
    /// Something moved.
    pub(super) const fn moved(&mut self) {
        self.moved = true;
    }

    /// When patience ends, while it is waited for. The wait begins when nobody was waiting before, or something has moved.
    pub(super) fn until(&mut self, waits: bool, patience: Duration, now: Instant) -> Option<Instant> {
        let since = self.since.filter(|_| waits && !self.moved).unwrap_or(now);
        *self = Self { since: waits.then_some(since), moved: false };
        waits.then(|| since + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_when_it_begins_and_anew_with_every_sign() {
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
