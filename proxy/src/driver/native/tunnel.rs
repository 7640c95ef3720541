//! What follows an upgrade (RFC 9110 section 7.8): bytes of another protocol, both ways, until either side fails, the endpoint has
//! ended, or nothing has come for too long. The end of the client leaves the endpoint its say.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::progress::Progress;
use super::scratch::Room;
use crate::connection::Conn;
use crate::observe::stream_metrics::Outcome;
use crate::reason::Reason;
use crate::stream::copy::both_ways;
use crate::upstream::connection::Connection;

/// Passes bytes on until the tunnel is over. What has arrived from either side behind the heads goes first.
///
/// # Errors
/// [`Reason::TunnelIdle`] when there was no byte in either direction for so long.
pub(super) async fn run(
    conn: &mut Conn,
    endpoint: &mut Connection,
    room: &mut Room,
    progress: &mut Progress,
    idle: Duration,
) -> Result<(), Reason> {
    conn.facts().becomes_tunnel();
    conn.pass_all();
    let mut endpoint = Behind { first: Bytes::copy_from_slice(&room.from_endpoint), connection: endpoint };
    // A tunnel is silent for most of its life, so it holds no buffer.
    room.clear();
    let (outcome, [up, down]) = both_ways(&mut Client::new(conn), &[], &mut endpoint, idle).await;
    progress.bytes_in += usize::try_from(up).unwrap_or(usize::MAX);
    progress.bytes_out += usize::try_from(down).unwrap_or(usize::MAX);
    if outcome == Outcome::Idle { Err(Reason::TunnelIdle) } else { Ok(()) }
}

/// The client's connection without what [`Conn`] does for requests: nothing is gathered before it is written. Once the endpoint's
/// end was passed on to it, nothing more is read of it: nobody would hear it.
struct Client<'a> {
    conn: &'a mut Conn,
    is_over: bool,
    /// Who waits for it to send something.
    reader: Option<Waker>,
}

impl<'a> Client<'a> {
    const fn new(conn: &'a mut Conn) -> Self {
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

/// An endpoint's connection, and what was read of it already.
struct Behind<'a> {
    first: Bytes,
    connection: &'a mut Connection,
}

impl AsyncRead for Behind<'_> {
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

impl AsyncWrite for Behind<'_> {
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
