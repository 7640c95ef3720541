//! The Services of Gateways, against the embedded API server.

use serde_json::{Value, json};
use tidegate_control::options::{GatewayApi, GatewayServices, Ingresses, Options, ServiceType, Sources, ToPods};

use super::edge::{Api, Edge, TERMS, eventually};
use super::*;

const CLASSES: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
const EDGE_SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/edge-1";

const SETS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/listenersets";

/// An API server with the kinds of the Gateway API, a class, and an edge of one pod.
pub(crate) async fn api() -> Api {
    let api = Api::new().await;
    for text in tidegate_lite::GATEWAY_API.iter().chain(tidegate_lite::KUADRANT) {
        let options = serde_saphyr::Options::default();
        let definitions: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).unwrap();
        for definition in definitions {
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        }
    }
    api.create("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let class = json!({"metadata": {"name": "tidegate"}, "spec": {"controllerName": "tidegate.io/gateway"}});
    eventually(|| async { api.get(CLASSES).await.is_some() }).await;
    api.create(CLASSES, of("GatewayClass", class)).await;
    api.create("/api/v1/namespaces/default/services", service("edge", "ClusterIP")).await;
    let slice = json!({"metadata": {"name": "edge-1", "labels": {"kubernetes.io/service-name": "edge"}}, "addressType": "IPv4",
                       "endpoints": [endpoint("10.0.0.1")], "ports": [{"port": 8080}]});
    api.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    api
}

pub(crate) fn of(kind: &str, mut object: Value) -> Value {
    (object["apiVersion"], object["kind"]) = (json!("gateway.networking.k8s.io/v1"), json!(kind));
    object
}

fn endpoint(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "n1"})
}

pub(crate) fn listeners(ports: &[u16]) -> Value {
    let listener = |port: &u16| json!({"name": format!("p{port}"), "port": port, "protocol": "HTTP"});
    ports.iter().map(listener).collect()
}

async fn gateway(api: &Api, name: &str) {
    let spec = json!({"gatewayClassName": "tidegate", "listeners": listeners(&[80, 81])});
    api.create(GATEWAYS, of("Gateway", json!({"metadata": {"name": name}, "spec": spec}))).await;
}

fn edge(api: &Api, services: GatewayServices, identity: &str) -> Edge {
    let addresses = ["192.0.2.1".parse().unwrap()].into();
    let gateway = Some(GatewayApi { controller: "tidegate.io/gateway".into(), addresses, services, optional: false });
    let sources = Sources { ingress: Some(Ingresses::default()), deis: None, gateway, kuadrant: None };
    Edge::with(api.slow_client(), Options { sources, ..Options::default() }, TERMS, identity)
}

pub(crate) fn to_pods() -> GatewayServices {
    let edge = ObjectName::new("default", "edge");
    GatewayServices::ToPods(ToPods { kind: ServiceType::LoadBalancer, edge, ports: (20000, 20009) })
}

/// Waits until the value at a place of an object is this.
async fn becomes(api: &Api, path: &str, pointer: &str, want: Value) {
    eventually(|| async {
        api.get(path).await.is_some_and(|object| object.pointer(pointer).cloned().unwrap_or_default() == want)
    })
    .await;
}

/// The target ports of a Gateway's Service, once it has this many.
async fn targets(api: &Api, path: &str, count: usize) -> Vec<Value> {
    let ports = || async { api.get(path).await.map_or(Value::Null, |mut service| service["spec"]["ports"].take()) };
    eventually(|| async { ports().await.as_array().is_some_and(|ports| ports.len() == count) }).await;
    ports().await.as_array().unwrap().iter().map(|port| port["targetPort"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_gets_a_service_with_ports_of_its_own() {
    let api = api().await;
    gateway(&api, "one").await;
    api.create(SERVICES, service("taken-tidegate", "ClusterIP")).await;
    gateway(&api, "taken").await;
    let running = edge(&api, to_pods(), "a");
    let (path, slice) = (format!("{SERVICES}/one-tidegate"), format!("{SLICES}/one-tidegate-ipv4"));
    let before = targets(&api, &path, 2).await;
    becomes(&api, &path, "/spec/type", json!("LoadBalancer")).await;
    becomes(&api, &path, "/metadata/ownerReferences/0/kind", json!("Gateway")).await;
    becomes(&api, &slice, "/endpoints/0/addresses/0", json!("10.0.0.1")).await;
    becomes(&api, &slice, "/ports/0/port", before[0].clone()).await;
    let programmed = |name: &str| (format!("{GATEWAYS}/{name}"), "/status/conditions/1/reason");
    let (one, pointer) = programmed("one");
    becomes(&api, &one, pointer, json!("AddressNotAssigned")).await;

    // The load balancer has the address of the Gateway.
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
    api.patch(&format!("{path}/status"), &status).await;
    becomes(&api, &one, "/status/addresses", json!([{"type": "IPAddress", "value": "192.0.2.7"}])).await;
    becomes(&api, &one, pointer, json!("Programmed")).await;

    // Labels follow the Gateway, and so does the endpoints' Service.
    let labels = |labels: Value| json!({"spec": {"infrastructure": {"labels": labels}}});
    api.patch(&one, &labels(json!({"team": "blue"}))).await;
    becomes(&api, &path, "/metadata/labels/team", json!("blue")).await;
    becomes(&api, &slice, "/metadata/labels/team", json!("blue")).await;
    api.patch(&one, &labels(json!({"team": null}))).await;
    becomes(&api, &path, "/metadata/labels/team", Value::Null).await;
    api.patch(EDGE_SLICE, &json!({"endpoints": [endpoint("10.0.0.1"), endpoint("10.0.0.2")]})).await;
    becomes(&api, &slice, "/endpoints/1/addresses/0", json!("10.0.0.2")).await;

    // An unchanged port keeps its target port with any leader.
    running.end().await;
    let running = edge(&api, to_pods(), "b");
    api.patch(&one, &json!({"spec": {"listeners": listeners(&[81, 82])}})).await;
    eventually(|| async { targets(&api, &path, 2).await != before }).await;
    assert!(targets(&api, &path, 2).await.contains(&before[1]));
    // Changes by other clients are reverted.
    api.patch(&path, &json!({"spec": {"type": "ClusterIP"}})).await;
    becomes(&api, &path, "/spec/type", json!("LoadBalancer")).await;

    // An object of another owner stays unchanged until it is deleted.
    let (taken, pointer) = programmed("taken");
    becomes(&api, &taken, pointer, json!("AddressNotAssigned")).await;
    let theirs = format!("{SERVICES}/taken-tidegate");
    becomes(&api, &theirs, "/metadata/ownerReferences", Value::Null).await;
    let message = api.get(&taken).await.unwrap()["status"]["conditions"][1]["message"].take();
    assert!(message.as_str().is_some_and(|it| it.starts_with("Service shop/taken-tidegate, whose name ")), "{message}");
    assert_eq!(running.metric("tidegate_gateway_service_writes_total", "refused"), 0);
    api.delete(&theirs).await;
    becomes(&api, &theirs, "/metadata/ownerReferences/0/name", json!("taken")).await;

    api.delete(&one).await;
    eventually(|| async { api.get(&path).await.is_none() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_headless_service_names_the_addresses_of_a_gateway() {
    let api = api().await;
    gateway(&api, "one").await;
    let running = edge(&api, GatewayServices::Headless, "a");
    let (path, slice) = (format!("{SERVICES}/one-tidegate"), format!("{SLICES}/one-tidegate-ipv4"));
    becomes(&api, &slice, "/endpoints/0/addresses/0", json!("192.0.2.1")).await;
    becomes(&api, &path, "/spec/clusterIP", json!("None")).await;
    assert_eq!(targets(&api, &path, 2).await, [json!(80), json!(81)]);
    running.end().await;

    // Headless Services replace it, and with the option off there is none.
    let running = edge(&api, to_pods(), "b");
    becomes(&api, &path, "/spec/type", json!("LoadBalancer")).await;
    becomes(&api, &slice, "/endpoints/0/addresses/0", json!("10.0.0.1")).await;
    running.end().await;
    let _running = edge(&api, GatewayServices::Off, "c");
    eventually(|| async { api.get(&path).await.is_none() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_protects_a_class_that_gateways_use() {
    let (api, class) = (api().await, format!("{CLASSES}/tidegate"));
    let theirs = json!({"metadata": {"finalizers": ["example.com/theirs"]}});
    api.patch(&class, &theirs).await;
    let _running = edge(&api, GatewayServices::Off, "a");
    becomes(&api, &class, "/status/conditions/1/reason", json!("SupportedVersion")).await;
    let finalizers = "/metadata/finalizers";
    becomes(&api, &class, finalizers, json!(["example.com/theirs"])).await;
    gateway(&api, "one").await;
    gateway(&api, "two").await;
    let both = json!(["example.com/theirs", "gateway-exists-finalizer.gateway.networking.k8s.io"]);
    becomes(&api, &class, finalizers, both.clone()).await;
    // Another client removes the finalizer.
    api.patch(&class, &theirs).await;
    becomes(&api, &class, finalizers, both.clone()).await;
    api.patch(&class, &json!({"metadata": {"finalizers": [both[1]]}})).await;
    api.delete(&class).await;
    api.delete(&format!("{GATEWAYS}/one")).await;
    tokio::time::sleep(MOMENT).await;
    assert!(api.get(&class).await.is_some(), "a Gateway uses it");
    api.delete(&format!("{GATEWAYS}/two")).await;
    eventually(|| async { api.get(&class).await.is_none() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_set_loses_the_status_of_its_deleted_gateway_and_one_of_others_does_not() {
    let api = api().await;
    let spec = json!({
        "gatewayClassName": "tidegate", "listeners": listeners(&[80]), "allowedListeners": {"namespaces": {"from": "All"}},
    });
    api.create(GATEWAYS, of("Gateway", json!({"metadata": {"name": "one"}, "spec": spec}))).await;
    for (name, parent) in [("ours", "one"), ("theirs", "absent")] {
        let spec = json!({"parentRef": {"name": parent}, "listeners": listeners(&[81])});
        api.create(SETS, of("ListenerSet", json!({"metadata": {"name": name}, "spec": spec}))).await;
    }
    let (ours, theirs) = (format!("{SETS}/ours"), format!("{SETS}/theirs"));
    let condition = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    api.patch(&format!("{theirs}/status"), &json!({"status": {"conditions": [condition]}})).await;
    let _running = edge(&api, GatewayServices::Off, "a");
    becomes(&api, &ours, "/status/conditions/0/status", json!("True")).await;
    becomes(&api, &ours, "/status/listeners/0/name", json!("p81")).await;
    api.delete(&format!("{GATEWAYS}/one")).await;
    becomes(&api, &ours, "/status/conditions/0/reason", json!("ParentNotAccepted")).await;
    becomes(&api, &ours, "/status/conditions/0/message", json!("Gateway shop/one does not exist")).await;
    becomes(&api, &ours, "/status/conditions/1/reason", json!("ParentNotProgrammed")).await;
    becomes(&api, &ours, "/status/listeners", json!([])).await;
    let status = api.get(&theirs).await.unwrap()["status"].take();
    assert_eq!(status, json!({"conditions": [condition]}));
}
