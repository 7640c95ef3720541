//! Requests that are retried at another endpoint, and requests that never are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use http::Request;
use tidegate_config::model::{Balance, Settings};
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::bed::{Bed, Model, PATIENCE, answer, closed_port};
use super::upstream::{Reply, Upstream};

#[tokio::test]
async fn a_refused_connection_is_retried_elsewhere_with_the_body_intact() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[closed_port(), upstream.address])).await;
    let body = "0123456789".repeat(10_000);
    for _ in 0..20 {
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(bed.ask(&request).await.status, 200);
        assert_eq!(upstream.seen().await.body, body);
    }
    // After its first failure the endpoint is ejected, so only a few requests need a second attempt.
    let metrics = bed.metrics();
    let failed = metrics.lines().find_map(|l| l.strip_prefix(r#"tidegate_upstream_connects_total{result="failed"} "#));
    assert!(failed.unwrap().parse::<u32>().unwrap() <= 5, "{metrics}");
}

#[tokio::test]
async fn connect_attempts_are_limited() {
    let bed = Bed::start(Model::to(&std::array::from_fn::<_, 12, _>(|_| closed_port()))).await;
    let answer = bed.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
    bed.until_metric(r#"tidegate_upstream_connects_total{result="failed"} 10"#).await;
    bed.until_metric("tidegate_upstream_retries_total 9").await;
}

#[tokio::test]
async fn many_closed_endpoints_fail_no_request() {
    let mut upstream = Upstream::echo().await;
    let mut endpoints = std::array::from_fn::<_, 10, _>(|_| closed_port());
    endpoints[9] = upstream.address;
    // The first request of each bed finds no endpoint ejected.
    for _ in 0..5 {
        let bed = Bed::start(Model::to(&endpoints)).await;
        assert_eq!(bed.get("a.test", "/", "").await.status, 200);
        assert_eq!(upstream.seen().await.number, 1);
    }
}

/// An endpoint that closes the connection at its second request, which the edge cannot distinguish from a closed idle
/// connection.
async fn closing_on_second() -> Upstream {
    Upstream::start(|seen| if seen.number == 2 { Reply::Close } else { Reply::ok("done") }).await
}

#[tokio::test]
async fn a_get_on_a_closed_idle_connection_is_retried() {
    let mut upstream = closing_on_second().await;
    let bed = Bed::start(Model::to(&[upstream.address])).await;
    let mut stream = bed.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 200);
    }
    let numbers = [upstream.seen().await.number, upstream.seen().await.number, upstream.seen().await.number];
    assert_eq!(numbers, [1, 2, 1]);
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    for body in ["Content-Length: 0\r\n\r\n", "Content-Length: 3\r\n\r\nabc"] {
        let mut upstream = closing_on_second().await;
        let bed = Bed::start(Model::to(&[upstream.address])).await;
        assert_eq!(bed.get("a.test", "/", "").await.status, 200);
        let answer = bed.ask(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{body}")).await;
        assert_eq!((answer.status, answer.body.contains("upstream-broken")), (502, true));
        let numbers = [upstream.seen().await.number, upstream.seen().await.number];
        assert_eq!((numbers, upstream.is_quiet()), ([1, 2], true), "{body}");
    }
}

/// Each driver, with clients of HTTP/1.1 and of HTTP/2.
pub const WAYS: [(Driver, bool); 4] =
    [(Driver::Both, false), (Driver::Both, true), (Driver::Pingora, false), (Driver::Pingora, true)];

/// An incomplete response head.
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Le";

/// Endpoints that are used in order, the first one first.
pub fn in_turn(endpoints: &[SocketAddr], tries_max: u8) -> Model {
    let balance = Some(Balance::RoundRobin);
    let settings = Settings { balance, tries_max: Some(tries_max), ..Settings::default() };
    Model::edited(endpoints, |route| route.settings = Arc::new(settings))
}

pub async fn ask(bed: &Bed, http2: bool, method: &str, body: &str) -> u16 {
    if !http2 {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        return bed.ask(&format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{length}\r\n{body}")).await.status;
    }
    let (mut send, connection) = h2::client::handshake(bed.connect().await).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri("http://a.test/").body(()).unwrap();
    if !body.is_empty() {
        request.headers_mut().insert("content-length", body.len().into());
    }
    let (response, mut stream) = send.send_request(request, body.is_empty()).unwrap();
    if !body.is_empty() {
        stream.send_data(body.to_owned().into(), true).unwrap();
    }
    timeout(PATIENCE, response).await.expect("no answer").unwrap().status().as_u16()
}

/// Sends a request to an endpoint that fails first; checks whether the other endpoint is tried.
async fn check(broken: SocketAddr, method: &str, body: &str, want: bool) {
    for (driver, http2) in WAYS {
        let what = format!("{method} of {} bytes, {driver:?}, HTTP/2: {http2}", body.len());
        let mut other = Upstream::echo().await;
        let bed = Bed::with(in_turn(&[broken, other.address], 2), |options| options.driver = driver).await;
        assert_eq!(ask(&bed, http2, method, body).await, if want { 200 } else { 502 }, "{what}");
        if want {
            let seen = other.seen().await;
            assert_eq!((seen.line.split(' ').next(), seen.body.trim_end()), (Some(method), body), "{what}");
        }
        assert!(other.is_quiet(), "{what}");
        bed.until_metric(&format!("tidegate_upstream_retries_total {}", u8::from(want))).await;
    }
}

#[tokio::test]
async fn idempotent_requests_are_retried_before_a_response_begins() {
    let breaks: [fn() -> Reply; 4] = [
        || Reply::Close,
        || Reply::Reset(String::new()),
        || Reply::SendAndClose(HALF.to_owned()),
        || Reply::Reset(HALF.to_owned()),
    ];
    let mut broken = vec![Upstream::resetting().await];
    let upstreams = join_all(breaks.map(|reply| Upstream::start(move |_| reply()))).await;
    broken.extend(upstreams.iter().map(|upstream| upstream.address));
    for address in broken {
        for (method, body) in [("GET", ""), ("DELETE", ""), ("OPTIONS", ""), ("PUT", "abc")] {
            check(address, method, body, true).await;
        }
    }
}

#[tokio::test]
async fn non_idempotent_requests_are_not_retried() {
    for reply in [|| Reply::Close, || Reply::Reset(String::new())] {
        let upstream = Upstream::start(move |_| reply()).await;
        for (method, body) in [("POST", ""), ("POST", "abc"), ("PATCH", "abc"), ("FROB", "")] {
            check(upstream.address, method, body, false).await;
        }
        // A body that is too large to be kept.
        check(upstream.address, "PUT", &"0123456789".repeat(200_000), false).await;
    }
}

#[tokio::test]
async fn a_response_that_has_begun_is_not_retried() {
    for text in ["nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
        let upstream = Upstream::start(move |_| Reply::SendAndClose(text.to_owned())).await;
        check(upstream.address, "GET", "", false).await;
    }
    // An interim response counts as one. It is not forwarded to HTTP/2 clients.
    let upstream = Upstream::start(|_| Reply::SendAndClose("HTTP/1.1 103 Early Hints\r\n\r\n".to_owned())).await;
    for driver in [Driver::Both, Driver::Pingora] {
        let mut other = Upstream::echo().await;
        let model = in_turn(&[upstream.address, other.address], 2);
        let bed = Bed::with(model, |options| options.driver = driver).await;
        assert_eq!((ask(&bed, true, "GET", "").await, other.is_quiet()), (502, true), "{driver:?}");
    }
}

#[tokio::test]
async fn a_single_endpoint_is_retried() {
    for (driver, http2) in WAYS {
        let count = AtomicUsize::new(0);
        let first = move |_: &_| count.fetch_add(1, Ordering::Relaxed) == 0;
        let mut upstream = Upstream::start(move |seen| if first(seen) { Reply::Close } else { Reply::ok("") }).await;
        let bed = Bed::with(in_turn(&[upstream.address], 2), |options| options.driver = driver).await;
        assert_eq!(ask(&bed, http2, "GET", "").await, 200, "{driver:?}, HTTP/2: {http2}");
        assert_eq!([upstream.seen().await.number, upstream.seen().await.number], [1, 1]);
    }
}

#[tokio::test]
async fn attempts_are_limited_by_the_route() {
    for (driver, http2) in WAYS {
        for tries_max in [1, 3] {
            let upstreams = join_all((0..4).map(|_| Upstream::start(|_| Reply::Close))).await;
            let addresses: Vec<_> = upstreams.iter().map(|upstream| upstream.address).collect();
            let bed = Bed::with(in_turn(&addresses, tries_max), |options| options.driver = driver).await;
            assert_eq!(ask(&bed, http2, "GET", "").await, 502, "{driver:?}, HTTP/2: {http2}");
            bed.until_metric(&format!("tidegate_upstream_retries_total {}", tries_max - 1)).await;
            bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-broken"} 1"#).await;
            let asked: Vec<_> = upstreams.into_iter().map(|mut upstream| !upstream.is_quiet()).collect();
            assert_eq!(asked, [true, tries_max > 1, tries_max > 1, false], "each is asked once, in turn");
        }
    }
}
