//! A running data plane on one plain-text bind, a model to edit, and a client that sends raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tidegate_config::model::{
    Action, AppProtocol, Backend, BackendKey, Bind, BindKey, BindProtocol, Endpoint, Generation, HostPattern,
    HostRoutes, Listener, Origin, PathMatch, Route, SnapshotParts, Target, VirtualHost, WeightedTarget,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::published::channel;
use tidegate_proxy::{AccessLogSink, Options, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running data plane.
pub struct Bed {
    pub address: SocketAddr,
    pub registry: Registry,
    proxy: Proxy,
    _changed: watch::Sender<Generation>,
}

impl Bed {
    pub async fn start(model: Model) -> Self {
        Self::with(model, |_| ()).await
    }

    pub async fn with(model: Model, set: impl FnOnce(&mut Options)) -> Self {
        Self::over(BindProtocol::Http, model, set).await
    }

    pub async fn over(protocol: BindProtocol, mut model: Model, set: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { threads: 1, access_log: AccessLogSink::Off, ..Options::default() };
        set(&mut options);
        let key = BindKey { address: ([127, 0, 0, 1], 0).into(), protocol };
        let listener = Listener::for_every_host("http");
        model.parts.binds = [Bind { key, listeners: [listener].into() }].into();
        let (mut publisher, published) = channel();
        let ready = publisher.prepare(model.parts);
        let generation = publisher.publish(ready);
        let (changed, changes) = watch::channel(generation);
        let registry = Registry::new();
        let proxy = Proxy::start(published, changes, options, &registry).unwrap();
        let mut bound = proxy.bound();
        let open = bound.wait_for(|bound| bound.get(&key).is_some_and(|bind| bind.address().is_some()));
        let address = timeout(PATIENCE, open).await.expect("no bind").unwrap().get(&key).unwrap().address().unwrap();
        Self { address, registry, proxy, _changed: changed }
    }

    /// Sends bytes on a new connection and reads the answer.
    pub async fn ask(&self, request: &str) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        answer(&mut stream).await
    }

    /// A GET with further header lines, each terminated.
    pub async fn get(&self, host: &str, target: &str, lines: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")).await
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// All metrics as text.
    pub fn metrics(&self) -> String {
        prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }

    /// Waits until the metrics have exactly this line.
    pub async fn until_metric(&self, line: &str) {
        let reached = timeout(PATIENCE, async {
            while !self.metrics().lines().any(|it| it == line) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        reached.await.unwrap_or_else(|_| panic!("no {line} in {}", self.metrics()));
    }

    pub async fn drain(self) {
        self.proxy.drain(Duration::from_secs(1)).await;
    }
}

/// An answer as a client reads it.
pub struct Answer {
    pub status: u16,
    /// The header lines in lower case.
    pub head: String,
    /// The header lines as received.
    pub raw: String,
    pub body: String,
}

impl Answer {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Reads one answer: by its length, its chunks, or to the end; the answer to HEAD by its head.
pub async fn answer(stream: &mut TcpStream) -> Answer {
    timeout(PATIENCE, read_answer(stream, false)).await.expect("no answer in time")
}

pub async fn answer_without_body(stream: &mut TcpStream) -> Answer {
    timeout(PATIENCE, read_answer(stream, true)).await.expect("no answer in time")
}

async fn read_answer(stream: &mut TcpStream, bodiless: bool) -> Answer {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            panic!("closed after {:?}", String::from_utf8_lossy(&bytes));
        }
    };
    let raw = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = raw.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Answer { status, head: raw.to_lowercase(), raw, body: String::new() };
    let length = answer.header("content-length").map(|length| length.parse::<usize>().unwrap());
    let chunked = answer.header("transfer-encoding").is_some();
    if !bodiless && !matches!(status, 101 | 204) {
        let whole = |bytes: &[u8]| match length {
            Some(length) => bytes.len() >= end + length,
            None => chunked && bytes.ends_with(b"0\r\n\r\n"),
        };
        while !whole(&bytes) && stream.read_buf(&mut bytes).await.unwrap_or(0) > 0 {}
    }
    answer.body = String::from_utf8_lossy(&bytes[end..]).into_owned();
    answer
}

/// A model under construction.
#[derive(Default)]
pub struct Model {
    pub parts: SnapshotParts,
    hosts: Vec<(String, Vec<Route>)>,
}

impl Model {
    /// One host with one route for every path, to a backend with these endpoints.
    pub fn to(endpoints: &[SocketAddr]) -> Self {
        Self::default().route("a.test", route("web", AppProtocol::Http)).backend("web", endpoints)
    }

    /// The same with an edited route.
    pub fn edited(endpoints: &[SocketAddr], edit: impl FnOnce(&mut Route)) -> Self {
        let mut route = route("web", AppProtocol::Http);
        edit(&mut route);
        Self::default().route("a.test", route).backend("web", endpoints)
    }

    pub fn route(mut self, host: &str, route: Route) -> Self {
        match self.hosts.iter_mut().find(|(name, _)| name == host) {
            Some((_, routes)) => routes.push(route),
            None => self.hosts.push((host.to_owned(), vec![route])),
        }
        let host = HostPattern::parse(host).unwrap();
        let routes = self.hosts.iter().find(|(name, _)| *name == host.to_string()).unwrap();
        let routes = routes.1.iter().cloned().map(Arc::new).collect();
        let host = VirtualHost::from(host);
        self.parts.hosts.insert(&host, Arc::new(HostRoutes::new(host.clone(), routes, None)));
        self
    }

    pub fn backend(mut self, name: &str, endpoints: &[SocketAddr]) -> Self {
        let key = backend(name);
        let endpoints = endpoints.iter().map(|address| Endpoint::tcp(*address, None)).collect();
        self.parts.backends.insert_mut(key.clone(), Arc::new(Backend::new(key, endpoints)));
        self
    }

    /// Trusts the client of these tests.
    pub fn trusting(mut self) -> Self {
        self.parts.trusted_proxies = ["127.0.0.0/8".parse().unwrap()].into();
        self
    }
}

fn backend(name: &str) -> BackendKey {
    BackendKey::tcp(ObjectName::new("shop", name), 80)
}

/// The route of `Ingress shop/NAME` for every path, to the backend of the same name.
pub fn route(name: &str, protocol: AppProtocol) -> Route {
    let object = ObjectName::new("shop", name);
    let origin = Origin {
        object: ObjectRef::new(Kind::Ingress, object.clone()),
        age: Age { created_s: 0, name: object },
        field: "spec.rules[0].http.paths[0]".into(),
        position: 0,
    };
    let target = Target { backend: backend(name), protocol, tls: None, fixed: None };
    let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
    Route::new(origin, PathMatch::prefix("/").unwrap(), action)
}

/// An address without a listener. It stays bound until the process ends, so that no other test gets it.
pub fn closed_port() -> SocketAddr {
    let socket = Box::leak(Box::new(TcpSocket::new_v4().unwrap()));
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    socket.local_addr().unwrap()
}
