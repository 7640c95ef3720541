//! A running data plane with one upstream for every path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use httparse::Status;
use prometheus::Registry;
use tidegate_config::model::{
    Action, AppProtocol, Backend, BackendKey, Bind, BindKey, BindProtocol, Endpoint, Generation, HostPattern,
    HostRoutes, Listener, Origin, PathMatch, Route, SnapshotParts, Target, WeightedTarget,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tidegate_config::published::{Publisher, channel};
use tidegate_proxy::{AccessLogSink, Bound, Options, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Bed {
    pub parts: SnapshotParts,
    pub registry: Registry,
    pub upstream: Upstream,
    publisher: Publisher,
    changed: watch::Sender<Generation>,
    proxy: Proxy,
}

impl Bed {
    /// Two threads that listen on these binds.
    pub async fn start(binds: &[BindKey]) -> Self {
        Self::with(binds, |_| ()).await
    }

    pub async fn with(binds: &[BindKey], set: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { threads: 2, access_log: AccessLogSink::Off, ..Options::default() };
        set(&mut options);
        let upstream = Upstream::start().await;
        let (publisher, published) = channel();
        let (changed, changes) = watch::channel(Generation::default());
        let registry = Registry::new();
        let proxy = Proxy::start(published, changes, options, &registry).unwrap();
        let mut bed = Self { parts: parts(upstream.address), registry, upstream, publisher, changed, proxy };
        bed.listen_on(binds);
        bed
    }

    pub fn listen_on(&mut self, binds: &[BindKey]) {
        let generation = self.listen_unsaid(binds);
        self.changed.send_replace(generation);
    }

    /// The same without informing the threads.
    pub fn listen_unsaid(&mut self, binds: &[BindKey]) -> Generation {
        let listener = || Listener::for_every_host("http");
        self.parts.binds = binds.iter().map(|key| Bind { key: *key, listeners: [listener()].into() }).collect();
        let ready = self.publisher.prepare(self.parts.clone());
        self.publisher.publish(ready)
    }

    /// Replaces the endpoints of the backend.
    pub fn lead_to(&mut self, endpoints: &[SocketAddr]) {
        let key = BackendKey::tcp(ObjectName::new("shop", "web"), 80);
        let endpoints = endpoints.iter().map(|address| Endpoint::tcp(*address, None)).collect();
        self.parts.backends.insert_mut(key.clone(), Arc::new(Backend::new(key, endpoints)));
        self.publish();
    }

    /// Leads a host to a Service of its own, with the same endpoint as all others.
    pub fn add_service(&mut self, host: &str, service: &str) {
        let host = HostPattern::Exact(host.into());
        let (route, backend) = route_to(service, self.upstream.address);
        let routes = HostRoutes::new(host.clone(), Vec::new(), Some(Arc::new(route)));
        self.parts.hosts.insert(&host.into(), Arc::new(routes));
        self.parts.backends.insert_mut(backend.key.clone(), Arc::new(backend));
        self.publish();
    }

    pub fn publish(&mut self) {
        let ready = self.publisher.prepare(self.parts.clone());
        let generation = self.publisher.publish(ready);
        self.changed.send_replace(generation);
    }

    /// Waits for a state of the binds.
    pub async fn bound(&self, what: impl FnMut(&Bound) -> bool) -> Bound {
        let mut bound = self.proxy.bound();
        let reached = tokio::time::timeout(PATIENCE, bound.wait_for(what)).await;
        reached.expect("the binds never got there").unwrap().clone()
    }

    /// The real address of a bind, once both threads listen.
    pub async fn address(&self, key: BindKey) -> SocketAddr {
        let bound = self.bound(|bound| bound.get(&key).is_some_and(|bind| bind.threads() == 2)).await;
        bound.get(&key).unwrap().address().unwrap()
    }

    pub fn announce_end(&self) {
        self.proxy.announce_end();
    }

    pub async fn drain(self, grace: Duration) -> usize {
        self.proxy.drain(grace).await
    }

    /// The value of a metric, or of its series with this label.
    pub fn metric(&self, name: &str, label: Option<&str>) -> f64 {
        metric(&self.registry, name, label)
    }

    /// Waits until a metric has exactly this value.
    pub async fn until_metric(&self, name: &str, label: Option<&str>, value: f64) {
        let reached = tokio::time::timeout(PATIENCE, async {
            while self.metric(name, label) != value {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        reached.await.unwrap_or_else(|_| panic!("{name} {label:?} is {}", self.metric(name, label)));
    }
}

/// The same for a bed that has ended.
pub fn metric(registry: &Registry, name: &str, label: Option<&str>) -> f64 {
    let families = registry.gather();
    // A metric whose labels have had no value yet is missing.
    let Some(family) = families.iter().find(|family| family.name() == name) else { return 0.0 };
    let metrics = family.get_metric().iter().filter(|metric| match label {
        Some(label) => metric.get_label().iter().any(|pair| pair.value() == label),
        None => true,
    });
    metrics.map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value()).sum()
}

/// Waits until no socket listens on an address.
pub async fn no_listener(address: SocketAddr) {
    let closed = tokio::time::timeout(PATIENCE, async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    closed.await.expect("it still listens");
}

pub fn http(address: &str) -> BindKey {
    BindKey { address: address.parse().unwrap(), protocol: BindProtocol::Http }
}

pub fn https(address: &str) -> BindKey {
    BindKey { address: address.parse().unwrap(), protocol: BindProtocol::Https }
}

fn parts(upstream: SocketAddr) -> SnapshotParts {
    let (route, backend) = route_to("web", upstream);
    let mut parts = SnapshotParts::default();
    let routes = HostRoutes::new(HostPattern::Any, Vec::new(), Some(Arc::new(route)));
    parts.hosts.insert(&HostPattern::Any.into(), Arc::new(routes));
    parts.backends.insert_mut(backend.key.clone(), Arc::new(backend));
    parts
}

/// A route for every path to a Service, and the Service with one endpoint.
fn route_to(service: &str, upstream: SocketAddr) -> (Route, Backend) {
    let name = ObjectName::new("shop", service);
    let key = BackendKey::tcp(name.clone(), 80);
    let target = Target { backend: key.clone(), protocol: AppProtocol::Http, tls: None, fixed: None };
    let origin = Origin {
        object: ObjectRef::new(Kind::Ingress, name.clone()),
        age: Age { created_s: 0, name },
        field: "spec.defaultBackend".into(),
        position: 0,
    };
    let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
    let route = Route::new(origin, PathMatch::prefix("/").unwrap(), action);
    (route, Backend::new(key, [Endpoint::tcp(upstream, None)].into()))
}

/// Answers every request with its path and its body; `/told` with the forwarded client headers; `/wait…`, and the
/// second half of `/drip`, only when the test releases them.
pub struct Upstream {
    pub address: SocketAddr,
    /// The number of received requests.
    pub arrived: watch::Receiver<usize>,
    /// Releases the waiting requests.
    pub go: watch::Sender<bool>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrivals, arrived) = watch::channel(0);
        let go = watch::Sender::new(false);
        let told = go.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer_all(stream, arrivals.clone(), told.clone()));
            }
        });
        Self { address, arrived, go }
    }

    pub async fn wait_for_requests(&self, count: usize) {
        let mut arrived = self.arrived.clone();
        tokio::time::timeout(PATIENCE, arrived.wait_for(|n| *n >= count)).await.expect("no request came").unwrap();
    }
}

async fn answer_all(mut stream: TcpStream, arrivals: watch::Sender<usize>, mut go: watch::Receiver<bool>) {
    let mut bytes = Vec::new();
    loop {
        let Some(head) = read_until(&mut stream, &mut bytes, head_len).await else { return };
        let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let coded = text.contains("transfer-encoding: chunked");
        let body = |bytes: &[u8]| {
            let length = length.unwrap_or_default();
            if coded { chunks(&bytes[head..]) } else { Some((length, bytes.get(head..head + length)?.to_vec())) }
        };
        let whole = read_until(&mut stream, &mut bytes, |bytes| Some(head + body(bytes)?.0)).await;
        let Some((whole, (_, content))) = whole.zip(body(&bytes)) else { return };
        arrivals.send_modify(|count| *count += 1);
        if path.starts_with("/wait") && go.wait_for(|go| *go).await.is_err() {
            return;
        }
        if path == "/drip" {
            let part = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nfirst ";
            if stream.write_all(part).await.is_err() || go.wait_for(|go| *go).await.is_err() {
                return;
            }
            stream.write_all(b"second").await.ok();
            bytes.drain(..whole);
            continue;
        }
        let mut body = format!("{path} {}", String::from_utf8_lossy(&content));
        if path == "/told" {
            let lines = ["x-forwarded-for: ", "x-forwarded-port: ", "x-real-ip: "];
            let told = lines.map(|name| text.lines().find(|line| line.starts_with(name)).unwrap_or(name));
            body = told.join("; ");
        }
        bytes.drain(..whole);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The length of a chunked body, and its content; `None` before it is complete.
fn chunks(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (mut at, mut content) = (0, Vec::new());
    loop {
        let Status::Complete((line, size)) = httparse::parse_chunk_size(&bytes[at..]).expect("a size") else {
            return None;
        };
        let start = at + line;
        if size == 0 {
            return head_len(&bytes[start - 2..]).map(|trailers| (start - 2 + trailers, content));
        }
        let end = start + usize::try_from(size).expect("a small one");
        bytes.get(end..end + 2)?;
        content.extend_from_slice(&bytes[start..end]);
        at = end + 2;
    }
}

pub fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads until `found` returns a value; `None` at the end of the stream.
pub async fn read_until(
    stream: &mut (impl AsyncReadExt + Unpin),
    bytes: &mut Vec<u8>,
    found: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    loop {
        if let Some(found) = found(bytes) {
            return Some(found);
        }
        if !matches!(stream.read_buf(bytes).await, Ok(1..)) {
            return None;
        }
    }
}
