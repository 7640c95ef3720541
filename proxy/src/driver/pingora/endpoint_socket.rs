//! The connection to an HTTP/1.1 endpoint that Pingora gets: one of the native driver's pool, behind a guard. Pingora
//! by itself reads a head of up to 1 MiB, parses all of it again with each piece, and reads ahead in ten pieces of 64
//! KiB; here it gets whole heads of at most 64 KiB, and pieces of 4 KiB.
//!
//! To Pingora it is a socket without a file descriptor, which it cannot keep in its own pool. Pingora does try that
//! with a reusable connection, and first checks whether there is anything to read: by then the driver has marked the
//! response as complete, and the connection returns to the pool here.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head_guard::{Ended, HeadGuard};
use super::own_tls;
use crate::clock;
use crate::upstream::connection::{Connection, ConnectionKey};
use crate::upstream::pool;

/// The size of one read. Pingora keeps up to ten of them for a client that takes nothing.
const PIECE_BYTES: usize = 4 * 1024;

/// An attempt to reach an endpoint, shared by the driver and the socket.
#[derive(Debug)]
pub(super) struct Link {
    key: ConnectionKey,
    /// The maximum number of connections in the pool.
    pool_size: usize,
    /// Whether the connection served a request before.
    reused: AtomicBool,
    /// Whether the response is complete.
    is_over: AtomicBool,
}

impl Link {
    /// A new attempt for the endpoint of the key.
    pub(super) const fn new(key: ConnectionKey, pool_size: usize) -> Self {
        Self { key, pool_size, reused: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    /// Returns `true` if the connection served a request before.
    pub(super) fn is_reused(&self) -> bool {
        self.reused.load(Relaxed)
    }

    /// Marks the response as complete.
    pub(super) fn over(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Connects with a pooled connection, or with a new one.
#[derive(Debug)]
pub(super) struct ByLink {
    /// The attempt.
    pub(super) link: Arc<Link>,
    /// The connect timeout.
    pub(super) within: Duration,
}

#[async_trait]
impl L4Connect for ByLink {
    async fn connect(&self, _: &SocketAddr) -> pingora::Result<Stream> {
        let Self { link, within } = self;
        let pooled = pool::take(&link.key);
        link.reused.store(pooled.is_some(), Relaxed);
        let connection = match pooled {
            Some(connection) => connection,
            None => Connection::open(&link.key, *within).await.map_err(own_tls::error)?,
        };
        let stage = Stage::Head(HeadGuard::default());
        let socket = Socket { connection: Some(connection), link: Arc::clone(link), stage, held: Vec::new(), given: 0 };
        Ok(VirtualSocketStream::new(Box::new(socket)).into())
    }
}

enum Stage {
    /// Reads a head.
    Head(HeadGuard),
    /// Reads a body, or another protocol.
    Body,
}

struct Socket {
    /// `None` once it is back in the pool.
    connection: Option<Connection>,
    link: Arc<Link>,
    stage: Stage,
    /// The rest of a head whose beginning Pingora has, and the number of bytes given since it was complete.
    held: Vec<u8>,
    given: usize,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl Socket {
    /// Puts the connection back into the pool. Whether unread bytes have arrived is checked before it is used again,
    /// because Pingora does not report the expected length of a body.
    fn keep(&mut self) {
        let is_clean = matches!(self.stage, Stage::Body) && self.held.is_empty();
        if let Some(connection) = self.connection.take().filter(|_| is_clean) {
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
        let ended = if guard.is_new() {
            let before = into.filled().len();
            ready!(poll_piece(connection, cx, into))?;
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
                    Ok(Ended::Nothing) if count > 0 => {}
                    ended => break ended,
                }
            }
        };
        if ended.map_err(|refused| io::Error::new(ErrorKind::InvalidData, refused))? == Ended::Final {
            self.stage = Stage::Body;
        }
        self.give(into);
        Poll::Ready(Ok(()))
    }
}

/// Reads one piece.
fn poll_piece(connection: &mut Connection, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let room = into.remaining().min(PIECE_BYTES);
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
        match (&this.stage, &mut this.connection) {
            (Stage::Head(_), _) => this.poll_head(cx, into),
            (Stage::Body, Some(connection)) => poll_piece(connection, cx, into),
            (Stage::Body, None) => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().connection {
            Some(connection) => Pin::new(connection).poll_write(cx, bytes),
            None => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
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
mod tests {
    use std::future::Future;

    use tidegate_config::model::{AppProtocol, Endpoint, Target};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sample_model::backend_key;

    /// A socket as Pingora gets one, and the endpoint's side of it.
    struct Pair {
        link: Arc<Link>,
        socket: Stream,
        listener: TcpListener,
        endpoint: TcpStream,
    }

    async fn connect(listener: &TcpListener) -> (Arc<Link>, Stream) {
        let address = listener.local_addr().unwrap();
        let target = Target { backend: backend_key("web"), protocol: AppProtocol::Http, tls: None, fixed: None };
        let key = ConnectionKey::new(&target, &Endpoint::tcp(address, None), String::new);
        let link = Arc::new(Link::new(key, 9));
        let by_link = ByLink { link: Arc::clone(&link), within: Duration::from_secs(20) };
        (link, by_link.connect(&address.into()).await.unwrap())
    }

    async fn pair() -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (link, socket) = connect(&listener).await;
        let endpoint = listener.accept().await.unwrap().0;
        endpoint.set_nodelay(true).unwrap();
        Pair { link, socket, listener, endpoint }
    }

    /// Reads with the room that Pingora has for a head, until the socket ends or fails. Returns all bytes and the number
    /// of reads.
    async fn drain(socket: &mut Stream) -> io::Result<(Vec<u8>, usize)> {
        let (mut all, mut reads) = (Vec::new(), 0);
        loop {
            let mut room = [0; 4096];
            match socket.read(&mut room).await? {
                0 => return Ok((all, reads)),
                count => all.extend_from_slice(&room[..count]),
            }
            reads += 1;
        }
    }

    /// The endpoint sends the text in pieces of `step` bytes, and closes.
    async fn sent(text: &[u8], step: usize) -> io::Result<(Vec<u8>, usize)> {
        let Pair { mut socket, mut endpoint, .. } = pair().await;
        let endpoint = async move {
            for piece in text.chunks(step) {
                // The edge may have closed the connection.
                if endpoint.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(endpoint, drain(&mut socket)).1
    }

    #[tokio::test]
    async fn a_head_that_trickles_is_read_in_few_pieces() {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(16 * 1024));
        let (all, reads) = sent(head.as_bytes(), 1).await.unwrap();
        assert_eq!(all, head.as_bytes());
        // Pingora parses each piece with everything before it.
        assert!(reads <= 2 + head.len() / 4096 + 1, "{reads} reads");
    }

    #[tokio::test]
    async fn everything_arrives_however_it_is_cut() {
        let text =
            "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody\r\n\r\nb";
        for step in 1..text.len() {
            assert_eq!(sent(text.as_bytes(), step).await.unwrap().0, text.as_bytes(), "in steps of {step}");
        }
        // Also bytes that are not HTTP, and incomplete heads.
        for text in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nX: y"] {
            assert_eq!(sent(text.as_bytes(), 2).await.unwrap().0, text.as_bytes());
        }
    }

    #[tokio::test]
    async fn what_is_more_than_a_head_is_an_error() {
        let large = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(128 * 1024));
        for text in [large.as_bytes(), b"\r\n\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"] {
            let error = sent(text, 1000).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }

    /// Sends a response, reads it, and does what Pingora does at its end. Returns `true` if the pool has the connection.
    async fn released(mut pair: Pair, text: &[u8], is_over: bool) -> bool {
        pair.endpoint.write_all(text).await.unwrap();
        let mut room = vec![0; text.len()];
        pair.socket.read_exact(&mut room).await.unwrap();
        if is_over {
            pair.link.over();
        }
        let looked = tokio::task::unconstrained(pair.socket.read(&mut room[..1]));
        let mut looked = std::pin::pin!(looked);
        let looked = std::future::poll_fn(|cx| Poll::Ready(looked.as_mut().poll(cx).is_ready())).await;
        assert_eq!(looked, is_over, "Pingora does not keep it");
        drop(pair.socket);
        let again = connect(&pair.listener).await.0.is_reused();
        pool::clear();
        again
    }

    #[tokio::test]
    async fn a_connection_goes_back_to_the_pool_once_its_response_is_over() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert!(released(pair().await, whole, true).await);
        assert!(!released(pair().await, whole, false).await, "it was not marked as complete");
        assert!(!released(pair().await, b"HTTP/1.1 100 Continue\r\n\r\n", true).await, "a response is to come");
        let Pair { socket, listener, endpoint: _endpoint, .. } = pair().await;
        drop(socket);
        assert!(!connect(&listener).await.0.is_reused(), "it was given up");
    }
}
