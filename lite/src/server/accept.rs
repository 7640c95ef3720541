//! Accepts connections, within limits, until told to stop.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service as _;

use super::head::head_bytes;
use super::write_timeout::WithWriteTimeout;
use crate::failure::Failure;
use crate::serve::{LiteBody, LiteService, answer};

/// The maximum size of the request line and the headers together.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time from the end of one request to the whole head of the next: also the time an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause after a failed accept (for example, too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time for requests in flight at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Serves accepted connections until `shutdown` ends, up to the limit at a time; then `close` ends watches, and
/// requests in flight get some time.
pub(super) async fn serve<S, A, C>(
    connections_max: usize,
    accept: impl AsyncFn() -> io::Result<S>,
    shutdown: impl Future<Output = ()>,
    close: impl FnOnce() + Send + 'static,
    serve_one: C,
) where
    C: Fn(S, watch::Receiver<()>) -> A,
    A: Future<Output = ()> + Send + 'static,
{
    let mut shutdown = std::pin::pin!(shutdown);
    let slots = Arc::new(Semaphore::new(connections_max));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            // The semaphore is never closed, so a permit always comes.
            let permit = slots.clone().acquire_owned().await.ok();
            (permit, accept().await)
        };
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (permit, accepted) = accepted => match accepted {
                Ok(stream) => {
                    let connection = serve_one(stream, stopped.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Err(why) => {
                    tracing::warn!(error = %why, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(accept);
    // The end of the watches may have to wait for a write; the end of the connections need not.
    drop(tokio::task::spawn_blocking(close));
    drop(stop);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!("connections were cut at shutdown");
    }
}

/// The handshake of a connection, if it comes to one in time.
pub(super) async fn secure(
    stream: WithWriteTimeout<TcpStream>,
    acceptor: &TlsAcceptor,
) -> Option<TlsStream<WithWriteTimeout<TcpStream>>> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
}

/// One connection from its first request to its end. Each request is checked before anything reads it.
pub(super) async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: &LiteService,
    check: impl Fn(&Parts) -> Result<(), Failure>,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let mut service = service.clone();
        let (parts, body) = request.into_parts();
        let refused = if head_bytes(&parts) > HEAD_MAX_BYTES { Some(too_large()) } else { None };
        let refused = refused.or_else(|| check(&parts).err().map(|failure| answer::failure(&failure)));
        async move {
            match refused {
                None => service.call(Request::from_parts(parts, body)).await,
                Some(refused) => Ok(refused),
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
        // A connection that the client aborts is not worth reporting.
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

/// The answer to a head beyond the limit, of which hyper has not noticed that: it closes the connection as hyper does.
fn too_large() -> Response<LiteBody> {
    let mut response = answer::failure(&Failure::head_too_large());
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use rustls::ServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_stalls_is_given_up() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(
            secure(WithWriteTimeout::new(stream, HEAD_TIMEOUT), &TlsAcceptor::from(Arc::new(config))).await.is_none()
        );
        assert!((HANDSHAKE_TIMEOUT..HEAD_TIMEOUT).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait() {
        const ALL: usize = 10;
        let (open, most, served) = (Arc::default(), Arc::default(), Arc::new(Semaphore::new(0)));
        let accepted = AtomicUsize::new(0);
        let accept = async || {
            if accepted.fetch_add(1, Relaxed) >= ALL {
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        let serve_one = |(), _| {
            let (open, most): (Arc<AtomicUsize>, Arc<AtomicUsize>) = (Arc::clone(&open), Arc::clone(&most));
            let served = Arc::clone(&served);
            async move {
                most.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                open.fetch_sub(1, Relaxed);
                served.add_permits(1);
            }
        };
        let all = async { drop(served.acquire_many(ALL as u32).await) };
        serve(2, accept, all, || (), serve_one).await;
        assert_eq!(most.load(Relaxed), 2);
    }
}
