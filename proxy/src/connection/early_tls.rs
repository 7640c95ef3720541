//! A TLS connection whose client may send before the handshake is complete (early data, RFC 8446 section 2.3).
//! tokio-rustls, which serves all other connections, waits for the end of the handshake; rustls itself does not.

use std::fmt;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::StartHandshake;

/// A TLS connection from the moment at which its client may send.
pub(crate) struct EarlyTls {
    stream: TcpStream,
    session: ServerConnection,
    /// Whether the handshake is still in progress, so that data may be a replay.
    early: Arc<AtomicBool>,
    /// Whether our close_notify was queued.
    closed: bool,
}

impl fmt::Debug for EarlyTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyTls").field("early", &self.early).finish_non_exhaustive()
    }
}

impl EarlyTls {
    /// Continues after the ClientHello, until the client may send: to the end of the handshake, unless it sends early
    /// data that is accepted.
    ///
    /// # Errors
    /// If the handshake fails, or the connection ends.
    pub(super) async fn accept(begun: StartHandshake<TcpStream>, config: Arc<ServerConfig>) -> io::Result<Self> {
        let StartHandshake { accepted, io: mut stream, .. } = begun;
        let session = match accepted.into_connection(config) {
            Ok(session) => session,
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() {
                    stream.write_all(&bytes).await.ok();
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        let mut tls = Self { stream, session, early: Arc::new(AtomicBool::new(true)), closed: false };
        // Data that the client has sent with its ClientHello is in the buffer already.
        tls.take_in()?;
        std::future::poll_fn(|cx| tls.poll_accept(cx)).await?;
        Ok(tls)
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_drain(cx))?;
            if !self.session.is_handshaking() || self.session.early_data().is_some() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether the handshake is still in progress; shared, because requests need it.
    pub(super) fn early(&self) -> &Arc<AtomicBool> {
        &self.early
    }

    /// The negotiated session.
    pub(super) const fn session(&self) -> &ServerConnection {
        &self.session
    }

    /// The connection below.
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads and processes records; 0 at the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let count = match self.session.read_tls(&mut Blocking { stream: &mut self.stream, cx }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            read => read?,
        };
        if let Err(error) = self.take_in() {
            // The client gets an alert, if it can be written at once.
            drop(self.poll_drain(cx));
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    /// Processes the records that have been read.
    fn take_in(&mut self) -> io::Result<()> {
        self.session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if !self.session.is_handshaking() {
            self.early.store(false, Relaxed);
        }
        Ok(())
    }

    /// Sends the pending records.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Blocking { stream: &mut self.stream, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for EarlyTls {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(mut early) = this.session.early_data() {
                let count = early.read(into.initialize_unfilled())?;
                if count > 0 {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
            match this.session.reader().read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // The rest of our side of the handshake is sent as well; it does not block reads.
            if let Poll::Ready(sent) = this.poll_drain(cx) {
                sent?;
            }
            ready!(this.poll_fill(cx))?;
        }
    }
}

impl AsyncWrite for EarlyTls {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            let count = this.session.writer().write(bytes)?;
            let drained = this.poll_drain(cx);
            if count > 0 || bytes.is_empty() {
                // Pending records go out with the next write or with a flush.
                if let Poll::Ready(sent) = drained {
                    sent?;
                }
                return Poll::Ready(Ok(count));
            }
            ready!(drained)?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.closed, true) {
            this.session.send_close_notify();
        }
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

/// The adapter of a connection for rustls: an operation that would block is an error, and the task is woken when it can
/// continue.
struct Blocking<'a, 'c> {
    stream: &'a mut TcpStream,
    cx: &'a mut Context<'c>,
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl io::Read for Blocking<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut into = ReadBuf::new(bytes);
        now(Pin::new(&mut *self.stream).poll_read(self.cx, &mut into))?;
        Ok(into.filled().len())
    }
}

impl io::Write for Blocking<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(Pin::new(&mut *self.stream).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        now(Pin::new(&mut *self.stream).poll_write_vectored(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        now(Pin::new(&mut *self.stream).poll_flush(self.cx))
    }
}
