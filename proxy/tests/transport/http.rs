//! HTTP/1.0, HTTP/1.1 and HTTP/2 on one plain port.

use std::time::Duration;

use tidegate_proxy::Driver;
use tokio::net::TcpStream;

use super::bed::{Bed, PATIENCE, http, read_until};
use super::clients::{Http1, assert_ok, h2_get};

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    assert_ok(&client.get("/one").await, "/one ");
    client.send("POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_ok(&client.response().await.unwrap(), "/two hello");
    assert_ok(&client.get("/three").await, "/three ");
    assert_eq!(bed.metric("tidegate_connections_accepted_total", Some("http")), 1.0);
    assert_eq!(bed.metric("tidegate_connections_active", Some("http")), 1.0);
}

/// Checks that both drivers answer pipelined requests in order. The heads have these further lines, and the answers
/// contain `said`.
async fn check_sent_ahead(lines: &str, body: &str, said: &str) {
    for driver in [Driver::Both, Driver::Pingora] {
        let key = http("127.0.0.1:0");
        let bed = Bed::with(&[key], |options| options.driver = driver).await;
        let mut client = Http1::connect(bed.address(key).await).await;
        let ask = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
        client.send(&[ask("/wait"), ask("/two")].concat()).await;
        bed.upstream.wait_for_requests(1).await;
        // This one arrives while the first is being answered.
        client.send(&ask("/three")).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        bed.upstream.go.send_replace(true);
        for path in ["/wait", "/two", "/three"] {
            let response = client.response().await.unwrap_or_else(|| panic!("{driver:?}, {lines:?}: no {path}"));
            assert_ok(&response, &format!("{path} {said}"));
        }
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    check_sent_ahead("", "", "").await;
    // Every browser sends this with a page.
    check_sent_ahead("Upgrade-Insecure-Requests: 1\r\n", "", "").await;
    check_sent_ahead("Content-Lengths: 5\r\nTransfer-Encodings: chunked\r\n", "", "").await;
    check_sent_ahead("Content-Length: 0\r\n", "", "").await;
    check_sent_ahead("Content-Length: 5\r\n", "hello", "hello").await;
    check_sent_ahead("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello").await;
    check_sent_ahead("Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: v\r\n\r\n", "hello").await;
}

#[tokio::test]
async fn requests_refused_by_pingora_are_counted() {
    let key = http("127.0.0.1:0");
    let bed = Bed::with(&[key], |options| options.driver = Driver::Pingora).await;
    for (head, status) in [
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n", 400),
    ] {
        let mut client = Http1::connect(bed.address(key).await).await;
        assert_ok(&client.get("/one").await, "/one ");
        client.send(&format!("{head}\r\n")).await;
        let answer = client.response().await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
    }
    bed.until_metric("tidegate_heads_refused_total", Some("malformed"), 4.0).await;
    assert_eq!(bed.metric("tidegate_heads_refused_total", Some("malformed")), 4.0);
}

#[tokio::test]
async fn a_request_shorter_than_the_preface_of_http2_is_answered() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let response = client.response().await.unwrap();
    assert!(response.starts_with("HTTP/1."), "{response}");
    client.closed().await;
}

#[tokio::test]
async fn http2_by_prior_knowledge_shares_the_port() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let stream = TcpStream::connect(bed.address(http("127.0.0.1:0")).await).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(h2_get(&mut sender, "/one").await.unwrap(), (200, "/one ".to_owned()));
    assert_eq!(h2_get(&mut sender, "/two").await.unwrap(), (200, "/two ".to_owned()));
}

#[tokio::test]
async fn a_request_may_arrive_byte_by_byte() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    client.stream.set_nodelay(true).unwrap();
    for byte in "POST /bytes HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".chars() {
        client.send(&byte.to_string()).await;
        tokio::task::yield_now().await;
    }
    assert_ok(&client.response().await.unwrap(), "/bytes hi");
}

#[tokio::test]
async fn a_disconnected_client_ends_its_request() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    bed.upstream.wait_for_requests(1).await;
    assert_eq!(bed.metric("tidegate_connections_active", Some("http")), 1.0);
    drop(client);
    let gone = tokio::time::timeout(PATIENCE, async {
        while bed.metric("tidegate_connections_active", Some("http")) > 0.0 {
            tokio::task::yield_now().await;
        }
    });
    gone.await.expect("the connection stays, though the upstream has not answered");
}

#[tokio::test]
async fn the_first_part_of_a_body_does_not_wait_for_the_second() {
    let bed = Bed::start(&[http("127.0.0.1:0")]).await;
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    client.send("GET /drip HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut bytes = Vec::new();
    let first = |bytes: &[u8]| bytes.ends_with(b"first ").then_some(bytes.len());
    let arrived = tokio::time::timeout(PATIENCE, read_until(&mut client.stream, &mut bytes, first)).await;
    arrived.expect("the first part waits for the second").expect("the connection was closed instead");
    bed.upstream.go.send_replace(true);
    let second = |bytes: &[u8]| bytes.ends_with(b"first second").then_some(bytes.len());
    let arrived = tokio::time::timeout(PATIENCE, read_until(&mut client.stream, &mut bytes, second)).await;
    arrived.unwrap().expect("the connection was closed instead");
}
