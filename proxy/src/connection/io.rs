//! The byte stream of a connection: TCP or TLS, with what was read ahead of the drivers and a small buffer for
//! what they write. Buffers are there only while bytes are in them, so that an idle connection holds none.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, BytesMut};
use pingora::protocols::SocketDigest;
use pingora::protocols::raw_connect::ProxyDigest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::{ConnectionFacts, alarm::Alarm, chunks::Chunks, stall::Stall, transport::Transport};
use crate::buffers::Buffer;
use crate::clock;
use crate::connection::response_deadline::{DeadlineFuture, ResponseDeadline};
use crate::shared::Shared;

/// Bytes that wait for company before they are written, so that a head and a small body leave together.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// Bytes of later requests that are kept while one is answered; the rest waits in the kernel.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// What reading drivers are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Everything that arrives.
    All,
    /// What is a request's by its [`Chunks`], then nothing: the next bytes are another request's.
    Body,
    /// So many bytes more, then nothing.
    Only(usize),
}

/// A connection between requests and during them: Pingora's `IO`, and what the native driver reads and writes.
pub(crate) struct Conn {
    transport: Transport,
    /// Read from the transport and by no driver yet.
    unread: Buffer,
    reads: Reads,
    /// Reads along with a driver that is less strict.
    chunks: Option<Chunks>,
    /// Written by a driver and not by the transport yet.
    unwritten: Buffer,
    stall: Stall,
    alarm: Alarm,
    facts: Arc<ConnectionFacts>,
    /// The least rates of clients, and the budget that decides whether they are enforced.
    shared: Arc<Shared>,
    /// When the response to the request in progress is due, and who says so; there once a driver has asked for it.
    due: Option<ResponseDeadline>,
    bell: Option<DeadlineFuture>,
    /// Whether HTTP/2 was agreed on, by ALPN or by prior knowledge.
    pub(crate) http2: bool,
    /// How long what a client still sends is read behind the end, and until when that is, once the end was sent.
    linger: Duration,
    lingers_until: Option<Instant>,
    /// For Pingora, which is never asked for most connections.
    pub(crate) proxy_digest: OnceLock<Option<Arc<ProxyDigest>>>,
    pub(crate) socket_digest: OnceLock<Arc<SocketDigest>>,
}

impl fmt::Debug for Conn {
    /// Without the bytes, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("facts", &self.facts).field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Conn {
    /// A connection that nothing was read from yet.
    pub(crate) fn new(transport: Transport, facts: Arc<ConnectionFacts>, shared: &Arc<Shared>) -> Self {
        let limits = &shared.options.client;
        Self {
            proxy_digest: OnceLock::new(),
            socket_digest: OnceLock::new(),
            transport,
            unread: Buffer::default(),
            reads: Reads::All,
            chunks: None,
            unwritten: Buffer::default(),
            stall: Stall::new(limits.write_stall),
            alarm: Alarm::new(),
            facts,
            shared: Arc::clone(shared),
            due: None,
            bell: None,
            http2: false,
            linger: limits.body_discard,
            lingers_until: None,
        }
    }

    /// What is known of it.
    pub(crate) const fn facts(&self) -> &Arc<ConnectionFacts> {
        &self.facts
    }

    /// What was read ahead.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Notes that bytes of what was read ahead were taken.
    pub(crate) fn advance(&mut self, count: usize) {
        self.unread.advance(count);
        self.unread.give_if_empty();
    }

    /// The number of its socket.
    pub(crate) fn fd(&self) -> RawFd {
        self.transport.as_raw_fd()
    }

    /// When the response to the request in progress is due; to be set by whoever knows. Reads that wait past it fail, so
    /// that the driver looks up.
    pub(crate) fn due(&mut self) -> &ResponseDeadline {
        self.due.get_or_insert_default()
    }

    /// Whether bytes have arrived that were not read.
    pub(crate) fn has_arrived(&self) -> bool {
        self.transport.has_arrived()
    }

    /// Whether there is more of the client than drivers have taken, as far as one can tell: drivers that read everything leave
    /// nobody to know whether it has more to say, and others leave what is behind the request.
    pub(crate) fn may_be_sending(&self) -> bool {
        self.reads != Reads::Only(0) || !self.unread.is_empty() || self.has_arrived()
    }

    /// Whether to read on behind the end. Of HTTP/2, frames have said the end, and clients that keep to them send no more; one that
    /// floods is told why it is cut off.
    fn lingers(&self) -> bool {
        if self.http2 { self.facts.streams.are_abused() } else { self.may_be_sending() }
    }

    /// Whether a request was read to its end, so that what comes next is another's.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.reads, Reads::All | Reads::Only(0))
    }

    /// Has what drivers read looked at, from the head of a request on.
    pub(crate) fn watch(&mut self, chunks: Option<Chunks>) {
        self.chunks = chunks;
    }

    /// Lets drivers read everything.
    pub(crate) fn pass_all(&mut self) {
        self.reads = Reads::All;
    }

    /// Lets drivers read the next `len` bytes, and keeps what comes after them for later.
    pub(crate) fn pass_only(&mut self, len: usize) {
        self.reads = Reads::Only(len);
    }

    /// Lets drivers read a head and its body, and keeps what comes after them for later.
    pub(crate) fn pass_body(&mut self, chunks: Chunks) {
        self.reads = Reads::Body;
        self.chunks = Some(chunks);
    }

    /// Waits for bytes and reads them ahead; `Ok(0)` at the end of the stream.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read_ahead(cx)).await
    }

    /// [`Self::read_ahead`] for who is polled.
    pub(crate) fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.unread.make_room();
        let read = poll_read_buf(Pin::new(&mut self.transport), cx, &mut *self.unread);
        self.unread.give_if_empty();
        read
    }

    /// Reads and throws away until the end of the stream, or until a time.
    fn poll_linger(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.advance(self.unread.len());
            match self.poll_read_ahead(cx) {
                // Whoever sends without a pause would never let the alarm be looked at.
                Poll::Ready(Ok(1..)) if clock::now() < until => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_alarm(until, cx),
            }
        }
    }

    /// Sends a part of some bytes and then others, at once and before nothing else that waits.
    pub(crate) fn poll_send(&mut self, first: &[u8], then: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let transport = Pin::new(&mut self.transport);
        match (first, then) {
            (bytes, []) | ([], bytes) => transport.poll_write(cx, bytes),
            _ => transport.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(then)]),
        }
    }

    /// Reads at most so many bytes to where they belong; `Ok(0)` at the end of the stream.
    pub(crate) fn poll_read_into(
        &mut self,
        into: &mut BytesMut,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(&mut self.transport), cx, &mut into.limit(most))
    }

    /// Makes sure that what was sent has left.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    /// Says to the client that nothing more comes, and reads on.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    /// Ready once a time has come; the last one that was asked for counts.
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
        let before = buf.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.transport).poll_read(cx, buf))?;
        } else {
            self.take_unread(usize::MAX, buf);
        }
        Poll::Ready(self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.pass(buf, before)))
    }

    /// A part of what is a request's, or nothing at the end of the stream.
    fn poll_body(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(Ok(())) };
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
            self.reads = Reads::Only(0);
        }
        Poll::Ready(Ok(()))
    }

    /// The same, where so many bytes are left of it.
    fn poll_part(&mut self, left: usize, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.transport).poll_read(cx, buf))?;
            // Who asks for more than there is of a body gets no more than that.
            self.keep_behind(buf.filled().len().min(before.saturating_add(left)), buf);
        } else {
            self.take_unread(left, buf);
        }
        self.reads = Reads::Only(left - (buf.filled().len() - before));
        Poll::Ready(Ok(()))
    }

    /// Keeps for later what was read behind a place, where nothing is kept yet.
    fn keep_behind(&mut self, end: usize, buf: &mut ReadBuf<'_>) {
        if buf.filled().len() > end {
            self.unread.make_room();
            self.unread.extend_from_slice(&buf.filled()[end..]);
            buf.set_filled(end);
        }
    }

    /// Nothing for the driver, but the end of the stream must not go unseen: it is how a client goes away.
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

    /// The outcome of a write, unless the client has been waited for too long. A tunnel has no least rate.
    fn bound<T>(&mut self, wrote: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let rates = (!self.facts.is_tunnel()).then_some(&*self.shared);
        let bounded = self.stall.bound(wrote, rates, cx);
        // A client that takes nothing does not stop the clock of its response.
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

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.chunks.as_ref().map_or(Ok(()), Chunks::check)?;
        let read = match self.reads {
            Reads::All => self.poll_all(cx, buf),
            Reads::Body => self.poll_body(cx, buf),
            Reads::Only(0) => self.poll_hold(cx),
            Reads::Only(left) => self.poll_part(left, cx, buf),
        };
        if read.is_pending() {
            // A driver that waits for its client has said all it has for now, so that a response whose body is slow
            // to come does not wait in the buffer.
            if let Poll::Ready(Err(error)) = self.poll_write_out(cx) {
                return Poll::Ready(Err(error));
            }
            return self.poll_due(cx).map(Err);
        }
        read
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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

    /// Sends the end of the stream, then reads on for a moment where there is more of the client: closing a socket with unread
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
