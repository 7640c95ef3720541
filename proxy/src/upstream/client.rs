//! The HTTP clients of a traffic thread for requests of the edge's own: calls to authorisation services, and copies for
//! mirrors. Each purpose, endpoint and TLS settings has one, so that connections are never mixed. Each keeps its own
//! idle connections, and is removed when it was not used for a while.

mod link;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::Authority;
use http::{Extensions, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidegate_config::model::{Endpoint, EndpointId, Target, UpstreamTls};
use tokio_util::either::Either;
use tower::Service;

use self::link::{Answers, Link};
use super::attempt::UNPROCESSED_MAX;
use super::connect::connect;
use super::http2;
use super::tls;
use crate::clock;
use crate::options::UpstreamLimits;
use crate::reason::Reason;

/// The maximum number of clients of a thread; beyond that the longest unused one is removed.
const CLIENTS_MAX: usize = 64;

/// The maximum number of clients of one HTTP/2 endpoint, where each request host has its own. Hosts are chosen by
/// users, so beyond the maximum the longest unused one of this endpoint is removed, and not that of another service.
const AUTHORITIES_MAX: usize = 8;

/// The interval and the timeout of keep-alive pings on an HTTP/2 connection.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// The maximum number of idle connections of a client.
const IDLE_MAX: usize = 16;

/// The maximum size in bytes of one head, and of one header list over HTTP/2.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The connect timeout of a copy for a mirror.
pub(crate) const MIRROR_CONNECT: Duration = Duration::from_secs(5);

/// The client of one endpoint.
pub(crate) type EndpointClient = Client<Connector, Full<Bytes>>;

/// The purpose of a request of the edge's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    /// A call to an authorisation service.
    ExternalAuth,
    /// A copy for a mirror.
    Mirror,
}

/// The key of a client.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    purpose: Purpose,
    target: Arc<Target>,
    endpoint: EndpointId,
    /// The authority that separates connections; empty where it is not part of a connection.
    authority: Box<str>,
}

struct CachedClient {
    client: EndpointClient,
    used: Instant,
}

thread_local! {
    static CLIENTS: RefCell<HashMap<Key, CachedClient, foldhash::fast::RandomState>> = RefCell::default();
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// A connection of the thread, counted until this is dropped.
struct OpenCount;

impl OpenCount {
    /// Counts one more connection and returns the new count.
    fn count() -> (Self, usize) {
        let open = OPEN.get() + 1;
        OPEN.set(open);
        (Self, open)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        OPEN.set(OPEN.get().saturating_sub(1));
    }
}

/// The client for an endpoint of a target, for requests to this URL's authority.
pub(crate) fn of(
    purpose: Purpose,
    (target, endpoint): (&Arc<Target>, &Endpoint),
    uri: &Uri,
    limits: &UpstreamLimits,
) -> EndpointClient {
    let http2 = target.protocol.is_http2();
    // Calls over HTTP/1.1 have a placeholder authority; the server name of a copy may be its host.
    let separates = http2 || purpose == Purpose::Mirror;
    let authority = uri.authority().filter(|_| separates).map_or("", |authority| authority.as_str()).into();
    let (key, now) = (Key { purpose, target: Arc::clone(target), endpoint: endpoint.id, authority }, clock::now());
    CLIENTS.with_borrow_mut(|clients| {
        if let Some(kept) = clients.get_mut(&key) {
            kept.used = now;
            return kept.client.clone();
        }
        make_room(clients, &key);
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .http2_keep_alive_timeout(KEEP_ALIVE.1)
            .http2_keep_alive_while_idle(true)
            .http2_max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            // The connection counts the bytes of each head; hyper ends a head that is longer only if it is not whole.
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .pool_idle_timeout(limits.idle)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .set_host(false)
            .build(Connector::new(&key, endpoint.address, limits));
        clients.insert(key, CachedClient { client: client.clone(), used: now });
        client
    })
}

/// Removes the longest unused client at the limit: of the same endpoint, or of all.
fn make_room(clients: &mut HashMap<Key, CachedClient, foldhash::fast::RandomState>, new: &Key) {
    let same = |key: &Key| key.purpose == new.purpose && key.target == new.target && key.endpoint == new.endpoint;
    let is_full = clients.keys().filter(|key| same(key)).count() >= AUTHORITIES_MAX;
    if is_full || clients.len() >= CLIENTS_MAX {
        let may_go = clients.iter().filter(|(key, _)| !is_full || same(key));
        let oldest = may_go.min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| clients.remove(&oldest));
    }
}

/// Sends a request. With `repeats` it is sent again, once, if an idle connection was closed: then it may arrive twice.
///
/// # Errors
/// The client's error.
pub(crate) async fn send(
    client: &EndpointClient,
    request: &Request<Full<Bytes>>,
    mut repeats: bool,
) -> Result<Response<Incoming>, legacy::Error> {
    loop {
        let error = match client.request(request.clone()).await {
            Ok(response) => {
                response.extensions().get().inspect(|answers: &&Answers| answers.head_is_whole());
                return Ok(response);
            }
            Err(error) => error,
        };
        if !std::mem::take(&mut repeats) || was_not_processed(&error) || !idle_was_closed(&error) {
            return Err(error);
        }
    }
}

/// Like [`send`], and again to the same endpoint while it says that it has not processed the request, up to
/// [`UNPROCESSED_MAX`] times.
///
/// # Errors
/// The client's error.
pub(crate) async fn send_until_processed(
    client: &EndpointClient,
    request: &Request<Full<Bytes>>,
    repeats: bool,
) -> Result<Response<Incoming>, legacy::Error> {
    for _ in 0..UNPROCESSED_MAX {
        let sent = send(client, request, repeats).await;
        if !sent.as_ref().is_err_and(was_not_processed) {
            return sent;
        }
    }
    send(client, request, repeats).await
}

/// Returns `true` if the endpoint has not processed the request, as it says.
pub(crate) fn was_not_processed(error: &legacy::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return http2::is_unprocessed(error);
        }
        cause = error.source();
    }
    false
}

/// Returns `true` if a connection that had an answer before was closed instead of another one, as an endpoint may close
/// an idle connection just when it is used again (RFC 9112 section 9.3.1). The request may then be repeated: the
/// endpoint most likely has not seen it.
fn idle_was_closed(error: &legacy::Error) -> bool {
    let mut extras = Extensions::new();
    error.connect_info().inspect(|connection| connection.get_extras(&mut extras));
    extras.get().is_some_and(Answers::has_any) && was_closed(error)
}

fn was_closed(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(|error| {
        let is_reset =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        error.is_incomplete_message() || error.is_canceled() || io.is_some_and(is_reset)
    })
}

/// Removes clients that were not used for `idle`.
pub(crate) fn sweep(idle: Duration, now: Instant) {
    CLIENTS.with_borrow_mut(|clients| clients.retain(|_, kept| now.saturating_duration_since(kept.used) < idle));
}

/// Removes all clients: their connections belong to a runtime that has ended.
pub(crate) fn clear() {
    CLIENTS.with_borrow_mut(HashMap::clear);
}

/// The reason why no connection was opened, if that is the error.
pub(crate) fn refusal(error: &legacy::Error) -> Option<Reason> {
    if !error.is_connect() {
        return None;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(OpenError(reason)) = error.downcast_ref() {
            return Some(*reason);
        }
        cause = error.source();
    }
    Some(Reason::ConnectFailed)
}

/// The reason why a connection was not opened.
#[derive(Debug)]
pub(crate) struct OpenError(Reason);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Error for OpenError {}

/// Connects to one endpoint, whatever the URL is.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    address: SocketAddr,
    /// The TLS settings, and the server name.
    tls: Option<(UpstreamTls, Arc<str>)>,
    http2: bool,
    within: Duration,
    /// The maximum number of connections that the thread keeps.
    kept_max: usize,
}

impl Connector {
    fn new(key: &Key, address: SocketAddr, limits: &UpstreamLimits) -> Self {
        let target = &key.target;
        let tls = target.protocol.is_tls().then(|| {
            let tls = target.tls.clone().unwrap_or_default();
            let service = &target.backend.service;
            let name = match key.purpose {
                Purpose::ExternalAuth => {
                    let name = || format!("{}.{}.svc", service.name, service.namespace).into();
                    tls.server_name.clone().unwrap_or_else(name)
                }
                // As for the request itself.
                Purpose::Mirror => {
                    let authority = Authority::from_str(&key.authority).ok();
                    let host = authority.as_ref().map_or("", Authority::host);
                    tls::server_name(&tls, address, host).into()
                }
            };
            (tls, name)
        });
        let within = match key.purpose {
            Purpose::ExternalAuth => limits.external_auth,
            Purpose::Mirror => MIRROR_CONNECT,
        };
        Self { address, tls, http2: target.protocol.is_http2(), within, kept_max: limits.pool_size }
    }

    async fn connect(self) -> Result<Link, OpenError> {
        let stream = match &self.tls {
            None => Either::Left(connect(self.address, self.within).await.map_err(OpenError)?),
            Some((transport, name)) => {
                let opened = tls::connect(self.address, self.within, transport, name, self.http2).await;
                Either::Right(opened.map_err(OpenError)?)
            }
        };
        let (open, count) = OpenCount::count();
        let head_bytes_max = if self.http2 { None } else { Some(HEAD_BYTES_MAX) };
        Ok(Link::new(stream, head_bytes_max, (count <= self.kept_max, open)))
    }
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = OpenError;
    type Future = Pin<Box<dyn Future<Output = Result<Link, OpenError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{AppProtocol, BackendKey};
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::options::Options;

    /// A service over HTTP/2, and its endpoint.
    fn service(name: &str) -> (Arc<Target>, Endpoint) {
        let backend = BackendKey::tcp(ObjectName::new("shop", name), 80);
        let target = Arc::new(Target { backend, protocol: AppProtocol::H2c, tls: None, fixed: None });
        (target, Endpoint::tcp(([10, 0, 0, 1], 80).into(), None))
    }

    fn ask(service: &(Arc<Target>, Endpoint), host: &str) {
        let uri = format!("http://{host}/").parse().unwrap();
        drop(of(Purpose::ExternalAuth, (&service.0, &service.1), &uri, &Options::default().upstream));
    }

    #[tokio::test]
    async fn hosts_of_one_service_share_few_clients() {
        let (many, other) = (service("many"), service("other"));
        ask(&other, "other.test");
        for number in 0..2 * CLIENTS_MAX {
            ask(&many, &format!("host-{number}.test"));
        }
        CLIENTS.with_borrow(|clients| {
            assert_eq!(clients.len(), AUTHORITIES_MAX + 1);
            assert!(clients.keys().any(|key| key.target == other.0));
            let last = format!("host-{}.test", 2 * CLIENTS_MAX - 1);
            assert!(clients.keys().any(|key| *key.authority == *last));
        });
        clear();
    }
}
