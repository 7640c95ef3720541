//! The streams of HTTP/2 connections: accepted one after the other, each in a task of its own, and handed to a driver.
//! The accept loop is our own, because Pingora's cannot end a connection, and so are the streams
//! ([`client_stream`](super::client_stream)); h2 is used unchanged.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use h2::Reason;
use h2::server::Connection;
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options, handshake};
use pingora::protocols::{Digest, GetProxyDigest, GetSocketDigest, GetTimingDigest, Stream};
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use tidegate_config::published::Published;
use tokio::time::{sleep, timeout};

use crate::connection::idle::ActiveRequest;
use crate::connection::response_deadline::ResponseDeadline;
use crate::connection::stream_counts::{Abuse, OpenStream};
use crate::connection::{ClientIo, ConnectionFacts};
use crate::driver::client_stream::ClientStream;
use crate::driver::native;
use crate::driver::pingora::PingoraDriver;
use crate::observe::connection_metrics::ConnectionMetrics;
use crate::shared::Shared;

/// The upper bound of the header list size, whatever is configured.
const HEADER_LIST_BYTES_MAX: u32 = 128 * 1024;

/// Serves HTTP/2 connections.
pub(crate) struct Streams {
    published: Published,
    shared: Arc<Shared>,
    proxy: Arc<HttpProxy<PingoraDriver>>,
    metrics: Arc<ConnectionMetrics>,
    http2: H2Options,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    /// For this proxy, which belongs to one thread.
    pub(crate) fn new(
        proxy: Arc<HttpProxy<PingoraDriver>>,
        published: Published,
        shared: &Arc<Shared>,
        metrics: &Arc<ConnectionMetrics>,
    ) -> Self {
        let limits = &shared.options.http2;
        // The library's defaults are unlimited.
        let mut http2 = default_h2_options();
        http2.max_concurrent_streams(limits.streams_max);
        http2.max_header_list_size(limits.header_list_bytes_max);
        http2.initial_window_size(limits.stream_window_bytes);
        http2.initial_connection_window_size(limits.connection_window_bytes);
        http2.max_send_buffer_size(limits.send_buffer_bytes);
        Self { published, shared: Arc::clone(shared), proxy, metrics: Arc::clone(metrics), http2 }
    }

    /// Serves a connection until its client disconnects, is idle for too long, or is disconnected for abuse. After
    /// `shutdown` the client gets a GOAWAY, and the streams that it opened before are served.
    pub(super) async fn serve(self: &Arc<Self>, conn: Box<ClientIo>, shutdown: &ShutdownWatch) {
        let facts = Arc::clone(conn.facts());
        let digest = Arc::new(Digest {
            ssl_digest: None,
            timing_digest: conn.get_timing_digest(),
            proxy_digest: conn.get_proxy_digest(),
            socket_digest: conn.get_socket_digest(),
        });
        // A client without a valid preface gets no GOAWAY.
        let mut http2 = self.http2.clone();
        if let Some(bytes) = self.published.pin().edge().request_head.bytes_max {
            // Each stream of a connection may have this size.
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(HEADER_LIST_BYTES_MAX);
            http2.max_header_list_size(bytes);
        }
        let Ok(mut connection) = handshake(conn, Some(http2)).await else { return };
        let Some(abuse) = self.accept(&mut connection, &facts, &digest, shutdown).await else { return };
        self.metrics.http2_ended(abuse);
        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        // If the client does not read the GOAWAY, it is dropped.
        let within = self.shared.options.client.body_discard;
        drop(timeout(within, poll_fn(|cx| connection.poll_closed(cx))).await);
    }

    /// Accepts streams until the connection is over. Returns the reason if it must be closed for abuse.
    async fn accept(
        self: &Arc<Self>,
        connection: &mut Connection<Stream, Bytes>,
        facts: &Arc<ConnectionFacts>,
        digest: &Arc<Digest>,
        shutdown: &ShutdownWatch,
    ) -> Option<Abuse> {
        let mut signal = shutdown.clone();
        let mut leaving = false;
        let idle_max = self.shared.options.client.idle(self.shared.options.http2.idle, facts.is_of_proxy());
        loop {
            let accepted = tokio::select! {
                biased;
                _ = signal.changed(), if !leaving => {
                    connection.graceful_shutdown();
                    leaving = true;
                    continue;
                }
                // This polls the whole connection, including its streams.
                accepted = connection.accept() => accepted,
                () = idle(facts, idle_max), if !leaving => return None,
            };
            match accepted {
                Some(Ok((request, respond))) => match ClientStream::new(request, respond, Arc::clone(digest)) {
                    Some(stream) => {
                        facts.streams.started();
                        if !facts.streams.are_abused() {
                            self.start(stream, facts, shutdown);
                        }
                    }
                    None => facts.streams.malformed(),
                },
                // A disconnection without GOAWAY is as common as one with it.
                None | Some(Err(_)) => return None,
            }
            if let Some(abuse) = facts.streams.abuse() {
                return Some(abuse);
            }
        }
    }

    /// Serves the request of a stream in a task of its own, which ends with the stream.
    fn start(self: &Arc<Self>, stream: ClientStream, facts: &Arc<ConnectionFacts>, shutdown: &ShutdownWatch) {
        let (streams, shutdown) = (Arc::clone(self), shutdown.clone());
        let open = (OpenStream::of(facts), facts.activity.enter());
        if !native::serves(&self.shared.options) {
            return self.start_pingora(stream, open, shutdown);
        }
        // Boxed: a task copies its whole future several times while it is spawned, and when it ends.
        tokio::spawn(Box::pin(async move {
            let carried = native::http2::carry(stream, &streams.published, &streams.shared);
            if let Some(Some(returned)) = guarded(carried, &streams.metrics).await {
                streams.start_pingora(returned, open, shutdown);
            }
        }));
    }

    /// The same with the Pingora driver. The task is another one, because a task keeps the memory of everything that it
    /// ever awaited.
    fn start_pingora(
        self: &Arc<Self>,
        stream: ClientStream,
        open: (OpenStream, ActiveRequest),
        shutdown: ShutdownWatch,
    ) {
        let streams = Arc::clone(self);
        tokio::spawn(Box::pin(async move {
            let session = ServerSession::new_custom(Box::new(stream));
            let request = streams.proxy.process_new_http(session, &shutdown);
            carry(request, &streams.metrics).await;
            drop(open);
        }));
    }
}

/// Ready once no stream has been open for `limit`.
async fn idle(facts: &ConnectionFacts, limit: Duration) {
    facts.streams.all_ended().await;
    sleep(limit).await;
}

/// Runs a request to its end, or until its response is overdue: dropping it resets its stream.
async fn carry(request: impl Future, metrics: &ConnectionMetrics) {
    let due = ResponseDeadline::default();
    tokio::select! {
        biased;
        _ = guarded(due.scope(request), metrics) => {}
        () = due.clone().elapsed() => {}
    }
}

/// The output of a request, or `None` if it panics.
async fn guarded<T>(request: impl Future<Output = T>, metrics: &ConnectionMetrics) -> Option<T> {
    let ended = AssertUnwindSafe(request).catch_unwind().await;
    if ended.is_err() {
        metrics.panicked();
    }
    ended.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;

    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn a_panic_is_counted_and_overdue_streams_are_dropped() {
        let registry = Registry::new();
        let metrics = ConnectionMetrics::register(&registry).unwrap();
        let panics = || {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == "tidegate_connection_panics_total").unwrap();
            family.get_metric()[0].get_counter().get_value()
        };
        carry(async {}, &metrics).await;
        assert_eq!(panics(), 0.0);
        carry(async { panic!("of all things") }, &metrics).await;
        assert_eq!(panics(), 1.0);
        let overdue = async {
            let due = ResponseDeadline::current();
            due.set(clock::now() + Duration::from_secs(3600));
            due.set(clock::now());
            std::future::pending::<()>().await;
        };
        carry(overdue, &metrics).await;
        let in_time = async {
            let due = ResponseDeadline::current();
            due.set(clock::now() + Duration::from_millis(20));
            tokio::task::yield_now().await;
            due.clear();
            tokio::time::sleep(Duration::from_millis(50)).await;
            metrics.panics.inc();
        };
        carry(in_time, &metrics).await;
        assert_eq!(metrics.panics.get(), 2);
    }
}
