//! The drain: requests in flight finish, idle connections close, and slow ones are cut.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_config::model::{BindKey, BindProtocol};
use tidegate_proxy::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::bed::{Bed, PATIENCE, http, https, metric, no_listener};
use super::clients::{Http1, assert_ok, h2_get};

const PLAIN: &str = "127.0.0.1:0";

async fn bed(key: BindKey, driver: Driver) -> (Bed, SocketAddr) {
    let bed = Bed::with(&[key], |options| options.driver = driver).await;
    let address = bed.address(key).await;
    (bed, address)
}

fn is_last(response: &str) -> bool {
    response.to_lowercase().contains("connection: close\r\n")
}

/// Sends requests until a response announces the end of the connection, after which nothing follows.
async fn until_last(client: &mut Http1<TcpStream>) {
    let told = timeout(PATIENCE, async {
        loop {
            let response = client.get("/").await;
            assert_ok(&response, "/ ");
            if is_last(&response) {
                return;
            }
        }
    });
    told.await.expect("the end is not announced");
    client.closed().await;
}

#[tokio::test]
async fn requests_in_flight_finish_and_idle_connections_close() {
    let key = http("127.0.0.1:0");
    let bed = Bed::start(&[key]).await;
    let address = bed.address(key).await;
    let mut busy = Http1::connect(address).await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut idle = Http1::connect(address).await;
    assert_ok(&idle.get("/").await, "/ ");
    let (mut sender, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let stream = tokio::spawn(async move { h2_get(&mut sender, "/wait2").await });
    bed.upstream.wait_for_requests(3).await;

    let go = bed.upstream.go.clone();
    let drained = tokio::spawn(bed.drain(PATIENCE));
    idle.closed().await;
    no_listener(address).await;
    assert!(!drained.is_finished());
    go.send_replace(true);
    let response = busy.response().await.unwrap();
    assert_ok(&response, "/wait ");
    assert!(response.to_lowercase().contains("connection: close\r\n"), "{response}");
    busy.closed().await;
    assert_eq!(stream.await.unwrap().unwrap(), (200, "/wait2 ".to_owned()));
    // The client receives a GOAWAY, and closes.
    tokio::time::timeout(PATIENCE, connection).await.expect("no GOAWAY").unwrap().unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, drained).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn requests_beyond_the_grace_period_are_cut_and_counted() {
    let key = http("127.0.0.1:0");
    let bed = Bed::start(&[key]).await;
    let mut busy = Http1::connect(bed.address(key).await).await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    bed.upstream.wait_for_requests(1).await;
    let _go = bed.upstream.go.clone();
    assert_eq!(bed.drain(Duration::from_millis(100)).await, 1);
    busy.closed().await;
}

#[tokio::test]
async fn after_the_announcement_responses_close_and_idle_connections_stay() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, address) = bed(http(PLAIN), driver).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = Http1::connect(address).await;
            let response = client.get("/").await;
            assert!(!is_last(&response), "{response}");
            clients.push(client);
        }
        bed.announce_end();
        let [new, asks, idle, posts] = &mut clients[..] else { unreachable!() };
        *new = Http1::connect(address).await;
        until_last(new).await;
        until_last(asks).await;
        // A silent client has received nothing.
        let silence = timeout(Duration::from_millis(100), idle.stream.read_u8()).await;
        assert!(silence.is_err(), "{driver:?}: an idle connection ends before listening does: {silence:?}");
        posts.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
        let response = posts.response().await.unwrap();
        assert!(is_last(&response) && response.ends_with("/ hi"), "{driver:?}: {response}");
        posts.closed().await;
        assert_eq!(timeout(PATIENCE, bed.drain(PATIENCE)).await.unwrap(), 0);
        idle.closed().await;
    }
}

#[tokio::test]
async fn after_the_announcement_http2_connections_get_goaway_and_lose_no_request() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, address) = bed(http(PLAIN), driver).await;
        let connect = || async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            (sender, tokio::spawn(connection))
        };
        let (mut sender, connection) = connect().await;
        let mut waiting = sender.clone();
        let stream = tokio::spawn(async move { h2_get(&mut waiting, "/wait").await });
        bed.upstream.wait_for_requests(1).await;
        bed.announce_end();
        // A request sent before the GOAWAY is answered.
        let told = timeout(PATIENCE, async {
            loop {
                match h2_get(&mut sender, "/").await {
                    Ok(answer) => assert_eq!(answer, (200, "/ ".to_owned())),
                    Err(error) => return error,
                }
            }
        });
        let told = told.await.expect("no GOAWAY");
        assert!(told.is_go_away() && told.reason() == Some(h2::Reason::NO_ERROR), "{driver:?}: {told}");
        // A new connection may send a request before the GOAWAY.
        let (mut sender, new) = connect().await;
        assert_eq!(h2_get(&mut sender, "/").await.unwrap(), (200, "/ ".to_owned()));
        timeout(PATIENCE, new).await.expect("no GOAWAY for a new connection").unwrap().unwrap();
        bed.upstream.go.send_replace(true);
        assert_eq!(stream.await.unwrap().unwrap(), (200, "/wait ".to_owned()));
        timeout(PATIENCE, connection).await.expect("it stays open").unwrap().unwrap();
        assert_eq!(timeout(PATIENCE, bed.drain(PATIENCE)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_request_read_before_the_drain_is_answered() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, address) = bed(http(PLAIN), driver).await;
        let mut client = Http1::connect(address).await;
        client.send("GET /drip HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n").await;
        // The head was sent before the drain, so it does not announce a close.
        let mut first = vec![0; 1];
        timeout(PATIENCE, client.stream.read_exact(&mut first)).await.unwrap().unwrap();
        let go = bed.upstream.go.clone();
        let drained = tokio::spawn(bed.drain(PATIENCE));
        no_listener(address).await;
        go.send_replace(true);
        let response = client.response().await.unwrap();
        assert!(response.ends_with("first second") && !is_last(&response), "{driver:?}: {response}");
        let response = client.response().await.expect("the second request is dropped");
        assert!(is_last(&response) && response.ends_with("/two "), "{driver:?}: {response}");
        client.closed().await;
        assert_eq!(timeout(PATIENCE, drained).await.unwrap().unwrap(), 0);
    }
}

#[tokio::test]
async fn a_client_that_connected_just_before_the_drain_is_answered() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, address) = bed(http(PLAIN), driver).await;
        let mut client = Http1::connect(address).await;
        let drained = tokio::spawn(bed.drain(PATIENCE));
        no_listener(address).await;
        client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let response = client.response().await.expect("it was closed before it could ask");
        assert!(is_last(&response) && response.ends_with("/late "), "{driver:?}: {response}");
        client.closed().await;
        assert_eq!(timeout(PATIENCE, drained).await.unwrap().unwrap(), 0);
    }
}

/// Checks how many connections a drain cuts that have sent these bytes, on a bind that waits for more.
async fn check_unspoken(key: BindKey, proxy_header: bool, sent: &[u8], cut: usize) {
    let bed = Bed::with(&[key], |options| options.client.proxy_header = proxy_header).await;
    let mut stream = TcpStream::connect(bed.address(key).await).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let protocol = if key.protocol == BindProtocol::Http { "http" } else { "https" };
    bed.until_metric("tidegate_connections_active", Some(protocol), 1.0).await;
    if !sent.is_empty() {
        // The bytes are read, and start a deadline of their own.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let registry = bed.registry.clone();
    let grace = if cut > 0 { Duration::from_millis(200) } else { PATIENCE / 4 };
    assert_eq!(bed.drain(grace).await, cut, "{key:?} {proxy_header} {}", sent.escape_ascii());
    for name in ["tidegate_proxy_header_failures_total", "tidegate_tls_handshake_failures_total"] {
        for reason in ["closed", "timeout"] {
            assert_eq!(metric(&registry, name, Some(reason)), 0.0, "{name} {reason}");
        }
    }
}

#[tokio::test]
async fn a_silent_connection_does_not_delay_the_drain() {
    check_unspoken(http(PLAIN), false, b"", 0).await;
    check_unspoken(http(PLAIN), true, b"", 0).await;
    check_unspoken(https(PLAIN), false, b"", 0).await;
    check_unspoken(https(PLAIN), true, b"", 0).await;
    // The load balancer itself sends nothing more.
    check_unspoken(https(PLAIN), true, b"PROXY UNKNOWN\r\n", 0).await;
    check_unspoken(http(PLAIN), true, b"PROXY UNKNOWN\r\n", 0).await;
}

#[tokio::test]
async fn a_connection_with_a_partial_request_gets_the_grace_period() {
    check_unspoken(http(PLAIN), true, b"PROXY", 1).await;
    check_unspoken(https(PLAIN), false, b"\x16\x03\x01", 1).await;
}
