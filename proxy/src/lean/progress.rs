//! How far a request and its response have come.

use std::time::Instant;

use super::body::{Body, Framing};

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
    /// Whether anything came from the endpoint.
    pub(super) heard: bool,
    /// Whether the endpoint's connection can take another request.
    pub(super) reusable: bool,
    /// Whether the client's connection ends with the response.
    pub(super) closes: bool,
    /// Whether the endpoint takes no more of the request.
    pub(super) deaf: bool,
    /// What of the response comes next.
    pub(super) response: Stage,
    /// Where the head of the response was last looked for its end.
    pub(super) looked: usize,
    /// When the endpoint sent or took something.
    pub(super) endpoint_moved: Moved,
    /// When the client sent or took something.
    pub(super) client_moved: Moved,
}

/// When something moved last, as far as the clock was read since.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moved {
    /// At this time.
    At(Instant),
    /// After that.
    Since,
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
    pub(super) const fn new(framing: Framing, closes: bool, now: Instant) -> Self {
        Self {
            body: Body::new(framing),
            bytes_in: 0,
            bytes_out: 0,
            status: None,
            heard: false,
            reusable: false,
            closes,
            deaf: false,
            response: Stage::Head,
            looked: 0,
            endpoint_moved: Moved::At(now),
            client_moved: Moved::At(now),
        }
    }
}

impl Moved {
    /// When it moved, as of now.
    pub(super) const fn settle(&mut self, now: Instant) -> Instant {
        match *self {
            Self::At(at) => at,
            Self::Since => {
                *self = Self::At(now);
                now
            }
        }
    }
}
