//! The tunnel after an upgrade (RFC 9110 section 7.8): bytes of another protocol in both directions, until either side
//! fails, the endpoint has ended, or the idle timeout expires. After the client's end the endpoint may continue to
//! send.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::progress::Progress;
use super::scratch::RelayBuffers;
use crate::connection::ClientIo;
use crate::connection::copy::{CopyEnd, both_ways};
use crate::reason::Reason;
use crate::upstream::connection::Connection;

/// Passes bytes on until the tunnel is over. Bytes received after the heads go first.
///
/// # Errors
/// [`Reason::TunnelIdle`] if there was no byte in either direction for `idle`.
pub(super) async fn run(
    conn: &mut ClientIo,
    endpoint: &mut Connection,
    room: &mut RelayBuffers,
    progress: &mut Progress,
    idle: Duration,
) -> Result<(), Reason> {
    conn.facts().becomes_tunnel();
    conn.pass_all();
    let mut endpoint = EndpointSide { first: Bytes::copy_from_slice(&room.from_endpoint), connection: endpoint };
    // A tunnel is mostly silent, so it holds no buffer.
    room.clear();
    let (outcome, [up, down]) = both_ways(&mut Client::new(conn), &[], &mut endpoint, idle).await;
    progress.bytes_in += usize::try_from(up).unwrap_or(usize::MAX);
    progress.bytes_out += usize::try_from(down).unwrap_or(usize::MAX);
    if outcome == CopyEnd::Idle { Err(Reason::TunnelIdle) } else { Ok(()) }
}

/// The client's connection without the write buffer of [`ClientIo`]. After the endpoint's end was passed on, nothing
/// more is read from the client.
struct Client<'a> {
    conn: &'a mut ClientIo,
    is_over: bool,
    /// The task that waits for bytes of the client.
    reader: Option<Waker>,
}

impl<'a> Client<'a> {
    const fn new(conn: &'a mut ClientIo) -> Self {
        Self { conn, is_over: false, reader: None }
    }
}

impl AsyncRead for Client<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut *this.conn).poll_read(cx, into);
        if read.is_pending() {
            this.reader = Some(cx.waker().clone());
        }
        read
    }
}

impl AsyncWrite for Client<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().conn.poll_send(bytes, &[], cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().conn.poll_sent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = ready!(this.conn.poll_end(cx));
        this.is_over = true;
        this.reader.take().inspect(Waker::wake_by_ref);
        Poll::Ready(ended)
    }
}

/// An endpoint's connection, with the bytes that were already read from it.
struct EndpointSide<'a> {
    first: Bytes,
    connection: &'a mut Connection,
}

impl AsyncRead for EndpointSide<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut *this.connection).poll_read(cx, into);
        }
        let count = this.first.len().min(into.remaining());
        into.put_slice(&this.first[..count]);
        this.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EndpointSide<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().connection).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().connection).poll_shutdown(cx)
    }
}
