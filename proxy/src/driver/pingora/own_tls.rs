//! A TLS connection of our own in the place of Pingora's for HTTP/2, for transports that its connector cannot make. Pingora takes it for
//! one in plain text. It has no file descriptor of which Pingora knows, so that it is good for one request: sessions are resumed instead.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora::{Error, ErrorType};
use rustix::io::Errno;
use tidegate_config::model::UpstreamTls;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::reason::Reason;
use crate::upstream::tls;

/// Connects by a transport of ours.
#[derive(Debug)]
pub(super) struct OwnTls {
    /// The transport.
    pub(super) tls: UpstreamTls,
    /// The server name to ask for.
    pub(super) name: String,
    /// How long it may take.
    pub(super) within: Duration,
}

#[async_trait]
impl L4Connect for OwnTls {
    async fn connect(&self, address: &SocketAddr) -> pingora::Result<Stream> {
        let address = address.as_inet().ok_or_else(|| Error::new_in(ErrorType::SocketError))?;
        match tls::connect(*address, self.within, &self.tls, &self.name, true).await {
            Ok(stream) => Ok(VirtualSocketStream::new(Box::new(Socket(stream))).into()),
            Err(reason) => Err(error(reason)),
        }
    }
}

/// What Pingora would have said.
pub(super) fn error(reason: Reason) -> Box<Error> {
    let kind = match reason == Reason::ConnectTimeout {
        true => ErrorType::ConnectTimedout,
        false => ErrorType::ConnectError,
    };
    if reason == Reason::OutOfResources {
        let of_system = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        return Error::because(ErrorType::SocketError, "", of_system);
    }
    Error::new_up(kind)
}

struct Socket(TlsStream<TcpStream>);

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").finish()
    }
}

impl VirtualSocket for Socket {
    /// What there is to set was set when the connection was made.
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
