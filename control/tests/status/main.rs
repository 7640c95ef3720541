//! Writes to the cluster, and the leader that makes them: with the embedded API server, some of whose answers are
//! delayed or refused.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod status_updates;
mod contests;
mod edge;
mod events;
mod changed_findings;
mod gateways;
mod idle;
mod written;

use std::time::Duration;

use edge::{Api, Edge, addresses, eventually, service};
use serde_json::json;
use tidegate_config::object::ObjectName;
use tidegate_control::options::Publish;

/// Longer than any expected write takes.
const MOMENT: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
async fn only_our_ingresses_get_a_status() {
    let api = Api::new().await;
    api.ingress("ours", "tidegate").await;
    api.ingress("others", "nginx").await;
    api.status("others", &["9.9.9.9"]).await;
    let edge = Edge::start(&api, addresses(&["192.0.2.1", "192.0.2.2"]), "a");
    api.told("ours", &["192.0.2.1", "192.0.2.2"]).await;
    api.ingress("later", "tidegate").await;
    api.told("later", &["192.0.2.1", "192.0.2.2"]).await;
    assert_eq!(api.status_of("others").await, ["9.9.9.9"]);

    api.status("ours", &["8.8.8.8"]).await;
    api.told("ours", &["192.0.2.1", "192.0.2.2"]).await;

    api.class("later", "nginx").await;
    tokio::time::sleep(MOMENT).await;
    api.status("later", &["8.8.8.8"]).await;
    tokio::time::sleep(MOMENT * 4).await;
    assert_eq!(api.status_of("later").await, ["8.8.8.8"], "it is not ours any more");
    assert_eq!(edge.writes("written"), 3, "nothing is written that is there already");
    edge.end().await;
    assert_eq!(api.status_of("ours").await, ["192.0.2.1", "192.0.2.2"], "it is left to the next leader");
}

/// The second change arrives after the status is written, and before a watch event about that write.
#[tokio::test(start_paused = true)]
async fn a_lagging_watch_causes_no_second_write() {
    let api = Api::new().await;
    api.lag(Duration::from_millis(30));
    let edge = Edge::start(&api, addresses(&["192.0.2.1"]), "a");
    eventually(|| async { edge.ready() && edge.leads() == 1 }).await;
    api.ingress("one", "tidegate").await;
    api.rule("one", "two.test").await;
    api.told("one", &["192.0.2.1"]).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(edge.writes("written"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_writes_and_the_other_takes_over() {
    let api = Api::new().await;
    api.ingress("one", "tidegate").await;
    let first = Edge::start(&api, addresses(&["192.0.2.1"]), "a");
    api.told("one", &["192.0.2.1"]).await;
    let second = Edge::start(&api, addresses(&["192.0.2.1"]), "b");
    tokio::time::sleep(MOMENT * 4).await;
    assert_eq!((first.leads(), second.leads(), second.writes("written")), (1, 0, 0));
    assert_eq!(api.holder().await, "a");

    first.end().await;
    assert_eq!(api.status_of("one").await, ["192.0.2.1"]);
    api.ingress("two", "tidegate").await;
    api.told("two", &["192.0.2.1"]).await;
    // A write is counted when its answer arrives, shortly after it is visible.
    eventually(|| async { second.writes("written") == 1 }).await;
    assert_eq!((second.leads(), api.holder().await), (1, "b".to_owned()));
    second.end().await;
    assert_eq!(api.holder().await, "", "it has stepped down");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_is_written_before_every_kind_is_listed() {
    let api = Api::new().await;
    api.ingress("one", "tidegate").await;
    let held = api.slow(Duration::from_secs(600), |request| request.uri().path().ends_with("/secrets"));
    let edge = Edge::start(&api, addresses(&["192.0.2.1"]), "a");
    eventually(|| async { edge.ready() && edge.leads() == 1 }).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(api.status_of("one").await, [""; 0], "Secrets are not listed yet");
    held.end();
    api.told("one", &["192.0.2.1"]).await;
}

/// An API server that delays the answers to writes by half a minute does not delay a publication.
#[tokio::test(flavor = "multi_thread")]
async fn slow_writes_delay_no_publication() {
    let api = Api::new().await;
    for number in 0..20 {
        api.ingress(&format!("old-{number}"), "tidegate").await;
    }
    let _slow = api.slow(Duration::from_secs(30), |request| {
        request.method() == http::Method::PATCH || request.uri().path().contains("/events")
    });
    let edge = Edge::writing(&api, addresses(&["192.0.2.1"]), "a");
    eventually(|| async { edge.ready() && edge.leads() == 1 && edge.waits_for_writes() }).await;
    for number in 0..5 {
        let mut generation = edge.view.generation();
        generation.borrow_and_update();
        api.ingress(&format!("new-{number}"), "tidegate").await;
        let published = tokio::time::timeout(Duration::from_secs(5), generation.changed()).await;
        assert!(published.is_ok(), "published while every write waits");
    }
    assert_eq!((edge.leads(), edge.writes("written")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_after_pauses_all_writers() {
    let api = Api::new().await;
    for number in 0..20 {
        api.ingress(&format!("i{number}"), "tidegate").await;
    }
    api.refuse(Some((429, &[("retry-after", "7")], "Too many requests, please try again later.")));
    let edge = Edge::start(&api, addresses(&["192.0.2.1"]), "a");
    eventually(|| async { edge.writes("throttled") > 0 }).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Each of four writers retries every seven seconds, at 0 and up to 56.
    assert_eq!((edge.writes("throttled"), edge.writes("failed")), (36, 0));
    api.refuse(None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    for number in 0..20 {
        assert_eq!(api.status_of(&format!("i{number}")).await, ["192.0.2.1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_service_are_published() {
    let api = Api::new().await;
    api.ingress("one", "tidegate").await;
    api.ingress("two", "tidegate").await;
    let edge = Edge::start(&api, Publish::Service(ObjectName::new("edge", "lb")), "a");
    eventually(|| async { edge.ready() && edge.leads() == 1 }).await;
    api.create("/api/v1/namespaces", json!({"metadata": {"name": "edge"}})).await;
    api.create("/api/v1/namespaces/edge/services", service("lb", "LoadBalancer")).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(api.status_of("one").await, [""; 0], "the load balancer is not there yet");

    let status = |entry| json!({"status": {"loadBalancer": {"ingress": entry}}});
    let path = "/api/v1/namespaces/edge/services/lb/status";
    api.patch(path, &status(json!([{"ip": "192.0.2.7"}, {"hostname": "lb.example"}]))).await;
    api.told("one", &["lb.example", "192.0.2.7"]).await;
    api.told("two", &["lb.example", "192.0.2.7"]).await;
    api.patch(path, &status(json!([{"ip": "192.0.2.8"}]))).await;
    api.told("two", &["192.0.2.8"]).await;
    api.patch(path, &status(json!([]))).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(api.status_of("one").await, ["192.0.2.8"], "what is gone for a moment stays told");
}
