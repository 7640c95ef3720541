//! Events for the owners of objects.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tidegate_tests::cluster::Edge;
use tidegate_tests::eventually;

use crate::stage::{Stage, ingress, rule};

/// Longer than a finding has to persist until it is reported, or has to be gone until that is.
const MOMENT: Duration = Duration::from_secs(5);

/// The Events that `kubectl describe` shows for the Ingress of an application: the query is the same.
async fn events(stage: &Stage, name: &str) -> Vec<Value> {
    let uid = stage.cluster.api.get(&ingress(name)).await["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let asked = [("kind", "Ingress"), ("name", "web"), ("namespace", name), ("uid", &uid)];
    let asked = asked.map(|(field, value)| format!("involvedObject.{field}%3D{value}")).join(",");
    let list = stage.cluster.api.get(&format!("/api/v1/namespaces/{name}/events?fieldSelector={asked}")).await;
    list["items"].as_array().expect("items").clone()
}

/// Waits until there is one Event, which reports a missing port this many times.
async fn told(stage: &Stage, name: &str, count: Option<u64>) -> Value {
    eventually("the owner is told", || async {
        match events(stage, name).await.as_slice() {
            [event] if event["reason"] == "PortMissing" && event["series"]["count"].as_u64() == count => Ok(()),
            others => Err(format!("{others:?}")),
        }
    })
    .await;
    events(stage, name).await.remove(0)
}

pub(crate) async fn an_owner_gets_one_event(stage: &mut Stage) {
    stage.app("owner").await;
    let (path, host) = (ingress("owner"), "owner.test");
    let leads_to = |port| json!({"spec": {"rules": [rule(host, port)]}});
    let broken = async |what| stage.change(&path, &leads_to(81), host, what, |answer| answer.status == 503).await;
    broken("an Ingress names a port that is not there").await;
    let event = told(stage, "owner", None).await;
    assert_eq!((&event["type"], &event["reportingComponent"]), (&json!("Warning"), &json!("tidegate.io/tidegate")));
    let shown = stage.cluster.kubectl.run(&["-n", "owner", "describe", "ingress", "web"]).await;
    let line = shown.lines().find(|line| line.contains("PortMissing")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.ends_with("Service owner/web has no port 81, so the route answers 503"), "{line}");

    stage.allow_lease("another").await;
    // A leader that has just started does not know the earlier Events, nor does the same process after a restart.
    for _ in 0..2 {
        let lease = ["--lease", "tidegate/another"];
        let another = Edge::start_as(&stage.cluster, "tidegate", "10.244.0.4", &lease).await;
        eventually("another leader finds it told", || async {
            let known = another.metric("tidegate_event_writes_total", "exists").await;
            if known > 0.0 { Ok(()) } else { Err(another.last_words()) }
        })
        .await;
        assert_eq!(another.metric("tidegate_event_writes_total", "written").await, 0.0);
        another.end().await;
    }
    assert_eq!(events(stage, "owner").await, [event], "it is the same, and there is no second one");

    stage.change(&path, &leads_to(80), host, "the port is mended", |answer| answer.status == 200).await;
    tokio::time::sleep(MOMENT).await;
    broken("the port is wrong again").await;
    told(stage, "owner", Some(2)).await;
}

/// No finding is possible for a class that an API server accepts, so its Event is written here in Tidegate's form:
/// about an object without a namespace, in `default`.
pub(crate) async fn an_event_about_a_class_goes_to_default(stage: &mut Stage) {
    let class = "/apis/networking.k8s.io/v1/ingressclasses/tidegate";
    let uid = stage.cluster.api.get(class).await["metadata"]["uid"].take();
    let event = |namespace: &str| {
        json!({
            "metadata": {"name": "tidegate.0123456789abcdef", "namespace": namespace},
            "eventTime": "2026-11-21T03:12:04.733123Z", "type": "Warning", "reason": "ProcessingFailed", "action": "Route",
            "note": "could not be processed (internal error: a test); its last result stays in effect until it changes, but not over a restart",
            "regarding": {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "name": "tidegate", "uid": uid},
            "reportingController": "tidegate.io/tidegate", "reportingInstance": "edge-0_1",
        })
    };
    let create = async |namespace: &str| {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldManager=tidegate");
        let (status, answer) = stage
            .cluster
            .api
            .ask(Method::POST, &path, Some(("application/json", &event(namespace))))
            .await
            .expect("an answer");
        (status.as_u16(), answer)
    };
    let (status, answer) = create("default").await;
    assert_eq!(status, 201, "{answer}");
    let (status, answer) = create("tidegate").await;
    assert_eq!(status, 422, "{answer}");
    let shown = stage.cluster.kubectl.run(&["describe", "ingressclass", "tidegate"]).await;
    assert!(shown.lines().any(|line| line.contains("ProcessingFailed")), "{shown}");
}
