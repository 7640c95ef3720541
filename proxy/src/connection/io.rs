//! The byte stream of a connection: TCP or TLS, with what was read ahead of the drivers and a small buffer for
//! what they write. Buffers are there only while bytes are in them, so that an idle connection holds none.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use pingora::protocols::SocketDigest;
use pingora::protocols::raw_connect::ProxyDigest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::{ConnectionFacts, traits};

/// Bytes that wait for company before they are written, so that a head and a small body leave together.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// Bytes asked of the transport at once when reading ahead.
const READ_AHEAD_BYTES: usize = 4 * 1024;

/// Bytes of later requests that are kept while one is answered; the rest waits in the kernel.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// What the bytes travel over.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP, after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// What reading drivers are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Everything that arrives.
    All,
    /// So many bytes more of what was read ahead, then nothing: the next bytes are another request's.
    Only(usize),
}

/// A connection between requests and during them: Pingora's `IO`, and what a lean driver needs to take over from it.
#[derive(Debug)]
pub(crate) struct Conn {
    transport: Transport,
    /// Read from the transport and by no driver yet.
    unread: BytesMut,
    reads: Reads,
    /// Written by a driver and not by the transport yet.
    unwritten: BytesMut,
    /// Whether HTTP/2 was agreed on, by ALPN or by prior knowledge.
    pub(super) http2: bool,
    /// For the end of the connection: see [`super::close`].
    pub(super) linger: Duration,
    pub(super) proxy_digest: Arc<ProxyDigest>,
    pub(super) socket_digest: Arc<SocketDigest>,
}

impl Conn {
    /// A connection that nothing was read from yet.
    pub(crate) fn new(transport: Transport, facts: &Arc<ConnectionFacts>, linger: Duration) -> pingora::Result<Self> {
        Ok(Self {
            proxy_digest: traits::proxy_digest(facts)?,
            socket_digest: traits::socket_digest(transport.as_raw_fd(), facts),
            transport,
            unread: BytesMut::new(),
            reads: Reads::All,
            unwritten: BytesMut::new(),
            http2: false,
            linger,
        })
    }

    /// What was read ahead.
    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// The number of its socket.
    pub(super) fn fd(&self) -> RawFd {
        self.transport.as_raw_fd()
    }

    /// Whether drivers read everything: then nobody knows whether the client has more to say.
    pub(super) fn may_be_sending(&self) -> bool {
        self.reads == Reads::All
    }

    /// Whether a request was read to its end, so that what comes next is another's.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(self.reads, Reads::All | Reads::Only(0))
    }

    /// Lets drivers read everything.
    pub(super) fn pass_all(&mut self) {
        self.reads = Reads::All;
    }

    /// Lets drivers read the first `len` bytes of what was read ahead, and keeps what comes after them for later.
    pub(super) fn pass_only(&mut self, len: usize) {
        self.reads = Reads::Only(len);
    }

    /// Waits for bytes and reads them ahead; `Ok(0)` at the end of the stream.
    pub(super) async fn read_ahead(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read_ahead(cx)).await
    }

    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); READ_AHEAD_BYTES];
        let mut arrived = ReadBuf::uninit(&mut space);
        ready!(self.transport.poll_read(cx, &mut arrived))?;
        self.unread.extend_from_slice(arrived.filled());
        Poll::Ready(Ok(arrived.filled().len()))
    }

    /// Reads and throws away; `Ok(0)` at the end of the stream.
    pub(super) async fn discard(&mut self) -> io::Result<usize> {
        let count = self.read_ahead().await?;
        self.unread = BytesMut::new();
        Ok(count)
    }

    fn take_unread(&mut self, len: usize, into: &mut ReadBuf<'_>) -> usize {
        let len = len.min(into.remaining()).min(self.unread.len());
        into.put_slice(&self.unread[..len]);
        self.unread.advance(len);
        if self.unread.is_empty() {
            self.unread = BytesMut::new();
        }
        len
    }

    /// Nothing for the driver, but the end of the stream must not go unseen: it is how a client goes away.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.len() < HELD_BYTES_MAX {
            if ready!(self.poll_read_ahead(cx))? == 0 {
                return if self.unread.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
        Poll::Pending
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let count = ready!(self.transport.poll_write(cx, &self.unwritten))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unwritten.advance(count);
        }
        self.unwritten = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.reads {
            Reads::All if self.unread.is_empty() => self.transport.poll_read(cx, buf),
            Reads::All => {
                let held = self.unread.len();
                self.take_unread(held, buf);
                Poll::Ready(Ok(()))
            }
            Reads::Only(0) => self.poll_hold(cx),
            Reads::Only(left) => {
                let taken = self.take_unread(left, buf);
                self.reads = Reads::Only(left - taken);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unwritten.len() + bytes.len() > WRITE_BUFFER_BYTES {
            ready!(self.poll_write_out(cx))?;
        }
        if bytes.len() >= WRITE_BUFFER_BYTES {
            return self.transport.poll_write(cx, bytes);
        }
        self.unwritten.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        self.transport.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        self.transport.poll_shutdown(cx)
    }
}

impl Transport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Plain(stream) => stream.as_raw_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_raw_fd(),
        }
    }
}
