//! The downstream side of a request in transit: the operations on the client that [`super::relay`] needs, with bytes of
//! HTTP/1.1 or frames of an HTTP/2 stream.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use super::response::Response;
use super::write::{self, ResponseHeadOptions};
use crate::buffers::Buffer;
use crate::connection::ClientIo;
use crate::http::edits::Edits;
use crate::reason::Reason;
use crate::request::respond::Rendered;

/// The client of a request: a connection of HTTP/1.1, or a stream of HTTP/2.
pub(super) trait Downstream {
    /// Whether a response body of unknown length is sent in chunks.
    const CHUNKS: bool;

    /// Whether the connection should end with the next response.
    fn is_ending(&self) -> bool;

    /// The connection, if it carries this request alone, so that it can be upgraded to another protocol.
    fn connection(&mut self) -> Option<&mut ClientIo>;

    /// The bytes of the request's body that were read, but not taken.
    fn unread(&self) -> &[u8];

    /// Takes some of them.
    fn advance(&mut self, count: usize);

    /// Reads more of the request's body; `Ok(0)` at its end, or at the end of the connection.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Reads at most `most` bytes of a body without chunks into `into`, which has room for them; there may be no unread
    /// bytes. `Ok(0)` at its end, or at the end of the connection.
    fn poll_read_into(&mut self, into: &mut Vec<u8>, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Ready once the client has disconnected. `over` says whether its request was read to the end.
    fn poll_gone(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends an interim response, or appends it to `out`.
    fn interim(&mut self, response: &Response, head: &[u8], out: &mut Buffer);

    /// Sends the head of the final response, or appends it to `out`.
    ///
    /// # Errors
    /// If the head cannot be sent, or not over this protocol.
    fn head(
        &mut self,
        response: &Response,
        head: &[u8],
        edits: &Edits,
        options: &ResponseHeadOptions<'_>,
        out: &mut Buffer,
    ) -> Result<(), Reason>;

    /// Sends the head of a local reply, or appends it to `out`; the body is appended.
    ///
    /// # Errors
    /// [`Reason::ClientGone`] if it cannot be sent.
    fn reply(&mut self, reply: &Rendered, closes: bool, date: &str, out: &mut Buffer) -> Result<(), Reason>;

    /// Sends bytes of the send buffer, and then of a body; `last` marks the end of the response.
    fn poll_send(&mut self, first: &[u8], then: &[u8], last: bool, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Flushes the sent bytes; and if `over`, signals the end of the response.
    fn poll_sent(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready at the given time; the time of the last call counts.
    fn poll_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()>;
}

impl Downstream for ClientIo {
    const CHUNKS: bool = true;

    fn is_ending(&self) -> bool {
        self.facts().is_ending()
    }

    fn connection(&mut self) -> Option<&mut ClientIo> {
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

    fn poll_read_into(&mut self, into: &mut Vec<u8>, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_read_into(into, most, cx)
    }

    fn poll_gone(&mut self, over: bool, cx: &mut Context<'_>) -> Poll<()> {
        // Later bytes of the current request may be more than the buffer holds, so they are not read here.
        if over { self.poll_hold(cx).map(|_| ()) } else { Poll::Pending }
    }

    fn interim(&mut self, response: &Response, head: &[u8], out: &mut Buffer) {
        out.make_room();
        write::interim(response, head, out.end());
    }

    fn head(
        &mut self,
        response: &Response,
        head: &[u8],
        edits: &Edits,
        options: &ResponseHeadOptions<'_>,
        out: &mut Buffer,
    ) -> Result<(), Reason> {
        out.make_room();
        write::response(response, head, edits, options, out.end());
        Ok(())
    }

    fn reply(&mut self, reply: &Rendered, closes: bool, date: &str, out: &mut Buffer) -> Result<(), Reason> {
        write::reply(reply, closes, date, out.end());
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
