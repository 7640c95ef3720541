//! The server of a watch cache, for the programs of a node or a site: on a socket opened by the caller, with TLS, a
//! token, both or neither.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use rustls::ServerConfig;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::accept;
use super::access;
use super::write_timeout::WithWriteTimeout;
use crate::failure::Failure;
use crate::lite::Lite;
use crate::serve::WriteForwarder;

/// The listening socket.
#[derive(Debug)]
pub enum ServerSocket {
    /// An address.
    Tcp(TcpListener),
    /// A unix socket, whose file permissions control access.
    Unix(UnixListener),
}

/// A [`Lite`] on a given socket.
pub struct SharedServer {
    /// The server.
    pub lite: Lite,
    /// The server's certificate, and the authorities of client certificates, for each new connection; `None` for plain
    /// HTTP.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// The bearer token that every request must have at that time, if there is one.
    pub token: Option<watch::Receiver<Arc<String>>>,
    /// The destination of writes; `None` if they are refused.
    pub forward: Option<WriteForwarder>,
    /// The maximum number of connections; further ones wait. Every watch is one.
    pub connections_max: usize,
    /// A connection is closed when its client has taken nothing for this long while something waits for it; usually
    /// [`WRITE_TIMEOUT`](crate::WRITE_TIMEOUT).
    pub write_timeout: Duration,
}

/// Does not show the token.
impl fmt::Debug for SharedServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedServer").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl SharedServer {
    /// Serves until `shutdown` ends; then accepts no more, ends the watches, and gives requests in flight 5 s.
    pub async fn serve(self, socket: ServerSocket, shutdown: impl Future<Output = ()>) {
        let Self { lite, tls, token, forward, connections_max, write_timeout } = self;
        let service = lite.service().forwarding(forward);
        let close = move || lite.close_watches();
        match socket {
            ServerSocket::Tcp(listener) => {
                let bound = listener.local_addr().ok();
                let accept = async move || listener.accept().await.map(|(stream, _)| stream);
                accept::serve(connections_max, accept, shutdown, close, |stream, stopped| {
                    let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
                    let service = service.clone();
                    // Behind TLS it has names that only its clients know; a page in a browser has neither token nor
                    // certificate.
                    let check = check(token.clone(), bound.filter(|_| acceptor.is_none()));
                    async move {
                        let Ok(stream) = WithWriteTimeout::tcp(stream, write_timeout) else { return };
                        match &acceptor {
                            Some(acceptor) => {
                                if let Some(stream) = accept::secure(stream, acceptor).await {
                                    accept::connection(stream, &service, check, stopped).await;
                                }
                            }
                            None => accept::connection(stream, &service, check, stopped).await,
                        }
                    }
                })
                .await;
            }
            ServerSocket::Unix(listener) => {
                let accept = async move || listener.accept().await.map(|(stream, _)| stream);
                accept::serve(connections_max, accept, shutdown, close, |stream, stopped| {
                    let (service, check) = (service.clone(), check(token.clone(), None));
                    let stream = WithWriteTimeout::new(stream, write_timeout);
                    async move { accept::connection(stream, &service, check, stopped).await }
                })
                .await;
            }
        }
    }
}

/// The check of a request: the token if there is one, and one of this server's names if pages of browsers could reach
/// it.
fn check(
    token: Option<watch::Receiver<Arc<String>>>,
    bound: Option<SocketAddr>,
) -> impl Fn(&Parts) -> Result<(), Failure> {
    move |parts| {
        if let Some(bound) = bound {
            access::named(parts, bound)?;
        }
        token.as_ref().map_or(Ok(()), |token| access::authorized(parts, &token.borrow()))
    }
}
