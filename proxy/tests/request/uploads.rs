//! Timeouts of clients and endpoints during and after a request body.

use std::time::Duration;

use futures::future::join_all;
use tidegate_config::model::Settings;
use tidegate_proxy::{Driver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::bed::{Answer, Bed, Model, PATIENCE, answer};
use super::timeouts::{MOMENT, check_504, now, timed};
use super::upstream::{Reply, Upstream};

/// A data plane whose route has a short timeout for its endpoint, and four times as much for a client's body.
async fn impatient(driver: Driver, endpoint: std::net::SocketAddr) -> Bed {
    waiting(driver, endpoint, MOMENT).await
}

/// The same with this timeout.
async fn waiting(driver: Driver, endpoint: std::net::SocketAddr, limit: Duration) -> Bed {
    let settings = Settings { read_timeout: Some(limit), write_timeout: Some(limit), ..Settings::default() };
    let set = |options: &mut Options| {
        options.driver = driver;
        options.client.body_read_stall = 4 * limit;
    };
    Bed::with(timed(endpoint, settings), set).await
}

const DRIVERS: [Driver; 2] = [Driver::Both, Driver::Pingora];

/// The framing of a body, and the body in pieces.
const BODIES: [(&str, [&str; 3]); 2] = [
    ("Content-Length: 10", ["hello", "world", ""]),
    ("Transfer-Encoding: chunked", ["5\r\nhello\r\n", "5\r\nworld\r\n", "0\r\n\r\n"]),
];

/// The answer to an upload with a pause before each piece.
async fn upload(bed: &Bed, framing: &str, pieces: [&str; 3], pause: Duration) -> Answer {
    let mut client = bed.connect().await;
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces {
        sleep(pause).await;
        client.write_all(piece.as_bytes()).await.unwrap();
    }
    answer(&mut client).await
}

#[tokio::test]
async fn the_time_of_an_upload_does_not_count_against_the_endpoint() {
    // The endpoint answers within this time, also on a busy machine.
    const LIMIT: Duration = Duration::from_secs(2);
    let check = async |driver| {
        let upstream = Upstream::echo().await;
        let bed = waiting(driver, upstream.address, LIMIT).await;
        let uploads = BODIES.map(|(framing, pieces)| upload(&bed, framing, pieces, LIMIT * 3 / 2));
        for answer in join_all(uploads).await {
            assert_eq!(answer.status, 200, "{driver:?}");
        }
    };
    join_all(DRIVERS.map(check)).await;
}

/// An endpoint that is faster than another one stays so after an upload whose client is slow, and not after a slow
/// response of its own.
#[tokio::test]
async fn a_slow_upload_is_no_latency_of_its_endpoint() {
    const ROUNDS: usize = 8;
    // The latency of the slower endpoint: no request to the fast one takes as long, also on a busy machine.
    const SLOWER: Duration = Duration::from_secs(1);
    let named = |name: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{name}");
    let check = async |(driver, (framing, pieces)): (Driver, (&str, [&str; 3]))| {
        let fast = Upstream::start(move |seen| match seen.line.starts_with("GET /slow ") {
            true => Reply::Later(6 * SLOWER, named("fast")),
            false => Reply::Send(named("fast")),
        });
        let other = Upstream::start(move |_| Reply::Later(SLOWER, named("next")));
        let (fast, other) = tokio::join!(fast, other);
        let bed = Bed::with(Model::to(&[fast.address, other.address]), |options| options.driver = driver).await;
        let of_fast = async |rounds: usize| {
            let mut count = 0;
            for _ in 0..rounds {
                count += usize::from(bed.get("a.test", "/", "").await.body == "fast");
            }
            count
        };
        of_fast(ROUNDS).await;
        assert!(of_fast(ROUNDS).await > ROUNDS * 3 / 4, "{driver:?} {framing}");
        let answer = upload(&bed, framing, pieces, SLOWER).await;
        assert_eq!(answer.body, "fast", "{driver:?} {framing}");
        assert!(of_fast(ROUNDS).await > ROUNDS * 3 / 4, "{driver:?} {framing}");
        assert_eq!(bed.get("a.test", "/slow", "").await.body, "fast", "{driver:?} {framing}");
        // Its latency counts half as much after 5 s.
        assert_eq!(of_fast(4).await, 0, "{driver:?} {framing}");
    };
    join_all(DRIVERS.into_iter().flat_map(|driver| BODIES.map(|body| (driver, body))).map(check)).await;
}

#[tokio::test]
async fn a_client_that_resets_its_connection_during_an_upload_is_gone() {
    for driver in DRIVERS {
        let upstream = Upstream::echo().await;
        let bed = impatient(driver, upstream.address).await;
        let mut client = bed.connect().await;
        client.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhello").await.unwrap();
        bed.until_metric("tidegate_requests_in_flight 1").await;
        client.set_zero_linger().unwrap();
        drop(client);
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="client-gone"} 1"#).await;
    }
}

#[tokio::test]
async fn the_read_timeout_starts_after_the_upload() {
    for driver in DRIVERS {
        let upstream = Upstream::start(|_| Reply::Silence).await;
        let bed = impatient(driver, upstream.address).await;
        for body in [
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            // Its body waits for 100 Continue of the endpoint.
            "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        ] {
            let began = now();
            check_504(&bed.ask(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{body}")).await, began);
        }
    }
}

#[tokio::test]
async fn a_response_that_stalls_after_an_upload_is_aborted() {
    for driver in DRIVERS {
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
        let upstream = Upstream::start(move |_| Reply::Send(half.to_owned())).await;
        let bed = impatient(driver, upstream.address).await;
        let mut client = bed.connect().await;
        client.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx").await.unwrap();
        let mut bytes = Vec::new();
        // A reset instead of a close is accepted too.
        drop(timeout(PATIENCE, client.read_to_end(&mut bytes)).await.expect("it stays open"));
        assert!(bytes.ends_with(b"\r\n\r\nhello"), "{driver:?}: {}", String::from_utf8_lossy(&bytes));
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
    }
}

#[tokio::test]
async fn an_endpoint_that_stops_reading_a_body_is_given_up() {
    for driver in DRIVERS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bed = impatient(driver, listener.local_addr().unwrap()).await;
        let (mut reading, mut writing) = bed.connect().await.into_split();
        let writing = tokio::spawn(async move {
            // More than all buffers on the way hold.
            let head = format!("PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", 256 << 20);
            writing.write_all(head.as_bytes()).await.unwrap();
            while writing.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
        });
        let (mut endpoint, _) = listener.accept().await.unwrap();
        endpoint.read_u8().await.unwrap();
        let mut bytes = vec![0; 1024];
        let count = timeout(PATIENCE, reading.read(&mut bytes)).await.expect("no answer").unwrap();
        let text = String::from_utf8_lossy(&bytes[..count]);
        assert!(text.starts_with("HTTP/1.1 504 "), "{driver:?}: {text}");
        writing.abort();
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}

#[tokio::test]
async fn a_stream_with_a_stalled_body_ends() {
    for (driver, status) in [(Driver::Both, 408), (Driver::Pingora, 504)] {
        let upstream = Upstream::echo().await;
        let bed = impatient(driver, upstream.address).await;
        let (send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post("http://a.test/").header("content-length", 10).body(()).unwrap();
        let (answered, mut body) = send.ready().await.unwrap().send_request(request, false).unwrap();
        body.send_data(bytes::Bytes::from_static(b"hello"), false).unwrap();
        let response = timeout(PATIENCE, answered).await.expect("it waits for ever").unwrap();
        assert_eq!(response.status(), status, "{driver:?}");
        bed.until_metric("tidegate_requests_in_flight 0").await;
    }
}
