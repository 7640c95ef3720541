//! The memory for HTTP/2 streams whose clients do not read long responses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, missing_docs, missing_debug_implementations, reason = "nothing outside uses a test bed")]
#![allow(dead_code, reason = "the bed is that of other tests too")]

mod anyone;
mod edge_process;
#[path = "drivers/secure.rs"]
mod secure;
mod request {
    pub mod bed;
}

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use edge_process::Edge;
use h2::client::{Builder, SendRequest};
use request::bed::PATIENCE;
use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// The number of streams of a connection, and of connections.
const STREAMS: usize = 125;
const CONNECTIONS: usize = 4;

/// The size of a response in bytes.
const MUCH: usize = 8 << 20;

/// How a client takes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stall {
    /// It has no flow-control window.
    Window,
    /// It has large windows, and reads nothing from its socket.
    Socket,
}

/// The socket of a client that may stop reading it.
struct Deaf<R> {
    read: R,
    is_deaf: bool,
}

impl<R: AsyncRead + Unpin> AsyncRead for Deaf<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.is_deaf { Poll::Pending } else { Pin::new(&mut this.read).poll_read(cx, into) }
    }
}

/// An endpoint with responses larger than all buffers.
async fn endpoint(protocol: AppProtocol) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = secure::acceptor();
    tokio::spawn(async move {
        while let Ok((endpoint, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match protocol {
                    AppProtocol::H2c => answer_in_frames(endpoint).await,
                    AppProtocol::Https => {
                        if let Ok(secured) = acceptor.accept(endpoint).await {
                            answer(secured).await;
                        }
                    }
                    AppProtocol::Http | AppProtocol::H2 | AppProtocol::Ws => answer(endpoint).await,
                }
            });
        }
    });
    address
}

#[tokio::test]
#[ignore = "the process with the edge, which the other test starts"]
async fn edge() {
    edge_process::serve().await;
}

/// Answers every request of a connection with as much as its windows allow.
async fn answer_in_frames(endpoint: TcpStream) {
    let mut connection = h2::server::handshake(endpoint).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        ANSWERED.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            let mut left = MUCH;
            while left > 0 {
                body.reserve_capacity(left.min(MANY.len()));
                let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
                let Some(Ok(room)) = room else { return };
                left -= room;
                body.send_data(Bytes::from_static(&MANY[..room]), left == 0).unwrap();
            }
        });
    }
}

/// The requests that endpoints have got.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);

static MANY: [u8; 1 << 16] = [b'x'; 1 << 16];

/// Answers one request with a response larger than all buffers.
async fn answer(mut endpoint: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = [0; 2048];
    // On a busy machine, the edge may give up a connection during its handshake.
    let Ok(count @ 1..) = endpoint.read(&mut head).await else { return };
    ANSWERED.fetch_add(1, Relaxed);
    let chunked = head[..count].windows(8).any(|window| window == b"/chunked");
    let framing = if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {MUCH}") };
    endpoint.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).await.unwrap();
    if chunked {
        endpoint.write_all(format!("{MUCH:x}\r\n").as_bytes()).await.unwrap();
    }
    for _ in 0..MUCH / MANY.len() {
        if endpoint.write_all(&MANY).await.is_err() || endpoint.flush().await.is_err() {
            return;
        }
    }
}

/// A client that takes nothing.
async fn client(edge: &Edge, stall: Stall) -> SendRequest<Bytes> {
    let window = if stall == Stall::Window { 0 } else { 1 << 30 };
    let mut builder = Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 30);
    builder.initial_max_send_streams(STREAMS);
    let stream = TcpStream::connect(edge.address).await.unwrap();
    let (read, write) = stream.into_split();
    let stream = tokio::io::join(Deaf { read, is_deaf: stall == Stall::Socket }, write);
    let (send, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

/// Checks the maximum memory in KiB of a stream whose client reads nothing.
async fn check(driver: Driver, protocol: AppProtocol, path: &str, stall: Stall, kib_max: usize) {
    let edge = Edge::start(driver, protocol, endpoint(protocol).await);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(client(&edge, stall).await);
    }
    let before = edge.settled().await;
    let (answered, count) = (ANSWERED.load(Relaxed), STREAMS * CONNECTIONS);
    let mut streams = Vec::new();
    for connection in &mut connections {
        for _ in 0..STREAMS {
            let get = http::Request::get(format!("http://a.test{path}")).body(()).unwrap();
            streams.push(connection.clone().ready().await.unwrap().send_request(get, true).unwrap().0);
        }
    }
    let all = async {
        while ANSWERED.load(Relaxed) < answered + count {
            sleep(Duration::from_millis(10)).await;
        }
    };
    // On a busy machine, the edge may give a connection up, and answer itself.
    timeout(PATIENCE, all).await.ok();
    let stalled = ANSWERED.load(Relaxed) - answered;
    assert!(stalled > count / 2, "{driver:?} {protocol:?} {path} {stall:?}: {stalled} requests got through");
    let each = (edge.settled().await - before) / stalled;
    println!("{driver:?} {protocol:?} {path} {stall:?}: {each} KiB a stream of {stalled}");
    assert!(each <= kib_max, "{driver:?} {protocol:?} {path} {stall:?}: {each} KiB a stream");
}

#[tokio::test]
async fn a_stalled_stream_needs_little_memory() {
    // A client that does not read its socket has besides what waits in h2.
    for (stall, more) in [(Stall::Window, 0), (Stall::Socket, 32)] {
        for path in ["/", "/chunked"] {
            check(Driver::Both, AppProtocol::Http, path, stall, 64 + more).await;
            check(Driver::Pingora, AppProtocol::Http, path, stall, 64 + more).await;
        }
        // The connection to the endpoint is counted, with the state of TLS.
        check(Driver::Both, AppProtocol::Https, "/", stall, 64 + more).await;
        check(Driver::Both, AppProtocol::H2c, "/", stall, 64 + more).await;
    }
}
