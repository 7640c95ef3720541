//! The fleet against a server within the process.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::IntoResponse as _;
use http::{Request, StatusCode};
use kube::client::Body;
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
