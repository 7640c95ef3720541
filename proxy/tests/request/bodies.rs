//! Bodies: streamed in both directions, with size limits, and with a response for clients that stop sending.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::Settings;
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, answer};
use super::upstream::Upstream;

fn limited(upstream: &Upstream, bytes: u64) -> Model {
    let settings = Settings { body_bytes_max: Some(bytes), ..Settings::default() };
    Model::edited(&[upstream.address], |route| route.settings = Arc::new(settings))
}

#[tokio::test]
async fn a_body_within_the_limit_passes_whole() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(limited(&upstream, 10)).await;
    let sent = bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n0123456789").await;
    assert_eq!((sent.status, upstream.seen().await.body.as_str()), (200, "0123456789"));
    let chunked =
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n";
    assert_eq!(bed.ask(chunked).await.status, 200);
    assert!(upstream.seen().await.body.contains("01234"));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(limited(&upstream, 10)).await;
    let announced = bed.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n01234567890").await;
    assert_eq!((announced.status, announced.header("connection")), (413, Some("close")));
    assert!(upstream.is_quiet());
    // Without a Content-Length, the limit is noticed while the body arrives; the client continues to send and reads the
    // response afterwards.
    let mut stream = bed.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    for _ in 0..4096 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = answer(&mut stream).await;
    assert_eq!((answer.status, answer.body.contains("body-too-large")), (413, true));
}

#[tokio::test]
async fn an_early_answer_arrives_while_the_client_sends_its_body() {
    let bed = Bed::start(Model::to(&[])).await;
    let mut stream = bed.connect().await;
    let body = "x".repeat(4 << 20);
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.status, 503);
}

#[tokio::test]
async fn the_rest_of_a_body_after_an_early_answer_is_no_request() {
    const REST: &str = "GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let length = format!("Content-Length: {}\r\n\r\n", REST.len());
    let chunk = format!("{:x}\r\n{REST}\r\n0\r\n\r\n", REST.len());
    // The chunk has begun before the answer.
    let begun = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n0123", REST.len() + 4);
    let ended = format!("{REST}\r\n0\r\n\r\n");
    for (driver, framing, rest) in [
        (Driver::Both, &*length, REST),
        (Driver::Pingora, &length, REST),
        (Driver::Both, "Transfer-Encoding: chunked\r\n\r\n", &chunk),
        (Driver::Pingora, "Transfer-Encoding: chunked\r\n\r\n", &chunk),
        (Driver::Both, &*begun, &*ended),
        (Driver::Pingora, &begun, &ended),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::to(&[listener.local_addr().unwrap()]);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        let mut client = bed.connect().await;
        client.write_all(format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}").as_bytes()).await.unwrap();
        let mut endpoint = listener.accept().await.unwrap().0;
        read_to(&mut endpoint, &mut String::new(), "\r\n\r\n").await;
        endpoint.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let early = answer(&mut client).await;
        assert_eq!((early.status, early.header("connection")), (413, Some("close")), "{driver:?}: {framing}");
        // The edge may have closed already.
        client.write_all(rest.as_bytes()).await.ok();
        let mut further = Vec::new();
        let ended = timeout(PATIENCE, client.read_to_end(&mut further)).await;
        let further = String::from_utf8_lossy(&further);
        assert!(ended.is_ok() && further.is_empty(), "{driver:?}, {framing:?}: {further}");
    }
}

#[tokio::test]
async fn the_rest_of_a_body_after_an_early_answer_is_awaited_only_for_a_while() {
    for driver in [Driver::Both, Driver::Pingora] {
        for (framing, body) in [("Content-Length: 9", "0123"), ("Transfer-Encoding: chunked", "8\r\n0123")] {
            for answered in ["Content-Length: 0\r\n\r\n", "Content-Length: 2\r\n\r\nno"] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let model = Model::to(&[listener.local_addr().unwrap()]);
                let bed = Bed::with(model, |options| {
                    options.driver = driver;
                    options.client.body_discard = Duration::from_millis(300);
                })
                .await;
                let mut client = bed.connect().await;
                let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n{body}");
                client.write_all(request.as_bytes()).await.unwrap();
                let mut endpoint = listener.accept().await.unwrap().0;
                read_to(&mut endpoint, &mut String::new(), "0123").await;
                endpoint.write_all(format!("HTTP/1.1 413 Content Too Large\r\n{answered}").as_bytes()).await.unwrap();
                assert_eq!(answer(&mut client).await.status, 413);
                let ended = timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await;
                assert!(ended.is_ok(), "{driver:?}, {framing}, {answered:?}: the connection stays open");
            }
        }
    }
}

#[tokio::test]
async fn a_stalled_request_body_is_answered() {
    let upstream = Upstream::echo().await;
    let bed = Bed::with(Model::to(&[upstream.address]), |options| {
        options.client.body_read_stall = Duration::from_millis(300);
    })
    .await;
    let mut stream = bed.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n0123").await.unwrap();
    let answer = answer(&mut stream).await;
    assert_eq!((answer.status, answer.body.contains("body-stalled")), (408, true));
}

/// Reads until a text has arrived.
async fn read_to(stream: &mut tokio::net::TcpStream, seen: &mut String, text: &str) {
    let arrived = timeout(PATIENCE, async {
        while !seen.contains(text) {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "closed after {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    });
    arrived.await.unwrap_or_else(|_| panic!("{text} did not come: {seen}"));
}

#[tokio::test]
async fn pieces_are_forwarded_as_they_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::start(Model::to(&[listener.local_addr().unwrap()])).await;
    let mut client = bed.connect().await;
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        .await
        .unwrap();
    let (mut upstream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let (mut up, mut down) = (String::new(), String::new());
    // Each side waits for the other's piece before it sends its next one, so any buffering would block the test.
    read_to(&mut upstream, &mut up, "one").await;
    upstream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await.unwrap();
    read_to(&mut client, &mut down, "first").await;
    client.write_all(b"3\r\ntwo\r\n").await.unwrap();
    read_to(&mut upstream, &mut up, "two").await;
    upstream.write_all(b"6\r\nsecond\r\n").await.unwrap();
    read_to(&mut client, &mut down, "second").await;
    client.write_all(b"0\r\n\r\n").await.unwrap();
    read_to(&mut upstream, &mut up, "\r\n0\r\n\r\n").await;
    upstream.write_all(b"0\r\n\r\n").await.unwrap();
    read_to(&mut client, &mut down, "\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn early_hints_are_forwarded() {
    let upstream = Upstream::start(|_| {
        super::upstream::Reply::Send(
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 204 No Content\r\nX-End: 1\r\n\r\n".to_owned(),
        )
    })
    .await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let mut client = bed.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let mut down = String::new();
    read_to(&mut client, &mut down, "X-End: 1").await;
    assert!(down.starts_with("HTTP/1.1 103"), "{down}");
}
