//! Contests with another client about status: it is named, in a finding and an Event about the class.

use std::time::Duration;

use serde_json::{Value, json};

use crate::edge::{Api, Edge, addresses, eventually};

/// The findings about contests.
async fn contests(edge: &Edge) -> Vec<String> {
    let found = edge.view.findings().await.unwrap().into_iter();
    let found = found.filter(|finding| finding.problem.reason() == "StatusContested");
    found.map(|finding| format!("{}: {}", finding.object, finding.note())).collect()
}

/// Waits until an edge has one contest, with this client.
async fn is_contested(edge: &Edge, writer: &str) {
    let want = format!("IngressClass tidegate: {writer} keeps overwriting the status of Ingress default/one, so");
    eventually(|| async { contests(edge).await.iter().any(|found| found.starts_with(&want)) }).await;
    assert_eq!((contests(edge).await.len(), edge.metric("tidegate_status_contested", "")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn two_edges_of_one_class_name_the_lease_of_each_other() {
    let api = Api::new().await;
    api.ingress("one", "tidegate").await;
    let [first, second] = [("first", "192.0.2.1"), ("second", "192.0.2.2")]
        .map(|(lease, address)| Edge::of_lease(&api, addresses(&[address]), lease));
    is_contested(&first, "the edge with the Lease default/second").await;
    is_contested(&second, "the edge with the Lease default/first").await;
    eventually(|| async {
        let events = api.get("/api/v1/namespaces/default/events").await.unwrap();
        let about_class =
            |event: &&Value| event["involvedObject"]["kind"] == "IngressClass" && event["reason"] == "StatusContested";
        events["items"].as_array().unwrap().iter().filter(about_class).count() == 2
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_writer_is_named_until_it_has_stopped() {
    let api = Api::new().await;
    api.ingress("one", "tidegate").await;
    let edge = Edge::start(&api, addresses(&["192.0.2.1"]), "a");
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/one/status?fieldManager=other-edge";
    for _ in 0..3 {
        assert_eq!(contests(&edge).await, [""; 0]);
        api.told("one", &["192.0.2.1"]).await;
        // The edge has observed its own write once it has no write in progress.
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.patch(path, &json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}})).await;
    }
    is_contested(&edge, "the client \"other-edge\"").await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((contests(&edge).await, edge.metric("tidegate_status_contested", "")), (Vec::new(), 0));
}
