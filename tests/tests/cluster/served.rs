//! The served API of an edge, with kubectl as its client, while the API server crashes and etcd compacts its history.

use serde_json::{Value, json};
use tidegate_tests::cluster::Edge;
use tidegate_tests::{KubectlWait, KubectlWatch, Link, Reader, eventually};

use crate::stage::{Stage, ingress, rule};

/// The address of the API server for the edge while nothing is cut. No other process of the cluster uses it.
const LINK: &str = "127.0.0.3:6443";
const API_SERVER: &str = "127.0.0.1:6443";
const SERVED: &str = "127.0.0.1:8801";
const SERVICES: &str = "/api/v1/namespaces/watched/services";
const KINDS: [&str; 4] = ["services", "ingresses", "endpointslices", "ingressclasses"];

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

/// A change, a deletion, and the creation of another object with the same name.
async fn change(stage: &Stage, round: &str) {
    let api = &stage.cluster.api;
    api.merge(&ingress("watched"), &json!({"spec": {"rules": [rule(&format!("{round}.test"), 80)]}})).await;
    api.merge(&format!("{SERVICES}/web"), &json!({"metadata": {"annotations": {"round": round}}})).await;
    api.delete(&format!("{SERVICES}/replaced")).await;
    api.create(SERVICES, &service("replaced")).await;
    api.create(SERVICES, &service(&format!("new-{round}"))).await;
}

pub(crate) async fn kubectl_watches_on_over_a_compaction_and_a_crash(stage: &mut Stage) {
    stage.app("watched").await;
    let api = &stage.cluster.api;
    for name in ["replaced", "going"] {
        api.create(SERVICES, &service(name)).await;
    }
    let mut link = Link::between(LINK.parse().expect("an address"), API_SERVER.parse().expect("an address")).await;
    let kubeconfig = stage.cluster.folder().join("served.kubeconfig");
    stage.write_kubeconfig("served", LINK, &stage.cluster.folder().join("authority.crt"), &kubeconfig).await;
    let arguments = ["--serve-api", SERVED, "--status", "off"];
    let edge = Edge::with_kubeconfig(&stage.cluster, "served", &kubeconfig, "10.244.0.6", &arguments);
    edge.ready().await;
    let served = Reader::of(&format!("http://{SERVED}"), &[]).expect("kubectl, which was there before");
    let mut watches = KINDS.map(|kind| KubectlWatch::start(&served, &["get", kind, "-A"]));
    let mut same = async |stage: &Stage, when: &str| {
        for watch in &mut watches {
            watch.prints(when, &stage.cluster.kubectl).await;
        }
    };
    same(stage, "at first").await;
    change(stage, "live").await;
    same(stage, "after live changes").await;

    let mut gone = KubectlWait::start(&served, &["-n", "watched", "svc/going", "--for=delete"]);
    let seen = "--for=jsonpath={.metadata.annotations.round}=compacted";
    let mut changed = KubectlWait::start(&served, &["-n", "watched", "svc/web", seen]);
    let expired = edge.metric("tidegate_lists_total", "reason=\"expired\"").await;
    link.cut();
    change(stage, "compacted").await;
    stage.cluster.api.delete(&format!("{SERVICES}/going")).await;
    // The API server keeps a history of its own in memory.
    stage.cluster.crash_api_server().await;
    stage.cluster.compact().await;
    stage.cluster.start_api_server().await;
    gone.waits();
    changed.waits();
    link.mend();
    same(stage, "after a compaction").await;
    gone.ends().await;
    changed.ends().await;
    eventually("the history was gone", || async {
        let lists = edge.metric("tidegate_lists_total", "reason=\"expired\"").await;
        if lists > expired { Ok(()) } else { Err("nothing was listed for that".to_owned()) }
    })
    .await;

    change(stage, "crash").await;
    stage.cluster.crash_api_server().await;
    stage.cluster.start_api_server().await;
    change(stage, "after").await;
    same(stage, "after a crash").await;
    edge.end().await;
}
