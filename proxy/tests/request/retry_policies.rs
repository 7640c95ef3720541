//! Routes that retry requests after a response of an endpoint.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tidegate_config::model::{Balance, RetryPolicy, Settings};
use tidegate_proxy::Driver;
use tokio::io::AsyncWriteExt;

use super::bed::{Bed, Model, closed_port};
use super::retries::{WAYS, ask};
use super::timeouts::{MOMENT, now};
use super::upstream::{Reply, Upstream};

const BACKOFF: Duration = Duration::from_millis(20);

fn policy(statuses: &[u16], attempts: u32) -> Settings {
    let retry = RetryPolicy { statuses: statuses.into(), attempts, backoff: BACKOFF };
    Settings { retry: Some(Arc::new(retry)), balance: Some(Balance::RoundRobin), ..Settings::default() }
}

/// Endpoints that are used in order.
async fn bed(endpoints: &[SocketAddr], settings: Settings, driver: Driver) -> Bed {
    let model = Model::edited(endpoints, |route| route.settings = Arc::new(settings));
    Bed::with(model, |options| options.driver = driver).await
}

fn unavailable() -> Reply {
    Reply::Send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy".to_owned())
}

#[tokio::test]
async fn a_listed_status_is_retried_with_the_body_intact() {
    for (driver, http2) in WAYS {
        for (method, body) in [("GET", ""), ("POST", "abc")] {
            let mut first = Upstream::start(|_| unavailable()).await;
            let mut other = Upstream::echo().await;
            let bed = bed(&[first.address, other.address], policy(&[500, 503], 1), driver).await;
            let began = now();
            assert_eq!(ask(&bed, http2, method, body).await, 200, "{driver:?}, HTTP/2: {http2}");
            assert!(began.elapsed() >= BACKOFF, "after {:?}", began.elapsed());
            for upstream in [&mut first, &mut other] {
                let seen = upstream.seen().await;
                assert_eq!((seen.line.split(' ').next(), seen.body.trim_end()), (Some(method), body), "{driver:?}");
                assert!(upstream.is_quiet());
            }
            bed.until_metric("tidegate_upstream_retries_total 1").await;
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}

#[tokio::test]
async fn a_body_counts_once_however_often_it_is_sent() {
    for (driver, http2) in WAYS {
        let mut first = Upstream::start(|_| unavailable()).await;
        let mut other = Upstream::echo().await;
        let settings = Settings { body_bytes_max: Some(10), ..policy(&[503], 1) };
        let bed = bed(&[first.address, other.address], settings, driver).await;
        assert_eq!(ask(&bed, http2, "POST", "0123456").await, 200, "{driver:?}, HTTP/2: {http2}");
        for upstream in [&mut first, &mut other] {
            assert_eq!(upstream.seen().await.body, "0123456", "{driver:?}, HTTP/2: {http2}");
        }
    }
}

#[tokio::test]
async fn the_response_to_the_last_attempt_is_forwarded() {
    for (driver, http2) in WAYS {
        for attempts in [0, 1, 2] {
            let mut upstream = Upstream::start(|_| unavailable()).await;
            let bed = bed(&[upstream.address], policy(&[503], attempts), driver).await;
            assert_eq!(ask(&bed, http2, "GET", "").await, 503, "{driver:?}, HTTP/2: {http2}");
            for _ in 0..=attempts {
                upstream.seen().await;
            }
            assert!(upstream.is_quiet(), "{driver:?}: {attempts} attempts");
        }
        let upstream = Upstream::start(|_| unavailable()).await;
        let answer = bed(&[upstream.address], policy(&[503], 1), driver).await.get("a.test", "/", "").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "busy"), "{driver:?}");
    }
}

#[tokio::test]
async fn unlisted_statuses_and_large_bodies_are_not_retried() {
    let large = "0123456789".repeat(200_000);
    for (driver, http2) in WAYS {
        for (statuses, body) in [(&[500, 502][..], ""), (&[503], &large)] {
            let mut upstream = Upstream::start(|_| unavailable()).await;
            let bed = bed(&[upstream.address], policy(statuses, 3), driver).await;
            assert_eq!(ask(&bed, http2, "POST", body).await, 503, "{driver:?}, HTTP/2: {http2}");
            upstream.seen().await;
            assert!(upstream.is_quiet(), "{driver:?}: {statuses:?}");
        }
    }
}

#[tokio::test]
async fn a_policy_of_zero_attempts_disables_retries() {
    let upstream = Upstream::echo().await;
    for (driver, http2) in WAYS {
        let endpoints = [closed_port(), upstream.address];
        let refused = bed(&endpoints, policy(&[503], 0), driver).await;
        assert_eq!(ask(&refused, http2, "GET", "").await, 502, "{driver:?}, HTTP/2: {http2}");
        let tried = bed(&endpoints, policy(&[503], 1), driver).await;
        assert_eq!(ask(&tried, http2, "GET", "").await, 200, "{driver:?}, HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn retries_are_limited_by_the_budget_of_the_service() {
    let retry = RetryPolicy { statuses: [503].into(), attempts: 100, backoff: Duration::from_secs(60) };
    let settings = Settings { retry: Some(Arc::new(retry)), ..Settings::default() };
    for driver in [Driver::Both, Driver::Pingora] {
        // Three retries are always allowed; with 20 requests in flight it is four.
        for (held, allowed) in [(0, 3), (17, 4)] {
            let mut upstream = Upstream::start(|seen| match seen.line.split(' ').nth(1) {
                Some("/hold") => Reply::Silence,
                Some("/close") => Reply::Close,
                _ => unavailable(),
            })
            .await;
            let bed = bed(&[upstream.address], settings.clone(), driver).await;
            let mut in_flight = Vec::new();
            for number in 0..held + allowed {
                let mut stream = bed.connect().await;
                let path = if number < held { "/hold" } else { "/busy" };
                stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).await.unwrap();
                in_flight.push(stream);
                upstream.seen().await;
                let retries = (number + 1_usize).saturating_sub(held);
                bed.until_metric(&format!("tidegate_upstream_retries_total {retries}")).await;
            }
            let answer = bed.get("a.test", "/busy", "").await;
            assert_eq!(answer.status, 503, "{driver:?}, with {held} others in flight");
            bed.until_metric("tidegate_upstream_retries_over_budget_total 1").await;
            bed.until_metric(&format!("tidegate_upstream_retries_total {allowed}")).await;
            // A connection that breaks without an answer is no sign of load: the request is sent again.
            let mut stream = bed.connect().await;
            stream.write_all(b"GET /close HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
            bed.until_metric(&format!("tidegate_upstream_retries_total {}", allowed + 1)).await;
        }
    }
}

#[tokio::test]
async fn the_total_timeout_bounds_retries() {
    for (driver, http2) in WAYS {
        let upstream = Upstream::start(|_| unavailable()).await;
        let retry = RetryPolicy { statuses: [503].into(), attempts: 100, backoff: Duration::from_secs(60) };
        let settings = Settings { retry: Some(Arc::new(retry)), total_timeout: Some(MOMENT), ..Settings::default() };
        let bed = bed(&[upstream.address], settings, driver).await;
        let began = now();
        assert_eq!(ask(&bed, http2, "GET", "").await, 504, "{driver:?}, HTTP/2: {http2}");
        assert!(began.elapsed() >= MOMENT);
        bed.until_metric(r#"tidegate_requests_by_reason_total{reason="upstream-timeout"} 1"#).await;
    }
}

#[tokio::test]
async fn an_attempt_that_times_out_is_a_504_of_its_endpoint() {
    // Each attempt has this time, and the second one needs little of it, also on a busy machine.
    const ATTEMPT: Duration = Duration::from_secs(3);
    let check = async |settings: Settings, (driver, http2): (Driver, bool), want: u16| {
        let silent = Upstream::start(|_| Reply::Silence).await;
        let other = Upstream::echo().await;
        let settings = Settings { attempt_timeout: Some(ATTEMPT), ..settings };
        let bed = bed(&[silent.address, other.address], settings, driver).await;
        let began: Instant = now();
        assert_eq!(ask(&bed, http2, "POST", "abc").await, want, "{driver:?}, HTTP/2: {http2}");
        assert!(began.elapsed() >= ATTEMPT);
    };
    let without = || Settings { balance: Some(Balance::RoundRobin), ..Settings::default() };
    let cases = WAYS.map(async |way| {
        let listed = check(policy(&[504], 1), way, 200);
        tokio::join!(listed, check(policy(&[503], 1), way, 504), check(without(), way, 504));
    });
    join_all(cases).await;
}
