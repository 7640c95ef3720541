//! One of the two sides: a data plane with its own endpoint, and a client that plays a case on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use prometheus::Registry;
use tidegate_config::model::{
    Action, AppProtocol, BindProtocol, Compression, Destination, DirectResponse, DisabledAgents, Filter, Guard,
    MediaTypes, PathMatch, PathRewrite, Proxied, ResponseEdits, ResponseScope, Route, Settings, WeightedTarget,
};
use tidegate_proxy::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::case::Case;
use super::http2;
use super::message::{Kind, Message};
use super::recorder::{PAUSE, Recorder};
use super::routes::{cross_origin, cross_origin_puts, edits, filtered_share, limited, retried};
use super::secure::{Stream, over_tls};
use crate::bed::{Bed, Model, closed_port, route};

/// The request after every case on its connection: a response shows that the connection continued.
pub const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

/// The timeout of a client that gets no response.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// The outcome of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The messages that reached the endpoint, including the probe.
    pub upstream: Vec<Message>,
    /// The messages that reached the client, including interim responses.
    pub client: Vec<Message>,
    /// Further bytes to the client.
    pub rest: Vec<u8>,
    /// Whether the connection was ended by the edge.
    pub closed: bool,
    /// Requests by driver.
    pub native: u64,
    pub full: u64,
}

pub struct Side {
    bed: Bed,
    recorder: Recorder,
    over: Over,
}

/// The transport of clients and endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    Tcp,
    Tls,
    Http2,
    /// Clients over TCP, and endpoints over TLS.
    TlsEndpoint,
    /// Clients over HTTP/2, and endpoints over TLS.
    Http2TlsEndpoint,
}

impl Over {
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2TlsEndpoint)
    }

    fn has_tls_endpoint(self) -> bool {
        matches!(self, Self::TlsEndpoint | Self::Http2TlsEndpoint)
    }
}

/// Every kind of route that both drivers support.
fn model(endpoint: SocketAddr, protocol: AppProtocol) -> Model {
    let route = |name: &str| route(name, protocol);
    let edited = |name: &str, edit: &dyn Fn(&mut Route)| {
        let mut route = route(name);
        edit(&mut route);
        route
    };
    let rewriting = edited("web", &|route| {
        route.path = PathMatch::prefix("/old").unwrap();
        route.filters = [
            Filter::RequestHeaders(edits(&[("x-set", "1")], &[("x-more", "2")], &["x-gone", "user-agent"])),
            Filter::ResponseHeaders(ResponseEdits::proxied(edits(
                &[("x-set", "3")],
                &[("x-more", "4")],
                &["server", "x-gone"],
            ))),
            Filter::Path(PathRewrite::Prefix("/new".into())),
            Filter::Host("c.internal".into()),
        ]
        .into();
    });
    let every = |edits| ResponseEdits { scope: ResponseScope::Every, ..ResponseEdits::proxied(edits) };
    let ready = edited("web", &|route| {
        route.filters = [Filter::ResponseHeaders(every(edits(&[("x-set", "3")], &[("x-more", "4")], &[])))].into();
        route.action = Action::Respond(Arc::new(DirectResponse {
            status: 503,
            headers: [(HeaderName::from_static("retry-after"), HeaderValue::from_static("60"))].into(),
            content_type: Some(HeaderValue::from_static("text/html")),
            body: b"back soon".as_slice().into(),
        }));
    });
    let shares = edited("web", &|route| {
        route.filters = [Filter::ResponseHeaders(every(edits(&[("x-set", "3")], &[], &["content-type"])))].into();
        let status =
            WeightedTarget { to: Destination::Status(500), weight: 1, filters: Arc::default(), external_auth: None };
        route.action = Action::Forward([status].into());
    });
    let guarded = edited("web", &|route| route.guards = [Guard::RequireTls { status: 308 }].into());
    let compressed = edited("web", &|route| {
        let compression = Compression {
            level: 5,
            length_min: 20,
            types: MediaTypes::new(["text/plain"].into_iter()),
            http10: true,
            proxied: [Proxied::Any].into(),
            disabled: DisabledAgents::Msie6,
            vary: true,
        };
        route.settings = Arc::new(Settings { compression: Some(Arc::new(compression)), ..Settings::default() });
    });
    let mut model = Model::default()
        .route("z.test", compressed)
        .route("a.test", route("web"))
        .route("b.test", rewriting)
        .route("l.test", limited(protocol))
        .route("g.test", guarded)
        .route("m.test", ready)
        .route("s.test", shares)
        .route("f.test", filtered_share(protocol))
        .route("o.test", cross_origin(protocol))
        .route("p.test", cross_origin_puts(protocol))
        .route("r.test", retried(protocol))
        .route("n.test", route("nothing"))
        .route("x.test", route("nobody"))
        .backend("web", &[endpoint])
        .backend("nothing", &[])
        .backend("nobody", &[closed_port()]);
    model.parts.trusted_proxies = ["127.0.0.2/32".parse().unwrap()].into();
    model
}

impl Side {
    pub async fn start(over: Over, set: impl FnOnce(&mut Options)) -> Self {
        let recorder = Recorder::start(over.has_tls_endpoint()).await;
        let protocol = if over == Over::Tls { BindProtocol::Https } else { BindProtocol::Http };
        let spoken = if over.has_tls_endpoint() { AppProtocol::Https } else { AppProtocol::Http };
        let bed = Bed::over(protocol, model(recorder.address, spoken), set).await;
        Self { bed, recorder, over }
    }

    /// Plays a case; `quiet` is the silence after which the client assumes that no more bytes will arrive.
    pub async fn play(&mut self, case: &Case, quiet: Duration) -> Outcome {
        self.recorder.play(case.replies.clone(), case.fresh).await;
        let before = self.carried();
        let stream = self.connect(case.trusted).await;
        let ((client, rest), closed) = if self.over.is_http2() {
            let (client, closed) = http2::converse(stream, case).await;
            ((client, Vec::new()), closed)
        } else {
            let conversed = timeout(PATIENCE, converse(stream, case, quiet)).await;
            let (bytes, closed) = conversed.unwrap_or_else(|_| (b"(no end)".to_vec(), false));
            (read_all(&bytes, case, true), closed)
        };
        let upstream = self.recorder.seen().await;
        let after = self.carried();
        Outcome { upstream, client, rest, closed, native: after[0] - before[0], full: after[1] - before[1] }
    }

    async fn connect(&self, trusted: bool) -> Box<dyn Stream> {
        let socket = TcpSocket::new_v4().unwrap();
        let own = if trusted { [127, 0, 0, 2] } else { [127, 0, 0, 1] };
        socket.bind((own, 0).into()).unwrap();
        let stream = socket.connect(self.bed.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        if self.over == Over::Tls { over_tls(stream).await } else { Box::new(stream) }
    }

    /// Ends the data plane; its counts are in the registry.
    pub async fn end(self) -> Registry {
        let registry = self.bed.registry.clone();
        self.bed.drain().await;
        registry
    }

    /// Requests by driver.
    fn carried(&self) -> [u64; 2] {
        let families = self.bed.registry.gather();
        let family = families.iter().find(|family| family.name() == "tidegate_requests_by_driver_total");
        ["native", "pingora"].map(|driver| {
            let metrics = family.iter().flat_map(|family| family.get_metric());
            let own = metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == driver));
            own.map(|metric| metric.get_counter().get_value() as u64).sum()
        })
    }
}

/// All messages to the client; once the connection has ended, also a truncated last one, and the remaining bytes.
fn read_all(bytes: &[u8], case: &Case, closed: bool) -> (Vec<Message>, Vec<u8>) {
    let (mut all, mut at, mut finals) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let to_head = case.heads().get(finals).copied().unwrap_or_default();
        let Some((message, length)) = Message::read(&bytes[at..], Kind::Response { to_head }, closed) else { break };
        if !message.whole && !closed {
            break;
        }
        finals += usize::from(message.status() >= 200);
        all.push(message);
        at += length;
    }
    (all, bytes[at..].to_vec())
}

/// Sends a case and then the probe, and reads to the end; returns the received bytes, and whether the edge ended the
/// connection.
async fn converse(stream: Box<dyn Stream>, case: &Case, quiet: Duration) -> (Vec<u8>, bool) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    // The received bytes, and whether they are complete.
    let arrived = watch::Sender::new((Vec::new(), false));
    let mut news = arrived.subscribe();
    let read = async {
        let mut bytes = Vec::with_capacity(64 * 1024);
        while matches!(reader.read_buf(&mut bytes).await, Ok(1..)) {
            arrived.send_modify(|(all, _)| all.append(&mut bytes));
        }
        arrived.send_modify(|(_, over)| *over = true);
    };
    let write = async {
        for (number, piece) in case.pieces.iter().enumerate() {
            if number > 0 {
                sleep(PAUSE).await;
            }
            // A connection that accepts no more bytes may still have some to read.
            if writer.write_all(piece).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
        let finals = case.finals();
        let is_over = || arrived.borrow().1;
        let is_answered = || {
            let (all, _) = read_all(&arrived.borrow().0, case, false);
            all.iter().filter(|message| message.status() >= 200).count() >= finals
        };
        while !is_over() && !is_answered() && timeout(quiet, news.changed()).await.is_ok() {}
        let probed = !is_over() && writer.write_all(PROBE).await.is_ok() && writer.flush().await.is_ok();
        while probed && !is_over() && timeout(quiet, news.changed()).await.is_ok() {}
        let closed = is_over();
        if !closed {
            writer.shutdown().await.ok();
        }
        closed
    };
    let ((), closed) = tokio::join!(read, write);
    let bytes = arrived.borrow().0.clone();
    (bytes, closed)
}
