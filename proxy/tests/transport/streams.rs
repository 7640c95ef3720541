//! Connections that are forwarded without being parsed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::{
    Backend, BackendKey, BindKey, BindProtocol, Endpoint, HostPattern, Origin, ProxyHeader, RouteTables, StreamRoute,
    WeightedBackend,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::bed::{Bed, PATIENCE, no_listener};

const BIND: BindKey = BindKey {
    address: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0),
    protocol: BindProtocol::Tcp,
};

/// A server that sends its name, and then the received text in capitals once the client has finished.
pub async fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(name.as_bytes()).await.ok();
                let mut told = Vec::new();
                // An aborted connection is not answered.
                if stream.read_to_end(&mut told).await.is_ok() {
                    stream.write_all(&told.to_ascii_uppercase()).await.ok();
                }
            });
        }
    });
    address
}

/// An address without a listener.
async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A route to a backend of this name with these endpoints.
pub fn route(bed: &mut Bed, name: &str, endpoints: &[SocketAddr]) -> StreamRoute {
    let name = ObjectName::new("deis", name);
    let key = BackendKey::tcp(name.clone(), 2222);
    let origin = Origin {
        object: ObjectRef::new(Kind::Service, name.clone()),
        age: Age { created_s: 0, name },
        field: "spec.ports".into(),
        position: 0,
    };
    let endpoints = endpoints.iter().map(|address| Endpoint::tcp(*address, None)).collect();
    let backend = Backend::new(key.clone(), endpoints);
    bed.parts.backends.insert_mut(key.clone(), Arc::new(backend));
    StreamRoute {
        origin: Arc::new(origin),
        rule: None,
        backends: [WeightedBackend { to: Some(key.into()), weight: 1 }].into(),
        connect_timeout: PATIENCE,
        idle_timeout: PATIENCE,
    }
}

/// Enables PROXY protocol headers for the endpoints of the route.
pub fn with_header(route: &mut StreamRoute, version: ProxyHeader) {
    for target in route.backends.iter_mut().filter_map(|share| share.to.as_mut()) {
        target.proxy_header = Some(version);
    }
}

/// Connections to the bind go to these endpoints from now on.
fn lead(bed: &mut Bed, endpoints: &[SocketAddr], change: impl FnOnce(&mut StreamRoute)) {
    let mut route = route(bed, "builder", endpoints);
    change(&mut route);
    bed.parts.streams.insert(&HostPattern::Any.into(), Arc::new(route));
    bed.publish();
}

async fn bed(endpoints: &[SocketAddr], change: impl FnOnce(&mut StreamRoute)) -> (Bed, SocketAddr) {
    let mut bed = Bed::start(&[BIND]).await;
    lead(&mut bed, endpoints, change);
    let address = bed.address(BIND).await;
    (bed, address)
}

/// A connection with these first bytes.
async fn connect(address: SocketAddr, greeting: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut first = vec![0; greeting.len()];
    timeout(PATIENCE, stream.read_exact(&mut first)).await.expect("no greeting").unwrap();
    assert_eq!(String::from_utf8_lossy(&first), greeting);
    stream
}

/// Sends bytes and finishes; returns everything received until the end.
async fn say(mut stream: TcpStream, text: &[u8]) -> Vec<u8> {
    stream.write_all(text).await.unwrap();
    stream.shutdown().await.unwrap();
    rest(stream).await
}

pub async fn rest(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("no end").ok();
    rest
}

#[tokio::test]
async fn bytes_pass_both_ways_and_a_half_close_is_forwarded() {
    let (bed, address) = bed(&[server("a").await], |_| ()).await;
    assert_eq!(say(connect(address, "a").await, b"hello").await, b"HELLO");
    // More than all buffers between the two ends hold.
    let long = vec![b'x'; 8 << 20];
    let mut client = connect(address, "a").await;
    let writing = long.clone();
    client.write_all(&writing).await.unwrap();
    assert_eq!(say(client, b"").await, long.to_ascii_uppercase());
    bed.until_metric("tidegate_stream_connections_total", Some("closed"), 2.0).await;
    bed.until_metric("tidegate_stream_bytes_total", Some("up"), 5.0 + (8 << 20) as f64).await;
    bed.until_metric("tidegate_connections_active", Some("tcp"), 0.0).await;
}

#[tokio::test]
async fn a_publication_cuts_no_connection() {
    let (mut bed, address) = bed(&[server("a").await], |_| ()).await;
    let before = connect(address, "a").await;
    lead(&mut bed, &[server("b").await], |_| ());
    let after = connect(address, "b").await;
    assert_eq!(say(before, b"one").await, b"ONE");
    assert_eq!(say(after, b"two").await, b"TWO");
}

/// Connections of an invalid backend's share are closed, and the others are not affected.
#[tokio::test]
async fn connections_are_shared_by_weight_and_closed_for_invalid_backends() {
    let (mut bed, address) = bed(&[server("a").await], |_| ()).await;
    let mut shares = route(&mut bed, "builder", &[server("a").await]);
    let closed = WeightedBackend { to: None, weight: 1 };
    let unused = WeightedBackend { weight: 0, ..route(&mut bed, "other", &[server("b").await]).backends[0].clone() };
    shares.backends = [shares.backends[0].clone(), closed, unused].into();
    bed.parts.streams.insert(&HostPattern::Any.into(), Arc::new(shares));
    bed.publish();
    let mut answers = Vec::new();
    for _ in 0..64 {
        let stream = TcpStream::connect(address).await.unwrap();
        answers.push(say(stream, b"").await);
    }
    let counted = |want: &[u8]| answers.iter().filter(|answer| **answer == *want).count();
    let (served, closed) = (counted(b"a"), counted(b""));
    assert_eq!(served + closed, 64, "{answers:?}");
    // The probability that one of two equal shares gets fewer than 10 of 64 is 1 in 10 to the 9th.
    assert!(served.min(closed) >= 10, "{served} to {closed}");
    bed.until_metric("tidegate_stream_connections_total", Some("invalid-backend"), closed as f64).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_slow_one_is_not() {
    let idle = Duration::from_millis(600);
    let (bed, address) = bed(&[server("a").await], |route| route.idle_timeout = idle).await;
    let silent = connect(address, "a").await;
    assert!(rest(silent).await.is_empty());
    bed.until_metric("tidegate_stream_connections_total", Some("idle"), 1.0).await;
    let mut slow = connect(address, "a").await;
    for _ in 0..10 {
        tokio::time::sleep(idle / 6).await;
        slow.write_all(b"x").await.unwrap();
    }
    assert_eq!(say(slow, b"y").await, b"XXXXXXXXXXY");
}

#[tokio::test]
async fn a_refused_connection_is_retried_at_another_endpoint() {
    let (bed, address) = bed(&[closed_port().await, server("b").await], |_| ()).await;
    for _ in 0..8 {
        assert_eq!(say(connect(address, "b").await, b"x").await, b"X");
    }
    assert_eq!(bed.metric("tidegate_stream_connections_total", Some("connect-failed")), 0.0);
}

#[tokio::test]
async fn without_an_endpoint_a_connection_is_closed() {
    let (mut bed, address) = bed(&[closed_port().await], |_| ()).await;
    let closed = |outcome: &'static str| (TcpStream::connect(address), outcome);
    for (connecting, outcome) in [closed("connect-failed")] {
        assert!(rest(connecting.await.unwrap()).await.is_empty());
        bed.until_metric("tidegate_stream_connections_total", Some(outcome), 1.0).await;
    }
    lead(&mut bed, &[], |_| ());
    assert!(rest(TcpStream::connect(address).await.unwrap()).await.is_empty());
    bed.until_metric("tidegate_stream_connections_total", Some("no-endpoint"), 1.0).await;
    lead(&mut bed, &[server("a").await], |route| route.backends[0].weight = 0);
    assert!(rest(TcpStream::connect(address).await.unwrap()).await.is_empty());
    bed.until_metric("tidegate_stream_connections_total", Some("no-endpoint"), 2.0).await;
    bed.parts.streams = RouteTables::default();
    bed.publish();
    assert!(rest(TcpStream::connect(address).await.unwrap()).await.is_empty());
    bed.until_metric("tidegate_stream_connections_total", Some("no-route"), 1.0).await;
}

#[tokio::test]
async fn an_endpoint_gets_the_proxy_header() {
    let told = |version: ProxyHeader| async move {
        let (_bed, address) = bed(&[server("").await], |route| with_header(route, version)).await;
        let client = connect(address, "").await;
        let from = client.local_addr().unwrap();
        (say(client, b"!").await, from, address)
    };
    let (line, from, to) = told(ProxyHeader::V1).await;
    let want = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n!", from.port(), to.port());
    assert_eq!(String::from_utf8_lossy(&line), want);
    let (binary, from, to) = told(ProxyHeader::V2).await;
    let mut want = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    want.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    want.push(b'!');
    // The server has no lower-case letters to change.
    assert_eq!(binary, want.to_ascii_uppercase());
}

#[tokio::test]
async fn the_client_of_a_trusted_proxy_header_is_forwarded() {
    let mut bed = Bed::with(&[BIND], |options| options.client.proxy_header = true).await;
    bed.parts.trusted_proxies = ["127.0.0.1/32".parse().unwrap()].into();
    lead(&mut bed, &[server("").await], |route| with_header(route, ProxyHeader::V1));
    let address = bed.address(BIND).await;
    let client = TcpStream::connect(address).await.unwrap();
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 22\r\n";
    assert_eq!(say(client, &[line, &b"x"[..]].concat()).await, [line, &b"X"[..]].concat());
    let without = TcpStream::connect(address).await.unwrap();
    assert!(say(without, b"SSH-2.0-client\r\n").await.is_empty());
    bed.until_metric("tidegate_proxy_header_failures_total", Some("missing"), 1.0).await;
}

#[tokio::test]
async fn a_removed_bind_lets_its_connections_finish() {
    let (mut bed, address) = bed(&[server("a").await], |_| ()).await;
    let before = connect(address, "a").await;
    bed.listen_on(&[]);
    no_listener(address).await;
    assert_eq!(say(before, b"late").await, b"LATE");
}

#[tokio::test]
async fn a_removed_bind_cuts_its_connections_after_the_grace_period() {
    let mut bed = Bed::with(&[BIND], |options| options.drain.removed_bind_grace = Duration::from_millis(200)).await;
    lead(&mut bed, &[server("a").await], |_| ());
    let address = bed.address(BIND).await;
    let staying = connect(address, "a").await;
    bed.listen_on(&[]);
    assert!(rest(staying).await.is_empty());
}

#[tokio::test]
async fn a_drain_waits_for_connections_and_then_cuts_them() {
    let (bed, address) = bed(&[server("a").await], |_| ()).await;
    let finishing = connect(address, "a").await;
    let staying = connect(address, "a").await;
    let registry = bed.registry.clone();
    let drained = tokio::spawn(bed.drain(Duration::from_secs(2)));
    no_listener(address).await;
    assert_eq!(say(finishing, b"bye").await, b"BYE");
    assert_eq!(drained.await.unwrap(), 1);
    assert_eq!(super::bed::metric(&registry, "tidegate_connections_cut_total", None), 1.0);
    assert!(rest(staying).await.is_empty());
}
