//! A small HTTP/1.1 server for the process's own pages: few connections, short deadlines, TCP or unix socket. It is not
//! the edge: it never carries traffic.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections at a time; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// From a connection's first byte, or its last answer, to the end of the next head.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// The whole life of a connection: a reader that does not read must not hold its place.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

/// Serves until told to stop. What is being answered then is cut: these pages are asked again.
pub(crate) async fn serve<L: Listener>(mut listener: L, pages: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed, so a place always comes.
        let place = Arc::clone(&places).acquire_owned().await.ok();
        let (stream, _) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let pages = TowerToHyperService::new(pages.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), pages);
        connections.spawn(async move {
            // A client that breaks off is no event of ours.
            drop(tokio::time::timeout(CONNECTION_MAX, connection).await);
            drop(place);
        });
    }
}
