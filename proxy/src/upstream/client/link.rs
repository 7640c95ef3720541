//! A connection of a client to an endpoint, which counts the bytes of each head.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::OpenCount;

/// The size of a piece of a head that may be the last one.
const LAST_PIECE_BYTES: usize = 4096;

/// The answers of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<State>);

#[derive(Debug, Default)]
struct State {
    has_any: AtomicBool,
    /// Whether the bytes that come now are after the head of an answer.
    is_past_head: AtomicBool,
}

impl Answers {
    /// The head of an answer has been read.
    pub(super) fn head_is_whole(&self) {
        self.0.has_any.store(true, Relaxed);
        self.0.is_past_head.store(true, Relaxed);
    }

    /// Returns `true` if there was an answer before.
    pub(super) fn has_any(&self) -> bool {
        self.0.has_any.load(Relaxed)
    }
}

/// A connection to an endpoint.
pub(crate) struct Link {
    io: TokioIo<Either<TcpStream, TlsStream<TcpStream>>>,
    answers: Answers,
    /// The number of bytes that the head of the answer, with the interim heads before it, may still have; `None` for
    /// HTTP/2, where the decoded size counts. hyper alone would take a longer head that is whole at once.
    head_left: Option<usize>,
    head_bytes_max: usize,
    /// Whether it may be kept after its answer. The files of idle connections are not charged, but reserved.
    is_kept: bool,
    _open: OpenCount,
}

impl Link {
    /// A connection whose heads have at most so many bytes, if they are those of HTTP/1.1.
    pub(super) fn new(
        stream: Either<TcpStream, TlsStream<TcpStream>>,
        head_bytes_max: Option<usize>,
        (is_kept, _open): (bool, OpenCount),
    ) -> Self {
        let (head_left, answers) = (head_bytes_max, Answers::default());
        let head_bytes_max = head_bytes_max.unwrap_or_default();
        Self { io: TokioIo::new(stream), answers, head_left, head_bytes_max, is_kept, _open }
    }

    /// A request is written: the next bytes are a head, unless the answer has begun before the request is complete.
    fn begin_head(&mut self) {
        if self.head_left.is_some() && self.answers.0.is_past_head.swap(false, Relaxed) {
            self.head_left = Some(self.head_bytes_max);
        }
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.answers.clone());
        if !self.is_kept {
            connected.poison();
        }
        connected
    }
}

impl Read for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let is_past_head = || self.answers.0.is_past_head.load(Relaxed);
        let Some(left) = self.head_left.filter(|_| !is_past_head()) else {
            return Pin::new(&mut self.io).poll_read(cx, into);
        };
        if left == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the head of the answer is too large")));
        }
        // A piece of fixed size: the number of bytes that are read into hyper's own buffer would not be known.
        let mut piece = [0; LAST_PIECE_BYTES];
        let length = left.min(into.remaining()).min(LAST_PIECE_BYTES);
        let mut read = ReadBuf::new(piece.get_mut(..length).unwrap_or_default());
        ready!(Pin::new(&mut self.io).poll_read(cx, read.unfilled()))?;
        into.put_slice(read.filled());
        self.head_left = Some(left.saturating_sub(read.filled().len()));
        Poll::Ready(Ok(()))
    }
}

impl Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.begin_head();
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_head();
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }
}
