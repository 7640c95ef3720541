//! The server on the network, over raw connections: access control, limits, and shutdown.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tidegate_lite::{Lite, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Served {
    address: SocketAddr,
    token: String,
    tls: tokio_rustls::TlsConnector,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn serve() -> Served {
    let server = Server::bind(Lite::new(), ([127, 0, 0, 1], 0).into()).await.unwrap();
    let (address, kubeconfig) = (server.address(), server.kubeconfig());
    let entry =
        |name: &str| kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim().to_owned();
    let authority = base64::engine::general_purpose::STANDARD.decode(entry("certificate-authority-data:")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(async { drop(stopped.await) }));
    Served { address, token: entry("token:"), tls: Arc::new(tls).into(), stop, task }
}

impl Served {
    /// Sends a raw request and returns the whole response.
    async fn ask(&self, server_name: &str, request: String) -> String {
        self.ask_in_pieces(server_name, request, usize::MAX).await
    }

    /// The same, in pieces of this many bytes.
    async fn ask_in_pieces(&self, server_name: &str, request: String, piece: usize) -> String {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let mut stream = self.tls.connect(name, stream).await.unwrap();
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        // A server that refuses early closes before it has read everything, which is not an error here.
        for part in request.as_bytes().chunks(piece) {
            if stream.write_all(part).await.is_err() || stream.flush().await.is_err() {
                break;
            }
        }
        while let Ok(Ok(length)) = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut part)).await {
            if length == 0 {
                break;
            }
            answer.extend_from_slice(&part[..length]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }
}

fn get(path: &str, host: &str, authorization: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n")
}

#[track_caller]
fn check(answer: &str, code: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
    if code >= 400 && answer.contains("\r\n\r\n{") {
        assert!(answer.contains("\"kind\":\"Status\"") && answer.contains(&format!("\"code\":{code}")), "{answer}");
    }
}

#[tokio::test]
async fn the_token_and_a_known_host_name_are_required() {
    let served = serve().await;
    let own = served.address.to_string();
    for name in ["localhost", "127.0.0.1"] {
        check(&served.ask(name, get("/version", &own, &served.bearer())).await, 200);
    }
    check(&served.ask("localhost", get("/api", &own, "")).await, 401);
    check(&served.ask("localhost", get("/api", &own, "Authorization: Bearer no\r\n")).await, 401);
    check(&served.ask("localhost", get("/api", "evil.example", &served.bearer())).await, 421);
    let absolute = format!("https://evil.example:{}/api", served.address.port());
    check(&served.ask("localhost", get(&absolute, &own, &served.bearer())).await, 421);
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused() {
    let served = serve().await;
    let own = served.address.to_string();
    let post = |length: usize| {
        let head = format!("POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: {own}\r\n{}", served.bearer());
        format!(
            "{head}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{}",
            " ".repeat(length)
        )
    };
    check(&served.ask("localhost", post(3 * 1024 * 1024)).await, 400);
    check(&served.ask("localhost", post(3 * 1024 * 1024 + 1)).await, 413);
    let wide = format!("{}X: {}\r\n", served.bearer(), "x".repeat(400 * 1024));
    check(&served.ask("localhost", get("/api", &own, &wide)).await, 431);
    let deep = "[".repeat(100_000);
    let length = deep.len();
    let head = format!("POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: {own}\r\n{}", served.bearer());
    check(
        &served.ask("localhost", format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{deep}")).await,
        400,
    );
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_refused_however_it_arrives() {
    const MAX: usize = 64 * 1024;
    let served = serve().await;
    let own = served.address.to_string();
    let long = |bytes: usize| {
        let rest = get("/api", &own, &format!("{}X: \r\n", served.bearer())).len();
        get("/api", &own, &format!("{}X: {}\r\n", served.bearer(), "x".repeat(bytes - rest)))
    };
    for piece in [usize::MAX, MAX - 1, 4096] {
        for (bytes, code) in [(MAX, 200), (MAX + 1, 431), (2 * MAX - 1, 431)] {
            check(&served.ask_in_pieces("localhost", long(bytes), piece).await, code);
        }
    }
    // One with a body, and without a word about the end of the connection, which is closed.
    let lines = format!("{}X: {}\r\n", served.bearer(), "x".repeat(MAX));
    let asked = get("/api", &own, &lines).replace("Connection: close", "Content-Length: 3") + "abc";
    check(&served.ask("localhost", asked.repeat(2)).await, 431);
}

#[tokio::test]
async fn a_watch_sends_its_head_at_once_and_ends_at_shutdown() {
    let served = serve().await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    let mut stream = served.tls.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let path = "/api/v1/services?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let request = get(path, "localhost", &served.bearer()).replace("Connection: close\r\n", "");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 512];
    let length = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut head)).await.unwrap().unwrap();
    let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    served.stop.send(()).unwrap();
    let mut rest = String::new();
    drop(tokio::time::timeout(Duration::from_secs(2), stream.read_to_string(&mut rest)).await.unwrap());
    assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
    tokio::time::timeout(Duration::from_secs(2), served.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}
