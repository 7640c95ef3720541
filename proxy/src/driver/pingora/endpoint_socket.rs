//! The connection to an HTTP/1.1 endpoint that Pingora gets: one of the native driver's pool, behind a guard. Pingora
//! by itself reads a head of up to 1 MiB, parses all of it again with each piece, and reads ahead in ten pieces of 64
//! KiB; here it gets whole heads of at most 64 KiB, and pieces that add up to little until the client takes them.
//!
//! To Pingora it is a socket without a file descriptor, which it cannot keep in its own pool. Pingora does try that
//! with a reusable connection, and first checks whether there is anything to read: by then the driver has marked the
//! response as complete, and the connection returns to the pool here.
//!
//! It also counts what Pingora writes. A byte after the end of the request is refused, and the connection closed: the
//! endpoint would read it as the beginning of the next request.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::body_rates::PiecesInTransit;
use super::fault;
use super::head_guard::{HeadEnd, IncompleteHead};
use super::sent_request::SentRequest;
use crate::clock;
use crate::connection::chunks::Chunks;
use crate::reason::Reason;
use crate::upstream::connection::{Connection, ConnectionKey};
use crate::upstream::pool;

/// The size of one read of a head.
const PIECE_BYTES: usize = 4 * 1024;

/// The bytes of a response that Pingora holds, besides the smallest pieces.
const AHEAD_BYTES_MAX: usize = 8 * 1024;

/// The size of one read beyond that. Pingora reads up to ten pieces ahead, and a read that waited for the client would
/// end with the endpoint's timeout.
const PIECE_BYTES_MIN: usize = 512;

/// How often the task is polled before such a read: `try_join!` polls the client's side once in two polls at least.
const POLLS_BEFORE: u8 = 2;

/// An attempt to reach an endpoint, shared by the driver and the socket.
#[derive(Debug)]
pub(super) struct Link {
    key: ConnectionKey,
    /// The maximum number of connections in the pool.
    pool_size: usize,
    /// Whether the request is HEAD, whose response has no body.
    to_head: bool,
    /// The maximum wait for the next bytes of a body, if Pingora's own timeout is that of a tunnel, which the request
    /// asks for and does not have yet.
    silence_max: Option<Duration>,
    /// Counts connections that are closed because a byte would have followed the end of a request.
    overruns: IntCounter,
    /// Whether the connection served a request before.
    reused: AtomicBool,
    /// Whether the response is complete.
    is_over: AtomicBool,
    /// Whether bytes may follow the response that belong to no other one.
    is_not_reusable: AtomicBool,
    /// Whether the response began another protocol, whose bytes Pingora passes on unseen.
    is_tunnel: AtomicBool,
    /// The bytes that Pingora has read since a piece of the response passed.
    unseen: AtomicUsize,
    /// The pieces that passed and are on their way to the client.
    passed: OnceLock<Arc<PiecesInTransit>>,
}

impl Link {
    /// A new attempt for the endpoint of the key.
    pub(super) const fn new(
        key: ConnectionKey,
        pool_size: usize,
        to_head: bool,
        silence_max: Option<Duration>,
        overruns: IntCounter,
    ) -> Self {
        Self {
            key,
            pool_size,
            to_head,
            silence_max,
            overruns,
            reused: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_not_reusable: AtomicBool::new(false),
            is_tunnel: AtomicBool::new(false),
            unseen: AtomicUsize::new(0),
            passed: OnceLock::new(),
        }
    }

    /// Returns `true` if the connection served a request before.
    pub(super) fn is_reused(&self) -> bool {
        self.reused.load(Relaxed)
    }

    /// Marks the response as complete.
    pub(super) fn over(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Keeps the connection out of the pool after the response.
    pub(super) fn must_not_be_reused(&self) {
        self.is_not_reusable.store(true, Relaxed);
    }

    /// Marks the response as the beginning of another protocol.
    pub(super) fn becomes_tunnel(&self) {
        self.is_tunnel.store(true, Relaxed);
    }

    /// A piece of the response passed, and with it all that Pingora had read when it took the piece up.
    pub(super) fn passed(&self, held: Option<&Arc<PiecesInTransit>>) {
        self.unseen.store(0, Relaxed);
        if let Some(held) = held {
            self.passed.get_or_init(|| Arc::clone(held));
        }
    }

    /// The bytes that Pingora may read ahead.
    fn room(&self) -> usize {
        if self.is_tunnel.load(Relaxed) {
            return AHEAD_BYTES_MAX;
        }
        let passed = self.passed.get().map_or(0, |held| held.bytes());
        AHEAD_BYTES_MAX.saturating_sub(self.unseen.load(Relaxed).saturating_add(passed))
    }
}

/// Connects with a connection that was opened before, or fails with the reason why there is none.
pub(super) struct OpenedConnector {
    link: Arc<Link>,
    /// Taken by the first call, which is the only one.
    outcome: watch::Sender<Option<Result<Connection, Reason>>>,
}

impl fmt::Debug for OpenedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedConnector").field("link", &self.link).finish_non_exhaustive()
    }
}

impl OpenedConnector {
    /// A pooled connection, or a new one.
    pub(super) async fn of(link: Arc<Link>, within: Duration) -> Self {
        let pooled = pool::take(&link.key);
        link.reused.store(pooled.is_some(), Relaxed);
        let outcome = match pooled {
            Some(connection) => Ok(connection),
            None => Connection::open(&link.key, within, false).await,
        };
        Self { link, outcome: watch::Sender::new(Some(outcome)) }
    }
}

#[async_trait]
impl L4Connect for OpenedConnector {
    async fn connect(&self, _: &SocketAddr) -> pingora::Result<Stream> {
        let connection = self.outcome.send_replace(None).unwrap_or(Err(Reason::Internal)).map_err(fault::connecting)?;
        let stage = Stage::Head(IncompleteHead::default());
        let (link, held) = (Arc::clone(&self.link), Vec::new());
        let sent = SentRequest::new();
        let connection = Some(connection);
        let socket = Socket { connection, link, sent, stage, held, given: 0, polls: 0, silence: None };
        Ok(VirtualSocketStream::new(Box::new(socket)).into())
    }
}

enum Stage {
    /// Reads a head.
    Head(IncompleteHead),
    /// Reads a body, or another protocol.
    Body(Option<Chunks>),
}

struct Socket {
    /// `None` once it is back in the pool, or closed.
    connection: Option<Connection>,
    link: Arc<Link>,
    sent: SentRequest,
    stage: Stage,
    /// The rest of a head whose beginning Pingora has, and the number of bytes given since it was complete.
    held: Vec<u8>,
    given: usize,
    /// How often the task was polled since there was no more room.
    polls: u8,
    /// The end of the wait for the next bytes of a body; see [`Link::silence_max`].
    silence: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl Socket {
    /// Puts the connection back into the pool, unless a part of the request or of the response is missing. Whether
    /// unread bytes have arrived is checked before it is used again, because Pingora does not report the expected
    /// length of a body.
    fn keep(&mut self) {
        let is_reusable = !self.link.is_not_reusable.load(Relaxed) && self.sent.is_whole();
        let is_clean = match &self.stage {
            Stage::Head(_) => false,
            Stage::Body(chunks) => self.held.is_empty() && chunks.as_ref().is_none_or(Chunks::is_whole),
        };
        if let Some(connection) = self.connection.take().filter(|_| is_clean && is_reusable) {
            pool::put(self.link.key.clone(), connection, true, self.link.pool_size, clock::now());
        }
    }

    /// Gives held bytes to Pingora. Returns `true` if there were any.
    fn give(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let rest = self.held.get(self.given..).unwrap_or_default();
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.given += count;
        if self.given >= self.held.len() {
            (self.held, self.given) = (Vec::new(), 0);
        }
        count > 0
    }

    /// Reads the head. Its first piece is given at once, so that non-HTTP is refused at once, and the rest when the
    /// head is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { connection: Some(connection), stage: Stage::Head(guard), held, .. } = self else {
            return Poll::Ready(Ok(()));
        };
        let is_first = guard.is_new();
        let ended = if is_first {
            let before = into.filled().len();
            ready!(poll_piece(connection, cx, into, PIECE_BYTES))?;
            guard.advance(&into.filled()[before..])
        } else {
            loop {
                let at = held.len();
                held.resize(at + PIECE_BYTES, 0);
                let mut piece = ReadBuf::new(&mut held[at..]);
                let read = Pin::new(&mut *connection).poll_read(cx, &mut piece);
                let count = piece.filled().len();
                held.truncate(at + count);
                ready!(read)?;
                match guard.advance(&held[at..]) {
                    Ok(HeadEnd::Nothing) if count > 0 => {}
                    ended => break ended,
                }
            }
        };
        if let HeadEnd::Final(beyond) = ended.map_err(|refused| io::Error::new(ErrorKind::InvalidData, refused))? {
            let read = if is_first { into.filled() } else { &self.held };
            let is_chunked = beyond.is_chunked && !self.link.to_head;
            let mut chunks = is_chunked.then(|| Chunks::behind(read.len().saturating_sub(beyond.bytes)));
            if let Some(chunks) = &mut chunks {
                // Of a violation, Pingora gets the head, and then the error.
                let whole = chunks.passing(read)?;
                if is_first { into.set_filled(whole) } else { self.held.truncate(whole) }
            }
            self.stage = Stage::Body(chunks);
        }
        self.give(into);
        Poll::Ready(Ok(()))
    }

    /// Reads a piece of a body, or of another protocol.
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(())) };
        if let Stage::Body(Some(chunks)) = &self.stage {
            chunks.check()?;
        }
        let room = self.link.room();
        if room >= PIECE_BYTES_MIN {
            self.polls = 0;
        } else if self.polls < POLLS_BEFORE {
            self.polls += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let Poll::Ready(read) = poll_piece(connection, cx, into, room.max(PIECE_BYTES_MIN)) else {
            return self.poll_silence(cx).map(Err);
        };
        self.silence = None;
        read?;
        if let Stage::Body(Some(chunks)) = &mut self.stage {
            chunks.pass(into, before)?;
        }
        self.link.unseen.fetch_add(into.filled().len() - before, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl Socket {
    /// Ready with an error at the end of the wait for the next bytes, if the wait has one.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(max) = self.link.silence_max.filter(|_| !self.link.is_tunnel.load(Relaxed)) else {
            return Poll::Pending;
        };
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(max)));
        silence.as_mut().poll(cx).map(|()| ErrorKind::TimedOut.into())
    }
}

/// Reads one piece of at most this size.
fn poll_piece(
    connection: &mut Connection,
    cx: &mut Context<'_>,
    into: &mut ReadBuf<'_>,
    bytes_max: usize,
) -> Poll<io::Result<()>> {
    let room = into.remaining().min(bytes_max);
    let mut piece = ReadBuf::new(into.initialize_unfilled_to(room));
    ready!(Pin::new(connection).poll_read(cx, &mut piece))?;
    let count = piece.filled().len();
    into.advance(count);
    Poll::Ready(Ok(()))
}

impl VirtualSocket for Socket {
    /// The options were set when the connection was opened.
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.link.is_over.load(Relaxed) {
            this.keep();
            return Poll::Ready(Ok(()));
        }
        if this.given > 0 && this.give(into) {
            return Poll::Ready(Ok(()));
        }
        match this.stage {
            Stage::Head(_) => this.poll_head(cx, into),
            Stage::Body(_) => this.poll_body(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { connection: open, link, sent, .. } = self.get_mut();
        let Some(connection) = open else { return Poll::Ready(Err(ErrorKind::BrokenPipe.into())) };
        if link.is_tunnel.load(Relaxed) || bytes.is_empty() {
            return Pin::new(connection).poll_write(cx, bytes);
        }
        let own = sent.own(bytes);
        if own == 0 {
            link.overruns.inc();
            *open = None;
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        }
        let count = ready!(Pin::new(connection).poll_write(cx, &bytes[..own]))?;
        sent.wrote(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().connection {
            Some(connection) => Pin::new(connection).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().connection {
            Some(connection) => Pin::new(connection).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests;
