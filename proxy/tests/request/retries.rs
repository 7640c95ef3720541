//! Which requests are sent to another endpoint, and which never are.

use super::bed::{Bed, Model, answer, nobody};
use super::upstream::{Reply, Upstream};
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn an_endpoint_that_takes_no_connection_is_replaced_with_the_body_intact() {
    let mut upstream = Upstream::echo().await;
    let bed = Bed::start(Model::to(&[nobody(), upstream.address])).await;
    let body = "0123456789".repeat(10_000);
    for _ in 0..20 {
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(bed.ask(&request).await.status, 200);
        assert_eq!(upstream.seen().await.body, body);
    }
    // After its first failure the endpoint rests, so at most a few requests had to try twice.
    let metrics = bed.metrics();
    let failed = metrics.lines().find_map(|l| l.strip_prefix(r#"tidegate_upstream_connects_total{result="failed"} "#));
    assert!(failed.unwrap().parse::<u32>().unwrap() <= 5, "{metrics}");
}

#[tokio::test]
async fn when_none_takes_a_connection_the_tries_end() {
    let bed = Bed::start(Model::to(&std::array::from_fn::<_, 12, _>(|_| nobody()))).await;
    let answer = bed.get("a.test", "/", "").await;
    assert_eq!((answer.status, answer.body.contains("connect-failed")), (502, true));
    bed.until_metric(r#"tidegate_upstream_connects_total{result="failed"} 10"#).await;
    bed.until_metric("tidegate_upstream_retries_total 9").await;
}

#[tokio::test]
async fn endpoints_that_have_gone_together_cost_no_request() {
    let mut upstream = Upstream::echo().await;
    let mut endpoints = std::array::from_fn::<_, 10, _>(|_| nobody());
    endpoints[9] = upstream.address;
    // The first request of each finds none of them at rest.
    for _ in 0..5 {
        let bed = Bed::start(Model::to(&endpoints)).await;
        assert_eq!(bed.get("a.test", "/", "").await.status, 200);
        assert_eq!(upstream.seen().await.number, 1);
    }
}

/// Closes the connection when its second request has come, which to the edge looks like an idle connection that died.
async fn closing_on_second() -> Upstream {
    Upstream::start(|seen| if seen.number == 2 { Reply::Close } else { Reply::ok("done") }).await
}

#[tokio::test]
async fn a_get_survives_an_idle_connection_that_died() {
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

#[tokio::test]
async fn an_endpoint_that_answers_and_breaks_is_not_retried() {
    let mut upstream = Upstream::start(|_| Reply::Close).await;
    let bed = Bed::start(Model::to(&[upstream.address, nobody()])).await;
    // Whichever is tried first, the one that closes is asked once.
    assert_eq!(bed.get("a.test", "/", "").await.status, 502);
    assert_eq!(upstream.seen().await.number, 1);
    assert!(upstream.is_quiet());
}
