//! HTTP/2 on both sides, as gRPC uses it: with trailers in the response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use tidegate_config::model::{AppProtocol, Filter, PathRewrite, Settings};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, route};
use super::upstream::Upstream;

/// A plain-text HTTP/2 server that returns each piece of the body as it arrives, then trailers.
async fn grpc_like() -> (std::net::SocketAddr, UnboundedReceiver<http::request::Parts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let (parts, body) = request.into_parts();
                    if parts.uri.path() != "/silent" {
                        tokio::spawn(echo(body, respond));
                    } else {
                        // Kept, so that the stream stays open and silent.
                        std::mem::forget((body, respond));
                    }
                    sender.send(parts).ok();
                }
            });
        }
    });
    (address, seen)
}

async fn echo(mut body: h2::RecvStream, mut respond: h2::server::SendResponse<Bytes>) -> Option<()> {
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(response, false).ok()?;
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).ok()?;
        stream.send_data(piece, false).ok()?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).ok()
}

async fn client(bed: &Bed) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(bed.address).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

fn model(address: std::net::SocketAddr, settings: Settings) -> Model {
    let mut route = route("grpc", AppProtocol::H2c);
    route.settings = Arc::new(settings);
    Model::default().route("a.test", route).backend("grpc", &[address])
}

fn post(path: &str) -> Request<()> {
    let uri = format!("http://a.test{path}");
    let request = Request::post(uri).header("te", "trailers").header("content-type", "application/grpc");
    request.header("x-forwarded-for", "198.51.100.1").body(()).unwrap()
}

#[tokio::test]
async fn a_bidirectional_stream_ends_with_trailers() {
    let (upstream, mut seen) = grpc_like().await;
    let bed = Bed::start(model(upstream, Settings::default())).await;
    let mut send = client(&bed).await;
    let (response, mut body) = send.send_request(post("/svc/a/../Call"), false).unwrap();
    body.send_data(Bytes::from_static(b"one"), false).unwrap();
    let response = timeout(PATIENCE, response).await.unwrap().unwrap();
    let mut stream = response.into_body();
    // The second piece is sent after the first has been returned.
    assert_eq!(timeout(PATIENCE, stream.data()).await.unwrap().unwrap().unwrap(), "one");
    body.send_data(Bytes::from_static(b"two"), true).unwrap();
    assert_eq!(timeout(PATIENCE, stream.data()).await.unwrap().unwrap().unwrap(), "two");
    let trailers = timeout(PATIENCE, stream.trailers()).await.unwrap().unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");

    let seen = timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
    assert_eq!((seen.uri.authority().unwrap().as_str(), seen.uri.path()), ("a.test", "/svc/Call"));
    assert_eq!(
        (&seen.headers["te"], &seen.headers["x-forwarded-for"]),
        (&"trailers".parse().unwrap(), &"127.0.0.1".parse().unwrap())
    );
    assert_eq!(seen.headers["x-forwarded-host"], "a.test");
}

#[tokio::test]
async fn http1_clients_reach_http2_endpoints() {
    let (upstream, mut seen) = grpc_like().await;
    let bed = Bed::start(model(upstream, Settings::default())).await;
    let lines = "TE: trailers\r\nContent-Length: 3\r\n\r\nabc";
    let answer = bed.ask(&format!("POST http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n{lines}")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("abc"));
    let seen = timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
    assert_eq!(
        (seen.uri.to_string().as_str(), &seen.headers["te"]),
        ("http://a.test/x?y", &"trailers".parse().unwrap())
    );
}

#[tokio::test]
async fn http2_clients_reach_http1_endpoints() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let mut send = client(&bed).await;
    let (response, mut body) = send.send_request(post("/a/./b?c"), false).unwrap();
    body.send_data(Bytes::from_static(b"abc"), true).unwrap();
    assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
    let seen = upstream.seen().await;
    assert_eq!((seen.line.as_str(), seen.header("host").as_str()), ("POST /a/b?c HTTP/1.1", "a.test"));
    assert!(seen.body.contains("abc") && seen.header("te").is_empty());
}

#[tokio::test]
async fn cookies_reach_http1_endpoints_as_one_line() {
    for driver in [Driver::Both, Driver::Pingora] {
        let mut upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        for (cookies, want) in [(&["a=b"][..], "a=b"), (&["a=b", "c=d; e=f", "g=h"], "a=b; c=d; e=f; g=h")] {
            let request = cookies
                .iter()
                .fold(Request::get("http://a.test/"), |request, cookie| request.header("cookie", *cookie));
            let (response, _) = client(&bed).await.send_request(request.body(()).unwrap(), true).unwrap();
            assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
            assert_eq!(upstream.seen().await.header("cookie"), want, "{driver:?}");
        }
    }
}

#[tokio::test]
async fn our_answers_are_sent_over_http2_too() {
    let (upstream, _seen) = grpc_like().await;
    let moment = Some(Duration::from_millis(200));
    let bed = Bed::start(model(upstream, Settings { read_timeout: moment, ..Settings::default() })).await;
    let mut send = client(&bed).await;
    for (host, path, status) in [("b.test", "/", 404), ("a.test", "/../x", 400), ("a.test", "/silent", 504)] {
        let request = Request::get(format!("http://{host}{path}")).body(()).unwrap();
        let (response, _) = send.send_request(request, true).unwrap();
        let response = timeout(PATIENCE, response).await.unwrap().unwrap();
        assert_eq!(response.status(), status, "{host}{path}");
        assert!(response.headers().contains_key("x-request-id"));
        let mut body = response.into_body();
        let text = timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap();
        assert!(text.starts_with(status.to_string().as_bytes()));
    }
}

#[tokio::test]
async fn grpc_clients_get_failures_as_trailers_only() {
    let (upstream, _seen) = grpc_like().await;
    let moment = Some(Duration::from_millis(200));
    let settings = Settings { request_timeout: moment, ..Settings::default() };
    for driver in [Driver::Both, Driver::Pingora] {
        let model = model(upstream, settings.clone()).route("c.test", route("nobody", AppProtocol::Http));
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let mut send = client(&bed).await;
        for (host, path, status, message) in [
            ("b.test", "/svc/Call", "12", "no-route"),
            ("c.test", "/svc/Call", "14", "no-endpoints"),
            ("a.test", "/silent", "4", "upstream-timeout"),
        ] {
            let request = Request::post(format!("http://{host}{path}")).header("content-type", "application/grpc");
            let (response, _body) = send.send_request(request.body(()).unwrap(), false).unwrap();
            let response = timeout(PATIENCE, response).await.unwrap();
            // The Pingora driver resets the stream of an overdue response.
            let Ok(response) = response else {
                assert_eq!(path, "/silent", "{driver:?}: {host}");
                continue;
            };
            let text = |name: &str| response.headers()[name].to_str().unwrap();
            assert_eq!((response.status().as_u16(), text("content-type")), (200, "application/grpc"), "{driver:?}");
            assert_eq!((text("grpc-status"), text("grpc-message")), (status, message), "{driver:?}: {host}");
            assert!(response.body().is_end_stream(), "{driver:?}: the head of {host} is not the end");
        }
    }
}

#[tokio::test]
async fn a_rewritten_host_is_the_authority_over_http2() {
    let (upstream, mut seen) = grpc_like().await;
    let mut route = route("grpc", AppProtocol::H2c);
    route.filters = [Filter::Host("c.internal".into()), Filter::Path(PathRewrite::Full("/new".into()))].into();
    let bed = Bed::start(Model::default().route("a.test", route).backend("grpc", &[upstream])).await;
    bed.get("a.test", "/x?y", "").await;
    let (response, _) =
        client(&bed).await.send_request(Request::get("http://a.test/x?y").body(()).unwrap(), true).unwrap();
    assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
    for _ in 0..2 {
        let seen = timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
        assert_eq!(seen.uri.to_string(), "http://c.internal/new?y");
        assert!(!seen.headers.contains_key("host"));
    }
}

/// The first frame of a stream after a GET of a target, as its type and payload (RFC 9113 section 4.1). Frames are
/// written by hand, because no client library sends these.
async fn first_frame(bed: &Bed, target: &str) -> (u8, Vec<u8>) {
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let text = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // GET and http from the static table, then `:authority` and `:path` as they are (RFC 7541 section 6.2.2).
    let block = [&[0x82, 0x86][..], &text(1, "a.test"), &text(4, target)].concat();
    let head = [0, 0, u8::try_from(block.len()).unwrap(), 1, 0x5, 0, 0, 0, 1];
    let mut stream = bed.connect().await;
    let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SETTINGS, &head, &block].concat();
    stream.write_all(&sent).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        if head[5..] == [0, 0, 0, 1] {
            return (head[3], payload);
        }
    }
}

#[tokio::test]
async fn targets_with_spaces_or_control_characters_are_reset() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];
    for driver in [Driver::Both, Driver::Pingora] {
        let mut upstream = Upstream::echo().await;
        let bed = Bed::with(Model::to(&[upstream.address]), |options| options.driver = driver).await;
        for target in
            ["/s x", "/ ", "/?s x", "/s\tx", "/s\r\nx", "/s\0", "/s\x01", "/s\x1f", "/s\x7f", "/?s\x7f", "/?\x01"]
        {
            let frame = timeout(PATIENCE, first_frame(&bed, target)).await.unwrap();
            assert_eq!(frame, (RST_STREAM, PROTOCOL_ERROR.to_vec()), "{driver:?}: {target:?}");
            assert!(upstream.is_quiet(), "{driver:?}: {target:?} reached the endpoint");
        }
        let (frame, block) = timeout(PATIENCE, first_frame(&bed, "/s%20x")).await.unwrap();
        // 200 is one byte in the static table.
        assert_eq!((frame, block[0]), (HEADERS, 0x88), "{driver:?}");
        assert_eq!(upstream.seen().await.line, "GET /s%20x HTTP/1.1");
    }
}
