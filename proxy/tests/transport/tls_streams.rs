//! Listeners of one bind that forward bytes by server name, with TLS termination or passthrough.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidegate_config::model::{
    BindKey, Certificate, HostPattern, Listener, ListenerTls, ProxyHeader, StreamRoute, TlsMode, VerificationMode,
    VirtualHost,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::bed::{Bed, PATIENCE, https, no_listener};
use super::clients::{Http1, TlsClient, assert_ok, connect, shown};
use super::listeners::{Authority, certificate, client, listener, set, verifying};
use super::streams::{rest, route, server, with_header};
use super::upstream_tls::{Server, verified};

const CONNECTIONS: &str = "tidegate_stream_connections_total";

fn with_mode(listener: Listener, mode: TlsMode) -> Listener {
    let tls = ListenerTls { mode, ..(**listener.tls.as_ref().unwrap()).clone() };
    Listener { tls: Some(Arc::new(tls)), ..listener }
}

fn lead(bed: &mut Bed, listener: &Listener, host: &str, route: StreamRoute) {
    let host = VirtualHost::new(listener.table.clone(), HostPattern::parse(host).unwrap());
    bed.parts.streams.insert(&host, Arc::new(route));
}

/// A bind and its address. Its listeners are `http.example` for requests, `*.end.example` with TLS termination, and
/// `*.pass.example` with passthrough; none of them has routes yet.
struct Mixed {
    bed: Bed,
    key: BindKey,
    address: SocketAddr,
    shown: Arc<Certificate>,
    listeners: Vec<Listener>,
}

async fn mixed() -> Mixed {
    let key = https("127.0.0.1:0");
    let mut bed = Bed::start(&[key]).await;
    let address = bed.address(key).await;
    let shown = certificate("*.end.example");
    let listeners = vec![
        listener("http", "http.example", &[&shown]),
        with_mode(listener("end", "*.end.example", &[&shown]), TlsMode::Terminate),
        with_mode(listener("pass", "*.pass.example", &[]), TlsMode::Passthrough),
    ];
    set(&mut bed, key, listeners.clone());
    Mixed { bed, key, address, shown, listeners }
}

async fn tls(address: SocketAddr, name: &'static str) -> tokio_rustls::client::TlsStream<TcpStream> {
    TlsClient { name, alpn: &[], ..TlsClient::default() }.connect(address).await.unwrap()
}

async fn greeted(stream: &mut (impl AsyncReadExt + Unpin), greeting: &str) {
    let mut first = vec![0; greeting.len()];
    timeout(PATIENCE, stream.read_exact(&mut first)).await.expect("no greeting").unwrap();
    assert_eq!(String::from_utf8_lossy(&first), greeting);
}

#[tokio::test]
async fn one_bind_serves_https_tls_termination_and_passthrough() {
    let Mixed { mut bed, address, shown: own, listeners, .. } = mixed().await;
    let authority = Authority::new();
    let issued = authority.issue("one.pass.example");
    let endpoint = Server::start(&issued, None).await;
    let passed = route(&mut bed, "passed", &[endpoint.address]);
    lead(&mut bed, &listeners[2], "one.pass.example", passed);
    for (name, host) in [("a", "one.end.example"), ("b", "two.end.example")] {
        let to = route(&mut bed, name, &[server(name).await]);
        lead(&mut bed, &listeners[1], host, to);
    }
    bed.publish();

    let http = TlsClient { name: "http.example", ..TlsClient::default() }.connect(address).await.unwrap();
    let mut http = Http1::over(http);
    http.send("GET /x HTTP/1.1\r\nHost: http.example\r\n\r\n").await;
    assert_ok(&http.response().await.unwrap(), "/x ");

    // The bytes inside pass both ways, more than all buffers hold, and an end in one direction leaves the other one
    // open.
    let long = vec![b'x'; 4 << 20];
    for (name, greeting) in [("one.end.example", "a"), ("two.end.example", "b")] {
        let mut stream = tls(address, name).await;
        assert_eq!(shown(&stream), own.key.cert[0]);
        greeted(&mut stream, greeting).await;
        // Its own socket and the endpoint's, besides the connection of requests.
        bed.until_metric("tidegate_budget_sockets", None, 3.0).await;
        stream.write_all(&long).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(rest(stream).await, long.to_ascii_uppercase());
    }
    bed.until_metric(CONNECTIONS, Some("closed"), 2.0).await;

    // The certificate and the negotiated protocol are those of the endpoint.
    let mut stream = TlsClient { name: "one.pass.example", ..TlsClient::default() }.connect(address).await.unwrap();
    assert_eq!(shown(&stream), CertificateDer::from_pem_slice(issued.0.as_bytes()).unwrap());
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    greeted(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\none.pass.example h1").await;
    bed.until_metric("tidegate_budget_sockets", None, 3.0).await;
}

/// With TLS passthrough the connection is closed; otherwise an alert states the reason.
#[tokio::test]
async fn a_name_without_a_route_is_refused() {
    let Mixed { mut bed, key, address, listeners, .. } = mixed().await;
    let to = route(&mut bed, "a", &[server("a").await]);
    lead(&mut bed, &listeners[1], "one.end.example", to.clone());
    lead(&mut bed, &listeners[2], "one.pass.example", to);
    bed.publish();
    for name in ["two.end.example", "two.pass.example", "end.example", "other.example", "127.0.0.1"] {
        let refused = TlsClient { name, ..TlsClient::default() }.connect(address).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{name}");
    }
    set(&mut bed, key, listeners[..2].to_vec());
    for name in ["two.end.example", "one.pass.example"] {
        let refused = TlsClient { name, ..TlsClient::default() }.connect(address).await;
        assert!(refused.unwrap_err().to_string().contains("UnrecognisedName"), "{name}");
    }
    bed.until_metric("tidegate_tls_handshake_failures_total", Some("unknown-name"), 7.0).await;
}

#[tokio::test]
async fn a_fragmented_client_hello_is_forwarded_unchanged() {
    let Mixed { mut bed, address, listeners, .. } = mixed().await;
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut to = route(&mut bed, "a", &[endpoint.local_addr().unwrap()]);
    with_header(&mut to, ProxyHeader::V1);
    lead(&mut bed, &listeners[2], "one.pass.example", to);
    bed.publish();
    let config = TlsClient::default().config(rustls::ALL_VERSIONS);
    let name = rustls::pki_types::ServerName::try_from("one.pass.example").unwrap();
    let mut hello = Vec::new();
    rustls::ClientConnection::new(config, name).unwrap().write_tls(&mut hello).unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let from = client.local_addr().unwrap();
    for piece in hello.chunks(hello.len() / 3) {
        client.write_all(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.write_all(b"and more").await.unwrap();
    client.shutdown().await.unwrap();
    let (stream, _) = timeout(PATIENCE, endpoint.accept()).await.expect("no connection").unwrap();
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), address.port());
    assert_eq!(rest(stream).await, [line.as_bytes(), &hello, b"and more"].concat());
    bed.until_metric("tidegate_stream_bytes_total", Some("up"), hello.len() as f64 + 8.0).await;
}

#[tokio::test]
async fn an_endless_client_hello_is_refused() {
    let Mixed { bed, address, .. } = mixed().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    // A ClientHello of 60,000 bytes in records of 16,000.
    let mut bytes = vec![1, 0, 0xea, 0x60];
    bytes.resize(60_000, 0);
    for piece in bytes.chunks(16_000) {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        let record = [&[22, 3, 1], &length[..], piece].concat();
        if client.write_all(&record).await.is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("it stays open").ok();
    bed.until_metric("tidegate_tls_handshake_failures_total", Some("malformed"), 1.0).await;
}

#[tokio::test]
async fn clients_are_verified_before_bytes_are_forwarded() {
    let Mixed { mut bed, key, address, mut listeners, .. } = mixed().await;
    let (good, other) = (Authority::new(), Authority::new());
    listeners[1] = verifying(listeners[1].clone(), &good, VerificationMode::ValidOnly);
    let to = route(&mut bed, "a", &[server("a").await]);
    lead(&mut bed, &listeners[1], "one.end.example", to);
    set(&mut bed, key, listeners);
    let ask = async |authority: &Authority| {
        let config = client(Some(&authority.issue("client")), rustls::ALL_VERSIONS);
        let stream = connect(&config, "one.end.example", address).await.unwrap();
        rest(stream.take(1)).await
    };
    assert_eq!(ask(&good).await, b"a");
    assert_eq!(ask(&other).await, b"");
    bed.until_metric("tidegate_tls_handshake_failures_total", Some("client-certificate"), 1.0).await;
}

#[tokio::test]
async fn an_endpoint_behind_tls_is_verified_before_it_gets_a_byte() {
    let Mixed { mut bed, address, listeners, .. } = mixed().await;
    let (good, other) = (Authority::new(), Authority::new());
    let endpoint = Server::start(&good.issue("a.example"), None).await;
    for (name, authority) in [("one.end.example", &good), ("two.end.example", &other)] {
        let mut to = route(&mut bed, "a", &[endpoint.address]);
        to.backends[0].to.as_mut().unwrap().tls = Some(verified(Some(authority.bundle()), &[]));
        lead(&mut bed, &listeners[1], name, to);
    }
    bed.publish();
    let ask = async |name| {
        let mut stream = tls(address, name).await;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        String::from_utf8(rest(stream).await).unwrap()
    };
    assert_eq!(ask("one.end.example").await, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\na.example h1");
    assert_eq!(ask("two.end.example").await, "");
    bed.until_metric(CONNECTIONS, Some("connect-failed"), 1.0).await;
}

#[tokio::test]
async fn a_publication_and_the_end_of_a_bind_cut_no_connection() {
    let Mixed { mut bed, key, address, listeners, .. } = mixed().await;
    let to = route(&mut bed, "a", &[server("a").await]);
    lead(&mut bed, &listeners[1], "one.end.example", to);
    bed.publish();
    let mut before = tls(address, "one.end.example").await;
    greeted(&mut before, "a").await;
    set(&mut bed, key, vec![listeners[0].clone()]);
    assert!(TlsClient { name: "one.end.example", ..TlsClient::default() }.connect(address).await.is_err());
    bed.listen_on(&[]);
    no_listener(address).await;
    before.write_all(b"late").await.unwrap();
    before.shutdown().await.unwrap();
    assert_eq!(rest(before).await, b"LATE");
}
