//! Everything that the edge writes is known to its own tables: to those of the embedded API server, which refuses
//! unknown fields, and to the projections, which report unknown annotations and labels.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::project;
use tidegate_control::options::{GatewayApi, GatewayServices, Ingresses, Kuadrant, Options, Sources};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::edge::{Api, Edge, TERMS, addresses, eventually, service};
use super::gateways::{api, listeners, of, to_pods};

const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// The writes that are expected: of each of them at least one.
const WRITES: [&str; 17] = [
    "POST /apis/coordination.k8s.io/v1/namespaces/default/leases",
    "POST /apis/events.k8s.io/v1/namespaces/default/events",
    "PATCH /apis/networking.k8s.io/v1/namespaces/default/ingresses/one/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/gatewayclasses/tidegate",
    "PATCH /apis/gateway.networking.k8s.io/v1/gatewayclasses/tidegate/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/one/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/listenersets/set/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes/route/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/grpcroutes/route/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/tlsroutes/route/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/tcproutes/route/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/udproutes/route/status",
    "PATCH /apis/gateway.networking.k8s.io/v1/namespaces/shop/backendtlspolicies/policy/status",
    "PATCH /apis/kuadrant.io/v1/namespaces/shop/ratelimitpolicies/policy/status",
    "PATCH /apis/kuadrant.io/v1alpha1/namespaces/shop/tokenratelimitpolicies/policy/status",
    "PATCH /api/v1/namespaces/shop/services/one-tidegate",
    "PATCH /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/one-tidegate-ipv4",
];

/// The collections of objects that the edge reads.
const COLLECTIONS: [(Kind, &str); 13] = [
    (Kind::Service, "/api/v1/services"),
    (Kind::EndpointSlice, "/apis/discovery.k8s.io/v1/endpointslices"),
    (Kind::Ingress, "/apis/networking.k8s.io/v1/ingresses"),
    (Kind::GatewayClass, "/apis/gateway.networking.k8s.io/v1/gatewayclasses"),
    (Kind::Gateway, "/apis/gateway.networking.k8s.io/v1/gateways"),
    (Kind::ListenerSet, "/apis/gateway.networking.k8s.io/v1/listenersets"),
    (Kind::HttpRoute, "/apis/gateway.networking.k8s.io/v1/httproutes"),
    (Kind::GrpcRoute, "/apis/gateway.networking.k8s.io/v1/grpcroutes"),
    (Kind::TlsRoute, "/apis/gateway.networking.k8s.io/v1/tlsroutes"),
    (Kind::TcpRoute, "/apis/gateway.networking.k8s.io/v1/tcproutes"),
    (Kind::UdpRoute, "/apis/gateway.networking.k8s.io/v1/udproutes"),
    (Kind::BackendTlsPolicy, "/apis/gateway.networking.k8s.io/v1/backendtlspolicies"),
    (Kind::RateLimitPolicy, "/apis/kuadrant.io/v1/ratelimitpolicies"),
];

/// One object of each kind with a status that the edge writes.
async fn create_objects(api: &Api) {
    api.ingress("one", "tidegate").await;
    let create = async |plural: &str, kind: &str, name: &str, spec: Value| {
        let object = of(kind, json!({"metadata": {"name": name}, "spec": spec}));
        api.create(&format!("{API}/namespaces/shop/{plural}"), object).await;
    };
    let listener = |port: u16, protocol: &str| json!({"name": format!("p{port}"), "port": port, "protocol": protocol});
    let mut all = listeners(&[80]);
    let passthrough = json!({"name": "p443", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}});
    let others = [passthrough, listener(5000, "TCP"), listener(5001, "UDP")];
    all.as_array_mut().unwrap().extend(others);
    let spec = json!({
        "gatewayClassName": "tidegate", "listeners": all, "allowedListeners": {"namespaces": {"from": "All"}},
        "infrastructure": {"labels": {"team": "blue"}, "annotations": {"example.com/a": "b"}},
    });
    create("gateways", "Gateway", "one", spec).await;
    create("listenersets", "ListenerSet", "set", json!({"parentRef": {"name": "one"}, "listeners": listeners(&[81])}))
        .await;
    api.create("/api/v1/namespaces/shop/services", service("web", "ClusterIP")).await;
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let route = |section: &str| json!({"parentRefs": [{"name": "one", "sectionName": section}], "rules": rules});
    create("httproutes", "HTTPRoute", "route", route("p80")).await;
    create("grpcroutes", "GRPCRoute", "route", route("p80")).await;
    let mut tls = route("p443");
    tls["hostnames"] = json!(["tls.example"]);
    create("tlsroutes", "TLSRoute", "route", tls).await;
    create("tcproutes", "TCPRoute", "route", route("p5000")).await;
    create("udproutes", "UDPRoute", "route", route("p5001")).await;
    let target = json!([{"group": "", "kind": "Service", "name": "web"}]);
    let validation = json!({"wellKnownCACertificates": "System", "hostname": "web.example"});
    create("backendtlspolicies", "BackendTLSPolicy", "policy", json!({"targetRefs": target, "validation": validation}))
        .await;
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "one"});
    let limits = json!({"ip": {"rates": [{"limit": 5, "window": "1m"}]}});
    for (version, kind, plural) in
        [("v1", "RateLimitPolicy", "ratelimitpolicies"), ("v1alpha1", "TokenRateLimitPolicy", "tokenratelimitpolicies")]
    {
        let policy = json!({
            "apiVersion": format!("kuadrant.io/{version}"), "kind": kind, "metadata": {"name": "policy"},
            "spec": {"targetRef": target, "limits": limits},
        });
        api.create(&format!("/apis/kuadrant.io/{version}/namespaces/shop/{plural}"), policy).await;
    }
}

/// Waits until all of these requests were sent, and returns the others that came before.
async fn sent(requests: &mut UnboundedReceiver<String>, wanted: &[String]) -> Vec<String> {
    let (mut missing, mut all): (BTreeSet<&String>, Vec<String>) = (wanted.iter().collect(), Vec::new());
    while !missing.is_empty() {
        let request = tokio::time::timeout(std::time::Duration::from_secs(60), requests.recv()).await;
        let request = request.unwrap_or_else(|_| panic!("no {missing:?} after {all:#?}")).unwrap();
        missing.remove(&request);
        all.push(request);
    }
    all
}

const POLICY: &str = "/apis/kuadrant.io/v1/namespaces/shop/ratelimitpolicies/policy";

fn gateway_api() -> Options {
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: ["192.0.2.1".parse().unwrap()].into(),
        services: GatewayServices::Off,
        optional: false,
    };
    let sources = Sources { gateway: Some(gateway), kuadrant: Some(Kuadrant::default()), ..Sources::default() };
    Options { sources, ..Options::default() }
}

/// The edge has seen all of a status in its watch in which nobody else has a part, so there is nothing to read before
/// it writes the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_without_parts_of_others_is_written_in_one_request() {
    const BEFORE: &str = "2020-01-01T00:00:00Z";
    let api = api().await;
    create_objects(&api).await;
    let (asked, mut requests) = unbounded_channel();
    let _edge = Edge::with(api.heard_client(asked), gateway_api(), TERMS, "a");
    let (route, gateway) =
        (format!("{API}/namespaces/shop/httproutes/route"), format!("{API}/namespaces/shop/gateways/one"));
    let written = [POLICY, &route, &gateway].map(|path| format!("PATCH {path}/status"));
    // A later write may meet the first one, and read the object again.
    let read = |all: &[String], path: &str| {
        let mut of_path =
            all.iter().filter(|request| request.ends_with(path) || request.ends_with(&format!("{path}/status")));
        of_path.next().is_some_and(|first| first.starts_with("GET"))
    };
    let all = sent(&mut requests, &written).await;
    for path in [POLICY, &route, &gateway] {
        assert!(!read(&all, path), "{path} was read: {all:#?}");
    }
    // As if its conditions had been written long ago. Another writer's times are nobody's concern.
    let parents = async || api.get(&route).await.unwrap()["status"]["parents"].as_array().cloned().unwrap_or_default();
    let conditions = async || {
        let ours = parents().await.into_iter().find(|it| it["controllerName"] == "tidegate.io/gateway");
        ours.and_then(|it| it["conditions"].as_array().cloned()).unwrap_or_default()
    };
    let is_affected = |it: &Value| it["type"] == "kuadrant.io/RateLimitPolicyAffected";
    eventually(|| async { conditions().await.iter().any(is_affected) }).await;
    let mut long_ago = parents().await;
    let conditions_long_ago = long_ago[0]["conditions"].as_array_mut().unwrap();
    conditions_long_ago.iter_mut().for_each(|it| it["lastTransitionTime"] = BEFORE.into());
    api.patch(&format!("{route}/status"), &json!({"status": {"parents": long_ago}})).await;
    while requests.try_recv().is_ok() {}
    api.patch(&route, &json!({"spec": {"rules": [{"backendRefs": [{"name": "nowhere", "port": 80}]}]}})).await;
    let all = sent(&mut requests, &written[1..2]).await;
    assert!(!read(&all, &route), "{all:#?}");
    let time = |all: &[Value], kind: &str| {
        let one = all.iter().find(|it| it["type"] == kind).unwrap();
        (one["status"].as_str().unwrap().to_owned(), one["lastTransitionTime"] == BEFORE)
    };
    eventually(|| async { time(&conditions().await, "ResolvedRefs").0 == "False" }).await;
    let now = conditions().await;
    assert_eq!((time(&now, "Accepted"), time(&now, "ResolvedRefs").1), (("True".to_owned(), true), false));
    // The entry of another controller is not known, and stays.
    let mut with_other = parents().await;
    let mut other = with_other[0].clone();
    other["controllerName"] = "example.com/other".into();
    with_other.push(other.clone());
    api.patch(&format!("{route}/status"), &json!({"status": {"parents": with_other}})).await;
    api.patch(&route, &json!({"spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})).await;
    let all = sent(&mut requests, &written[1..2]).await;
    assert!(read(&all, &route), "{all:#?}");
    eventually(|| async { time(&conditions().await, "ResolvedRefs").0 == "True" }).await;
    assert!(parents().await.contains(&other), "{:#?}", parents().await);
}

/// No write waits for the answer to another one: all are held until four have arrived.
#[tokio::test(flavor = "multi_thread")]
async fn several_statuses_are_written_at_once() {
    let api = api().await;
    create_objects(&api).await;
    let _edge = Edge::with(api.held_client(4), gateway_api(), TERMS, "a");
    let status = async || api.get(&format!("{API}/namespaces/shop/httproutes/route")).await.unwrap()["status"].clone();
    eventually(|| async { !status().await.is_null() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_the_edge_writes_is_known_to_its_own_tables() {
    let api = api().await;
    create_objects(&api).await;
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: ["192.0.2.1".parse().unwrap()].into(),
        services: to_pods(),
        optional: false,
    };
    let sources = Sources {
        ingress: Some(Ingresses::default()),
        deis: None,
        gateway: Some(gateway),
        kuadrant: Some(Kuadrant::default()),
    };
    let (writes, mut written) = unbounded_channel();
    let options = Options { sources, publish: addresses(&["192.0.2.1"]), ..Options::default() };
    let _edge = Edge::with(api.strict_client(writes), options, TERMS, "a");
    let mut missing = BTreeSet::from(WRITES);
    while !missing.is_empty() {
        let write = tokio::time::timeout(std::time::Duration::from_secs(60), written.recv()).await;
        let (write, code) = write.unwrap_or_else(|_| panic!("never written: {missing:#?}")).unwrap();
        // Another writer of the same object may be faster.
        assert!(code < 300 || code == 409, "{write}: {code}");
        if code < 300 {
            missing.remove(&*write);
        }
    }
    for (kind, path) in COLLECTIONS {
        let list = api.get(path).await.unwrap();
        let objects = list["items"].as_array().unwrap();
        assert!(!objects.is_empty(), "{path}");
        for object in objects {
            let findings = project(kind, object.to_string().as_bytes()).unwrap().findings;
            assert!(findings.is_empty(), "{findings:?} of {object}");
        }
    }
}
