//! Deadlines and limits that a client meets before any route.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::{ConnectionsMax, Settings};
use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::bed::{Bed, PATIENCE, http};
use super::clients::{Http1, assert_ok, h2_get};

/// Short enough to wait for, and long enough for a busy machine to act before.
const SHORT: Duration = Duration::from_millis(1500);

async fn impatient() -> (Bed, Http1<tokio::net::TcpStream>) {
    let bed = Bed::with(&[http("127.0.0.1:0")], |options| {
        options.client.head_deadline = SHORT;
        options.client.keep_alive_idle = SHORT;
        options.client.head_bytes_max = 2048;
        options.client.head_lines_max = 10;
        options.client.body_discard = SHORT;
    })
    .await;
    let client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    (bed, client)
}

/// Sends a byte from time to time until the server closes.
async fn trickle(client: &mut Http1<tokio::net::TcpStream>) {
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ").await;
    let trickled = tokio::time::timeout(PATIENCE, async {
        let mut nothing = [0; 1];
        while tokio::time::timeout(SHORT / 8, client.stream.peek(&mut nothing)).await.is_err() {
            client.send("x").await;
        }
    });
    trickled.await.expect("a slow head is waited for without end");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let (_bed, mut client) = impatient().await;
    client.closed().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_request() {
    let (_bed, mut client) = impatient().await;
    assert_ok(&client.get("/").await, "/ ");
    client.closed().await;
}

#[tokio::test]
async fn an_unfinished_preface_is_closed() {
    let (_bed, mut client) = impatient().await;
    client.send("PRI * HTTP/2.0\r\n").await;
    assert!(client.response().await.unwrap().starts_with("HTTP/1.1 408 "));
    client.closed().await;
}

#[tokio::test]
async fn a_slow_head_is_a_408() {
    let (bed, mut client) = impatient().await;
    trickle(&mut client).await;
    assert!(client.response().await.unwrap().starts_with("HTTP/1.1 408 "));
    client.closed().await;
    assert_eq!(bed.metric("tidegate_heads_refused_total", Some("head-too-slow")), 1.0);
}

#[tokio::test]
async fn a_slow_head_on_a_kept_connection_is_a_408() {
    let (_bed, mut client) = impatient().await;
    assert_ok(&client.get("/").await, "/ ");
    trickle(&mut client).await;
    assert!(client.response().await.unwrap().starts_with("HTTP/1.1 408 "));
    client.closed().await;
}

#[track_caller]
fn assert_431(response: Option<String>) {
    assert!(response.unwrap().starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn a_head_with_too_many_bytes_or_lines_is_a_431() {
    let (bed, mut client) = impatient().await;
    client.send(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(2048))).await;
    assert_431(client.response().await);
    let mut client = Http1::connect(bed.address(http("127.0.0.1:0")).await).await;
    client.send(&format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(11))).await;
    assert_431(client.response().await);
    client.closed().await;
    assert_eq!(bed.metric("tidegate_heads_refused_total", Some("head-too-large")), 2.0);
}

#[tokio::test]
async fn a_client_that_keeps_sending_still_reads_the_431() {
    let (_bed, mut client) = impatient().await;
    client.send(&format!("GET / HTTP/1.1\r\nX: {}\r\n", "x".repeat(200_000))).await;
    assert_431(client.response().await);
}

/// A client that has pipelined more requests than the edge holds reads the answer to the first one, and then the end.
async fn check_ahead(driver: Driver, first: &str, status: &str) {
    let key = http("127.0.0.1:0");
    let mut bed = Bed::with(&[key], |options| options.driver = driver).await;
    // A port without a listener.
    let unlistened = tokio::net::TcpSocket::new_v4().unwrap();
    unlistened.bind(([127, 0, 0, 1], 0).into()).unwrap();
    bed.lead_to(&[unlistened.local_addr().unwrap()]);
    let mut client = Http1::connect(bed.address(key).await).await;
    client.send(&format!("{first}{}", "GET /next HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000))).await;
    let response = client.response().await.expect("a reset overtook the answer");
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    let end = tokio::time::timeout(PATIENCE, client.stream.read_u8()).await.expect("it stays open");
    let end = end.expect_err("there is more behind the last answer").kind();
    assert_eq!(end, std::io::ErrorKind::UnexpectedEof, "{driver:?} {first:?}");
    // A write notices the reset after the end.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let more = client.stream.write_all(b"GET").await;
    assert!(more.is_ok(), "{driver:?} {first:?}: {more:?}");
}

#[tokio::test]
async fn pipelined_requests_do_not_reset_an_answer_that_closes() {
    for driver in [Driver::Both, Driver::Pingora] {
        check_ahead(driver, "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400").await;
        check_ahead(driver, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "502").await;
    }
    check_ahead(Driver::Pingora, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "502").await;
}

/// A data plane with one thread, and this number of files.
async fn with_files(files: u32, set: impl FnOnce(&mut Options)) -> (Bed, std::net::SocketAddr) {
    let key = http("127.0.0.1:0");
    let bed = Bed::with(&[key], |options| {
        options.threads = 1;
        options.budget.files = files;
        set(options);
    })
    .await;
    let bound = bed.bound(|bound| bound.get(&key).is_some_and(|bind| bind.threads() == 1)).await;
    (bed, bound.get(&key).unwrap().address().unwrap())
}

/// A connection from an address of its own.
async fn from(own: [u8; 4], to: std::net::SocketAddr) -> Http1<tokio::net::TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((own, 0).into()).unwrap();
    Http1::over(socket.connect(to).await.unwrap())
}

#[tokio::test]
async fn the_longest_idle_connection_is_evicted() {
    let (bed, address) = with_files(3, |options| options.budget.client_share = 100).await;
    let mut silent = from([127, 0, 0, 2], address).await;
    bed.until_metric("tidegate_connections_active", Some("http"), 1.0).await;
    let mut kept = from([127, 0, 0, 3], address).await;
    assert_ok(&kept.get("/").await, "/ ");
    // Two connections are idle; a third one with its request needs two more files.
    let mut third = from([127, 0, 0, 4], address).await;
    assert_ok(&third.get("/").await, "/ ");
    silent.closed().await;
    assert_ok(&kept.get("/").await, "/ ");
    let evicted = bed.metric("tidegate_connections_evicted_total", None);
    assert!((1.0..=2.0).contains(&evicted), "{evicted}");
}

#[tokio::test]
async fn the_configured_number_of_connections_applies_while_it_runs() {
    let (mut bed, address) = with_files(100, |options| options.budget.client_share = 100).await;
    Arc::make_mut(&mut bed.parts.edge).connections_max = Some(ConnectionsMax { per_worker: 2, workers: None });
    bed.publish();
    let mut silent = from([127, 0, 0, 2], address).await;
    bed.until_metric("tidegate_connections_active", Some("http"), 1.0).await;
    // A connection with its request needs two.
    let mut second = from([127, 0, 0, 3], address).await;
    assert_ok(&second.get("/").await, "/ ");
    silent.closed().await;
}

#[tokio::test]
async fn as_many_idle_connections_are_evicted_as_a_request_needs() {
    let (bed, address) = with_files(100, |options| {
        options.budget.client_share = 100;
        // Twelve connections of 8 KiB, and no room for a request of 64.
        options.budget.memory_kib = 100;
    })
    .await;
    let mut all = Vec::new();
    for count in 1..=12 {
        all.push(from([127, 0, 0, 2], address).await);
        bed.until_metric("tidegate_connections_active", Some("http"), f64::from(count)).await;
    }
    let mut last = all.pop().unwrap();
    assert_ok(&last.get("/").await, "/ ");
    assert_eq!(bed.metric("tidegate_connections_evicted_total", None), 8.0);
    for client in &mut all[..8] {
        client.closed().await;
    }
    // Four connections are left, once the request is over.
    let given_back = tokio::time::timeout(PATIENCE, async {
        while bed.metric("tidegate_budget_memory_bytes", None) != 4.0 * 8.0 * 1024.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    given_back.await.expect("what was charged is never given back");
}

#[tokio::test]
async fn connections_with_a_request_are_not_evicted() {
    for driver in [Driver::Both, Driver::Pingora] {
        let (bed, address) = with_files(2, |options| {
            options.driver = driver;
            options.budget.client_share = 100;
        })
        .await;
        let mut first = from([127, 0, 0, 2], address).await;
        first.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await;
        bed.until_metric("tidegate_requests_in_flight", None, 1.0).await;
        from([127, 0, 0, 3], address).await.closed().await;
        assert_eq!(bed.metric("tidegate_connections_refused_total", Some("full")), 1.0);
        first.send("ok").await;
        assert_ok(&first.response().await.unwrap(), "/ ok");
        // It is idle again, and is evicted.
        let mut next = from([127, 0, 0, 3], address).await;
        assert_ok(&next.get("/").await, "/ ");
        first.closed().await;
    }
}

#[tokio::test]
async fn a_request_beyond_the_budget_is_a_503_and_keeps_its_connection() {
    let (mut bed, address) = with_files(3, |options| options.budget.client_share = 100).await;
    // Of one Service, it would be the limit of the Service.
    bed.add_service("other.test", "other");
    let mut busy = from([127, 0, 0, 2], address).await;
    busy.send("POST / HTTP/1.1\r\nHost: other.test\r\nContent-Length: 2\r\n\r\n").await;
    bed.until_metric("tidegate_requests_in_flight", None, 1.0).await;
    let mut other = from([127, 0, 0, 3], address).await;
    for _ in 0..2 {
        let refused = other.get("/").await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("out-of-resources"), "{refused}");
        assert!(refused.to_ascii_lowercase().contains("\r\nretry-after: 1\r\n"), "{refused}");
    }
    busy.send("ok").await;
    assert_ok(&busy.response().await.unwrap(), "/ ok");
    assert_ok(&other.get("/").await, "/ ");
}

#[tokio::test]
async fn a_client_address_is_limited_to_its_share_under_pressure() {
    let (bed, address) = with_files(16, |_| ()).await;
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(from([127, 0, 0, 2], address).await);
    }
    bed.until_metric("tidegate_connections_active", Some("http"), 8.0).await;
    from([127, 0, 0, 2], address).await.closed().await;
    assert_eq!(bed.metric("tidegate_connections_refused_total", Some("client")), 1.0);
    let refused = all[0].get("/").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("client-over-share"), "{refused}");
    let mut other = from([127, 0, 0, 3], address).await;
    assert_ok(&other.get("/").await, "/ ");
    assert_eq!(bed.metric("tidegate_connections_evicted_total", None), 0.0);
}

#[tokio::test]
async fn connections_and_requests_per_address_are_limited() {
    let (bed, address) = with_files(100, |options| {
        options.budget.client_connections = 2;
        options.budget.client_requests = 1;
    })
    .await;
    let mut first = from([127, 0, 0, 2], address).await;
    let mut second = from([127, 0, 0, 2], address).await;
    bed.until_metric("tidegate_connections_active", Some("http"), 2.0).await;
    from([127, 0, 0, 2], address).await.closed().await;
    first.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await;
    bed.until_metric("tidegate_requests_in_flight", None, 1.0).await;
    let refused = second.get("/").await;
    assert!(refused.contains("client-over-share"), "{refused}");
    assert_ok(&from([127, 0, 0, 3], address).await.get("/").await, "/ ");
}

#[tokio::test]
async fn a_trusted_proxy_is_exempt_from_limits_per_address() {
    let (mut bed, address) = with_files(100, |options| options.budget.client_connections = 1).await;
    bed.parts.trusted_proxies = ["127.0.0.2/32".parse().unwrap()].into();
    bed.publish();
    let [mut one, mut other] = [from([127, 0, 0, 2], address).await, from([127, 0, 0, 2], address).await];
    assert_ok(&one.get("/").await, "/ ");
    assert_ok(&other.get("/").await, "/ ");
}

#[tokio::test]
async fn a_client_that_sends_too_large_a_body_still_reads_the_answer() {
    let key = http("127.0.0.1:0");
    let mut bed = Bed::with(&[key], |options| options.client.body_discard = PATIENCE).await;
    let client = Http1::connect(bed.address(key).await).await;
    bed.parts.defaults = Arc::new(Settings { body_bytes_max: Some(1024), ..Settings::default() });
    bed.publish();
    let (reading, mut writing) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        writing.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n").await?;
        writing.write_all(&vec![b'x'; 4_000_000]).await
    });
    let mut client = Http1::over(tokio::io::join(reading, tokio::io::sink()));
    let response = client.response().await.expect("a reset overtook the answer");
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    sending.await.unwrap().expect("the connection was closed in the middle of the body");
}

#[tokio::test]
async fn an_http2_connection_without_a_request_is_closed() {
    let key = http("127.0.0.1:0");
    let bed = Bed::with(&[key], |options| options.http2.idle = SHORT).await;
    let stream = tokio::net::TcpStream::connect(bed.address(key).await).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    assert_eq!(h2_get(&mut sender, "/").await.unwrap().0, 200);
    // How it ends does not matter, as long as it ends.
    tokio::time::timeout(PATIENCE, connection).await.expect("it stays open").unwrap().ok();
}

/// A load balancer closes idle connections itself: if the edge were first, requests could cross the close.
#[tokio::test]
async fn a_trusted_proxy_may_be_idle_for_longer() {
    let key = http("127.0.0.1:0");
    let mut bed = Bed::with(&[key], |options| {
        options.client.keep_alive_idle = SHORT;
        options.http2.idle = SHORT;
        options.client.proxy_idle = Duration::from_secs(3600);
    })
    .await;
    bed.parts.trusted_proxies = ["127.0.0.2/32".parse().unwrap()].into();
    bed.publish();
    let address = bed.address(key).await;
    let connect = async |source: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut proxy = Http1::over(connect([127, 0, 0, 2]).await);
    let (mut streams, connection) = h2::client::handshake(connect([127, 0, 0, 2]).await).await.unwrap();
    tokio::spawn(connection);
    assert_ok(&proxy.get("/").await, "/ ");
    assert_eq!(h2_get(&mut streams, "/").await.unwrap().0, 200);
    let mut other = Http1::connect(address).await;
    let (mut other_streams, other_connection) = h2::client::handshake(connect([127, 0, 0, 1]).await).await.unwrap();
    let other_connection = tokio::spawn(other_connection);
    assert_ok(&other.get("/").await, "/ ");
    assert_eq!(h2_get(&mut other_streams, "/").await.unwrap().0, 200);
    // Those that were idle for less time are closed, and those of the proxy are not.
    other.closed().await;
    tokio::time::timeout(PATIENCE, other_connection).await.expect("it stays open").unwrap().ok();
    assert_ok(&proxy.get("/").await, "/ ");
    assert_eq!(h2_get(&mut streams, "/").await.unwrap().0, 200);
}

#[tokio::test]
async fn limits_of_zero_still_let_requests_through() {
    let key = http("127.0.0.1:0");
    let bed = Bed::with(&[key], |options| {
        options.upstream.tries_max = 0;
        options.client.body_discard = Duration::ZERO;
        options.http2.idle = Duration::ZERO;
    })
    .await;
    assert_ok(&Http1::connect(bed.address(key).await).await.get("/").await, "/ ");
}
