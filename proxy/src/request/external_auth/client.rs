//! The clients by which a traffic thread asks authorisation services, one for each endpoint and transport, so that no connection of one
//! is used for another. Each keeps its own idle connections, and goes when it was not used for a while.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidegate_config::model::{Endpoint, EndpointId, ExternalAuth, Target, UpstreamTls};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tower::Service;

use crate::clock;
use crate::options::UpstreamLimits;
use crate::reason::Reason;
use crate::upstream::connect::connect;
use crate::upstream::tls;

/// Clients that a thread keeps; of more, the one that was not used for longest goes.
const CLIENTS_MAX: usize = 64;

/// Clients of one endpoint over HTTP/2, where each host that is asked about has its own. Hosts are the clients' to choose, so that of
/// more the one that was not used for longest goes, and no other service's.
const AUTHORITIES_MAX: usize = 8;

/// How often an HTTP/2 connection is asked whether its other end is still there, and how long the answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// Idle connections that a client keeps.
const IDLE_MAX: usize = 16;

/// Bytes of one head, and of one list of headers over HTTP/2.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Asks one endpoint.
pub(super) type Asker = Client<Connector, Full<Bytes>>;

/// What a client is found by. Over HTTP/2 the authority is that of the connection too.
type Key = (Arc<Target>, EndpointId, Box<str>);

struct Kept {
    client: Asker,
    used: Instant,
}

thread_local! {
    static CLIENTS: RefCell<HashMap<Key, Kept, foldhash::fast::RandomState>> = RefCell::default();
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// A connection of the thread, counted until it is dropped.
struct Open;

impl Open {
    /// One more; how many there are with it.
    fn count() -> (Self, usize) {
        let open = OPEN.get() + 1;
        OPEN.set(open);
        (Self, open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.set(OPEN.get().saturating_sub(1));
    }
}

/// The client for an endpoint of a service.
pub(super) fn of(service: &ExternalAuth, endpoint: &Endpoint, uri: &Uri, limits: &UpstreamLimits) -> Asker {
    let target = &service.target;
    let http2 = target.protocol.is_http2();
    let authority = if http2 { uri.authority().map_or("", |authority| authority.as_str()) } else { "" };
    let (key, now) = ((Arc::clone(target), endpoint.id, authority.into()), clock::now());
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
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .pool_idle_timeout(limits.idle)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .set_host(false)
            .build(Connector::new(target, endpoint.address, limits));
        clients.insert(key, Kept { client: client.clone(), used: now });
        client
    })
}

/// Lets the client go that was not used for longest, where there are as many as may be: of the same endpoint, or of all.
fn make_room(clients: &mut HashMap<Key, Kept, foldhash::fast::RandomState>, new: &Key) {
    let same = |key: &Key| key.0 == new.0 && key.1 == new.1;
    let is_full = clients.keys().filter(|key| same(key)).count() >= AUTHORITIES_MAX;
    if is_full || clients.len() >= CLIENTS_MAX {
        let may_go = clients.iter().filter(|(key, _)| !is_full || same(key));
        let oldest = may_go.min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| clients.remove(&oldest));
    }
}

/// Whether the connection was closed before the answer was there, as an endpoint may close one that was idle just when it is used again
/// (RFC 9112 section 9.3.1). A question changes nothing, so that it may be asked once more.
pub(super) fn was_closed(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(|error| {
        let is_reset =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        error.is_incomplete_message() || error.is_canceled() || io.is_some_and(is_reset)
    })
}

/// Lets clients go that were not used for so long.
pub(crate) fn sweep(idle: Duration, now: Instant) {
    CLIENTS.with_borrow_mut(|clients| clients.retain(|_, kept| now.saturating_duration_since(kept.used) < idle));
}

/// Forgets all clients: their connections belong to a runtime that is no more.
pub(crate) fn clear() {
    CLIENTS.with_borrow_mut(HashMap::clear);
}

/// Why no connection was made, where that is the fault.
pub(super) fn refusal(error: &legacy::Error) -> Option<Reason> {
    if !error.is_connect() {
        return None;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Refused(reason)) = error.downcast_ref() {
            return Some(*reason);
        }
        cause = error.source();
    }
    Some(Reason::ConnectFailed)
}

/// Why a connection was not made.
#[derive(Debug)]
pub(super) struct Refused(Reason);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Error for Refused {}

/// Connects to one endpoint, whatever the URL says.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    address: SocketAddr,
    /// The transport, and the server name to ask for.
    tls: Option<(UpstreamTls, Arc<str>)>,
    http2: bool,
    within: Duration,
    /// Connections that the thread keeps in all.
    kept_max: usize,
}

impl Connector {
    fn new(target: &Target, address: SocketAddr, limits: &UpstreamLimits) -> Self {
        let tls = target.protocol.is_tls().then(|| {
            let nothing = UpstreamTls { server_name: None, verification: None, client: None };
            let tls = target.tls.clone().unwrap_or(nothing);
            let service = &target.backend.service;
            let name = || format!("{}.{}.svc", service.name, service.namespace).into();
            let name = tls.server_name.clone().unwrap_or_else(name);
            (tls, name)
        });
        let (within, kept_max) = (limits.external_auth, limits.pool_size);
        Self { address, tls, http2: target.protocol.is_http2(), within, kept_max }
    }

    async fn connect(self) -> Result<Link, Refused> {
        let stream = match &self.tls {
            None => Either::Left(connect(self.address, self.within).await.map_err(Refused)?),
            Some((transport, name)) => {
                let opened = tls::connect(self.address, self.within, transport, name, self.http2).await;
                Either::Right(opened.map_err(Refused)?)
            }
        };
        let (open, count) = Open::count();
        Ok(Link { io: TokioIo::new(stream), is_kept: count <= self.kept_max, _open: open })
    }
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = Refused;
    type Future = Pin<Box<dyn Future<Output = Result<Link, Refused>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// A connection to an endpoint.
pub(super) struct Link {
    io: TokioIo<Either<TcpStream, TlsStream<TcpStream>>>,
    /// Whether it may be kept when its question is answered. The files of those that are idle are not charged to anybody, but set
    /// aside from what is.
    is_kept: bool,
    _open: Open,
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if !self.is_kept {
            connected.poison();
        }
        connected
    }
}

impl Read for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{AppProtocol, AuthProtocol, BackendKey};
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::options::Options;

    /// A service in HTTP/2, and its endpoint.
    fn service(name: &str) -> (ExternalAuth, Endpoint) {
        let backend = BackendKey::tcp(ObjectName::new("shop", name), 80);
        let target = Arc::new(Target { backend, protocol: AppProtocol::H2c, tls: None, fixed: None });
        let protocol = AuthProtocol::Grpc { request_headers: Box::default() };
        (ExternalAuth { target, protocol, body_bytes_max: 0 }, Endpoint::tcp(([10, 0, 0, 1], 80).into(), None))
    }

    fn ask(service: &(ExternalAuth, Endpoint), host: &str) {
        let uri = format!("http://{host}/").parse().unwrap();
        drop(of(&service.0, &service.1, &uri, &Options::default().upstream));
    }

    #[tokio::test]
    async fn hosts_of_one_service_have_few_clients_and_take_none_of_another_s() {
        let (many, other) = (service("many"), service("other"));
        ask(&other, "other.test");
        for number in 0..2 * CLIENTS_MAX {
            ask(&many, &format!("host-{number}.test"));
        }
        CLIENTS.with_borrow(|clients| {
            assert_eq!(clients.len(), AUTHORITIES_MAX + 1);
            assert!(clients.keys().any(|key| key.0 == other.0.target));
            let last = format!("host-{}.test", 2 * CLIENTS_MAX - 1);
            assert!(clients.keys().any(|key| *key.2 == *last));
        });
        clear();
    }
}
