//! The fleet against a server within the process.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use http::{Request, StatusCode};
use kube::api::{DeleteParams, PostParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::client::Body;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;

/// A client for a server that fails the first list of slices.
fn failing_once(lite: &Lite) -> kube::Client {
    let (lite, failed) = (lite.service(), Arc::new(AtomicBool::new(false)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (lite, failed) = (lite.clone(), Arc::clone(&failed));
        async move {
            let list = request.method() == "GET" && request.uri().path().ends_with("/endpointslices");
            if list && !failed.swap(true, Ordering::Relaxed) {
                return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
            }
            lite.oneshot(request).await.map(|answer| answer.map(axum::body::Body::new))
        }
    });
    kube::Client::new(service, "default")
}

/// A client for a server whose watch of Deployments stays silent.
fn silent_about_deployments(lite: &Lite) -> kube::Client {
    let lite = lite.service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let lite = lite.clone();
        async move {
            let watched = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if watched && request.uri().path().ends_with("/deployments") {
                let silence = futures::stream::pending::<Result<axum::body::Bytes, std::convert::Infallible>>();
                return Ok(axum::body::Body::from_stream(silence).into_response());
            }
            lite.oneshot(request).await.map(|answer| answer.map(axum::body::Body::new))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_deleted_deployment_gets_no_replacement() {
    let lite = Lite::new();
    let client = kube::Client::new(lite.service(), "default");
    let (deployments, pods) =
        (Api::<Deployment>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "echo"}]}},
        },
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(web).unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let programs = Programs { echo: Path::new("").into(), run_commands: false };
    let fleet = Fleet::new(silent_about_deployments(&lite), lite.clone(), programs, watch::Sender::new(0));
    let fleet = tokio::spawn(fleet.run(stop.clone()));
    let first = loop {
        let list = pods.list(&ListParams::default()).await.unwrap();
        if !list.items.is_empty() {
            break list;
        }
        sleep(Duration::from_millis(10)).await;
    };
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    let mut events =
        pods.watch(&WatchParams::default(), &first.metadata.resource_version.unwrap()).await.unwrap().boxed();
    while let Ok(Some(event)) = timeout(Duration::from_secs(1), events.next()).await {
        if let Ok(WatchEvent::Added(pod)) = event {
            panic!("{} was added", pod.name_any());
        }
    }
    stop.cancel();
    fleet.await.unwrap();
}

#[tokio::test]
async fn slices_of_an_earlier_process_are_removed_even_when_the_first_list_fails() {
    let lite = Lite::new();
    let slices: Api<EndpointSlice> = Api::default_namespaced(kube::Client::new(lite.service(), "default"));
    let stale = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
        "metadata": {"name": "stale", "labels": {KEEPER: KEEPER_NAME}},
    });
    slices.create(&PostParams::default(), &serde_json::from_value(stale).unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let programs = Programs { echo: Path::new("").into(), run_commands: false };
    let fleet = Fleet::new(failing_once(&lite), lite.clone(), programs, watch::Sender::new(0));
    let fleet = tokio::spawn(fleet.run(stop.clone()));
    let gone = async {
        while slices.get_opt("stale").await.unwrap().is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), gone).await.expect("the slice goes");
    stop.cancel();
    fleet.await.unwrap();
}

/// A client for a server that fails the first question about a ReplicaSet.
fn failing_about_sets(lite: &Lite) -> kube::Client {
    let (lite, failed) = (lite.service(), Arc::new(AtomicBool::new(false)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (lite, failed) = (lite.clone(), Arc::clone(&failed));
        async move {
            let about_one = request.method() == "GET" && request.uri().path().contains("/replicasets/");
            if about_one && !failed.swap(true, Ordering::Relaxed) {
                return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
            }
            lite.oneshot(request).await.map(|answer| answer.map(axum::body::Body::new))
        }
    });
    kube::Client::new(service, "default")
}

fn web(replicas: usize) -> Deployment {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "echo"}]}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    serde_json::from_value(web).unwrap()
}

/// Waits until a question about the server has an answer.
async fn until<T>(what: &str, asked: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = asked().await {
                break found;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), found).await.expect(what)
}

#[tokio::test]
async fn replica_sets_without_a_deployment_stay_even_when_a_request_fails() {
    let lite = Lite::new();
    let client = kube::Client::new(lite.service(), "default");
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let (sets, pods) = (Api::<ReplicaSet>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    deployments.create(&PostParams::default(), &web(2)).await.unwrap();
    let stop = CancellationToken::new();
    let programs = Programs { echo: Path::new("").into(), run_commands: false };
    let fleet = Fleet::new(failing_about_sets(&lite), lite.clone(), programs, watch::Sender::new(0));
    let fleet = tokio::spawn(fleet.run(stop.clone()));
    let all = ListParams::default();
    let names = async || -> Vec<String> { pods.list(&all).await.unwrap().iter().map(Pod::name_any).collect() };
    let before = until("two Pods", async || Some(names().await).filter(|names| names.len() == 2)).await;
    let set = sets.list(&all).await.unwrap().items.remove(0).name_any();
    deployments
        .delete("web", &DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() })
        .await
        .unwrap();
    // Longer than a retry takes.
    sleep(RETRY * 2).await;
    assert!(sets.get_opt(&set).await.unwrap().is_some(), "the ReplicaSet stays");
    assert_eq!(names().await, before, "and so do its Pods");
    stop.cancel();
    fleet.await.unwrap();
}

#[tokio::test]
async fn replicas_beyond_the_maximum_are_refused_with_a_message() {
    let lite = Lite::new();
    let client = kube::Client::new(lite.service(), "default");
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let events = Api::<k8s_openapi::api::core::v1::Event>::default_namespaced(client);
    deployments.create(&PostParams::default(), &web(REPLICAS_MAX + 3)).await.unwrap();
    let stop = CancellationToken::new();
    let programs = Programs { echo: Path::new("").into(), run_commands: false };
    let fleet = Fleet::new(kube::Client::new(lite.service(), "default"), lite.clone(), programs, watch::Sender::new(0));
    let fleet = tokio::spawn(fleet.run(stop.clone()));
    let failure = async || {
        let conditions = deployments.get("web").await.unwrap().status?.conditions?;
        conditions.into_iter().find(|one| one.type_ == "ReplicaFailure")
    };
    let condition = until("a condition", failure).await;
    let message = "3 Pods were not created: `tidegate dev` runs at most 100 processes";
    assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("FailedCreate"), Some(message)));
    let all = ListParams::default();
    until("an Event", async || {
        let events = events.list(&all).await.unwrap().items;
        events
            .into_iter()
            .find(|one| one.reason.as_deref() == Some("FailedCreate") && one.message.as_deref() == Some(message))
    })
    .await;
    assert_eq!(pods.list(&all).await.unwrap().items.len(), REPLICAS_MAX);
    let fewer = kube::api::Patch::Merge(json!({"spec": {"replicas": REPLICAS_MAX}}));
    deployments.patch("web", &kube::api::PatchParams::default(), &fewer).await.unwrap();
    until("no condition", async || failure().await.is_none().then_some(())).await;
    stop.cancel();
    fleet.await.unwrap();
}

#[tokio::test]
async fn recreate_removes_the_old_pods_before_it_creates_new_ones() {
    let lite = Lite::new();
    let client = kube::Client::new(lite.service(), "default");
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut recreated = web(3);
    let strategy = json!({"type": "Recreate"});
    recreated.spec.as_mut().unwrap().strategy = Some(serde_json::from_value(strategy).unwrap());
    deployments.create(&PostParams::default(), &recreated).await.unwrap();
    let stop = CancellationToken::new();
    let programs = Programs { echo: Path::new("").into(), run_commands: false };
    let fleet = tokio::spawn(Fleet::new(client, lite.clone(), programs, watch::Sender::new(0)).run(stop.clone()));
    let all = ListParams::default();
    let first =
        until("three Pods", async || Some(pods.list(&all).await.unwrap()).filter(|list| list.items.len() == 3)).await;
    let version = first.metadata.resource_version.clone().unwrap();
    let mut changes = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    let annotated = json!({"spec": {"template": {"metadata": {"annotations": {"template": "b"}}}}});
    let patch = kube::api::Patch::Merge(annotated);
    deployments.patch("web", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let mut old: std::collections::BTreeSet<String> = first.iter().map(Pod::name_any).collect();
    let mut created = 0;
    while created < 3 {
        match timeout(Duration::from_secs(20), changes.next()).await.expect("a change").unwrap().unwrap() {
            WatchEvent::Added(pod) => {
                assert!(old.is_empty(), "{} was created beside {old:?}", pod.name_any());
                created += 1;
            }
            WatchEvent::Deleted(pod) => drop(old.remove(&pod.name_any())),
            WatchEvent::Modified(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }
    stop.cancel();
    fleet.await.unwrap();
}
