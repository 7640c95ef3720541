//! HTTP/2 streams of plain requests: backpressure, cancelled streams, and independence of streams.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::bed::{Bed, Model, PATIENCE};
use super::upstream::{Reply, Upstream};

const MOMENT: Duration = Duration::from_millis(300);

/// More than the kernel buffers of a connection hold on either side of the edge.
const MUCH: usize = 48 << 20;

/// The maximum number of bytes that the edge takes while the other side reads nothing.
const HELD_MAX: usize = 16 << 20;

/// A data plane in front of an endpoint that the test plays by hand.
pub async fn by_hand(set: impl FnOnce(&mut Options)) -> (Bed, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::with(Model::to(&[listener.local_addr().unwrap()]), set).await;
    (bed, listener)
}

pub async fn client(bed: &Bed, stream_window: u32) -> SendRequest<Bytes> {
    let mut builder = Builder::new();
    builder.initial_window_size(stream_window).initial_connection_window_size(1 << 24);
    let stream = bed.connect().await;
    stream.set_nodelay(true).unwrap();
    let (send, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

pub fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.test{path}")).body(()).unwrap()
}

pub fn post(length: Option<usize>) -> Request<()> {
    let request = Request::post("http://a.test/up");
    let request = length.into_iter().fold(request, |request, length| request.header("content-length", length));
    request.body(()).unwrap()
}

/// The head of a request that an endpoint receives.
pub async fn head(endpoint: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, endpoint.read_u8()).await.expect("no head").unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads the rest of a body; returns the reason if it is aborted.
pub async fn rest(body: &mut RecvStream) -> Result<usize, h2::Error> {
    let mut count = 0;
    while let Some(piece) = timeout(PATIENCE, body.data()).await.expect("no end") {
        let piece = piece?;
        count += piece.len();
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    Ok(count)
}

/// Sends as much as the windows allow; returns how much it was when nothing had moved for a while, or all of it.
pub async fn push(body: &mut SendStream<Bytes>, bytes: usize) -> usize {
    push_within(body, bytes, 2 * MOMENT).await
}

/// The same, where nothing has moved for this long.
async fn push_within(body: &mut SendStream<Bytes>, bytes: usize, stall: Duration) -> usize {
    let mut sent = 0;
    while sent < bytes {
        body.reserve_capacity((bytes - sent).min(16 << 10));
        let room = timeout(stall, std::future::poll_fn(|cx| body.poll_capacity(cx))).await;
        let Ok(Some(Ok(room))) = room else { break };
        let count = room.min(bytes - sent);
        body.send_data(Bytes::from(vec![b'x'; count]), false).unwrap();
        sent += count;
    }
    sent
}

pub async fn response(answered: h2::client::ResponseFuture) -> Response<RecvStream> {
    timeout(PATIENCE, answered).await.expect("no response").unwrap()
}

async fn check_lives(bed: &Bed, send: &mut SendRequest<Bytes>, listener: &TcpListener) {
    let (answered, _) = send.send_request(get("/next"), true).unwrap();
    let (mut endpoint, _) = listener.accept().await.unwrap();
    assert!(head(&mut endpoint).await.starts_with("GET /next "));
    endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    assert_eq!(rest(response(answered).await.body_mut()).await.unwrap(), 2);
    bed.until_metric("tidegate_requests_in_flight 0").await;
    check_native(bed);
}

#[track_caller]
fn check_native(bed: &Bed) {
    let metrics = bed.metrics();
    assert!(
        !metrics.contains(r#"tidegate_requests_by_driver_total{driver="pingora"} "#)
            || metrics.contains(r#"{driver="pingora"} 0"#)
    );
}

/// Sends a long response until nothing of it has been read for this long; returns how much was sent.
fn pour(mut endpoint: TcpStream, framing: &str, stall: Duration) -> tokio::task::JoinHandle<usize> {
    let framing = framing.to_owned();
    tokio::spawn(async move {
        head(&mut endpoint).await;
        endpoint.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).await.unwrap();
        let (mut sent, piece) = (0, vec![b'x'; 64 << 10]);
        while sent < MUCH {
            match timeout(stall, endpoint.write(&piece[..piece.len().min(MUCH - sent)])).await {
                Ok(Ok(count)) => sent += count,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        sent
    })
}

#[tokio::test]
async fn a_client_that_does_not_read_is_backpressured_and_then_reset() {
    let (bed, listener) = by_hand(|options| options.client.write_stall = 8 * MOMENT).await;
    let mut send = client(&bed, 64 << 10).await;
    let (answered, _) = send.send_request(get("/"), true).unwrap();
    let poured = pour(listener.accept().await.unwrap().0, "Connection: close", 4 * MOMENT);
    let mut body = response(answered).await.into_body();
    let poured = poured.await.unwrap();
    assert!(poured < HELD_MAX, "{poured} bytes were taken for a client that takes nothing");
    sleep(8 * MOMENT).await;
    assert_eq!(rest(&mut body).await.unwrap_err().reason(), Some(Reason::CANCEL));
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_the_whole_response() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    for framing in [format!("Content-Length: {MUCH}"), "Connection: close".to_owned()] {
        let (answered, _) = send.send_request(get("/"), true).unwrap();
        let poured = pour(listener.accept().await.unwrap().0, &framing, PATIENCE);
        let mut body = response(answered).await.into_body();
        sleep(MOMENT).await;
        assert_eq!((rest(&mut body).await.unwrap(), poured.await.unwrap()), (MUCH, MUCH));
    }
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_reset() {
    const BYTES: usize = 60_000;
    let body = "x".repeat(BYTES);
    let upstream = Upstream::start(move |_| Reply::ok(&body)).await;
    let bed = Bed::with(Model::to(&[upstream.address]), |options| options.client.write_stall = MOMENT).await;
    let mut send = client(&bed, 4 << 10).await;
    let (answered, _) = send.send_request(get("/"), true).unwrap();
    let mut body = response(answered).await.into_body();
    let mut read = 0;
    while let Some(piece) = timeout(PATIENCE, body.data()).await.unwrap() {
        let piece = piece.expect("it was given up").len();
        read += piece;
        body.flow_control().release_capacity(piece).unwrap();
        sleep(MOMENT / 6).await;
    }
    assert_eq!(read, BYTES);
    check_native(&bed);
}

#[tokio::test]
async fn an_endpoint_that_does_not_read_backpressures_the_client() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    for length in [Some(MUCH), None] {
        let (answered, mut body) = send.send_request(post(length), false).unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        let sent = push(&mut body, MUCH).await;
        assert!(sent < HELD_MAX, "{sent} bytes were taken for an endpoint that takes nothing");
        let head = head(&mut endpoint).await;
        let framing =
            length.map_or("transfer-encoding: chunked".to_owned(), |length| format!("content-length: {length}"));
        assert_eq!(head.to_lowercase().matches(&framing).count(), 1, "{head}");
        let reading = tokio::spawn(async move {
            let (mut read, mut bytes) = (0, vec![0; 64 << 10]);
            while read < MUCH {
                let count = endpoint.read(&mut bytes).await.unwrap();
                read += bytes[..count].iter().filter(|byte| **byte == b'x').count();
            }
            endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            (read, endpoint)
        });
        assert_eq!(push_within(&mut body, MUCH - sent, PATIENCE).await, MUCH - sent);
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(response(answered).await.status(), 200);
        assert_eq!(reading.await.unwrap().0, MUCH);
    }
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn a_stream_reset_is_noticed_in_every_phase() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    for phase in ["before the response", "within the body", "with more body than is taken", "within the response"] {
        let request = if phase.contains("body") { post(Some(MUCH)) } else { get("/") };
        let (answered, mut body) = send.send_request(request, !phase.contains("body")).unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        let mut begun = None;
        match phase {
            "within the body" => drop(push(&mut body, 1000).await),
            "with more body than is taken" => drop(push(&mut body, MUCH).await),
            "within the response" => {
                head(&mut endpoint).await;
                endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await.unwrap();
                begun = Some(response(answered).await);
            }
            _ => drop(head(&mut endpoint).await),
        }
        sleep(MOMENT / 6).await;
        body.send_reset(Reason::CANCEL);
        drop((body, begun));
        // All bytes that arrived, and then the end.
        let gone = timeout(PATIENCE, async { while matches!(endpoint.read(&mut [0; 1 << 16]).await, Ok(1..)) {} });
        gone.await.unwrap_or_else(|_| panic!("nobody noticed {phase}"));
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn an_endpoint_that_disconnects_resets_only_its_stream() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    for begun in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let (answered, _) = send.send_request(get("/"), true).unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        head(&mut endpoint).await;
        endpoint.write_all(begun.as_bytes()).await.unwrap();
        let mut body = response(answered).await.into_body();
        drop(endpoint);
        assert!(rest(&mut body).await.unwrap_err().is_reset(), "{begun}");
    }
    let (answered, _) = send.send_request(get("/"), true).unwrap();
    // As often as attempts are allowed, because no response had begun.
    for _ in 0..tidegate_config::model::Effective::DEFAULT.tries_max {
        drop(listener.accept().await.unwrap());
    }
    assert_eq!(response(answered).await.status(), 502);
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn a_body_that_contradicts_content_length_is_a_stream_error() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    for sent in [5, 15] {
        let (answered, mut body) = send.send_request(post(Some(10)), false).unwrap();
        let (mut endpoint, _) = listener.accept().await.unwrap();
        body.send_data(Bytes::from(vec![b'x'; sent]), true).unwrap();
        let error = timeout(PATIENCE, answered).await.expect("no reset").unwrap_err();
        assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
        let mut seen = Vec::new();
        timeout(PATIENCE, endpoint.read_to_end(&mut seen)).await.expect("the endpoint waits for the rest").ok();
        assert!(seen.iter().filter(|byte| **byte == b'X').count() == 0 && !seen.ends_with(&[b'x'; 10]));
    }
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn an_early_answer_arrives_whole_and_stops_the_request_body() {
    let (bed, listener) = by_hand(|_| ()).await;
    let mut send = client(&bed, 64 << 10).await;
    let (answered, mut body) = send.send_request(post(None), false).unwrap();
    let (mut endpoint, _) = listener.accept().await.unwrap();
    push(&mut body, 1000).await;
    head(&mut endpoint).await;
    endpoint.write_all(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
    let mut response = response(answered).await;
    assert_eq!((response.status().as_u16(), rest(response.body_mut()).await.unwrap()), (413, 2));
    let reset = timeout(PATIENCE, std::future::poll_fn(|cx| body.poll_reset(cx))).await.expect("no reset").unwrap();
    assert_eq!(reset, Reason::NO_ERROR);
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn a_stalled_request_body_is_answered() {
    let (bed, listener) = by_hand(|options| options.client.body_read_stall = MOMENT).await;
    let mut send = client(&bed, 64 << 10).await;
    let (answered, mut body) = send.send_request(post(Some(10)), false).unwrap();
    let _endpoint = listener.accept().await.unwrap();
    push(&mut body, 5).await;
    assert_eq!(response(answered).await.status(), 408);
    check_lives(&bed, &mut send, &listener).await;
}

#[tokio::test]
async fn concurrent_and_consecutive_streams_are_served() {
    let upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let send = client(&bed, 64 << 10).await;
    for round in 0..20 {
        let asked = (0..50).map(|number| {
            let (mut send, path) = (send.clone(), format!("/{round}/{number}"));
            async move {
                let (answered, _) = send.send_request(get(&path), true).unwrap();
                let mut body = response(answered).await.into_body();
                let text = timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap();
                assert_eq!(text, format!("GET {path} HTTP/1.1"));
            }
        });
        join_all(asked).await;
    }
    bed.until_metric(r#"tidegate_requests_by_driver_total{driver="native"} 1000"#).await;
    // Connections to endpoints are reused: there were never more than concurrent streams.
    let metrics = bed.metrics();
    let opened = metrics.lines().find_map(|l| l.strip_prefix(r#"tidegate_upstream_connects_total{result="opened"} "#));
    assert!(opened.unwrap().parse::<u32>().unwrap() <= 50, "{metrics}");
}

#[tokio::test]
async fn a_stream_on_a_closed_idle_connection_is_retried() {
    let mut upstream = Upstream::start(|seen| if seen.number == 2 { Reply::Close } else { Reply::ok("done") }).await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let mut send = client(&bed, 64 << 10).await;
    for _ in 0..2 {
        let (answered, _) = send.send_request(get("/"), true).unwrap();
        assert_eq!(response(answered).await.status(), 200);
    }
    let numbers = [upstream.seen().await.number, upstream.seen().await.number, upstream.seen().await.number];
    assert_eq!(numbers, [1, 2, 1]);
    check_native(&bed);
}

#[tokio::test]
async fn requests_beyond_plain_http_use_the_pingora_driver() {
    for (name, value, driver) in [
        ("accept", "*/*", "native"),
        ("content-type", "application/json", "native"),
        ("content-type", "application/grpc", "native"),
        ("te", "trailers", "native"),
        ("trailer", "x-sum", "native"),
        ("expect", "100-continue", "native"),
        ("expect", "something else", "pingora"),
        ("proxy-authorization", "x", "native"),
    ] {
        let upstream = Upstream::echo().await;
        let bed = Bed::start(Model::to(&[upstream.address])).await;
        let request = Request::get("http://a.test/").header(name, value).body(()).unwrap();
        let (answered, _) = client(&bed, 64 << 10).await.send_request(request, true).unwrap();
        assert_eq!(response(answered).await.status(), 200);
        bed.until_metric(&format!(r#"tidegate_requests_by_driver_total{{driver="{driver}"}} 1"#)).await;
    }
}

#[tokio::test]
async fn our_answers_to_head_end_the_stream() {
    for driver in [Driver::Both, Driver::Pingora] {
        let bed = Bed::with(Model::to(&[]), |options| options.driver = driver).await;
        let request = Request::head("http://a.test/").body(()).unwrap();
        let (answered, _) = client(&bed, 64 << 10).await.send_request(request, true).unwrap();
        let mut response = response(answered).await;
        assert_eq!((response.status().as_u16(), rest(response.body_mut()).await.unwrap()), (503, 0));
    }
}
