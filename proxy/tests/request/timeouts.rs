//! The deadline for the beginning of a response, and conditions that do not affect it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use tidegate_config::model::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::bed::{Answer, Bed, Model, PATIENCE, answer, answer_without_body};
use super::upgrades::websocket_echo;
use super::upstream::{Reply, Upstream};
use tidegate_proxy::Driver;

pub const MOMENT: Duration = Duration::from_millis(300);

pub fn timed(endpoint: std::net::SocketAddr, settings: Settings) -> Model {
    Model::edited(&[endpoint], |route| route.settings = Arc::new(settings))
}

fn whole_request() -> Settings {
    Settings { request_timeout: Some(MOMENT), ..Settings::default() }
}

#[track_caller]
pub fn check_504(answer: &Answer, began: Instant) {
    assert_eq!(answer.status, 504, "{}{}", answer.head, answer.body);
    assert!(answer.body.contains("reason: upstream-timeout\n"), "{}", answer.body);
    assert!((MOMENT..PATIENCE / 2).contains(&began.elapsed()), "after {:?}", began.elapsed());
}

const ASK: &str = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn the_response_timeout_applies_to_upgrades() {
    let upstream = Upstream::start(|_| Reply::Silence).await;
    let read = Settings { read_timeout: Some(MOMENT), ..Settings::default() };
    for settings in [read, whole_request()] {
        let bed = Bed::start(timed(upstream.address, settings)).await;
        let began = now();
        check_504(&bed.ask(ASK).await, began);
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}

/// Asking for an upgrade gives a response no longer time than every other one has.
#[tokio::test]
async fn a_refused_upgrade_has_the_read_timeout_of_a_request() {
    for driver in [Driver::Both, Driver::Pingora] {
        for framing in ["Content-Length: 100", "Transfer-Encoding: chunked", "X-Framed-By: close"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let settings = Settings { read_timeout: Some(MOMENT), ..Settings::default() };
            let model = timed(listener.local_addr().unwrap(), settings);
            let bed = Bed::with(model, |options| options.driver = driver).await;
            let mut stream = bed.connect().await;
            stream.write_all(ASK.as_bytes()).await.unwrap();
            let mut endpoint = listener.accept().await.unwrap().0;
            let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n1\r\nx\r\n");
            endpoint.write_all(head.as_bytes()).await.unwrap();
            let mut said = Vec::new();
            let read = timeout(PATIENCE, stream.read_to_end(&mut said));
            read.await.unwrap_or_else(|_| panic!("{driver:?} {framing}: the edge waits for ever")).ok();
            bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
        }
    }
}

#[tokio::test]
async fn the_timeout_of_a_request_does_not_outlive_it() {
    let upstream = Upstream::echo().await;
    for driver in [Driver::Both, Driver::Pingora] {
        let settings = Settings { request_timeout: Some(4 * MOMENT), ..Settings::default() };
        let bed = Bed::with(timed(upstream.address, settings), |options| options.driver = driver).await;
        let mut stream = bed.connect().await;
        for _ in 0..2 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
            assert_eq!(answer(&mut stream).await.status, 200, "{driver:?}");
            sleep(6 * MOMENT).await;
        }
    }
}

#[tokio::test]
async fn request_timeouts_do_not_end_a_tunnel() {
    let settings = Settings { read_timeout: Some(MOMENT), ..whole_request() };
    let bed = Bed::start(timed(websocket_echo().await, settings)).await;
    let (mut socket, _) = tokio_tungstenite::client_async("ws://a.test/", bed.connect().await).await.unwrap();
    sleep(3 * MOMENT).await;
    socket.send(Message::text("still")).await.unwrap();
    let back = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(back, Message::text("still"));
}

#[tokio::test]
async fn a_response_that_has_begun_may_pause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::start(timed(listener.local_addr().unwrap(), whole_request())).await;
    let mut client = bed.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    upstream.read_u8().await.unwrap();
    upstream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await.unwrap();
    sleep(3 * MOMENT).await;
    upstream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.unwrap();
    let answer = answer(&mut client).await;
    assert_eq!((answer.status, answer.body.contains("two")), (200, true));
}

#[tokio::test]
async fn early_hints_do_not_stop_the_response_timeout() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let upstream = Upstream::start(move |_| Reply::Send(hint.to_owned())).await;
    let bed = Bed::start(timed(upstream.address, whole_request())).await;
    let mut client = bed.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let began = now();
    assert_eq!(answer_without_body(&mut client).await.status, 103);
    check_504(&answer(&mut client).await, began);
}

#[tokio::test]
async fn a_slow_request_body_does_not_stop_the_request_timeout() {
    let upstream = Upstream::echo().await;
    let bed = Bed::start(timed(upstream.address, whole_request())).await;
    let (mut reading, mut writing) = bed.connect().await.into_split();
    let began = now();
    let trickle = tokio::spawn(async move {
        writing.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\n").await.unwrap();
        while writing.write_all(b"x").await.is_ok() {
            sleep(MOMENT / 10).await;
        }
    });
    let mut bytes = vec![0; 1024];
    let count = timeout(PATIENCE, reading.read(&mut bytes)).await.expect("no answer").unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]);
    assert!(text.starts_with("HTTP/1.1 504 ") && text.contains("upstream-timeout"), "{text}");
    assert!(began.elapsed() >= MOMENT);
    trickle.abort();
}

#[tokio::test]
async fn an_overdue_response_ends_only_its_http2_stream() {
    for driver in [Driver::Both, Driver::Pingora] {
        let upstream = Upstream::start(|seen| match seen.line.as_str() {
            "GET /silent HTTP/1.1" => Reply::Silence,
            _ => Reply::ok("here"),
        })
        .await;
        let bed = Bed::with(timed(upstream.address, whole_request()), |options| options.driver = driver).await;
        let (send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
        tokio::spawn(connection);
        let mut send = send.ready().await.unwrap();
        let mut ask = |path: &str| {
            let request = http::Request::get(format!("http://a.test{path}")).body(()).unwrap();
            send.send_request(request, true).unwrap().0
        };
        let began = now();
        let silent = timeout(PATIENCE, ask("/silent")).await.expect("it waits for ever");
        // Pingora cannot send a response here; it can only close the connection.
        match driver {
            Driver::Both => assert_eq!(silent.unwrap().status(), 504),
            Driver::Pingora => assert!(silent.unwrap_err().is_reset()),
        }
        assert!(began.elapsed() >= MOMENT);
        assert_eq!(timeout(PATIENCE, ask("/")).await.unwrap().unwrap().status(), 200);
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let long = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(60_000));
    let upstream = Upstream::start(move |_| Reply::Send(long.clone())).await;
    let bed = Bed::with(Model::to(&[upstream.address]), |options| options.client.write_stall = MOMENT).await;
    let mut client = bed.connect().await;
    let asking = async { while client.write_all(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.is_ok() {} };
    timeout(PATIENCE, asking).await.expect("it waits for its client for ever");
    bed.until_metric("tidegate_connections_active{protocol=\"http\"} 0").await;
    bed.until_metric("tidegate_requests_in_flight 0").await;
}

#[allow(clippy::disallowed_methods, reason = "a test measures real time")]
pub fn now() -> Instant {
    Instant::now()
}
