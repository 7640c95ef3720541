//! TLS connections of our own for HTTP/2, for TLS settings that Pingora's connector does not support. To Pingora they
//! are plain-text sockets without a file descriptor, so each serves one request; TLS sessions are resumed instead.

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

/// Connects with our TLS client.
#[derive(Debug)]
pub(super) struct OwnTls {
    /// The TLS settings.
    pub(super) tls: UpstreamTls,
    /// The server name to send.
    pub(super) name: String,
    /// The connect timeout.
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

/// The equivalent error of Pingora.
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
    /// The options were set when the connection was opened.
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
