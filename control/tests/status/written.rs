//! Everything that the edge writes is known to its own tables: to those of the embedded API server, which refuses
//! unknown fields, and to the projections, which report unknown annotations and labels.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::project;
use tidegate_control::options::{GatewayApi, GatewayServices, Ingresses, Kuadrant, Options, Sources};
use tokio::sync::mpsc::unbounded_channel;

use super::edge::{Api, Edge, TERMS, addresses, service};
use super::gateways::{api, listeners, of, to_pods};

const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// The writes that are expected: of each of them at least one.
const WRITES: [&str; 16] = [
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
    let policy = json!({
        "apiVersion": "kuadrant.io/v1", "kind": "RateLimitPolicy", "metadata": {"name": "policy"},
        "spec": {"targetRef": target, "limits": limits},
    });
    api.create("/apis/kuadrant.io/v1/namespaces/shop/ratelimitpolicies", policy).await;
}

/// The edge has seen in its watch that an object has no status, so there is nothing to read before the first one.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_a_status_gets_one_in_one_request() {
    let api = api().await;
    create_objects(&api).await;
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: ["192.0.2.1".parse().unwrap()].into(),
        services: GatewayServices::Off,
        optional: false,
    };
    let sources = Sources { gateway: Some(gateway), kuadrant: Some(Kuadrant::default()), ..Sources::default() };
    let (asked, mut requests) = unbounded_channel();
    let _edge = Edge::with(api.heard_client(asked), Options { sources, ..Options::default() }, TERMS, "a");
    let policy = "/apis/kuadrant.io/v1/namespaces/shop/ratelimitpolicies/policy";
    let route = format!("{API}/namespaces/shop/httproutes/route");
    let written = |request: &str| [policy, &route].map(|path| request == format!("PATCH {path}/status"));
    let (mut all, mut done) = (Vec::new(), [false; 2]);
    while done != [true; 2] {
        let request = tokio::time::timeout(std::time::Duration::from_secs(60), requests.recv()).await;
        let request = request.unwrap_or_else(|_| panic!("no status after {all:#?}")).unwrap();
        let now = written(&request);
        done = [done[0] || now[0], done[1] || now[1]];
        all.push(request);
    }
    for path in [policy, &route] {
        assert!(!all.contains(&format!("GET {path}")), "{path} was read: {all:#?}");
    }
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
