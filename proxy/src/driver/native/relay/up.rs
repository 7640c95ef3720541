//! The upstream direction: the request's head and body from the client to the endpoint.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::{Relay, Step};
use crate::driver::native::downstream::Downstream;
use crate::driver::native::progress::Progress;
use crate::driver::native::write;
use crate::http::body::Piece;
use crate::reason::Reason;

impl<C: Downstream> Relay<'_, C> {
    /// Sends as much of the request as possible.
    pub(super) fn up(&mut self, cx: &mut Context<'_>) -> Step {
        let mut gathered = self.gather()?;
        // Bytes that have arrived leave together. A read without bytes costs no system call, since the last read has
        // shown that the socket is empty.
        while self.client.unread().is_empty() && self.read_client(cx)? {
            self.gather()?;
            gathered = true;
        }
        let mut moved = gathered;
        while !self.room.to_endpoint.is_sent() {
            match Pin::new(&mut *self.endpoint).poll_write(cx, self.room.to_endpoint.waiting()) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(count @ 1..)) => {
                    self.room.to_endpoint.took(count);
                    self.progress.upload_held = self.endpoint.holds_back();
                }
                Poll::Ready(Ok(0) | Err(_)) => self.refuse_upload(),
            }
            self.progress.endpoint_write.moved();
            self.progress.endpoint_read.moved();
            moved = true;
        }
        if self.progress.upload_held {
            match Pin::new(&mut *self.endpoint).poll_flush(cx) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(())) => self.progress.upload_held = false,
                Poll::Ready(Err(_)) => self.refuse_upload(),
            }
            self.progress.endpoint_write.moved();
            self.progress.endpoint_read.moved();
            moved = true;
        }
        // More is read only after everything was sent, so that the bytes read ahead do not accumulate.
        Ok(gathered || self.read_client(cx)? || moved)
    }

    /// Stops sending the request. The endpoint may have answered before it stopped reading.
    fn refuse_upload(&mut self) {
        self.room.to_endpoint.skip();
        (self.progress.upload_refused, self.progress.upload_held) = (true, false);
    }

    /// Reads more of the request's body.
    fn read_client(&mut self, cx: &mut Context<'_>) -> Step {
        if self.progress.body.is_over() || self.progress.upload_refused {
            return Ok(false);
        }
        let Progress { body, bytes_in, client_read, expects, .. } = &mut *self.progress;
        let read = if self.chunked_up {
            self.client.poll_read_ahead(cx)
        } else {
            let space = self.room.to_endpoint.space();
            // Bytes that were read before come first.
            if space == 0 || !self.client.unread().is_empty() {
                return Ok(false);
            }
            let read = self.client.poll_read_into(self.room.to_endpoint.end(), body.within(space), cx);
            if let Poll::Ready(Ok(count)) = read {
                *expects &= count == 0;
                self.forwarding.body(self.room.to_endpoint.last(count), false)?;
                body.took(count);
                *bytes_in += count;
            }
            read
        };
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => {
                body.closed().map_err(|_| Reason::ClientGone)?;
                self.end_chunks();
                Ok(true)
            }
            Poll::Ready(Ok(_)) => {
                client_read.moved();
                Ok(true)
            }
            Poll::Ready(Err(_)) => Err(Reason::ClientGone),
        }
    }

    /// Sends the end of a chunked body.
    fn end_chunks(&mut self) {
        if self.chunked_up && self.progress.body.is_over() {
            self.room.to_endpoint.end().extend_from_slice(write::LAST_CHUNK);
        }
    }

    /// Takes the received part of the request's body.
    fn gather(&mut self) -> Step {
        let Progress { body, bytes_in, expects, .. } = self.progress;
        let out = &mut self.room.to_endpoint;
        let mut moved = false;
        while !body.is_over() && !self.progress.upload_refused {
            let space = out.space();
            if space == 0 {
                break;
            }
            let unread = self.client.unread();
            let count = match body.next(unread).map_err(|_| Reason::MalformedRequest)? {
                Piece::Unknown | Piece::End => break,
                Piece::Framing(count, then) => {
                    *body = then;
                    count
                }
                Piece::Content(count) => {
                    let count = count.min(space);
                    *expects = false;
                    self.forwarding.body(&unread[..count], false)?;
                    body.took(count);
                    *bytes_in += count;
                    write::content(&unread[..count], self.chunked_up, out.end());
                    count
                }
            };
            self.client.advance(count);
            moved = true;
        }
        if moved {
            self.end_chunks();
        }
        Ok(moved)
    }
}
