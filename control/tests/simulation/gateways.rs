//! Random objects of the Gateway API, in the form in which the API server would send them.

use std::sync::LazyLock;

use fastrand::Rng;
use serde_json::{Value, json};
use tidegate_config::finding::Finding;
use tidegate_config::model::{BindKey, BindProtocol};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::{Object, project};

const HOSTS: [&str; 4] = ["a.example", "*.example", "b.test", ""];
const NAMESPACES: [&str; 2] = ["blue", "red"];

/// A CA certificate for client verification.
static AUTHORITY: LazyLock<String> =
    LazyLock::new(|| rcgen::generate_simple_self_signed(["ca.test".to_owned()]).expect("a certificate").cert.pem());

/// An object of a kind, with the findings of its projection.
pub(crate) fn make(die: &mut Rng, object: &ObjectRef) -> (Object, Vec<Finding>) {
    let (labels, spec, status) = parts(die, object);
    let data = if die.bool() { json!({"ca.crt": AUTHORITY.as_str()}) } else { json!({"other": "x"}) };
    let metadata = json!({
        "namespace": &*object.name.namespace, "name": &*object.name.name, "resourceVersion": "1", "labels": labels,
        "creationTimestamp": format!("2026-01-01T00:00:0{}Z", die.u8(0..3)),
    });
    let json = json!({"metadata": metadata, "spec": spec, "status": status, "data": data});
    let projected = project(object.kind, json.to_string().as_bytes()).expect("an identity");
    (projected.object.expect("an object that can be read"), projected.findings)
}

fn one<T: Clone>(die: &mut Rng, of: &[T]) -> T {
    of[die.usize(0..of.len())].clone()
}

/// Labels, spec and status.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others are made elsewhere")]
fn parts(die: &mut Rng, object: &ObjectRef) -> (Value, Value, Value) {
    let spec = match object.kind {
        Kind::ConfigMap => Value::Null,
        Kind::Namespace => return (json!({"team": one(die, &["blue", "green"])}), Value::Null, Value::Null),
        Kind::GatewayClass => {
            json!({"controllerName": one(die, &["tidegate.io/gateway", "tidegate.io/gateway", "example.com/other"])})
        }
        Kind::Gateway => {
            let addresses =
                one(die, &[json!([]), json!([]), json!([{"value": "127.0.1.1"}]), json!([{"value": "192.0.2.1"}])]);
            let assigned = one(die, &[json!([]), json!([{"value": "127.0.1.2"}])]);
            let spec = json!({
                "gatewayClassName": format!("g{}", die.u32(0..3)), "listeners": listeners(die), "addresses": addresses,
                "allowedListeners": {"namespaces": {"from": one(die, &["All", "Same", "None"])}},
            });
            return (Value::Null, spec, json!({"addresses": assigned}));
        }
        Kind::ListenerSet => json!({"parentRef": parent(die, "Gateway"), "listeners": listeners(die)}),
        Kind::ReferenceGrant => {
            let from = json!({"group": "gateway.networking.k8s.io", "kind": one(die, &["HTTPRoute", "TLSRoute", "TCPRoute", "UDPRoute", "Gateway", "ListenerSet"]),
                              "namespace": one(die, &NAMESPACES)});
            json!({"from": [from], "to": [{"group": "", "kind": one(die, &["Service", "Secret"])}]})
        }
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => route(die, object.kind),
        Kind::BackendTlsPolicy => {
            let authorities =
                one(die, &[json!([{"group": "", "kind": "ConfigMap", "name": "authorities"}]), json!([])]);
            let target = json!({"group": "", "kind": "Service", "name": format!("b{}", die.u32(0..3))});
            let mut validation = json!({"hostname": "web.test"});
            match authorities.as_array().is_some_and(Vec::is_empty) {
                true => validation["wellKnownCACertificates"] = "System".into(),
                false => validation["caCertificateRefs"] = authorities,
            }
            json!({"targetRefs": [target], "validation": validation})
        }
        Kind::RateLimitPolicy | Kind::TokenRateLimitPolicy => rate_limits(die),
        Kind::AuthPolicy => rules(die),
        kind => panic!("{kind} is not made"),
    };
    (Value::Null, spec, Value::Null)
}

/// A Gateway, a listener, a route or a rule.
fn policy_target(die: &mut Rng) -> Value {
    let kind = one(die, &["Gateway", "Gateway", "HTTPRoute", "GRPCRoute"]);
    let mut target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": format!("g{}", die.u32(0..3))});
    if die.bool() {
        let section = if kind == "Gateway" { format!("l{}", die.u32(0..3)) } else { format!("rule-{}", die.u32(1..3)) };
        target["sectionName"] = section.into();
    }
    target
}

/// Rules, some of which cannot be used.
fn rules(die: &mut Rng) -> Value {
    let target = policy_target(die);
    let keys = json!({"apiKey": {"selector": {"matchLabels": {"app": "shop"}}}});
    let methods =
        [keys.clone(), keys, json!({"anonymous": {}}), json!({"jwt": {"issuerUrl": "https://a.test"}}), json!({})];
    let mut rules = json!({"authentication": {}});
    for name in ["partners", "staff"] {
        if die.bool() {
            rules["authentication"][name] = one(die, &methods);
        }
    }
    if die.bool() {
        rules["authorization"] = json!({"office": {"patternMatching": {"patterns": [{"predicate": "true"}]}}});
    }
    let rules = if die.u32(0..5) == 0 { json!([]) } else { rules };
    let block = json!({"strategy": one(die, &["atomic", "merge"]), "rules": rules});
    json!({"targetRef": target, one(die, &["defaults", "overrides"]): block})
}

fn rate_limits(die: &mut Rng) -> Value {
    let target = policy_target(die);
    let mut limits = json!({});
    for name in ["ip", "login", "upload"] {
        if die.bool() {
            continue;
        }
        limits[name] = json!({"rates": [{"limit": die.u32(0..3), "window": "1m"}]});
    }
    let block = json!({"strategy": one(die, &["atomic", "merge"]), "limits": limits});
    json!({"targetRef": target, one(die, &["defaults", "overrides"]): block})
}

fn listeners(die: &mut Rng) -> Value {
    let listener = |die: &mut Rng, number: usize| {
        let protocol = one(die, &["HTTP", "HTTP", "HTTPS", "TLS", "TLS", "TCP", "TCP", "UDP", "UDP"]);
        let mode = one(die, &["Terminate", "Passthrough"]);
        let kinds = one(die, &[json!([]), json!([]), json!([{"kind": "HTTPRoute"}]), json!([{"kind": "UDPRoute"}])]);
        let selector = json!({"from": "Selector", "selector": {"matchLabels": {"team": "blue"}}});
        let namespaces = one(die, &[json!({"from": "Same"}), json!({"from": "All"}), selector]);
        let secret = json!({"name": format!("s{}", die.u32(0..3)), "namespace": one(die, &NAMESPACES)});
        json!({
            "name": format!("l{number}"), "port": one(die, &[80, 81]), "protocol": protocol, "hostname": one(die, &HOSTS),
            "tls": {"mode": mode, "certificateRefs": [secret]}, "allowedRoutes": {"namespaces": namespaces, "kinds": kinds},
        })
    };
    (0..die.usize(0..4)).map(|number| listener(die, number)).collect()
}

fn parent(die: &mut Rng, kind: &str) -> Value {
    json!({"kind": kind, "namespace": one(die, &NAMESPACES), "name": format!("g{}", die.u32(0..3))})
}

/// TLSRoutes and TCPRoutes have one rule, with backends only.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others pass bytes on")]
fn route(die: &mut Rng, kind: Kind) -> Value {
    let parents: Vec<Value> = (0..die.usize(0..3))
        .map(|_| {
            let kind = one(die, &["Gateway", "Gateway", "ListenerSet"]);
            let mut parent = parent(die, kind);
            if die.u32(0..3) == 0 {
                parent["sectionName"] = format!("l{}", die.u32(0..3)).into();
            }
            if die.u32(0..5) == 0 {
                parent["port"] = 80.into();
            }
            parent
        })
        .collect();
    let hostnames: Vec<&str> = (0..die.usize(0..3)).map(|_| one(die, &HOSTS[..3])).collect();
    let rules: Vec<Value> = (0..die.usize(1..3))
        .map(|_| {
            let backends: Vec<Value> = (0..die.usize(0..3))
                .map(|_| json!({"name": format!("b{}", die.u32(0..3)), "namespace": one(die, &NAMESPACES), "port": 80, "weight": die.u32(0..3)}))
                .collect();
            let matches = match kind {
                Kind::HttpRoute if die.u32(0..6) == 0 => {
                    let value = format!("/{}(?:.*a.{{6}}|.*b.{{6}})", one(die, &["x", "y"]));
                    json!([{"path": {"type": "RegularExpression", "value": value}}])
                }
                Kind::HttpRoute => json!([{"path": {"value": one(die, &["/", "/a", "/a/b"])}}]),
                Kind::GrpcRoute => json!([{"method": {"service": one(die, &["a.B", "c.D"])}}]),
                _ => return json!({"backendRefs": backends}),
            };
            let extension = json!([{"type": "ExtensionRef", "extensionRef": {"group": "x.test", "kind": "X", "name": "x"}}]);
            let filters = if die.u32(0..6) == 0 { extension } else { json!([]) };
            json!({"matches": matches, "filters": filters, "backendRefs": backends})
        })
        .collect();
    json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules})
}

/// A socket that listeners of these Gateways may have.
pub(crate) fn socket(die: &mut Rng) -> BindKey {
    let address = one(die, &[[127, 0, 0, 1], [127, 0, 1, 1], [127, 0, 1, 2]]);
    let protocol = one(die, &[BindProtocol::Http, BindProtocol::Https, BindProtocol::Tcp, BindProtocol::Udp]);
    BindKey { address: (address, one(die, &[80, 81])).into(), protocol }
}
