//! A standalone server on the network: TLS, and a token that it draws.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::access::{self, Token};
use super::write_timeout::{WRITE_TIMEOUT, WithWriteTimeout};
use super::{accept, certificate, kubeconfig};
use crate::lite::Lite;

/// The maximum number of connections; further ones wait in the socket's backlog. Every watch is one.
const CONNECTIONS_MAX: usize = 512;

/// A [`Lite`] on the network: TLS by a certificate of its own, a bearer token for every request, and no answer to
/// requests with a foreign host.
pub struct Server {
    lite: Lite,
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    authority_pem: String,
    token: Arc<Token>,
    write_timeout: Duration,
}

/// Shows the address, never the token.
impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds an address (port 0: one that is free) and generates a certificate and a token for it. No request is
    /// answered before [`Self::serve`].
    ///
    /// # Errors
    /// The address can't be bound, or the system gives no random numbers.
    pub async fn bind(lite: Lite, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let identity = certificate::make(address.ip())?;
        let token = Token::draw().ok_or_else(|| io::Error::other("no random numbers for a token"))?;
        let acceptor = TlsAcceptor::from(identity.tls);
        let (authority_pem, token, write_timeout) = (identity.authority_pem, Arc::new(token), WRITE_TIMEOUT);
        Ok(Self { lite, listener, address, acceptor, authority_pem, token, write_timeout })
    }

    /// The address that it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig (YAML) for this server. It holds the token: write it where only its user can read it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::write(self.address, &self.authority_pem, &self.token)
    }

    /// Serves until `shutdown` ends; then accepts no more, ends the watches, and gives requests in flight 5 s.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self { lite, listener, address, acceptor, token, write_timeout, .. } = self;
        let accept = async move || listener.accept().await.map(|(stream, _)| stream);
        let closed = lite.clone();
        let close = move || closed.close_watches();
        accept::serve(CONNECTIONS_MAX, accept, shutdown, close, |stream: TcpStream, stopped| {
            let (acceptor, lite, token) = (acceptor.clone(), lite.clone(), token.clone());
            async move {
                let checked = move |parts: &Parts| access::check(parts, &token, address);
                let Ok(stream) = WithWriteTimeout::tcp(stream, write_timeout) else { return };
                if let Some(stream) = accept::secure(stream, &acceptor).await {
                    accept::connection(stream, &lite.service(), checked, stopped).await;
                }
            }
        })
        .await;
    }
}
