//! Many routes, which takes longer than the usual cases: `CLUSTER_ROUTES=50000 cargo test --release -p tidegate-tests
//! --test cluster -- --ignored --nocapture`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_tests::cluster::{Edge, Memory, PUBLIC};
use tidegate_tests::{get, moment};

use crate::stage::{Stage, measured};

/// The default number of routes.
const ROUTES: u64 = 20_000;

/// The maximum memory of a route with its Service and its slice at rest, in bytes: with 50,000 of them it is 3 KiB, and
/// the three objects are as large again on the wire. A process that keeps them as received, beside its own model, takes
/// more than this.
const ROUTE_MAX: u64 = 4 << 10;

/// The maximum additional memory of a process, for buffers and for pages that are not returned.
const BESIDE: u64 = 16 << 20;

/// An object as `kubectl apply` leaves it: most of its size is managed fields.
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

/// The fields of an object in the form of `managedFields`.
fn fields(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten();
    Value::Object(fields.map(|(name, value)| (format!("f:{name}"), self::fields(value))).collect::<Map<_, _>>())
}

/// A Service, its slice and an Ingress for `N.many.test` whose status has the address already.
fn route(number: u64, pod: &str) -> [Value; 3] {
    let name = format!("r{number}");
    let labels = json!({"kubernetes.io/service-name": name});
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": format!("{number}.many.test"), "http": {"paths": paths}}]);
    [
        // The Service has no cluster IP, which the API server would have to allocate.
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

/// Prints the memory of a Tidegate, and the memory added by each route.
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
