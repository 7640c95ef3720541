//! Accepts connections, within limits, until told to stop.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::guard::{self, Token};
use super::{certificate, kubeconfig};
use crate::lite::Lite;
use crate::serve::answer;

/// Connections at a time; further ones wait in the socket's backlog. Every watch is one.
const CONNECTIONS_MAX: usize = 512;
/// Request line and headers together. hyper looks at it between reads, so a little more can pass.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// From the end of one request to the whole head of the next: also how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// After a failed accept (too many open files, say), before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is in flight at shutdown may take this long.
const GRACE: Duration = Duration::from_secs(5);

/// A [`Lite`] on the network: TLS by a certificate of its own, a bearer token for every request, and no answer to
/// requests that name a foreign host.
pub struct Door {
    lite: Lite,
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    authority_pem: String,
    token: Arc<Token>,
}

/// Says where, never the token.
impl fmt::Debug for Door {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// Binds an address (port 0: one that is free) and makes a certificate and a token for it. Nothing is answered
    /// before [`Self::serve`].
    ///
    /// # Errors
    /// The address can't be bound, or the system gives no random numbers.
    pub async fn bind(lite: Lite, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let identity = certificate::make(address.ip())?;
        let token = Token::draw().ok_or_else(|| io::Error::other("no random numbers for a token"))?;
        let acceptor = TlsAcceptor::from(identity.tls);
        Ok(Self { lite, listener, address, acceptor, authority_pem: identity.authority_pem, token: Arc::new(token) })
    }

    /// Where it listens, with the true port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig (YAML) for this door. It holds the token: write it where only its user can read it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::write(self.address, &self.authority_pem, &self.token)
    }

    /// Serves until `shutdown` ends; then accepts no more, ends the watches, and gives what is in flight 5 s.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        loop {
            let accepted = async {
                // The semaphore is never closed, so a permit always comes.
                let permit = slots.clone().acquire_owned().await.ok();
                (permit, self.listener.accept().await)
            };
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                (permit, accepted) = accepted => match accepted {
                    Ok((stream, _)) => {
                        let connection = self.connection(stream, stopped.clone());
                        connections.spawn(async move {
                            connection.await;
                            drop(permit);
                        });
                    }
                    Err(why) => {
                        tracing::warn!(%why, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        drop(self.listener);
        self.lite.close_watches();
        drop(stop);
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            tracing::warn!("connections were cut at shutdown");
        }
    }

    /// One connection from handshake to end.
    fn connection(
        &self,
        stream: TcpStream,
        mut stopped: watch::Receiver<()>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (acceptor, lite, token, address) =
            (self.acceptor.clone(), self.lite.clone(), self.token.clone(), self.address);
        async move {
            // Without this a small event waits for the acknowledgement of the one before.
            if stream.set_nodelay(true).is_err() {
                return;
            }
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let mut service = lite.service();
                let (parts, body) = request.into_parts();
                let checked = guard::check(&parts, &token, address);
                async move {
                    match checked {
                        Ok(()) => service.call(Request::from_parts(parts, body)).await,
                        Err(failure) => Ok(answer::failure(&failure)),
                    }
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_MAX_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                // A client that breaks off is no event of ours.
                _ = connection.as_mut() => {}
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    drop(connection.await);
                }
            }
        }
    }
}
