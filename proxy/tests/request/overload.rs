//! Requests to a Service that already has its maximum number of requests.

use std::sync::Arc;

use tidegate_config::model::{AppProtocol, Backend};
use tidegate_proxy::{BudgetLimits, Driver};
use tokio::io::AsyncWriteExt;

use super::bed::{Bed, Model, answer, route};
use super::upstream::Upstream;

const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n";

/// Two Services; the first one has this maximum number of requests.
fn two_services(upstream: &Upstream, max: Option<u32>) -> Model {
    let mut model = Model::to(&[upstream.address]);
    let web = model.parts.backends.values().next().unwrap();
    let web = Backend { requests_max: max, ..(**web).clone() };
    model.parts.backends.insert_mut(web.key.clone(), Arc::new(web));
    model.route("b.test", route("other", AppProtocol::Http)).backend("other", &[upstream.address])
}

async fn check_full(driver: Driver, own: Option<u32>, usual: u32) {
    let upstream = Upstream::echo().await;
    let bed = Bed::with(two_services(&upstream, own), |options| {
        options.driver = driver;
        options.budget.service_requests = usual;
    })
    .await;
    let mut busy = [bed.connect().await, bed.connect().await];
    for client in &mut busy {
        client.write_all(POST).await.unwrap();
    }
    bed.until_metric("tidegate_requests_in_flight 2").await;
    let refused = bed.get("a.test", "/", "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{driver:?} {own:?}");
    assert!(refused.body.contains("reason: service-overloaded"), "{}", refused.body);
    assert_eq!(bed.get("b.test", "/", "").await.status, 200, "another Service");
    for client in &mut busy {
        client.write_all(b"ok").await.unwrap();
        assert_eq!(answer(client).await.status, 200);
    }
    assert_eq!(bed.get("a.test", "/", "").await.status, 200, "{driver:?} {own:?}");
    bed.until_metric(r#"tidegate_requests_by_reason_total{reason="service-overloaded"} 1"#).await;
}

#[tokio::test]
async fn requests_per_service_are_limited_by_its_own_or_the_default_limit() {
    for driver in [Driver::Both, Driver::Pingora] {
        check_full(driver, Some(2), 1024).await;
        check_full(driver, None, 2).await;
    }
}

/// One Service gets four requests of this budget, whatever it says.
async fn check_part(driver: Driver, set: impl FnOnce(&mut BudgetLimits)) {
    let upstream = Upstream::echo().await;
    let bed = Bed::with(two_services(&upstream, Some(0)), |options| {
        options.driver = driver;
        options.budget.client_share = 100;
        set(&mut options.budget);
    })
    .await;
    let mut busy = Vec::new();
    for count in 1..=4 {
        let mut client = bed.connect().await;
        client.write_all(POST).await.unwrap();
        bed.until_metric(&format!("tidegate_requests_in_flight {count}")).await;
        busy.push(client);
    }
    let refused = bed.get("a.test", "/", "").await;
    assert!(refused.body.contains("reason: service-overloaded"), "{driver:?}: {}", refused.body);
    assert_eq!(bed.get("b.test", "/", "").await.status, 200, "another Service");
}

#[tokio::test]
async fn one_service_gets_at_most_half_of_the_memory_and_a_quarter_of_the_files() {
    for (driver, cost_kib) in [(Driver::Both, 64), (Driver::Pingora, 256)] {
        check_part(driver, |budget| budget.memory_kib = 8 * cost_kib).await;
        check_part(driver, |budget| budget.files = 16).await;
    }
}

#[tokio::test]
async fn a_limit_of_zero_means_unlimited() {
    for (own, usual) in [(Some(0), 1), (None, 0)] {
        let upstream = Upstream::echo().await;
        let bed = Bed::with(two_services(&upstream, own), |options| options.budget.service_requests = usual).await;
        let mut busy = bed.connect().await;
        busy.write_all(POST).await.unwrap();
        bed.until_metric("tidegate_requests_in_flight 1").await;
        assert_eq!(bed.get("a.test", "/", "").await.status, 200, "{own:?} {usual}");
    }
}

#[tokio::test]
async fn a_request_without_room_leaves_its_connection_open() {
    for driver in [Driver::Both, Driver::Pingora] {
        let upstream = Upstream::echo().await;
        let bed = Bed::with(two_services(&upstream, Some(1)), |options| options.driver = driver).await;
        let (mut busy, mut other) = (bed.connect().await, bed.connect().await);
        busy.write_all(POST).await.unwrap();
        bed.until_metric("tidegate_requests_in_flight 1").await;
        other.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        let refused = answer(&mut other).await;
        assert_eq!((refused.status, refused.header("connection") == Some("close")), (503, false), "{driver:?}");
        busy.write_all(b"ok").await.unwrap();
        assert_eq!(answer(&mut busy).await.status, 200, "{driver:?}");
        other.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut other).await.status, 200, "{driver:?}");
    }
}

#[tokio::test]
async fn a_request_makes_room_at_its_end_and_not_with_its_connection() {
    for driver in [Driver::Both, Driver::Pingora] {
        let upstream = Upstream::echo().await;
        let bed = Bed::with(two_services(&upstream, Some(1)), |options| options.driver = driver).await;
        let mut clients = [bed.connect().await, bed.connect().await];
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
            assert_eq!(answer(client).await.status, 200, "{driver:?}");
            bed.until_metric("tidegate_requests_in_flight 0").await;
        }
    }
}
