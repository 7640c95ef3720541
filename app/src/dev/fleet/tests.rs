//! The fleet against a server within the process.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use http::{Request, StatusCode};
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
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
async fn slices_of_an_earlier_life_go_even_when_the_first_list_fails() {
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
