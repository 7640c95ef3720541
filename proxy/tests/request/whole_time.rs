//! The deadline for the end of a response.

use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use http::Request;
use tidegate_config::model::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::bed::{Bed, PATIENCE};
use super::retries::{WAYS, ask};
use super::timeouts::{MOMENT, now, timed};
use super::upgrades::websocket_echo;
use super::upstream::{Reply, Upstream};

fn limits() -> [Settings; 2] {
    let (limit, none) = (Some(MOMENT), Settings::default);
    [Settings { total_timeout: limit, ..none() }, Settings { attempt_timeout: limit, ..none() }]
}

#[tokio::test]
async fn a_response_that_has_not_begun_by_the_deadline_is_a_504() {
    let upstream = Upstream::start(|_| Reply::Silence).await;
    for (driver, http2) in WAYS {
        for settings in limits() {
            let bed = Bed::with(timed(upstream.address, settings), |options| options.driver = driver).await;
            let began = now();
            for (method, body) in [("GET", ""), ("POST", "abc")] {
                assert_eq!(ask(&bed, http2, method, body).await, 504, "{driver:?}, HTTP/2: {http2}");
            }
            assert!((2 * MOMENT..PATIENCE / 2).contains(&began.elapsed()), "after {:?}", began.elapsed());
            bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 2"#).await;
        }
    }
}

/// Begins a response without an end: it falls silent after this many pieces, each of one byte, or of as much as is
/// read.
async fn endless(piece: &'static [u8], times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.read_u8().await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await.unwrap();
                for _ in 0..times {
                    if stream.write_all(piece).await.is_err() {
                        break;
                    }
                    if piece.len() == 1 {
                        sleep(MOMENT / 10).await;
                    }
                }
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

/// Requests such a response, and reads until it ends, if the client reads at all.
async fn cut(bed: &Bed, http2: bool, reads: bool) {
    let mut stream = bed.connect().await;
    if http2 {
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let (response, _) = send.send_request(Request::get("http://a.test/").body(()).unwrap(), true).unwrap();
        let mut body = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
        let end = async {
            while let Some(piece) = body.data().await {
                let Ok(piece) = piece else { return false };
                if reads {
                    body.flow_control().release_capacity(piece.len()).unwrap();
                }
            }
            true
        };
        assert!(!timeout(PATIENCE, end).await.expect("it goes on"), "a response that was cut looks whole");
        return;
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let overdue = r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#;
    if !reads {
        return bed.until_metric(overdue).await;
    }
    let mut bytes = vec![0; 64 * 1024];
    let mut first = Vec::new();
    while let Ok(count @ 1..) = timeout(PATIENCE, stream.read(&mut bytes)).await.expect("it goes on") {
        if first.len() < 64 {
            first.extend_from_slice(&bytes[..count]);
        }
    }
    assert!(first.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_response_beyond_the_deadline_is_cut_and_logged() {
    static MUCH: [u8; 64 * 1024] = [b'x'; 64 * 1024];
    // The rest is too small to be sent from its place, so it waits in a buffer once the window is full.
    static WINDOW_AND_REST: [u8; 65_535 + 1000] = [b'x'; 65_535 + 1000];
    const ALWAYS: usize = usize::MAX;
    for (driver, http2) in WAYS {
        for settings in limits() {
            for (piece, times, reads) in [
                (&b"x"[..], 0, true),
                (b"x", ALWAYS, true),
                (&MUCH, ALWAYS, true),
                (&MUCH, ALWAYS, false),
                (&WINDOW_AND_REST, 1, false),
            ] {
                let address = endless(piece, times).await;
                let bed = Bed::with(timed(address, settings.clone()), |options| options.driver = driver).await;
                let began = now();
                cut(&bed, http2, reads).await;
                let what = format!("{driver:?}, HTTP/2: {http2}, {times} times {} bytes, {reads}", piece.len());
                assert!((MOMENT..PATIENCE / 2).contains(&began.elapsed()), "{what}: after {:?}", began.elapsed());
                bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
                bed.until_metric("tidegate_requests_in_flight 0").await;
            }
        }
    }
}

#[tokio::test]
async fn the_total_timeout_does_not_end_a_tunnel() {
    for settings in limits() {
        let bed = Bed::start(timed(websocket_echo().await, settings)).await;
        let (mut socket, _) = tokio_tungstenite::client_async("ws://a.test/", bed.connect().await).await.unwrap();
        sleep(3 * MOMENT).await;
        socket.send(Message::text("still")).await.unwrap();
        let back = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(back, Message::text("still"));
    }
}
