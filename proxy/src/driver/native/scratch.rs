//! What one request needs while it is in flight. A thread keeps what is not in use, so that a request allocates nothing.

use std::cell::RefCell;

use bytes::Bytes;

use super::request::Request;
use super::response::Response;
use super::upload::Upload;
use crate::buffers::Buffer;
use crate::http::edits::Edits;
use crate::http::gzip::Gzip;

/// What a thread keeps.
const KEPT_MAX: usize = 64;

thread_local! {
    // Boxed, because a connection's future would else have room for one at all times.
    #[allow(clippy::vec_box, reason = "they are handed out as boxes")]
    static FREE: RefCell<Vec<Box<Scratch>>> = const { RefCell::new(Vec::new()) };
}

/// Room for one request and its response.
#[derive(Default)]
pub(super) struct Scratch {
    /// The bytes of the request's head.
    pub(super) head: Buffer,
    /// What they say.
    pub(super) request: Request,
    /// What carrying it takes.
    pub(super) room: Room,
}

/// Room for what is on its way.
#[derive(Default)]
pub(super) struct Room {
    /// What the response's head says.
    pub(super) response: Response,
    /// What was held of the request's body while somebody was asked about it.
    pub(super) held: Bytes,
    /// What the steps change of either head.
    pub(super) edits: Edits,
    /// What is to be sent to the endpoint.
    pub(super) to_endpoint: Upload,
    /// What came from the endpoint and is not sent on.
    pub(super) from_endpoint: Buffer,
    /// What compresses it on its way.
    pub(super) gzip: Option<Gzip>,
    /// What is to be sent to the client.
    pub(super) to_client: Buffer,
}

impl Scratch {
    /// One without buffers.
    pub(super) fn take() -> Box<Self> {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Gives it back, with all of its buffers.
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

impl Room {
    /// Forgets what one endpoint has answered, and has the request for another.
    pub(super) fn again(&mut self) {
        self.to_endpoint.again();
        self.from_endpoint.give();
        self.gzip = None;
        self.to_client.give();
    }

    /// Gives its buffers back.
    pub(super) fn clear(&mut self) {
        self.again();
        self.held = Bytes::new();
        self.to_endpoint.clear();
    }
}
