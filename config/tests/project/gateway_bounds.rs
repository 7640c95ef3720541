//! How much is read of one object of the Gateway API, what lies beyond, and what its parts answer.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::gateway::{Gateway, GroupKind, ObjectReference, ReferenceGrant, ValidationMode};
use tidegate_config::project::{Object, Projected};

use crate::manifest::projected;
use crate::render::render;

fn object(kind: Kind, spec: &Value) -> Projected {
    projected(kind, &json!({"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "1"}, "spec": spec}))
}

fn many<T>(number: usize, entry: impl Fn(usize) -> T) -> Value
where
    Value: From<T>,
{
    (0..number).map(|number| Value::from(entry(number))).collect::<Vec<_>>().into()
}

/// What is told of an object, and in how many lines of its text a word stands.
#[track_caller]
fn check(kind: Kind, spec: &Value, (word, lines): (&str, usize), told: &[&str]) {
    let projected = object(kind, spec);
    let findings: Vec<String> = projected.findings.iter().map(tidegate_config::finding::Finding::note).collect();
    assert_eq!(findings, told);
    assert_eq!(render(&projected).matches(word).count(), lines, "{word} in {}", render(&projected));
}

fn listener(number: usize) -> Value {
    json!({"name": format!("l{number}"), "port": 80, "protocol": "HTTP", "hostname": format!("l{number}.example")})
}

fn gateway(spec: Value) -> Value {
    let mut spec = spec;
    spec["gatewayClassName"] = json!("tidegate");
    spec
}

#[test]
fn lists_of_a_gateway_are_as_long_as_the_schema_allows() {
    let one = |tls: Value, routes: Value| {
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "tls": tls, "allowedRoutes": routes});
        gateway(json!({"listeners": [listener]}))
    };
    check(
        Kind::Gateway,
        &gateway(json!({"listeners": many(66, listener)})),
        ("listener l", 64),
        &[r#"spec.listeners[64]: "2 more entries" go beyond the limit of 64, so it is dropped"#],
    );
    let secrets = many(65, |number| json!({"name": format!("secret{number}")}));
    check(
        Kind::Gateway,
        &one(json!({"certificateRefs": secrets}), json!({})),
        ("shop/secret", 64),
        &[r#"spec.listeners[0].tls.certificateRefs[64]: "1 more entries" go beyond the limit of 64, so it is dropped"#],
    );
    let options: serde_json::Map<String, Value> = (0..17).map(|number| (format!("o{number}"), json!("x"))).collect();
    check(
        Kind::Gateway,
        &one(json!({"options": options}), json!({})),
        ("tls option", 16),
        &[r#"spec.listeners[0].tls.options: "1 more entries" go beyond the limit of 16, so it is dropped"#],
    );
    let kinds = many(9, |number| json!({"kind": format!("Kind{number}")}));
    check(
        Kind::Gateway,
        &one(json!({}), json!({"kinds": kinds})),
        (".gateway.networking.k8s.io", 8),
        &[r#"spec.listeners[0].allowedRoutes.kinds[8]: "1 more entries" go beyond the limit of 8, so it is dropped"#],
    );
    check(
        Kind::Gateway,
        &gateway(json!({"addresses": many(17, |number| json!({"value": format!("192.0.2.{number}")}))})),
        ("address Ip", 16),
        &[r#"spec.addresses[16]: "1 more entries" go beyond the limit of 16, so it is dropped"#],
    );
    check(
        Kind::Gateway,
        &gateway(json!({"infrastructure": {"labels": options, "annotations": options}})),
        ("=x\n", 24),
        &[
            r#"spec.infrastructure.labels: "9 more entries" go beyond the limit of 8, so it is dropped"#,
            r#"spec.infrastructure.annotations: "1 more entries" go beyond the limit of 16, so it is dropped"#,
        ],
    );
}

#[test]
fn more_ports_with_validation_than_the_schema_allows_close_every_port() {
    let ports = many(65, |number| json!({"port": number + 1, "tls": {}}));
    let frontend = json!({"default": {}, "perPort": ports});
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": frontend}})),
        ("clients: AllowValidOnly by \n", 1),
        &[r#"spec.tls.frontend.perPort: "65 entries" go beyond the limit of 64, so every request is refused"#],
    );
    let twice = json!([{"port": 443, "tls": {}}, {"port": 443, "tls": {"validation": {}}}]);
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": {"default": {}, "perPort": twice}}})),
        ("clients: AllowValidOnly by \n", 1),
        &[concat!(
            r#"spec.tls.frontend.perPort[1].port: "443" is the port of an earlier entry, so that neither says what "#,
            "holds, so every request is refused"
        )],
    );
    let authorities = many(17, |number| json!({"group": "", "kind": "ConfigMap", "name": format!("ca{number}")}));
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": {"default": {"validation": {"caCertificateRefs": authorities}}}}})),
        ("ConfigMap", 16),
        &[concat!(
            r#"spec.tls.frontend.default.validation.caCertificateRefs[16]: "1 more entries" go beyond the limit of 16, "#,
            "so it is dropped"
        )],
    );
}

#[test]
fn a_port_has_its_own_validation_instead_of_the_default() {
    let validation = |mode: &str| json!({"validation": {"mode": mode, "caCertificateRefs": []}});
    let ports = json!([
        {"port": 8443, "tls": validation("AllowInsecureFallback")},
        {"port": 443, "tls": {}},
    ]);
    let spec = json!({"tls": {"frontend": {"default": validation("AllowValidOnly"), "perPort": ports}}});
    let Some(Object::Gateway(gateway)) = object(Kind::Gateway, &gateway(spec)).object else { panic!("no Gateway") };
    let mode = |gateway: &Arc<Gateway>, port| gateway.tls.validation(port).map(|it| it.mode);
    assert_eq!(mode(&gateway, 443), None);
    assert_eq!(mode(&gateway, 8443), Some(ValidationMode::AllowInsecureFallback));
    assert_eq!(mode(&gateway, 9443), Some(ValidationMode::AllowValidOnly));
}

fn grant(from: &Value, to: &Value) -> Arc<ReferenceGrant> {
    let projected = object(Kind::ReferenceGrant, &json!({"from": from, "to": to}));
    assert_eq!(projected.findings, []);
    let Some(Object::ReferenceGrant(grant)) = projected.object else { panic!("no ReferenceGrant") };
    grant
}

#[test]
fn a_grant_permits_what_it_names_and_nothing_else() {
    const GROUP: &str = "gateway.networking.k8s.io";
    let from = json!([
        {"group": GROUP, "kind": "Gateway", "namespace": "edge"},
        {"group": "example.com", "kind": "Route", "namespace": "blog"},
    ]);
    let to = json!([{"group": "", "kind": "Secret", "name": "tls"}, {"group": "", "kind": "Service"}]);
    let grant = grant(&from, &to);
    let (ours, theirs) =
        (GroupKind::Known(Kind::Gateway), GroupKind::Other { group: "example.com".into(), kind: "Route".into() });
    let target = |kind, namespace: &str, name: &str| ObjectReference {
        kind: GroupKind::Known(kind),
        name: ObjectName::new(namespace, name),
    };
    assert!(grant.permits(&ours, "edge", &target(Kind::Secret, "shop", "tls")));
    assert!(grant.permits(&theirs, "blog", &target(Kind::Service, "shop", "any")));
    assert!(!grant.permits(&ours, "edge", &target(Kind::Secret, "shop", "other")));
    assert!(!grant.permits(&ours, "edge", &target(Kind::Secret, "edge", "tls")));
    assert!(!grant.permits(&ours, "blog", &target(Kind::Service, "shop", "any")));
    assert!(!grant.permits(&theirs, "edge", &target(Kind::Service, "shop", "any")));
    assert!(!grant.permits(&ours, "edge", &target(Kind::EndpointSlice, "shop", "tls")));
}

#[test]
fn lists_of_a_grant_are_as_long_as_the_schema_allows() {
    let from = many(17, |number| json!({"group": "g", "kind": "K", "namespace": format!("n{number}")}));
    let to = many(18, |number| json!({"group": "g", "kind": "K", "name": format!("o{number}")}));
    let spec = json!({"from": from, "to": to});
    let told = [
        r#"spec.from[16]: "1 more entries" go beyond the limit of 16, so it is dropped"#,
        r#"spec.to[16]: "2 more entries" go beyond the limit of 16, so it is dropped"#,
    ];
    check(Kind::ReferenceGrant, &spec, ("from K.g in", 16), &told);
    check(Kind::ReferenceGrant, &spec, ("to K.g o", 16), &told);
}
