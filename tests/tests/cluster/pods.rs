//! Changes that Deployments make to their pods.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tidegate_tests::{eventually, get, moment};

use crate::stage::{Stage, deployment, ingress, measured, rule};

async fn pods(stage: &Stage, name: &str) -> BTreeSet<String> {
    let list = stage.cluster.api.get(&format!("/api/v1/namespaces/{name}/pods")).await;
    let names = list["items"].as_array().expect("items").iter();
    names.map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

pub(crate) async fn a_deployment_is_routed(stage: &mut Stage) {
    stage.app("routed").await;
    let want = pods(stage, "routed").await;
    let mut answered = BTreeSet::new();
    // A pod whose first response was slow gets requests again some seconds later.
    for _ in 0..1200 {
        let answer = get(stage.edge.http, "routed.test", "/").await.expect("an answer");
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, "one"));
        answered.insert(answer.headers["pod"].to_str().expect("text").to_owned());
        if answered.len() == want.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(answered, want, "every pod gets requests");
    assert_eq!(want.len(), 2);
}

pub(crate) async fn a_rolling_update_fails_no_request(stage: &mut Stage) {
    stage.app("rolling").await;
    let steady = stage.steady("rolling.test");
    let path = deployment("rolling");
    let begun = moment();
    stage.cluster.api.replace(&path, "/spec/template/spec/containers/0/args", &json!(["--say=two"])).await;
    stage.until("rolling.test", "a new pod answers", |answer| answer.body == "two").await;
    measured("a rolling update's first new pod answers", begun);
    stage.settled("rolling").await;
    measured("a rolling update is over", begun);
    for _ in 0..50 {
        let answer = get(stage.edge.http, "rolling.test", "/").await.expect("an answer");
        assert_eq!(answer.body, "two", "the old pods are gone");
    }
    let taken = steady.stop().await;
    println!("    {} requests went on through the rolling update", taken.all());
    assert!(taken.answers["one"] > 0 && taken.answers["two"] > 0, "{:?}", taken.answers);
}

pub(crate) async fn to_zero_and_back(stage: &mut Stage) {
    stage.app("scaled").await;
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let path = deployment("scaled");
    stage.change(&path, &scale(0), "scaled.test", "scaled to 0, answered 503", |answer| answer.status == 503).await;
    stage.settled("scaled").await;
    assert_eq!(get(stage.edge.http, "scaled.test", "/").await.expect("an answer").status, 503);
    stage.change(&path, &scale(3), "scaled.test", "scaled to 3, answered 200", |answer| answer.status == 200).await;
    // If pods are not ready yet, the only one that answers may be removed, and then there is none.
    stage.settled("scaled").await;
    let steady = stage.steady("scaled.test");
    for replicas in [1, 6, 1, 5, 2] {
        stage.cluster.api.merge(&path, &scale(replicas)).await;
        stage.settled("scaled").await;
    }
    steady.stop().await.all();
}

pub(crate) async fn a_deleted_pod_ends_its_requests_first(stage: &mut Stage) {
    stage.app("deleted").await;
    // Round robin: with load-dependent balancing, a pod whose first response was slow might get none of the requests
    // below. The second host shows when that is in effect.
    let in_turn = json!({
        "metadata": {"annotations": {"tidegate.io/balance": "round-robin"}},
        "spec": {"rules": [rule("deleted.test", 80), rule("in-turn.test", 80)]},
    });
    stage.change(&ingress("deleted"), &in_turn, "in-turn.test", "in turn", |answer| answer.status == 200).await;
    let before = pods(stage, "deleted").await;
    // The endpoint of the second pod may arrive after that of the first.
    eventually("both pods answer", || async {
        let mut by = BTreeSet::new();
        for answer in join_all((0..8).map(|_| get(stage.edge.http, "deleted.test", "/"))).await {
            by.insert(answer?.headers["pod"].to_str().expect("text").to_owned());
        }
        if by == before { Ok(()) } else { Err(format!("{by:?}")) }
    })
    .await;
    let slow = join_all((0..8).map(|_| get(stage.edge.http, "deleted.test", "/?delay=4s")));
    let delete = async {
        // No other request takes its turn until the slow requests are with the pods.
        eventually("the slow requests are in flight", || async {
            let in_flight = stage.edge.metric("tidegate_requests_in_flight", "").await;
            if in_flight >= 8.0 { Ok(()) } else { Err(in_flight.to_string()) }
        })
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let steady = stage.steady("deleted.test");
        let begun = moment();
        let pod = before.first().expect("a pod");
        stage.cluster.api.delete(&format!("/api/v1/namespaces/deleted/pods/{pod}")).await;
        stage.settled("deleted").await;
        measured("a deleted pod is replaced", begun);
        steady
    };
    let (slow, steady) = futures::join!(slow, delete);
    let mut by = BTreeSet::new();
    for answer in slow {
        let answer = answer.expect("what is in flight is finished");
        assert_eq!(answer.status, 200, "{}", answer.body);
        by.insert(answer.headers["pod"].to_str().expect("text").to_owned());
    }
    assert_eq!(by, before, "requests were in flight on both pods");
    assert!(!pods(stage, "deleted").await.contains(before.first().expect("a pod")));
    steady.stop().await.all();
}
