//! A small HTTP/1.1 server for the process's own pages: one request a connection, short deadlines, TCP or unix socket.
//! It never carries the traffic of the edge.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::serve::Listener;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidegate_lite::head_bytes;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// The maximum size of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The number of concurrent connections to one socket.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// The limits on unknown clients that reach the port.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The number of concurrent connections. A further one closes the oldest: idle connections lose their places to
    /// those that send a request, so that a kubelet is always answered.
    connections: usize,
    /// From the beginning of a connection to the end of its request's head.
    head: Duration,
    /// The whole life of a connection, including the client's reading of the answer.
    life: Duration,
}

/// The files of the process's own pages, of which there are two sockets, come out of its reserve.
const LIMITS: Limits =
    Limits { connections: CONNECTIONS_MAX, head: Duration::from_secs(2), life: Duration::from_secs(30) };

/// Serves until told to stop. Responses in progress are then cut: clients of these pages retry.
pub(crate) async fn serve<L: Listener>(listener: L, pages: Router, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        never = accept(listener, pages, LIMITS) => match never {},
    }
}

async fn accept<L: Listener>(mut listener: L, pages: Router, limits: Limits) -> Infallible {
    let mut tasks = JoinSet::new();
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (stream, _) = listener.accept().await;
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.connections
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let pages = TowerToHyperService::new(pages.clone());
        let pages = service_fn(move |request: Request<Incoming>| {
            let (parts, body) = request.into_parts();
            // hyper limits only what it reads before the end of the head has arrived.
            let is_too_large = head_bytes(&parts) > HEAD_BYTES_MAX;
            let answer = (!is_too_large).then(|| pages.call(Request::from_parts(parts, body)));
            async move {
                match answer {
                    Some(answer) => answer.await,
                    None => Ok(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response()),
                }
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(false)
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), pages);
        // A connection that the client aborts is not worth reporting.
        open.push_back(tasks.spawn(async move { drop(tokio::time::timeout(limits.life, connection).await) }));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Longer than any test lasts: a test that passes with it does not depend on a deadline.
    const NEVER: Duration = Duration::from_secs(3600);
    /// Long enough for a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn start(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Router::new()
            .route("/healthz", get(async || "ok\n"))
            // More than the buffers of both sockets hold.
            .route("/long", get(async || vec![b'x'; 64 << 20]));
        tokio::spawn(accept(listener, pages, limits));
        address
    }

    async fn open(address: SocketAddr, sent: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream
    }

    /// Reads everything until the connection ends.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("an end");
        // A cut connection is an end as well.
        drop(read);
        String::from_utf8(text).unwrap()
    }

    /// Holds more connections than the limit, each with these bytes sent, and requests health.
    #[track_caller]
    fn check_held(sent: &'static str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let limits = Limits { connections: 8, head: NEVER, life: NEVER };
            let address = start(limits).await;
            let mut held = Vec::new();
            for _ in 0..limits.connections + 3 {
                held.push(open(address, sent).await);
            }
            let asked = open(address, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
            let answer = rest(asked).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{caller}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn health_is_answered_while_others_hold_connections() {
        check_held("").await;
        check_held("GET /healthz HTTP/1.1\r\nHo").await;
        check_held("GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await;
    }

    #[tokio::test]
    async fn a_connection_does_not_live_long() {
        let moment = Duration::from_millis(50);
        let address = start(Limits { connections: 8, head: moment, life: NEVER }).await;
        assert!(!rest(open(address, "GET /he").await).await.contains("200"));
        let address = start(Limits { connections: 8, head: NEVER, life: moment }).await;
        assert_eq!(rest(open(address, "").await).await, "");
        let slow = open(address, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await;
        tokio::time::sleep(moment * 4).await;
        assert!(rest(slow).await.len() < 64 << 20, "an answer that nobody read was not cut");
    }

    /// Sends a head of this many bytes in pieces of a size. Returns whether it is answered with a status.
    #[track_caller]
    fn check_head(bytes: usize, piece: usize, status: u16) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let mut stream = open(start(Limits { connections: 8, head: NEVER, life: NEVER }).await, "").await;
            let (begin, end) = ("GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", "\r\n\r\n");
            let head = format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()));
            for part in head.as_bytes().chunks(piece) {
                // A head that is refused before its end is not read any further.
                if stream.write_all(part).await.is_err() {
                    break;
                }
            }
            let answer = rest(stream).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{caller}: in pieces of {piece}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn a_head_beyond_the_limit_is_refused_however_it_arrives() {
        for piece in [usize::MAX, HEAD_BYTES_MAX - 1, 4096, 1000] {
            check_head(HEAD_BYTES_MAX, piece, 200).await;
            check_head(HEAD_BYTES_MAX + 1, piece, 431).await;
            check_head(HEAD_BYTES_MAX * 2 - 1, piece, 431).await;
        }
    }

    #[tokio::test]
    async fn one_request_a_connection() {
        let address = start(LIMITS).await;
        let twice = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
        assert_eq!(rest(open(address, &twice).await).await.matches("HTTP/1.1 200").count(), 1);
    }
}
