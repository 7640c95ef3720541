//! The buffers and parsed heads of one request in flight. A thread keeps unused ones, so that a request allocates
//! nothing.

use std::cell::RefCell;

use bytes::Bytes;

use super::request::Request;
use super::response::Response;
use super::upload::Upload;
use crate::buffers::Buffer;
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;

/// The number that a thread keeps.
const KEPT_MAX: usize = 64;

thread_local! {
    // Boxed, because otherwise the future of every connection would reserve space for one.
    #[allow(clippy::vec_box, reason = "they are handed out as boxes")]
    static FREE: RefCell<Vec<Box<Scratch>>> = const { RefCell::new(Vec::new()) };
}

/// The buffers of one request and its response.
#[derive(Default)]
pub(super) struct Scratch {
    /// The bytes of the request's head.
    pub(super) head: Buffer,
    /// The parsed request.
    pub(super) request: Request,
    /// The buffers of its relay.
    pub(super) room: RelayBuffers,
}

/// The buffers of a relay.
#[derive(Default)]
pub(super) struct RelayBuffers {
    /// The parsed head of the response.
    pub(super) response: Response,
    /// The part of the request's body that is held during an external authorisation.
    pub(super) body_prefix: Bytes,
    /// The edits of either head.
    pub(super) edits: Edits,
    /// The bytes for the endpoint.
    pub(super) to_endpoint: Upload,
    /// Bytes from the endpoint that are not relayed yet.
    pub(super) from_endpoint: Buffer,
    /// The encoder of the response.
    pub(super) gzip: Option<Gzip>,
    /// The bytes for the client.
    pub(super) to_client: Buffer,
}

impl Scratch {
    /// An instance without buffers.
    pub(super) fn take() -> Box<Self> {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Returns it to the thread, with all of its buffers.
    pub(super) fn give(mut self: Box<Self>) {
        self.head.give();
        self.room.clear();
        self.room.edits.clear();
        FREE.with_borrow_mut(|free| {
            if free.len() < KEPT_MAX {
                free.push(self);
            }
        });
    }
}

impl RelayBuffers {
    /// Discards the answer of one endpoint, and rewinds the request for another.
    pub(super) fn again(&mut self) {
        self.to_endpoint.again();
        self.from_endpoint.give();
        self.gzip = None;
        self.to_client.give();
    }

    /// Returns its buffers.
    pub(super) fn clear(&mut self) {
        self.again();
        self.body_prefix = Bytes::new();
        self.to_endpoint.clear();
    }
}
