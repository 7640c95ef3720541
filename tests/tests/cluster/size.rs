//! Many routes. A real control plane takes minutes until it has them, so this is not among the usual cases:
//! `CLUSTER_ROUTES=50000 cargo test --release -p tidegate-tests --test cluster -- --ignored`.

use futures::future::join_all;
use serde_json::{Value, json};
use tidegate_tests::cluster::Edge;
use tidegate_tests::{get, moment};

use crate::stage::{Stage, measured};

/// Routes where nothing else is said.
const ROUTES: u32 = 5000;
/// Connections over which objects are made.
const WRITERS: u32 = 8;

/// A Service, its slice and an Ingress for `N.many.test`, each in the collection that takes it.
fn route(number: u32, pod: &str) -> [(&'static str, Value); 3] {
    let name = format!("r{number}");
    let labels = json!({"kubernetes.io/service-name": name});
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": format!("{number}.many.test"), "http": {"paths": paths}}]);
    [
        ("/api/v1/namespaces/many/services", json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})),
        (
            "/apis/discovery.k8s.io/v1/namespaces/many/endpointslices",
            json!({
                "metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
                "ports": [{"port": 8080}], "endpoints": [{"addresses": [pod], "conditions": {"ready": true}}],
            }),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/many/ingresses",
            json!({"metadata": {"name": name}, "spec": {"ingressClassName": "tidegate", "rules": rules}}),
        ),
    ]
}

pub(crate) async fn it_starts_with_many_routes(stage: &mut Stage) {
    #[allow(
        clippy::disallowed_methods,
        reason = "what a program is asked for beyond its flags comes by the environment"
    )]
    let routes = std::env::var("CLUSTER_ROUTES").map_or(ROUTES, |text| text.parse().expect("CLUSTER_ROUTES: a number"));
    stage.app("many").await;
    let answer = get(stage.edge.http, "many.test", "/").await.expect("an answer");
    let pod = answer.headers["pod-address"].to_str().expect("text").split(':').next().expect("an address");

    let begun = moment();
    join_all((0..WRITERS).map(async |writer| {
        let objects = (writer..routes).step_by(WRITERS as usize).flat_map(|number| route(number, pod));
        stage.cluster.api.create_all(objects).await;
    }))
    .await;
    measured(&format!("the API server takes {routes} Ingresses, Services and EndpointSlices"), begun);
    let last = format!("{}.many.test", routes - 1);
    stage.until(&last, "the last of them answers", |answer| answer.status == 200).await;
    println!("    {}  of the Tidegate that took them one by one", stage.edge.memory());

    let begun = moment();
    let edge = Edge::start_as(&stage.cluster, "tidegate", "10.244.0.3", &["--status", "off"]).await;
    measured("another Tidegate starts, until it is ready", begun);
    for number in [0, routes / 2, routes - 1] {
        let answer = get(edge.http, &format!("{number}.many.test"), "/").await.expect("an answer");
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, "one"), "ready means right");
    }
    println!("    {}  of that one when it is ready", edge.memory());
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    println!("    {}  half a minute later", edge.memory());
    assert_eq!(edge.metric("tidegate_control_restarts_total", "").await, 0.0);
}
