//! The byte stream of a connection: TCP or TLS, with the bytes that were read ahead of the drivers and a small write
//! buffer. Buffers are allocated only while they hold bytes, so that an idle connection has none.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::BufMut as _;
use pingora::protocols::{SocketDigest, raw_connect::ProxyDigest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::{ConnectionFacts, alarm::Alarm, chunks::Chunks, stall::Stall, transport::Transport};
use crate::budget::Budget;
use crate::buffers::Buffer;
use crate::clock;
use crate::connection::response_deadline::{DeadlineFuture, ResponseDeadline};
use crate::options::ClientLimits;

/// The size of the write buffer, which lets a head and a small body leave together.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// The maximum number of bytes of later requests that are kept while one is answered; the rest stays in the kernel.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// The bytes that drivers may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Everything that arrives.
    All,
    /// The bytes of a request according to its [`Chunks`], then none: the next bytes belong to another request.
    Body,
    /// This number of bytes, then none.
    Only(usize),
}

/// A connection between requests and during them: Pingora's `IO`, and the stream of the native driver.
pub(crate) struct ClientIo {
    transport: Transport,
    /// Read from the transport, but not by a driver yet.
    unread: Buffer,
    reads: Reads,
    /// Finds the end of a body in chunks, and checks them for a driver that is less strict.
    chunks: Option<Chunks>,
    /// Written by a driver, but not to the transport yet.
    unwritten: Buffer,
    stall: Stall,
    alarm: Alarm,
    facts: Arc<ConnectionFacts>,
    /// The deadline of the response to the current request, once a driver has asked for it.
    due: Option<ResponseDeadline>,
    bell: Option<DeadlineFuture>,
    /// Whether the connection uses HTTP/2, by ALPN or by prior knowledge.
    pub(crate) http2: bool,
    /// The time for which bytes of the client are read after the end was sent, and the end of that time.
    linger: Duration,
    lingers_until: Option<Instant>,
    /// For Pingora, which does not need them for most connections.
    pub(crate) proxy_digest: OnceLock<Option<Arc<ProxyDigest>>>,
    pub(crate) socket_digest: OnceLock<Arc<SocketDigest>>,
}

impl fmt::Debug for ClientIo {
    /// Without the bytes, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIo").field("facts", &self.facts).field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl ClientIo {
    /// A connection from which nothing was read yet.
    pub(crate) fn new(
        transport: Transport,
        facts: Arc<ConnectionFacts>,
        limits: &ClientLimits,
        budget: &Arc<Budget>,
    ) -> Self {
        Self {
            proxy_digest: OnceLock::new(),
            socket_digest: OnceLock::new(),
            transport,
            unread: Buffer::default(),
            reads: Reads::All,
            chunks: None,
            unwritten: Buffer::default(),
            stall: Stall::new(limits, budget),
            alarm: Alarm::new(),
            facts,
            due: None,
            bell: None,
            http2: false,
            linger: limits.body_discard,
            lingers_until: None,
        }
    }

    /// The facts about it.
    pub(crate) const fn facts(&self) -> &Arc<ConnectionFacts> {
        &self.facts
    }

    /// The bytes read ahead.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Removes bytes that were taken from those read ahead.
    pub(crate) fn advance(&mut self, count: usize) {
        self.unread.advance(count);
        self.unread.give_if_empty();
    }

    /// The file descriptor of its socket.
    pub(crate) fn fd(&self) -> RawFd {
        self.transport.as_raw_fd()
    }

    /// The deadline of the response to the current request, which the caller may set. Reads that wait past it fail, so
    /// that the driver notices.
    pub(crate) fn due(&mut self) -> &ResponseDeadline {
        self.due.get_or_insert_default()
    }

    /// Returns `true` if bytes have arrived that were not read.
    pub(crate) fn has_arrived(&self) -> bool {
        self.transport.has_arrived()
    }

    /// Returns `true` if the client may have sent more than drivers have read: after a driver that reads everything
    /// this is unknown, and others leave the bytes after the request.
    pub(crate) fn may_be_sending(&self) -> bool {
        self.reads != Reads::Only(0) || !self.unread.is_empty() || self.has_arrived()
    }

    /// Whether to read on after the end. HTTP/2 has frames for the end, after which well-behaved clients send no more;
    /// an abusive client shall read the reason of its disconnection.
    fn lingers(&self) -> bool {
        if self.http2 { self.facts.streams.are_abused() } else { self.may_be_sending() }
    }

    /// Returns `true` if a request was read to its end, so that the next bytes belong to another.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.reads, Reads::All | Reads::Only(0))
    }

    /// Lets drivers read everything.
    pub(crate) fn pass_all(&mut self) {
        self.reads = Reads::All;
    }

    /// Lets drivers read the next `len` bytes, and keeps later ones.
    pub(crate) fn pass_only(&mut self, len: usize) {
        self.reads = Reads::Only(len);
    }

    /// Lets drivers read a head and its body, and keeps later bytes.
    pub(crate) fn pass_body(&mut self, chunks: Chunks) {
        self.reads = Reads::Body;
        self.chunks = Some(chunks);
    }

    /// Waits for bytes and reads them ahead; `Ok(0)` at the end of the stream.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read_ahead(cx)).await
    }

    /// The poll form of [`Self::read_ahead`].
    pub(crate) fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.unread.make_room();
        let read = poll_read_buf(Pin::new(&mut self.transport), cx, self.unread.end());
        self.unread.give_if_empty();
        read
    }

    /// Reads and discards until the end of the stream, or until a time.
    fn poll_linger(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.advance(self.unread.len());
            match self.poll_read_ahead(cx) {
                // A client that sends without a pause would keep the alarm from being polled.
                Poll::Ready(Ok(1..)) if clock::now() < until => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_alarm(until, cx),
            }
        }
    }

    /// Writes a part of `first` and then `then`, at once and before the write buffer.
    pub(crate) fn poll_send(&mut self, first: &[u8], then: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let transport = Pin::new(&mut self.transport);
        match (first, then) {
            (bytes, []) | ([], bytes) => transport.poll_write(cx, bytes),
            _ => transport.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(then)]),
        }
    }

    /// Reads at most `most` bytes into a buffer of the caller; `Ok(0)` at the end of the stream.
    pub(crate) fn poll_read_into(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(&mut self.transport), cx, &mut into.limit(most))
    }

    /// Flushes the transport.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    /// Sends the end of the stream; reads continue.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    /// Ready at the given time; the time of the last call counts.
    pub(crate) fn poll_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_at(at, cx)
    }

    fn take_unread(&mut self, len: usize, into: &mut ReadBuf<'_>) -> usize {
        let len = len.min(into.remaining()).min(self.unread.len());
        into.put_slice(&self.unread[..len]);
        self.advance(len);
        len
    }

    fn poll_all(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.transport).poll_read(cx, buf);
        }
        self.take_unread(usize::MAX, buf);
        Poll::Ready(Ok(()))
    }

    /// A part of the request's bytes, or nothing at the end of the stream.
    fn poll_body(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(Ok(())) };
        chunks.check()?;
        let over = if self.unread.is_empty() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.transport).poll_read(cx, buf))?;
            let own = chunks.own(&buf.filled()[before..])?;
            let over = chunks.is_over();
            self.keep_behind(before + own, buf);
            over
        } else {
            let room = buf.remaining().min(self.unread.len());
            let own = chunks.own(&self.unread[..room])?;
            let over = chunks.is_over();
            self.take_unread(own, buf);
            over
        };
        if over {
            (self.reads, self.chunks) = (Reads::Only(0), None);
        }
        Poll::Ready(Ok(()))
    }

    /// The same, with a known number of bytes left.
    fn poll_part(&mut self, left: usize, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.transport).poll_read(cx, buf))?;
            // A driver that asks for more than the rest of a body gets only the rest.
            self.keep_behind(buf.filled().len().min(before.saturating_add(left)), buf);
        } else {
            self.take_unread(left, buf);
        }
        self.reads = Reads::Only(left - (buf.filled().len() - before));
        Poll::Ready(Ok(()))
    }

    /// Keeps the bytes that were read after `end` for later; nothing may be kept already.
    fn keep_behind(&mut self, end: usize, buf: &mut ReadBuf<'_>) {
        if buf.filled().len() > end {
            self.unread.make_room();
            self.unread.extend_from_slice(&buf.filled()[end..]);
            buf.set_filled(end);
        }
    }

    /// Gives the driver no bytes, but watches for the end of the stream, which shows that a client has gone.
    pub(crate) fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.len() < HELD_BYTES_MAX {
            if ready!(self.poll_read_ahead(cx))? == 0 {
                return if self.unread.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
        Poll::Pending
    }

    /// Ready once the response is overdue.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(due) = self.due.as_ref().filter(|due| due.is_set()) else {
            self.bell = None;
            return Poll::Pending;
        };
        ready!(self.bell.get_or_insert_with(|| DeadlineFuture::new(due.clone())).poll(cx));
        self.bell = None;
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// The outcome of a write, or an error if the client is too slow. Tunnels have no minimum rate.
    fn bound<T>(&mut self, wrote: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let bounded = self.stall.bound(wrote, !self.facts.is_tunnel(), cx);
        // The deadline of the response continues while the client reads nothing.
        if bounded.is_pending() { self.poll_due(cx).map(Err) } else { bounded }
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let write = Pin::new(&mut self.transport).poll_write(cx, &self.unwritten);
            let count = ready!(self.bound(write, cx))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.stall.took(count);
            self.unwritten.advance(count);
        }
        self.unwritten.give_if_empty();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.reads == Reads::Only(0) && self.facts.is_tunnel() {
            // The client's next bytes are of the other protocol.
            self.reads = Reads::All;
        }
        let read = match self.reads {
            Reads::All => self.poll_all(cx, buf),
            Reads::Body => self.poll_body(cx, buf),
            Reads::Only(0) => self.poll_hold(cx),
            Reads::Only(left) => self.poll_part(left, cx, buf),
        };
        if read.is_pending() {
            // A driver that waits for its client has sent all it has for now, so a response with a slow body does not
            // wait in the buffer.
            if let Poll::Ready(Err(error)) = self.poll_write_out(cx) {
                return Poll::Ready(Err(error));
            }
            return self.poll_due(cx).map(Err);
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(dates) = self.facts.take_dates(bytes) {
            // Pingora writes the whole head of a response at once.
            self.unwritten.make_room();
            dates.restore(bytes, self.unwritten.end());
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.unwritten.len() + bytes.len() > WRITE_BUFFER_BYTES {
            ready!(self.poll_write_out(cx))?;
        }
        if bytes.len() >= WRITE_BUFFER_BYTES {
            let wrote = Pin::new(&mut self.transport).poll_write(cx, bytes);
            self.stall.took(if let Poll::Ready(Ok(count)) = &wrote { *count } else { 0 });
            return self.bound(wrote, cx);
        }
        self.unwritten.make_room();
        self.unwritten.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        let flushed = Pin::new(&mut self.transport).poll_flush(cx);
        self.bound(flushed, cx)
    }

    /// Sends the end of the stream, then reads on for a while if the client may send more: closing a socket with unread
    /// bytes resets it, and a reset can overtake the answer (RFC 9112 section 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let until = match this.lingers_until {
            Some(until) => until,
            None => {
                ready!(this.poll_write_out(cx))?;
                let shut = Pin::new(&mut this.transport).poll_shutdown(cx);
                ready!(this.bound(shut, cx))?;
                if !this.lingers() {
                    return Poll::Ready(Ok(()));
                }
                *this.lingers_until.insert(clock::now() + this.linger)
            }
        };
        this.poll_linger(until, cx).map(Ok)
    }
}

#[cfg(test)]
mod tests;
