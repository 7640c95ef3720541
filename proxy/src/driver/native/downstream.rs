//! The client's half of a request on its way: what [`super::relay`] needs of the client, in bytes of HTTP/1.1 or in the
//! frames of an HTTP/2 stream.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;

use super::response::Response;
use super::write::{self, Says};
use crate::buffers::Buffer;
use crate::connection::Conn;
use crate::http::edits::Edits;
use crate::reason::Reason;
use crate::request::respond::Rendered;

/// The client of a request: a connection of HTTP/1.1, or a stream of HTTP/2.
pub(super) trait Downstream {
    /// Whether a body goes down in chunks when nobody knows its length beforehand.
    const CHUNKS: bool;

    /// Whether the connection should end with the next response.
    fn is_ending(&self) -> bool;

    /// The connection, where it is the request's alone, so that it can be upgraded to another protocol.
    fn connection(&mut self) -> Option<&mut Conn>;

    /// What was read of the request's body and was not taken.
    fn unread(&self) -> &[u8];

    /// Takes some of it.
    fn advance(&mut self, count: usize);

    /// Reads more of the request's body; `Ok(0)` at its end, or at the connection's.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Reads at most so much more of a body that comes in no chunks to where it belongs, which has room for it; nothing may
    /// be unread. `Ok(0)` at its end, or at the connection's.
    fn poll_read_into(&mut self, into: &mut BytesMut, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Ready once the client is gone. `over` says whether its request was read to the end.
    fn poll_gone(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends on a response before the last, or writes it down in `out`.
    fn interim(&mut self, response: &Response, head: &[u8], out: &mut Buffer);

    /// Sends on the head of the last response, or writes it down in `out`.
    ///
    /// # Errors
    /// When the head cannot be sent on, or not to this client.
    fn head(
        &mut self,
        response: &Response,
        head: &[u8],
        edits: &Edits,
        says: &Says<'_>,
        out: &mut Buffer,
    ) -> Result<(), Reason>;

    /// Sends the head of an answer of the edge's own, or writes it down in `out`; the body is written down.
    ///
    /// # Errors
    /// [`Reason::ClientGone`] when it cannot be sent.
    fn answer(&mut self, answer: &Rendered, closes: bool, date: &str, out: &mut Buffer) -> Result<(), Reason>;

    /// Sends a part of what was written down, and then of a body; `last` says that nothing comes behind these bytes.
    fn poll_send(&mut self, first: &[u8], then: &[u8], last: bool, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Makes sure that what was sent leaves; and that the client knows, if so, that it is `over`.
    fn poll_sent(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready once a time has come; the last one that was asked for counts.
    fn poll_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()>;
}

impl Downstream for Conn {
    const CHUNKS: bool = true;

    fn is_ending(&self) -> bool {
        self.facts().is_ending()
    }

    fn connection(&mut self) -> Option<&mut Conn> {
        Some(self)
    }

    fn unread(&self) -> &[u8] {
        self.unread()
    }

    fn advance(&mut self, count: usize) {
        self.advance(count);
    }

    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_read_ahead(cx)
    }

    fn poll_read_into(&mut self, into: &mut BytesMut, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_read_into(into, most, cx)
    }

    fn poll_gone(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<()> {
        // What is read of a request that goes on may be more than there is room for.
        if over { self.poll_hold(cx).map(|_| ()) } else { Poll::Pending }
    }

    fn interim(&mut self, response: &Response, head: &[u8], out: &mut Buffer) {
        out.make_room();
        write::interim(response, head, out);
    }

    fn head(
        &mut self,
        response: &Response,
        head: &[u8],
        edits: &Edits,
        says: &Says<'_>,
        out: &mut Buffer,
    ) -> Result<(), Reason> {
        out.make_room();
        write::response(response, head, edits, says, out);
        Ok(())
    }

    fn answer(&mut self, answer: &Rendered, closes: bool, date: &str, out: &mut Buffer) -> Result<(), Reason> {
        write::answer(answer, closes, date, out);
        Ok(())
    }

    fn poll_send(&mut self, first: &[u8], then: &[u8], _: bool, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_send(first, then, cx)
    }

    fn poll_sent(&mut self, _: bool, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_alarm(at, cx)
    }
}
