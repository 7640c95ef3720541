//! Certificates by server name, swapped under live connections, and failed handshakes.

use std::sync::Arc;
use std::time::Duration;

use rustls::{HandshakeKind, SignatureScheme};
use tidegate_config::model::{Certificate, HostPattern, HostRoutes, ServerCertificates};
use tidegate_config::object::ObjectName;
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::bed::{Bed, PATIENCE, https};
use super::clients::{ECDSA, Http1, TlsClient, assert_ok, connect, h2_get, shown};

const RSA_KEY: &str = include_str!("rsa_key.pem");
const RSA_ONLY: TlsClient =
    TlsClient { name: "a.example", alpn: &[b"http/1.1"], schemes: &[SignatureScheme::RSA_PSS_SHA256] };
const ECDSA_ONLY: TlsClient = TlsClient { schemes: &[ECDSA], ..RSA_ONLY };

fn certificate(name: &str, key: &rcgen::KeyPair) -> Arc<Certificate> {
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let chain = params.self_signed(key).unwrap().pem();
    let secret = ObjectName::new("shop", name);
    Arc::new(Certificate::from_pem(secret, chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
}

fn ecdsa(name: &str) -> Arc<Certificate> {
    certificate(name, &rcgen::KeyPair::generate().unwrap())
}

fn rsa(name: &str) -> Arc<Certificate> {
    certificate(name, &rcgen::KeyPair::from_pem(RSA_KEY).unwrap())
}

/// Adds certificates for some names to the one host of the bed, which matches every name.
fn give(bed: &mut Bed, name: &str, certificates: &[&Arc<Certificate>]) {
    let before = bed.parts.hosts.shared().get(&HostPattern::Any).unwrap();
    let mut routes =
        HostRoutes::new(HostPattern::Any, before.routes().into_iter().cloned().collect(), before.fallback().cloned());
    let all = before.certificates.iter().map(|(name, all)| (name.clone(), all.to_vec()));
    let more = (HostPattern::parse(name).unwrap(), certificates.iter().copied().cloned().collect());
    routes.certificates = ServerCertificates::new(all.chain([more]).collect());
    bed.parts.hosts.insert(&HostPattern::Any.into(), Arc::new(routes));
    bed.publish();
}

async fn secure() -> (Bed, std::net::SocketAddr) {
    let key = https("127.0.0.1:0");
    let bed = Bed::start(&[key]).await;
    let address = bed.address(key).await;
    (bed, address)
}

async fn check(address: std::net::SocketAddr, client: TlsClient, expected: &Certificate) {
    let stream = client.connect(address).await.unwrap();
    assert_eq!(shown(&stream), expected.key.cert[0], "for {}", client.name);
}

#[tokio::test]
async fn certificates_are_chosen_by_name_and_swapped_under_live_connections() {
    let (mut bed, address) = secure().await;
    let (a, b, wild, other) = (ecdsa("a.example"), ecdsa("b.example"), ecdsa("*.w.example"), ecdsa("default.example"));
    give(&mut bed, "a.example", &[&a]);
    give(&mut bed, "b.example", &[&b]);
    give(&mut bed, "*.w.example", &[&wild]);
    let [is_a, is_b, is_wild] =
        ["a.example", "B.Example", "x.w.example"].map(|name| TlsClient { name, ..TlsClient::default() });
    check(address, is_a, &a).await;
    check(address, is_b, &b).await;
    check(address, is_wild, &wild).await;

    let mut old = Http1::over(is_a.connect(address).await.unwrap());
    assert_ok(&old.get("/before").await, "/before ");
    let renewed = ecdsa("a.example");
    give(&mut bed, "a.example", &[&renewed]);
    check(address, is_a, &renewed).await;
    check(address, is_b, &b).await;
    assert_ok(&old.get("/after").await, "/after ");

    bed.parts.default_certificate = Some(Arc::clone(&other));
    bed.publish();
    for name in ["unknown.example", "y.x.w.example", "127.0.0.1"] {
        check(address, TlsClient { name, ..TlsClient::default() }, &other).await;
    }
}

#[tokio::test]
async fn the_first_certificate_that_the_client_supports_is_presented() {
    let (mut bed, address) = secure().await;
    let (ecdsa_a, rsa_a, other) = (ecdsa("a.example"), rsa("a.example"), rsa("default.example"));
    give(&mut bed, "a.example", &[&ecdsa_a, &rsa_a]);
    check(address, TlsClient::default(), &ecdsa_a).await;
    check(address, RSA_ONLY, &rsa_a).await;
    check(address, ECDSA_ONLY, &ecdsa_a).await;
    // None of its own matches, so the default one is presented.
    give(&mut bed, "a.example", &[&ecdsa_a]);
    bed.parts.default_certificate = Some(Arc::clone(&other));
    bed.publish();
    check(address, RSA_ONLY, &other).await;
}

#[tokio::test]
async fn without_any_certificate_the_handshake_still_works() {
    let (_bed, address) = secure().await;
    let stream = TlsClient::default().connect(address).await.unwrap();
    let text = String::from_utf8_lossy(&shown(&stream)).into_owned();
    assert!(text.contains("Tidegate default certificate"));
    assert_ok(&Http1::over(stream).get("/").await, "/ ");
}

/// Without that alert a client cannot know that nothing was cut off (RFC 8446 section 6.1).
#[tokio::test]
async fn close_notify_follows_the_last_response() {
    for driver in [Driver::Both, Driver::Pingora] {
        let key = https("127.0.0.1:0");
        let bed = Bed::with(&[key], |options| options.driver = driver).await;
        let mut stream = TlsClient::default().connect(bed.address(key).await).await.unwrap();
        stream.write_all(b"GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut response = String::new();
        let end = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut response)).await.expect("it stays open");
        // The client returns an error for an end without it.
        end.unwrap_or_else(|error| panic!("{driver:?}: {error}"));
        assert_ok(&response, "/last ");
    }
}

#[tokio::test]
async fn a_session_is_resumed() {
    let (_bed, address) = secure().await;
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let client = TlsClient::default().config(versions);
        let first = connect(&client, "a.example", address).await.unwrap();
        assert_eq!(first.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        // TLS 1.3 sends tickets after the handshake, with the first response.
        assert_ok(&Http1::over(first).get("/").await, "/ ");
        let second = connect(&client, "a.example", address).await.unwrap();
        assert_eq!(second.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
        assert_ok(&Http1::over(second).get("/").await, "/ ");
    }
}

#[tokio::test]
async fn a_session_ticket_survives_a_certificate_rotation() {
    let (mut bed, address) = secure().await;
    give(&mut bed, "a.example", &[&ecdsa("a.example")]);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let client = TlsClient::default().config(versions);
        let first = connect(&client, "a.example", address).await.unwrap();
        assert_ok(&Http1::over(first).get("/").await, "/ ");
        let renewed = ecdsa("a.example");
        give(&mut bed, "a.example", &[&renewed]);
        let second = connect(&client, "a.example", address).await.unwrap();
        assert_eq!(second.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
        assert_ok(&Http1::over(second).get("/").await, "/ ");
        // A client without a ticket gets the new certificate.
        check(address, TlsClient::default(), &renewed).await;
    }
}

#[tokio::test]
async fn early_data_in_the_packet_of_the_first_message_is_answered() {
    let (mut bed, address) = secure().await;
    let mut edge = (*bed.parts.edge).clone();
    edge.tls.early_data = Some(["GET".into()].into());
    bed.parts.edge = Arc::new(edge);
    bed.publish();
    let mut client = (*TlsClient::default().config(&[&rustls::version::TLS13])).clone();
    client.enable_early_data = true;
    let client = Arc::new(client);
    let first = connect(&client, "a.example", address).await.unwrap();
    assert_ok(&Http1::over(first).get("/").await, "/ ");
    let name = rustls::pki_types::ServerName::try_from("a.example").unwrap();
    let mut session = rustls::ClientConnection::new(client, name).unwrap();
    let request = b"GET /early HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(std::io::Write::write(&mut session.early_data().unwrap(), request).unwrap(), request.len());
    let mut told = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut told).unwrap();
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&told).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).ends_with("/early ") {
        let mut bytes = [0; 4096];
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.expect("no answer").unwrap();
        assert_ne!(count, 0);
        session.read_tls(&mut &bytes[..count]).unwrap();
        session.process_new_packets().unwrap();
        while let Ok(1..) = std::io::Read::read(&mut session.reader(), &mut bytes[..1]) {
            heard.push(bytes[0]);
        }
    }
    assert!(session.is_early_data_accepted() && heard.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn http2_is_negotiated_by_alpn() {
    let (_bed, address) = secure().await;
    let client = TlsClient { alpn: &[b"h2", b"http/1.1"], ..TlsClient::default() };
    let stream = client.connect(address).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(h2_get(&mut sender, "/one").await.unwrap(), (200, "/one ".to_owned()));
}

#[tokio::test]
async fn plain_http_on_the_tls_port_is_a_400() {
    let (bed, address) = secure().await;
    let mut client = Http1::connect(address).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let response = client.response().await.unwrap();
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("HTTPS"), "{response}");
    client.closed().await;
    bed.until_metric("tidegate_tls_handshake_failures_total", Some("plain-http"), 1.0).await;
}

#[tokio::test]
async fn failed_handshakes_are_counted_by_reason() {
    let key = https("127.0.0.1:0");
    let bed = Bed::with(&[key], |options| options.tls.handshake_deadline = Duration::from_millis(1500)).await;
    let address = bed.address(key).await;
    let counted = "tidegate_tls_handshake_failures_total";

    drop(TcpStream::connect(address).await.unwrap());
    bed.until_metric(counted, Some("closed"), 1.0).await;

    let mut garbage = Http1::connect(address).await;
    garbage.send("\x16 this is no client hello, whatever it is").await;
    bed.until_metric(counted, Some("malformed"), 1.0).await;

    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest)).await.expect("it stays open").ok();
    bed.until_metric(counted, Some("timeout"), 1.0).await;

    let client = TlsClient { alpn: &[b"spdy/3"], ..TlsClient::default() };
    assert!(client.connect(address).await.is_err());
    bed.until_metric(counted, Some("incompatible"), 1.0).await;
}

#[tokio::test]
async fn a_response_arrives_whole_though_its_endpoint_stalls() {
    const BYTES: usize = 24 << 20;
    let (mut bed, address) = secure().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    bed.lead_to(&[listener.local_addr().unwrap()]);
    let endpoint = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        stream.write_all(format!("{BYTES:x}\r\n{}\r\n", "x".repeat(BYTES)).as_bytes()).await.unwrap();
        stream
    });
    let mut client = ECDSA_ONLY.connect(address).await.unwrap();
    client.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // Long enough for every buffer on the way to fill, so that the rest waits in the edge.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut read, mut bytes) = (0, vec![0; 64 << 10]);
    let reading = async {
        while read < BYTES {
            // Slowly enough that they stay full.
            read += client.read(&mut bytes).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{read} of {BYTES} bytes arrived"));
    drop(endpoint.await.unwrap());
}
