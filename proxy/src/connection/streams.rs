//! The requests of HTTP/2 connections. Pingora gives each a task of its own and does not look back, so what their
//! connection would do for them is done here: each is handed to a driver, panics are counted, and of the full driver's
//! requests a response that is overdue ends the wait.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use tidegate_config::published::Published;

use super::ConnectionFacts;
use crate::connection_metrics::ConnectionMetrics;
use crate::due::Due;
use crate::edge::Edge;
use crate::lean;
use crate::runtime::Process;
use crate::shared::Shared;

/// What Pingora's HTTP/2 server hands requests to.
pub(crate) struct Streams {
    published: Published,
    shared: Arc<Shared>,
    proxy: Arc<HttpProxy<Edge>>,
    metrics: Arc<ConnectionMetrics>,
    http2: H2Options,
    server: HttpServerOptions,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    /// Over this proxy, which is one thread's.
    pub(crate) fn new(proxy: Arc<HttpProxy<Edge>>, process: &Process) -> Self {
        let limits = &process.options.http2;
        // The bare defaults have no bounds.
        let mut http2 = default_h2_options();
        http2.max_concurrent_streams(limits.streams_max);
        http2.max_header_list_size(limits.header_list_bytes_max);
        http2.initial_window_size(limits.stream_window_bytes);
        http2.initial_connection_window_size(limits.connection_window_bytes);
        http2.max_send_buffer_size(limits.send_buffer_bytes);
        let mut server = HttpServerOptions::default();
        server.h2_idle_timeout = Some(limits.idle);
        let (published, shared) = (process.published.clone(), Arc::clone(&process.shared));
        Self { published, shared, proxy, metrics: Arc::clone(&process.metrics), http2, server }
    }
}

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let facts = session.digest().and_then(ConnectionFacts::of);
        let _busy = facts.map(|facts| facts.activity.enter());
        if let ServerSession::H2(stream) = session {
            session = ServerSession::H2(if lean::serves(&self.shared.options) {
                guarded(lean::http2::carry(stream, &self.published, &self.shared), &self.metrics).await??
            } else {
                stream
            });
        }
        // In a box of its own, for it is many times as large as what the lean driver needs.
        carry(Box::pin(self.proxy.process_new_http(session, shutdown)), &self.metrics).await;
        None
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(self.http2.clone())
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.server)
    }
}

/// Carries a request to its end, or until its response is overdue: dropped, it resets its stream.
async fn carry(request: impl Future, metrics: &ConnectionMetrics) {
    let due = Due::default();
    tokio::select! {
        biased;
        _ = guarded(due.scope(request), metrics) => {}
        () = due.clone().passed() => {}
    }
}

/// What comes of a request, unless it panics.
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
    async fn a_panic_is_counted_and_what_is_overdue_is_dropped() {
        let metrics = ConnectionMetrics::register(&Registry::new()).unwrap();
        carry(async {}, &metrics).await;
        assert_eq!(metrics.panics.get(), 0);
        carry(async { panic!("of all things") }, &metrics).await;
        assert_eq!(metrics.panics.get(), 1);
        let overdue = async {
            let due = Due::current();
            due.set(clock::now() + Duration::from_secs(3600));
            due.set(clock::now());
            std::future::pending::<()>().await;
        };
        carry(overdue, &metrics).await;
        let in_time = async {
            let due = Due::current();
            due.set(clock::now() + Duration::from_millis(20));
            tokio::task::yield_now().await;
            due.lift();
            tokio::time::sleep(Duration::from_millis(50)).await;
            metrics.panics.inc();
        };
        carry(in_time, &metrics).await;
        assert_eq!(metrics.panics.get(), 2);
    }
}
