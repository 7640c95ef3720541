//! Connections that begin with a PROXY protocol header: the client address that it sets, and the peers that are trusted
//! to set it.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_config::model::BindKey;
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::bed::{Bed, PATIENCE, http, https};
use super::clients::{Http1, TlsClient, h2_get};

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\x12\x67\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
const TRUSTED: &str = "127.0.0.1";
const STRANGER: &str = "127.0.0.2";

const PLAIN: &str = "127.0.0.1:0";

/// A bed whose connections begin with the header, which is trusted from [`TRUSTED`], and its address.
async fn bed(key: BindKey, driver: Driver) -> (Bed, SocketAddr) {
    let mut bed = Bed::with(&[key], |options| {
        options.client.proxy_header = true;
        options.client.head_deadline = PATIENCE;
        options.driver = driver;
    })
    .await;
    bed.parts.trusted_proxies = [format!("{TRUSTED}/32").parse().unwrap()].into();
    bed.publish();
    let address = bed.address(key).await;
    (bed, address)
}

/// A connection from an address that begins with these bytes.
async fn connect(from: &str, to: SocketAddr, header: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(header).await.unwrap();
    stream
}

/// Compares the endpoint's view of a client that connects like this.
async fn check(from: &str, header: &[u8], want: &str) {
    for driver in [Driver::Both, Driver::Pingora] {
        let shown = format!("{} from {from}, {driver:?}", header.escape_ascii());
        let (_bed, address) = bed(http(PLAIN), driver).await;
        let mut client = Http1::over(connect(from, address, header).await);
        for _ in 0..2 {
            let response = client.get("/told").await;
            assert!(response.ends_with(&format!("\r\n\r\n{want}")), "{shown}: {response}");
        }
    }
}

#[tokio::test]
async fn a_trusted_header_sets_the_client_address() {
    for header in [LINE, BINARY] {
        check(TRUSTED, header, "x-forwarded-for: 192.0.2.7; x-forwarded-port: 443; x-real-ip: 192.0.2.7").await;
    }
}

#[tokio::test]
async fn a_header_without_an_address_keeps_the_peer_address() {
    for header in [LOCAL, b"PROXY UNKNOWN\r\n"] {
        check(TRUSTED, header, "x-forwarded-for: 127.0.0.1; x-forwarded-port: 80; x-real-ip: 127.0.0.1").await;
    }
}

#[tokio::test]
async fn a_header_of_an_untrusted_peer_is_ignored() {
    for header in [LINE, BINARY] {
        check(STRANGER, header, "x-forwarded-for: 127.0.0.2; x-forwarded-port: 80; x-real-ip: 127.0.0.2").await;
    }
}

#[tokio::test]
async fn forwarded_headers_are_trusted_by_the_address_in_the_header() {
    let (_bed, address) = bed(http(PLAIN), Driver::Both).await;
    for (source, want) in [("192.0.2.7", "x-real-ip: 192.0.2.7"), (TRUSTED, "x-real-ip: 203.0.113.9")] {
        let header = format!("PROXY TCP4 {source} 198.51.100.1 4711 80\r\n");
        let mut client = Http1::over(connect(TRUSTED, address, header.as_bytes()).await);
        client.send("GET /told HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n").await;
        let response = client.response().await.unwrap();
        assert!(response.ends_with(want), "{source}: {response}");
    }
}

#[tokio::test]
async fn forwarded_headers_are_not_trusted_after_a_header_without_an_address() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (_bed, address) = bed(http(PLAIN), driver).await;
        for header in [LOCAL, b"PROXY UNKNOWN\r\n"] {
            let mut client = Http1::over(connect(TRUSTED, address, header).await);
            client
                .send("GET /told HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Port: 1\r\n\r\n")
                .await;
            let response = client.response().await.unwrap();
            let want = format!("x-forwarded-for: {TRUSTED}; x-forwarded-port: 80; x-real-ip: {TRUSTED}");
            assert!(response.ends_with(&want), "{driver:?}, {}: {response}", header.escape_ascii());
        }
    }
}

#[tokio::test]
async fn tls_follows_the_header() {
    let (_bed, address) = bed(https(PLAIN), Driver::Both).await;
    let told = "x-forwarded-for: 192.0.2.7; x-forwarded-port: 443; x-real-ip: 192.0.2.7";
    for header in [LINE, BINARY] {
        let stream = TlsClient::default().over(connect(TRUSTED, address, header).await).await.unwrap();
        let response = Http1::over(stream).get("/told").await;
        assert!(response.ends_with(told), "{response}");
        let h2 = TlsClient { alpn: &[b"h2"], ..TlsClient::default() };
        let stream = h2.over(connect(TRUSTED, address, header).await).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(h2_get(&mut sender, "/told").await.unwrap(), (200, told.to_owned()));
    }
}

#[tokio::test]
async fn a_connection_without_a_header_is_closed_and_counted() {
    let (bed, address) = bed(http(PLAIN), Driver::Both).await;
    let counted = |reason| bed.metric("tidegate_proxy_header_failures_total", Some(reason));
    for (bytes, reason) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "missing"),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "malformed"),
    ] {
        Http1::over(connect(TRUSTED, address, bytes.as_bytes()).await).closed().await;
        bed.until_metric("tidegate_proxy_header_failures_total", Some(reason), 1.0).await;
    }
    drop(connect(TRUSTED, address, b"PROXY TC").await);
    bed.until_metric("tidegate_proxy_header_failures_total", Some("closed"), 1.0).await;
    assert_eq!((counted("missing"), counted("malformed"), counted("timeout")), (1.0, 1.0, 0.0));
    assert_eq!(*bed.upstream.arrived.borrow(), 0);
}

#[tokio::test]
async fn a_header_must_arrive_before_the_deadline() {
    let key = http(PLAIN);
    let bed = Bed::with(&[key], |options| {
        options.client.proxy_header = true;
        options.client.head_deadline = Duration::from_millis(50);
    })
    .await;
    let address = bed.address(key).await;
    Http1::over(connect(TRUSTED, address, b"PROXY TCP4 192.0").await).closed().await;
    bed.until_metric("tidegate_proxy_header_failures_total", Some("timeout"), 1.0).await;
}
