//! Clients that do not read: their connections are closed to make room for others.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tidegate_lite::{Feed, Lite, ServerSocket, SharedServer, WatchCacheKind, WatchCacheLimits};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// More bytes than the buffers of a connection hold.
const OBJECTS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(120);

fn service(nth: usize, version: usize) -> Vec<u8> {
    padded(nth, version, 30_000)
}

fn small(version: usize) -> Vec<u8> {
    padded(1, version, 5_000)
}

fn padded(nth: usize, version: usize, pad: usize) -> Vec<u8> {
    let metadata = json!({"name": format!("s{nth}"), "namespace": "shop", "resourceVersion": version.to_string()});
    json!({"metadata": metadata, "spec": {"type": "ClusterIP", "pad": "x".repeat(pad)}}).to_string().into_bytes()
}

fn fed() -> (Lite, Feed) {
    let [plural, kind] = ["services", "Service"].map(str::to_owned);
    let (group, version, namespaced, forwards_writes, short) =
        (String::new(), "v1".to_owned(), true, false, Vec::new());
    let kind = WatchCacheKind { group, version, plural, kind, namespaced, forwards_writes, short };
    let limits =
        WatchCacheLimits { bytes_max: 512 << 20, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 10 };
    let (lite, feeds) = Lite::watch_cache(&[kind], limits);
    let feed = feeds.into_values().next().unwrap();
    feed.list_begins();
    for nth in 1..=OBJECTS {
        feed.listed("shop", &format!("s{nth}"), &service(nth, nth));
    }
    feed.list_done(&OBJECTS.to_string(), true, true);
    (lite, feed)
}

/// A certificate for this machine, for a server and its clients.
fn tls() -> (Arc<ServerConfig>, TlsConnector) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let server = server.unwrap().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server.unwrap()), Arc::new(client).into())
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection with small buffers, after a request.
async fn asking(at: SocketAddr, tls: Option<&TlsConnector>, path: &str) -> Box<dyn Stream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let stream: TcpStream = socket.connect(at).await.unwrap();
    let mut stream: Box<dyn Stream> = match tls {
        Some(tls) => Box::new(tls.connect("localhost".try_into().unwrap(), stream).await.unwrap()),
        None => Box::new(stream),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The head of an answer, as far as one read returns it.
async fn answered(stream: &mut Box<dyn Stream>) {
    let mut head = [0; 256];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut head)).await.expect("an answer").unwrap();
    assert!(head[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..read]));
}

/// Serves one connection at a time. A client sends a request and does not read the answer.
async fn makes_room(path: &str, secure: bool) {
    let (lite, feed) = fed();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let (server, client) = if secure { Some(tls()) } else { None }.unzip();
    let server = server.map(|server| tokio::sync::watch::channel(server).1);
    let write_timeout = Duration::from_secs(1);
    let server = SharedServer { lite, tls: server, token: None, forward: None, connections_max: 1, write_timeout };
    tokio::spawn(server.serve(ServerSocket::Tcp(listener), std::future::pending()));
    let mut stalled = asking(at, client.as_ref(), path).await;
    answered(&mut stalled).await;
    for nth in 1..=OBJECTS {
        feed.event("shop", &format!("s{nth}"), &service(nth, OBJECTS + nth), false);
    }
    let next = async {
        let mut next = asking(at, client.as_ref(), "/version").await;
        answered(&mut next).await;
    };
    tokio::time::timeout(PATIENCE, next).await.expect("there is room for another one");
    // Only the bytes that were already sent can be read.
    let mut rest = Vec::new();
    drop(tokio::time::timeout(PATIENCE, stalled.read_to_end(&mut rest)).await.expect("it is closed"));
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a body that was cut off does not look whole");
}

#[tokio::test]
async fn an_unread_watch_is_ended_to_make_room() {
    let watch = "/api/v1/services?watch=1&resourceVersion=1000";
    makes_room(watch, false).await;
    makes_room(watch, true).await;
}

#[tokio::test]
async fn an_unread_list_is_ended_to_make_room() {
    makes_room("/api/v1/services", false).await;
    makes_room("/api/v1/services", true).await;
}

/// The versions that a watch reports, in order, until it ends or has reported `last`.
async fn versions(stream: Box<dyn Stream>, last: usize) -> Vec<usize> {
    let (mut lines, mut versions) = (BufReader::new(stream).lines(), Vec::new());
    while versions.last() != Some(&last) {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it goes on or ends").unwrap();
        match line.expect("it ends as a whole body does") {
            line if line.starts_with('{') => {
                let event: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["type"], "MODIFIED", "{line}");
                versions.push(event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
            }
            line if line == "0" => break,
            _ => {}
        }
    }
    versions
}

#[tokio::test]
async fn a_watch_that_falls_behind_ends_and_resumes_at_its_last_version() {
    let (lite, feed) = fed();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let (connections_max, write_timeout) = (8, Duration::from_secs(600));
    let server = SharedServer { lite, tls: None, token: None, forward: None, connections_max, write_timeout };
    tokio::spawn(server.serve(ServerSocket::Tcp(listener), std::future::pending()));
    let path = |version: usize| format!("/api/v1/services?watch=1&resourceVersion={version}");
    let mut slow = asking(at, None, &path(OBJECTS)).await;
    answered(&mut slow).await;
    assert_eq!(feed.figures().watches, 1);
    // More than its connection holds and the 1,024 changes that may wait.
    let last = OBJECTS + 4_000;
    for version in OBJECTS + 1..=last {
        feed.event("shop", "s1", &small(version), false);
        tokio::task::yield_now().await;
    }
    assert_eq!(feed.figures().watches, 0, "it is given up, and nobody waits for it");
    let mut seen = versions(slow, last).await;
    let reached = *seen.last().unwrap();
    assert!(reached >= OBJECTS + 1_024 && reached < last, "{reached}");
    seen.extend(versions(asking(at, None, &path(reached)).await, last).await);
    assert!(seen.into_iter().eq(OBJECTS + 1..=last), "every change once and in order");
}
