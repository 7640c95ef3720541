//! `tidegate echo`: stands in for a pod in `dev`. It answers every request with its own name and a description of the
//! request, sends WebSocket messages and UDP datagrams back, and ends when its standard input closes, so that it cannot
//! outlive its parent.
//!
//! It serves one developer on a loopback address, never strangers.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::args::EchoArgs;
use crate::signal::Signals;

/// The time for requests in flight to end after standard input has closed.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// TCP ports to give up because the UDP port of the same number is taken.
const PORT_TRIES_MAX: u32 = 16;
/// The bytes of the longest datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// The header that names the pod, for clients that do not read the body.
const POD: HeaderName = HeaderName::from_static("x-echo-pod");

pub(crate) async fn main(args: &EchoArgs) -> anyhow::Result<ExitCode> {
    // Ctrl-C goes to every process in the terminal; this process ends when its parent closes standard input.
    let mut ignored = Signals::listen()?;
    let (listener, socket) = ports().await?;
    // The parent reads this line: connections are accepted from here on.
    println!("{}", listener.local_addr()?.port());
    let pod: Arc<str> = args.pod.as_str().into();
    let connections = GracefulShutdown::new();
    tokio::spawn(echo_datagrams(socket, Arc::clone(&pod)));
    let mut over = std::pin::pin!(stdin_closed());
    loop {
        tokio::select! {
            () = &mut over => break,
            _ = ignored.next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(connection(stream, Arc::clone(&pod), connections.watcher()))),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    drop(listener);
    drop(tokio::time::timeout(GRACE, connections.shutdown()).await);
    Ok(ExitCode::SUCCESS)
}

/// Opens a TCP port and the UDP port of the same number, which another process may have.
async fn ports() -> io::Result<(TcpListener, UdpSocket)> {
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        match UdpSocket::bind(listener.local_addr()?).await {
            Ok(socket) => return Ok((listener, socket)),
            Err(error) if tries == PORT_TRIES_MAX => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

/// Sends every datagram back behind the name of the pod.
async fn echo_datagrams(socket: UdpSocket, pod: Arc<str>) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut datagram).await else { continue };
        let answer = [pod.as_bytes(), b": ", datagram.get(..length).unwrap_or_default()].concat();
        drop(writeln!(io::stdout().lock(), "UDP {client} {length}"));
        // The client may be gone, and the response may be too long.
        drop(socket.send_to(&answer, client).await);
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut waste = [0; 64];
    while matches!(stdin.read(&mut waste).await, Ok(read) if read > 0) {}
}

/// Serves one connection: HTTP/1.1 with upgrades, or HTTP/2 by prior knowledge.
async fn connection(stream: TcpStream, pod: Arc<str>, watcher: hyper_util::server::graceful::Watcher) {
    let service = service_fn(move |request| {
        let pod = Arc::clone(&pod);
        async move { Ok::<_, Infallible>(answer(request, &pod).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    // A connection that the client aborts is not worth reporting.
    drop(watcher.watch(connection).await);
}

async fn answer(mut request: Request<Incoming>, pod: &str) -> Response<Full<Bytes>> {
    if let Some(key) = websocket_key(request.headers()) {
        let accept = derive_accept_key(&key);
        tokio::spawn(echo_messages(hyper::upgrade::on(&mut request)));
        log(&request.into_parts().0, "101 -");
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, accept)
            .header(POD, pod);
        return response.body(Full::default()).unwrap_or_default();
    }
    let (head, mut body) = request.into_parts();
    let mut body_bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        body_bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    let json = head.headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"application/json"));
    let reply = EchoReply { pod, head: &head, body_bytes };
    log(&head, &format!("200 {body_bytes}"));
    let (kind, text) =
        if json { ("application/json", reply.json()) } else { ("text/plain; charset=utf-8", reply.text()) };
    let response = Response::builder().header(CONTENT_TYPE, kind).header(POD, pod);
    response.body(Full::from(text)).unwrap_or_default()
}

/// Writes the log line of a request, which the parent keeps as the log of the pod: method, path, version, host, status,
/// and the bytes of its body. Its reader may be gone.
fn log(head: &http::request::Parts, outcome: &str) {
    let http::request::Parts { method, uri, version, headers, .. } = head;
    let host = uri.host().or_else(|| headers.get(HOST)?.to_str().ok()).unwrap_or("-");
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    drop(writeln!(io::stdout().lock(), "{method} {path} {version:?} {host} {outcome}"));
}

/// The description of a request.
struct EchoReply<'a> {
    pod: &'a str,
    head: &'a http::request::Parts,
    body_bytes: usize,
}

impl EchoReply<'_> {
    fn headers(&self) -> impl Iterator<Item = (&str, String)> {
        let headers = self.head.headers.iter();
        headers.map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }

    fn text(&self) -> String {
        let http::request::Parts { method, uri, version, .. } = self.head;
        let headers: String = self.headers().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("pod: {}\n{method} {uri} {version:?}\n{headers}body: {} bytes\n", self.pod, self.body_bytes)
    }

    fn json(&self) -> String {
        let http::request::Parts { method, uri, version, .. } = self.head;
        let headers: Vec<(&str, String)> = self.headers().collect();
        let value = serde_json::json!({
            "pod": self.pod,
            "method": method.as_str(),
            "path": uri.path(),
            "query": uri.query(),
            "version": version_name(*version),
            "headers": headers,
            "body_bytes": self.body_bytes,
        });
        format!("{value}\n")
    }
}

fn version_name(version: Version) -> String {
    format!("{version:?}")
}

/// The key of a WebSocket handshake (RFC 6455 section 4.2.1); `None` for any other request.
fn websocket_key(headers: &HeaderMap) -> Option<Vec<u8>> {
    let upgrade = headers.get(UPGRADE)?;
    let key = headers.get(SEC_WEBSOCKET_KEY)?;
    upgrade.as_bytes().eq_ignore_ascii_case(b"websocket").then(|| key.as_bytes().to_vec())
}

/// Sends every message back until the peer closes.
async fn echo_messages(upgrade: hyper::upgrade::OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (sink, messages) = socket.split();
    let data = messages.filter(|message| {
        let data = message.as_ref().is_ok_and(|message| message.is_text() || message.is_binary());
        std::future::ready(data || message.is_err())
    });
    // The peer may end the connection at any time.
    drop(data.forward(sink).await);
}
