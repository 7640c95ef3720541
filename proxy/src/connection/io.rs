//! The byte stream of a connection: TCP or TLS, with what was read ahead of the drivers and a small buffer for
//! what they write. Buffers are there only while bytes are in them, so that an idle connection holds none.

use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::{Buf, BytesMut};
use pingora::protocols::SocketDigest;
use pingora::protocols::raw_connect::ProxyDigest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::ConnectionFacts;
use super::alarm::Alarm;
use super::chunks::Chunks;
use super::stall::Stall;
use super::transport::Transport;
use crate::buffers;
use crate::due::{Bell, Due};
use crate::options::ClientLimits;

/// Bytes that wait for company before they are written, so that a head and a small body leave together.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;

/// Bytes of later requests that are kept while one is answered; the rest waits in the kernel.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// What reading drivers are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Everything that arrives.
    All,
    /// So many bytes more of what was read ahead, then nothing: the next bytes are another request's.
    Only(usize),
}

/// A connection between requests and during them: Pingora's `IO`, and what the lean driver reads and writes.
pub(crate) struct Conn {
    transport: Transport,
    /// Read from the transport and by no driver yet.
    unread: BytesMut,
    reads: Reads,
    /// Reads along with a driver that is less strict.
    chunks: Option<Chunks>,
    /// Written by a driver and not by the transport yet.
    unwritten: BytesMut,
    stall: Stall,
    alarm: Alarm,
    facts: Arc<ConnectionFacts>,
    /// When the response to the request in progress is due, and who says so; there once a driver has asked for it.
    due: Option<Due>,
    bell: Option<Bell>,
    /// Whether HTTP/2 was agreed on, by ALPN or by prior knowledge.
    pub(super) http2: bool,
    /// For the end of the connection: see [`super::close`].
    pub(super) linger: Duration,
    /// For Pingora, which is never asked for most connections.
    pub(super) proxy_digest: OnceLock<Option<Arc<ProxyDigest>>>,
    pub(super) socket_digest: OnceLock<Arc<SocketDigest>>,
}

impl fmt::Debug for Conn {
    /// Without the bytes, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("facts", &self.facts).field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Conn {
    /// A connection that nothing was read from yet.
    pub(crate) fn new(transport: Transport, facts: Arc<ConnectionFacts>, limits: &ClientLimits) -> Self {
        Self {
            proxy_digest: OnceLock::new(),
            socket_digest: OnceLock::new(),
            transport,
            unread: BytesMut::new(),
            reads: Reads::All,
            chunks: None,
            unwritten: BytesMut::new(),
            stall: Stall::new(limits.write_stall),
            alarm: Alarm::new(),
            facts,
            due: None,
            bell: None,
            http2: false,
            linger: limits.body_discard,
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
        buffers::give_if_empty(&mut self.unread);
    }

    /// The number of its socket.
    pub(super) fn fd(&self) -> RawFd {
        self.transport.as_raw_fd()
    }

    /// When the response to the request in progress is due; to be set by whoever knows. Reads that wait past it fail, so
    /// that the driver looks up.
    pub(super) fn due(&mut self) -> &Due {
        self.due.get_or_insert_default()
    }

    /// Whether drivers read everything: then nobody knows whether the client has more to say.
    pub(super) fn may_be_sending(&self) -> bool {
        self.reads == Reads::All
    }

    /// Whether a request was read to its end, so that what comes next is another's.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(self.reads, Reads::All | Reads::Only(0))
    }

    /// Has what drivers read looked at, from the head of a request on.
    pub(super) fn watch(&mut self, chunks: Option<Chunks>) {
        self.chunks = chunks;
    }

    /// Lets drivers read everything.
    pub(crate) fn pass_all(&mut self) {
        self.reads = Reads::All;
    }

    /// Lets drivers read the first `len` bytes of what was read ahead, and keeps what comes after them for later.
    pub(crate) fn pass_only(&mut self, len: usize) {
        self.reads = Reads::Only(len);
    }

    /// Waits for bytes and reads them ahead; `Ok(0)` at the end of the stream.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read_ahead(cx)).await
    }

    /// [`Self::read_ahead`] for who is polled.
    pub(crate) fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        buffers::make_room(&mut self.unread);
        let read = poll_read_buf(Pin::new(&mut self.transport), cx, &mut self.unread);
        buffers::give_if_empty(&mut self.unread);
        read
    }

    /// Reads and throws away; `Ok(0)` at the end of the stream.
    pub(super) async fn discard(&mut self) -> io::Result<usize> {
        let count = self.read_ahead().await?;
        self.advance(self.unread.len());
        Ok(count)
    }

    /// Sends a part of some bytes, at once and before nothing else that waits.
    pub(crate) fn poll_send(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    /// Makes sure that what was sent has left.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
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

    /// Nothing for the driver, but the end of the stream must not go unseen: it is how a client goes away.
    pub(crate) fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.len() < HELD_BYTES_MAX {
            if ready!(self.poll_read_ahead(cx))? == 0 {
                return if self.unread.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
        Poll::Pending
    }

    /// Ready, with an error, once the response is overdue.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(due) = self.due.as_ref().filter(|due| due.is_set()) else {
            self.bell = None;
            return Poll::Pending;
        };
        ready!(self.bell.get_or_insert_with(|| Bell::new(due.clone())).poll(cx));
        self.bell = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let write = Pin::new(&mut self.transport).poll_write(cx, &self.unwritten);
            let count = ready!(self.stall.bound(write, cx))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unwritten.advance(count);
        }
        buffers::give_if_empty(&mut self.unwritten);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.chunks.as_ref().map_or(Ok(()), Chunks::check)?;
        let before = buf.filled().len();
        let read = match self.reads {
            Reads::All if self.unread.is_empty() => Pin::new(&mut self.transport).poll_read(cx, buf),
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
        };
        if read.is_pending() {
            // A driver that waits for its client has said all it has for now, so that a response whose body is slow
            // to come does not wait in the buffer.
            if let Poll::Ready(Err(error)) = self.poll_write_out(cx) {
                return Poll::Ready(Err(error));
            }
            return self.poll_due(cx);
        }
        if let Some(chunks) = &mut self.chunks {
            chunks.pass(buf, before)?;
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
            let this = &mut *self;
            return this.stall.bound(Pin::new(&mut this.transport).poll_write(cx, bytes), cx);
        }
        buffers::make_room(&mut self.unwritten);
        self.unwritten.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        let this = &mut *self;
        this.stall.bound(Pin::new(&mut this.transport).poll_flush(cx), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        let this = &mut *self;
        this.stall.bound(Pin::new(&mut this.transport).poll_shutdown(cx), cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::connection::ConnectionFacts;

    const MOMENT: Duration = Duration::from_millis(200);

    /// A connection and the client's end of it.
    async fn pair() -> (Conn, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let facts = Arc::new(ConnectionFacts::sample(peer));
        let limits = ClientLimits { write_stall: MOMENT, ..ClientLimits::default() };
        (Conn::new(Transport::Plain(stream), facts, &limits), client)
    }

    async fn read(conn: &mut Conn) -> String {
        let mut bytes = [0; 64];
        let count = conn.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[tokio::test]
    async fn a_driver_reads_one_request_and_the_next_driver_the_next() {
        let (mut conn, mut client) = pair().await;
        client.write_all(b"onetwo").await.unwrap();
        conn.read_ahead().await.unwrap();
        conn.pass_only(3);
        assert_eq!(read(&mut conn).await, "one");
        assert!(conn.is_between_requests());
        // What arrives now is held back, and the driver goes on waiting.
        client.write_all(b"three").await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), conn.read_u8()).await.unwrap_err();
        conn.pass_all();
        assert_eq!(read(&mut conn).await, "twothree");
    }

    #[tokio::test]
    async fn the_end_of_the_stream_is_seen_though_nothing_may_be_read() {
        let (mut conn, client) = pair().await;
        conn.pass_only(0);
        drop(client);
        assert_eq!(read(&mut conn).await, "");
    }

    #[tokio::test]
    async fn what_is_held_back_has_a_limit() {
        let (mut conn, mut client) = pair().await;
        conn.pass_only(0);
        let flood = tokio::spawn(async move { client.write_all(&vec![b'x'; 8 << 20]).await.is_ok() });
        tokio::time::timeout(Duration::from_millis(100), conn.read_u8()).await.unwrap_err();
        assert!((HELD_BYTES_MAX..HELD_BYTES_MAX + buffers::BUFFER_BYTES).contains(&conn.unread().len()));
        flood.abort();
    }

    #[tokio::test]
    async fn small_writes_leave_together_and_large_ones_at_once() {
        let (mut conn, mut client) = pair().await;
        conn.write_all(b"head").await.unwrap();
        conn.write_all(b"body").await.unwrap();
        let mut bytes = [0; 8];
        client.try_read(&mut bytes).expect_err("nothing was flushed yet");
        conn.flush().await.unwrap();
        client.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"headbody");
        conn.write_all(b"head").await.unwrap();
        conn.write_all(&[b'x'; WRITE_BUFFER_BYTES]).await.unwrap();
        let mut large = [0; 4 + WRITE_BUFFER_BYTES];
        client.read_exact(&mut large).await.unwrap();
        assert!(large.starts_with(b"headx") && large.ends_with(b"x"));
    }

    #[tokio::test]
    async fn what_waits_to_be_written_leaves_when_the_driver_waits_for_its_client() {
        let (mut conn, mut client) = pair().await;
        conn.write_all(b"head").await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), conn.read_u8()).await.unwrap_err();
        let mut bytes = [0; 4];
        client.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"head");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut conn, _client) = pair().await;
        let stuff = async {
            loop {
                conn.write_all(&[b'x'; 1000]).await?;
                conn.flush().await?;
            }
        };
        let stuffed: io::Result<()> = tokio::time::timeout(20 * MOMENT, stuff).await.expect("it waits for ever");
        assert_eq!(stuffed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(conn.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_read_past_the_time_of_the_response_fails() {
        let (mut conn, mut client) = pair().await;
        let due = conn.due().clone();
        due.set(crate::clock::now() + MOMENT);
        let error = tokio::time::timeout(20 * MOMENT, conn.read_u8()).await.expect("it waits for ever").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // What is there is read nevertheless, and when nothing is due, waiting is in order.
        client.write_all(b"a").await.unwrap();
        due.lift();
        tokio::time::timeout(20 * MOMENT, conn.read_u8()).await.unwrap().unwrap();
        tokio::time::timeout(2 * MOMENT, conn.read_u8()).await.unwrap_err();
    }
}
