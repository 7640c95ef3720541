//! A connection that fails when its peer takes nothing for too long while something waits to be sent.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The default time for which a client may read nothing although data waits for it. A client that reads gets a watch's
/// next line or a list's next part within moments, even over a slow link.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that is silent is asked after this long whether it is still there, then so often, and so many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// A stream whose writes must make progress. TLS wraps it: the bytes that the peer takes count.
#[derive(Debug)]
pub(super) struct WithWriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WithWriteTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, stalled: None }
    }

    /// The outcome of a write, given the time for which the peer has taken nothing.
    fn progress<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.timeout;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl WithWriteTimeout<TcpStream> {
    /// A connection that sends small events at once, and notices a peer that is gone without a word.
    pub(super) fn tcp(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        // Without this a small event waits for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
        Ok(Self::new(stream, timeout))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WithWriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WithWriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.progress(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.progress(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_peer_that_reads_nothing_is_disconnected() {
        let (stream, mut peer) = duplex(10);
        let mut guarded = WithWriteTimeout::new(stream, Duration::from_secs(30));
        let slow = async {
            for _ in 0..50 {
                tokio::time::sleep(Duration::from_secs(29)).await;
                peer.read_exact(&mut [0; 2]).await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1_000)).await;
        };
        let written = async {
            guarded.write_all(&[0; 110]).await.unwrap();
            // Nothing waits now, however long nothing is read.
            tokio::time::sleep(Duration::from_secs(100)).await;
            let begun = tokio::time::Instant::now();
            let why = guarded.write_all(&[0]).await.unwrap_err();
            assert_eq!((why.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        };
        tokio::select! {
            () = slow => panic!("it is given up in time"),
            () = written => {}
        }
    }
}
