//! Compressed responses: from HTTP/2 endpoints, whose bodies end with their last bytes, after them, or with trailers;
//! without a body; and their share of the memory budget.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, Response};
use tidegate_config::model::{AppProtocol, Compression, DisabledAgents, MediaTypes, Proxied, Route, Settings};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

use super::bed::{Answer, Bed, Model, PATIENCE, answer_without_body, route};
use super::streams;

/// An endpoint that ends its bodies as the path determines.
async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(serve(request.uri().path().to_owned(), respond));
                }
            });
        }
    });
    address
}

async fn serve(path: String, mut respond: h2::server::SendResponse<Bytes>) {
    let head = Response::builder().header("content-type", "text/html");
    let uncounted = path == "/head" || path == "/uncounted";
    let head = if uncounted { head } else { head.header("content-length", 12) };
    let mut body = respond.send_response(head.body(()).unwrap(), path == "/head").unwrap();
    if path == "/head" {
        return;
    }
    body.send_data("hello, ".into(), false).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    body.send_data("world".into(), path == "/data" || path == "/uncounted").unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    match path.as_str() {
        "/empty-data" => body.send_data(Bytes::new(), true).unwrap(),
        "/trailers" => {
            let trailers = [(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))];
            body.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
        }
        _ => {}
    }
}

/// A route whose responses are compressed.
fn compressed(protocol: AppProtocol) -> Route {
    let compression = Compression {
        level: 5,
        length_min: 1,
        types: MediaTypes::new(std::iter::empty()),
        http10: true,
        proxied: [Proxied::Any].into(),
        disabled: DisabledAgents::Nobody,
        vary: true,
    };
    let mut route = route("web", protocol);
    route.settings = Arc::new(Settings { compression: Some(Arc::new(compression)), ..Settings::default() });
    route
}

async fn bed() -> Bed {
    let endpoint = endpoint().await;
    Bed::start(Model::default().route("a.test", compressed(AppProtocol::H2c)).backend("web", &[endpoint])).await
}

fn decoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn compressed_responses_end_however_the_endpoint_ends_them() {
    let bed = bed().await;
    for path in ["/data", "/empty-data", "/trailers"] {
        let mut client = streams::client(&bed, 65_535).await;
        let mut request = streams::get(path);
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
        let (answered, _) = client.send_request(request, true).unwrap();
        let response = streams::response(answered).await;
        assert_eq!(response.headers()["content-encoding"], "gzip", "{path}");
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        while let Some(piece) = timeout(PATIENCE, body.data()).await.expect("it goes on") {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            bytes.extend_from_slice(&piece);
        }
        assert_eq!(decoded(&bytes), "hello, world", "{path} over HTTP/2");

        let mut stream = bed.connect().await;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("it goes on").unwrap();
        let end = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert!(received.ends_with(b"\r\n0\r\n\r\n"), "{path} over HTTP/1.1");
        assert_eq!(decoded(&unchunked(&received[end..])), "hello, world", "{path} over HTTP/1.1");
    }
    bed.drain().await;
}

/// The content of chunks.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        content.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    content
}

#[tokio::test]
async fn an_http2_response_that_may_have_ended_is_not_compressed() {
    let bed = bed().await;
    for (path, want) in [("/head", ""), ("/uncounted", "hello, world")] {
        let answer = bed.get("a.test", path, "Accept-Encoding: gzip\r\n").await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, None), "{}", answer.head);
        assert_eq!(String::from_utf8_lossy(&unchunked(answer.body.as_bytes())), want, "{path}");
    }
    bed.drain().await;
}

#[tokio::test]
async fn http10_clients_get_http2_responses_with_content_length_unchunked() {
    let bed = bed().await;
    let answer = bed.ask("GET /data HTTP/1.0\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n").await;
    assert_eq!((answer.header("content-encoding"), answer.header("transfer-encoding")), (None, None));
    assert_eq!((answer.header("vary"), answer.body.as_str()), (Some("accept-encoding"), "hello, world"));
    bed.drain().await;
}

#[tokio::test]
async fn http10_clients_get_http2_responses_without_content_length_unchunked() {
    let bed = bed().await;
    for path in ["/uncounted", "/data"] {
        let answer = bed.ask(&format!("GET {path} HTTP/1.0\r\nHost: a.test\r\n\r\n")).await;
        assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None), "{}", answer.head);
        assert_eq!(answer.body, "hello, world", "{path}");
    }
    bed.drain().await;
}

/// An endpoint that answers every request with this head, and without a body.
async fn heads(head: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while stream.read_buf(&mut asked).await.unwrap_or(0) > 0 {
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        stream.write_all(head.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_bodyless_compressible_response_keeps_the_connection() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"1\"\r\nContent-Length: 5000\r\n\r\n";
    let unmodified = "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 5000\r\n\r\n";
    for driver in [Driver::Both, Driver::Pingora] {
        for (method, head, coding) in [("HEAD", page, Some("gzip")), ("GET", unmodified, None)] {
            let model = Model::default().route("a.test", compressed(AppProtocol::Http));
            let model = model.backend("web", &[heads(head).await]);
            let bed = Bed::with(model, |options| options.driver = driver).await;
            let mut stream = bed.connect().await;
            for version in ["1.1", "1.1", "1.0"] {
                let ask = format!("{method} / HTTP/{version}\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n");
                stream.write_all(ask.as_bytes()).await.unwrap();
                let answer: Answer = answer_without_body(&mut stream).await;
                assert_eq!(answer.header("content-encoding"), coding, "{driver:?} {method}: {}", answer.head);
                assert_eq!(answer.header("etag"), Some("w/\"1\""), "{driver:?} {method}: {}", answer.head);
                assert_eq!(answer.header("vary"), Some("accept-encoding"));
                assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), (None, None));
                assert_eq!(answer.body, "");
            }
            // An HTTP/1.0 client's connection ends with its response.
            let mut rest = Vec::new();
            timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it stays open").unwrap();
            assert_eq!(rest, b"");
            bed.drain().await;
        }
    }
}

/// Checks how many streams of one client are compressed under a memory budget with a share for one client in percent,
/// and that another client is still served.
async fn check_streams(driver: Driver, memory_kib: u64, client_share: u8, want: usize) {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nevent\n\r\n";
    let model = Model::default().route("a.test", compressed(AppProtocol::Http)).backend("web", &[heads(events).await]);
    let bed = Bed::with(model, |options| {
        options.driver = driver;
        options.budget.memory_kib = memory_kib;
        options.budget.client_share = client_share;
    })
    .await;
    let (mut streams, mut count) = (Vec::new(), 0);
    for _ in 0..20 {
        let mut stream = bed.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n").await.unwrap();
        let answer = answer_without_body(&mut stream).await;
        assert_eq!(answer.status, 200, "{}", answer.head);
        count += usize::from(answer.header("content-encoding").is_some());
        streams.push(stream);
    }
    assert_eq!(count, want, "{driver:?} of {memory_kib} KiB, {client_share} %");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 7], 0).into()).unwrap();
    let mut other = socket.connect(bed.address).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    assert_eq!(answer_without_body(&mut other).await.status, 200);
    drop(streams);
    drop(other);
    bed.until_metric("tidegate_budget_memory_bytes 0").await;
    bed.drain().await;
}

#[tokio::test]
async fn compression_stops_under_memory_pressure_and_refuses_no_stream() {
    // A connection takes 8 KiB, a request 64 or 256, an encoder 376. Twenty requests are less than half of what there
    // is.
    check_streams(Driver::Both, 8_000, 25, 4).await;
    check_streams(Driver::Pingora, 16_000, 25, 6).await;
    check_streams(Driver::Both, 16_000, 5, 1).await;
    check_streams(Driver::Both, 16_000, 100, 8).await;
}
