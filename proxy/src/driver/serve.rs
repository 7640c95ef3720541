//! The life of one connection: the handshake, then request after request, each handed to a driver once its head has
//! arrived. While a connection waits for a head, it needs no driver.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::{MaybeDone, maybe_done};
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use tidegate_config::model::{BindKey, BindProtocol, StreamRoute};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::open::{Accepted, ClientConnection, ConnectionOrigin, ConnectionState, begins, open};
use super::{HeadBounds, Traffic};
use crate::budget::Cost;
use crate::clock;
use crate::connection::chunks::Chunks;
use crate::connection::close::{MALFORMED, Refusal, close, refuse};
use crate::connection::head_scan::{FirstBytes, Follows, HeadScan, WholeHead, has_request_line, opening};
use crate::connection::tls;
use crate::connection::transport::Transport;
use crate::connection::{AddressText, ClientIo, ConnectionFacts, Shutdown};
use crate::driver::native::{self, Next};

/// How long a new HTTP/2 connection may send requests while its bind drains, before it gets a GOAWAY. A client with a
/// GOAWAY before its first request would reconnect at once and get another.
const HTTP2_WELCOME: Duration = Duration::from_secs(1);

/// The size of an incomplete head beyond which it is charged besides its connection.
const SHORT_HEAD_BYTES: usize = 8 * 1024;

/// The protocols that are allowed on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Http1,
    Http2,
    /// HTTP/2 by prior knowledge, otherwise HTTP/1.
    Either,
}

/// The outcome of waiting for a request.
enum Arrival {
    /// A complete HTTP/1 head.
    Head(WholeHead),
    /// The HTTP/2 preface.
    Http2,
    /// The client or the server has ended the connection, without a request to answer.
    Over,
    /// Bytes that are refused without a driver.
    Refused(Refusal),
}

/// A connection with a known protocol.
enum Established {
    /// Requests. The connection is boxed: it is large, and the Pingora driver takes and returns boxes.
    Requests(Box<ClientIo>, Expected),
    /// Bytes that are passed on.
    Bytes(Box<TlsBytes>),
}

/// A TLS connection whose bytes go on by a stream route.
pub(crate) struct TlsBytes {
    /// The client's address and the connection's destination.
    pub(crate) from: ConnectionOrigin,
    /// Its stream, or the stream inside TLS.
    pub(crate) stream: Transport,
    /// The bytes that were already read.
    pub(crate) read: Vec<u8>,
    /// The route.
    pub(crate) route: Arc<StreamRoute>,
}

/// Serves a connection to its end, unless its bytes are to be passed on.
pub(crate) async fn serve(
    accepted: Accepted,
    known: ConnectionState,
    traffic: &Traffic,
    shutdown: Shutdown,
) -> Option<Box<TlsBytes>> {
    // Boxed, because its state is large and short-lived.
    match Box::pin(establish(accepted, known, traffic, &shutdown)).await? {
        Established::Requests(conn, expected) => {
            requests(conn, expected, traffic, shutdown).await;
            None
        }
        Established::Bytes(bytes) => Some(bytes),
    }
}

/// Performs the TLS handshake, if the bind requires one.
async fn establish(
    accepted: Accepted,
    known: ConnectionState,
    traffic: &Traffic,
    shutdown: &Shutdown,
) -> Option<Established> {
    let limits = &traffic.options.client;
    let ConnectionState { client, activity } = known;
    let (bind, at) = (accepted.bind, accepted.at);
    let ClientConnection { stream, origin } = open(accepted, client, traffic, shutdown).await?;
    let ConnectionOrigin { peer, local, destination, named_port, forwards, client } = origin;
    let passed_on = |client| ConnectionOrigin { peer, local, destination, named_port, forwards, client };
    let text = AddressText::new(peer);
    let mut facts = ConnectionFacts::new(bind, (peer, local), text, shutdown.draining.clone(), activity, at);
    (facts.named_port, facts.forwards, facts.client) = (named_port, forwards, client);
    match bind.protocol {
        // The bytes of these binds are passed on before anything is read.
        BindProtocol::Tcp | BindProtocol::Udp => None,
        BindProtocol::Http => {
            let conn =
                Box::new(ClientIo::new(Transport::Plain(stream), Arc::new(facts), limits, &traffic.shared.budget));
            Some(Established::Requests(conn, Expected::Either))
        }
        // Boxed, because a connection in plain text should not have room for a handshake.
        BindProtocol::Https => match Box::pin(handshake(stream, bind, traffic, shutdown.ends_silence(at))).await? {
            tls::Handshake::Done { stream, facts: agreed, http2 } => {
                tracing::debug!(
                    peer = %facts.peer,
                    server_name = agreed.server_name.as_deref(),
                    version = agreed.version,
                    cipher = agreed.cipher,
                    took = ?clock::now().duration_since(facts.accepted),
                    "TLS handshake"
                );
                facts.tls = Some(agreed);
                let conn = Box::new(ClientIo::new(stream, Arc::new(facts), limits, &traffic.shared.budget));
                Some(Established::Requests(conn, if http2 { Expected::Http2 } else { Expected::Http1 }))
            }
            // Both may be idle for long while the edge waits for neither, so they never give way to another connection.
            tls::Handshake::Bytes { stream, route } => {
                facts.activity.begin();
                let from = passed_on(facts.client.take());
                Some(Established::Bytes(Box::new(TlsBytes { from, stream, read: Vec::new(), route })))
            }
            tls::Handshake::Passthrough { stream, read, route } => {
                facts.activity.begin();
                let from = passed_on(facts.client.take());
                Some(Established::Bytes(Box::new(TlsBytes { from, stream: Transport::Plain(stream), read, route })))
            }
            tls::Handshake::PlainHttp(stream) => {
                traffic.metrics.handshake_failed(tls::HandshakeFailure::PlainHttp);
                let conn =
                    Box::new(ClientIo::new(Transport::Plain(stream), Arc::new(facts), limits, &traffic.shared.budget));
                refuse(conn, Refusal::PlainOnTls, traffic.options.server_header, limits.body_discard).await;
                None
            }
            tls::Handshake::Failed(failure) => {
                traffic.metrics.handshake_failed(failure);
                tracing::debug!(peer = %facts.peer, reason = failure.as_str(), "TLS handshake failed");
                None
            }
        },
    }
}

/// Performs the handshake with a client; `None` if the end came before the client began it.
async fn handshake(
    stream: TcpStream,
    bind: BindKey,
    traffic: &Traffic,
    ends: impl Future<Output = ()>,
) -> Option<tls::Handshake> {
    let until = clock::now() + traffic.options.tls.handshake_deadline;
    if !begins(&stream, until, ends).await {
        return None;
    }
    Some(tls::handshake(&traffic.tls, bind, stream, until).await)
}

async fn requests(mut conn: Box<ClientIo>, mut expected: Expected, traffic: &Traffic, shutdown: Shutdown) {
    let limits = &traffic.options.client;
    let mut idle = limits.head_deadline;
    let between = limits.idle(limits.keep_alive_idle, conn.facts().is_of_proxy());
    // One future for all requests, because subscribing costs more than polling again.
    let mut ended = pin!(maybe_done(shutdown.ends_silence(conn.facts().accepted)));
    let activity = Arc::clone(&conn.facts().activity);
    loop {
        match arrival(&mut conn, expected, idle, traffic, ended.as_mut()).await {
            Arrival::Head(head) => {
                activity.begin();
                let native = head.strict && native::serves(&traffic.options);
                match if native { native::carry(&mut conn, head.len, traffic).await } else { Next::Pingora } {
                    Next::Pingora if !conn.unread().get(..head.len).is_some_and(has_request_line) => {
                        return refuse_head(conn, Refusal::MalformedRequestLine, traffic).await;
                    }
                    Next::Pingora => match http1(conn, &head, traffic, &shutdown).await {
                        Some(back) => conn = back,
                        None => return,
                    },
                    // Also while the bind drains: bytes that were read before are answered.
                    Next::Again => conn.pass_all(),
                    Next::Close => return close(&mut conn, limits.body_discard).await,
                }
            }
            // Boxed: the future of an HTTP/1 connection should not be as large as that of HTTP/2.
            Arrival::Http2 => return Box::pin(http2(conn, traffic, &shutdown)).await,
            Arrival::Over => return close(&mut conn, Duration::ZERO).await,
            Arrival::Refused(refusal) => return refuse_head(conn, refusal, traffic).await,
        }
        expected = Expected::Http1;
        idle = between;
    }
}

async fn refuse_head(conn: Box<ClientIo>, refusal: Refusal, traffic: &Traffic) {
    traffic.metrics.head_refused(refusal.reason());
    refuse(conn, refusal, traffic.options.server_header, traffic.options.client.body_discard).await;
}

/// Waits for the next request: `idle` for its first byte, then the head deadline.
async fn arrival(
    conn: &mut ClientIo,
    expected: Expected,
    idle: Duration,
    traffic: &Traffic,
    ended: Pin<&mut MaybeDone<impl Future<Output = ()>>>,
) -> Arrival {
    let now = clock::now();
    conn.facts().activity.wait(now);
    if conn.unread().is_empty() && !first_bytes(conn, now + idle, ended).await {
        return Arrival::Over;
    }
    let mut scan = HeadScan::default();
    let mut end = None;
    let bounds = traffic.head_bounds();
    let mut room = None;
    loop {
        if let Some(arrival) = look(conn.unread(), expected, bounds, &mut scan) {
            return arrival;
        }
        if room.is_none() && conn.unread().len() > SHORT_HEAD_BYTES {
            room = traffic.room_for(conn.facts().client.as_ref(), Cost::of_long_head(bounds.bytes_max));
            if room.is_none() {
                return Arrival::Over;
            }
        }
        let end = *end.get_or_insert_with(|| clock::now() + traffic.options.client.head_deadline);
        match more_bytes(conn, end).await {
            Some(true) => {}
            None if expected != Expected::Http2 => return Arrival::Refused(Refusal::HeadTooSlow),
            Some(false) | None => return Arrival::Over,
        }
    }
}

/// Waits for bytes until a time, or until the connection must end. Returns `true` if there are any.
async fn first_bytes(
    conn: &mut ClientIo,
    until: Instant,
    mut ended: Pin<&mut MaybeDone<impl Future<Output = ()>>>,
) -> bool {
    poll_fn(|cx| {
        // Bytes that have arrived are served even if the bind has ended.
        if let Poll::Ready(read) = conn.poll_read_ahead(cx) {
            return Poll::Ready(matches!(read, Ok(1..)));
        }
        let over = ended.as_mut().poll(cx).is_ready() && !conn.has_arrived();
        if over || conn.poll_alarm(until, cx).is_ready() { Poll::Ready(false) } else { Poll::Pending }
    })
    .await
}

/// Waits for more bytes until a time. Returns `true` if there are any, or `None` at the time.
async fn more_bytes(conn: &mut ClientIo, until: Instant) -> Option<bool> {
    poll_fn(|cx| match conn.poll_read_ahead(cx) {
        Poll::Ready(read) => Poll::Ready(Some(matches!(read, Ok(1..)))),
        Poll::Pending => conn.poll_alarm(until, cx).map(|()| None),
    })
    .await
}

/// The kind of the received bytes; `None` while that is undecided.
fn look(unread: &[u8], expected: Expected, bounds: HeadBounds, scan: &mut HeadScan) -> Option<Arrival> {
    match (expected, opening(unread)) {
        (Expected::Either | Expected::Http2, FirstBytes::Http2) => Some(Arrival::Http2),
        (Expected::Http2, FirstBytes::Http1) => Some(Arrival::Over),
        (Expected::Http2 | Expected::Either, FirstBytes::Undecided) => None,
        (Expected::Either, FirstBytes::Http1) | (Expected::Http1, _) => {
            let Some(head) = scan.advance(unread) else { return within(unread.len(), scan.lines(), bounds) };
            let refused = within(head.len, head.lines, bounds);
            Some(refused.or_else(|| doubtful(&head)).unwrap_or(Arrival::Head(head)))
        }
    }
}

/// The refusal of a head that exceeds the limits.
fn within(bytes: usize, lines: usize, bounds: HeadBounds) -> Option<Arrival> {
    let beyond = bytes > bounds.bytes_max || lines > bounds.lines_max;
    beyond.then_some(Arrival::Refused(Refusal::HeadTooLarge))
}

/// The refusal of a head that two parsers could read in different ways.
fn doubtful(head: &WholeHead) -> Option<Arrival> {
    let bare = head.bare.then_some(Refusal::BareLineFeed);
    bare.or(head.ambiguous.then_some(Refusal::AmbiguousLength)).map(Arrival::Refused)
}

/// Serves one request with Pingora. Returns the connection if another may follow.
async fn http1(
    mut conn: Box<ClientIo>,
    head: &WholeHead,
    traffic: &Traffic,
    shutdown: &Shutdown,
) -> Option<Box<ClientIo>> {
    match head.follows {
        Follows::Bytes(count) => conn.pass_only(head.len.saturating_add(count)),
        Follows::Chunks => conn.pass_body(Chunks::behind(head.len)),
        Follows::Unknown => conn.pass_all(),
    }
    let due = conn.due().clone();
    let session = ServerSession::new_http1(conn);
    let served = due.scope(traffic.proxy.process_new_http(session, &shutdown.draining)).await;
    if !due.take_begun() {
        traffic.metrics.head_refused(MALFORMED);
    }
    let (stream, _) = served?.consume();
    let mut conn = stream.into_any().downcast::<ClientIo>().ok()?;
    if !conn.is_between_requests() {
        close(&mut conn, traffic.options.client.body_discard).await;
        return None;
    }
    Some(conn)
}

/// Serves all requests of an HTTP/2 connection, until it is idle for too long, the client disconnects, or, while the
/// bind drains, the streams opened before the GOAWAY are complete.
async fn http2(mut conn: Box<ClientIo>, traffic: &Traffic, shutdown: &Shutdown) {
    let Some(_room) = traffic.room_for(conn.facts().client.as_ref(), Cost::HTTP2) else { return };
    conn.http2 = true;
    conn.pass_all();
    if !*shutdown.draining.borrow() {
        traffic.streams.serve(conn, &shutdown.draining).await;
        return;
    }
    let (sender, receiver) = watch::channel(false);
    let mut closed = shutdown.closed.clone();
    let goaway = async {
        drop(timeout(HTTP2_WELCOME, closed.wait_for(|closed| *closed)).await);
        sender.send_replace(true);
        pending().await
    };
    tokio::select! {
        () = traffic.streams.serve(conn, &receiver) => {}
        () = goaway => {}
    }
}
