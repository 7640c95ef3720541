//! Many routes, for longer than the usual cases take:
//! `CLUSTER_ROUTES=50000 cargo test --release -p tidegate-tests --test cluster -- --ignored --nocapture`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_tests::cluster::{Edge, Memory, PUBLIC};
use tidegate_tests::{get, moment};

use crate::stage::{Stage, measured};

/// Routes where nothing else is said.
const ROUTES: u64 = 20_000;

/// How many bytes a route with its Service and its slice may take once it is quiet: with 50,000 of them it is 3 KiB, and the three
/// objects are as many again on the wire. Who keeps them as they came, next to what is made of them, takes more than this.
const ROUTE_MAX: u64 = 4 << 10;

/// What a process with any number of routes may take beside them, for buffers and for pages that are not given back.
const BESIDE: u64 = 16 << 20;

/// An object as `kubectl apply` leaves it: most of its size is what is remembered of who set which field.
fn applied(mut object: Value, name: &str) -> Value {
    let fields = json!({"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": object["apiVersion"],
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields(&object)});
    let text = object.to_string();
    let metadata = &mut object["metadata"];
    metadata["namespace"] = json!("many");
    metadata["name"] = json!(name);
    metadata["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": text});
    metadata["managedFields"] = json!([fields]);
    object
}

/// The fields of an object as they are named in `managedFields`.
fn fields(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten();
    Value::Object(fields.map(|(name, value)| (format!("f:{name}"), self::fields(value))).collect::<Map<_, _>>())
}

/// A Service, its slice and an Ingress for `N.many.test` which tells already where it is.
fn route(number: u64, pod: &str) -> [Value; 3] {
    let name = format!("r{number}");
    let labels = json!({"kubernetes.io/service-name": name});
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": format!("{number}.many.test"), "http": {"paths": paths}}]);
    [
        // Without an address of its own, which the API server would have had to give it.
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"labels": labels},
            "addressType": "IPv4", "ports": [{"port": 8080}],
            "endpoints": [{"addresses": [pod], "conditions": {"ready": true}}],
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {},
            "spec": {"ingressClassName": "tidegate", "rules": rules},
            "status": {"loadBalancer": {"ingress": [{"ip": PUBLIC}]}},
        }),
    ]
    .map(|object| applied(object, &name))
}

/// Prints the memory of a Tidegate, and what each route has added to it.
fn tell(memory: Memory, empty: Memory, routes: u64, who: &str) {
    let each = memory.resident.saturating_sub(empty.resident) / routes;
    println!("    {memory}, {each} bytes a route  {who}");
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
    let empty = stage.edge.memory();
    println!("    {empty}  of a Tidegate with next to nothing");

    let begun = moment();
    stage.cluster.put((0..routes).flat_map(|number| route(number, pod))).await;
    measured(&format!("etcd takes {routes} Ingresses, Services and EndpointSlices"), begun);
    let last = format!("{}.many.test", routes - 1);
    stage.until(&last, "the last of them answers", |answer| answer.status == 200).await;
    measured("  and the last of them answers", begun);
    tell(stage.edge.memory(), empty, routes, "of the Tidegate that took them one by one");

    let begun = moment();
    let edge = Edge::start_as(&stage.cluster, "tidegate", "10.244.0.3", &["--status", "off"]).await;
    measured("another Tidegate starts, until it is ready", begun);
    for number in [0, routes / 2, routes - 1] {
        let answer = get(edge.http, &format!("{number}.many.test"), "/").await.expect("an answer");
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, "one"), "ready means right");
    }
    tell(edge.memory(), empty, routes, "of that one when it is ready");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let settled = edge.memory();
    tell(settled, empty, routes, "half a minute later");
    assert_eq!(edge.metric("tidegate_control_restarts_total", "").await, 0.0);
    assert!(
        settled.resident <= empty.resident + routes * ROUTE_MAX + BESIDE,
        "too much for {routes} routes: {settled}"
    );
    assert!(settled.peak <= settled.resident / 2 * 3 + BESIDE, "much more on the way: {settled}");
}
