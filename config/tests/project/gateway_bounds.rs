//! Limits for a single object of the Gateway API, and the findings beyond them.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::gateway::{Gateway, GroupKind, ObjectReference, ReferenceGrant, ValidationMode};
use tidegate_config::project::{Object, Projected};

use crate::manifest::projected;
use crate::render::render;

#[test]
fn kinds_are_known_by_group_and_name() {
    for kind in Kind::ALL {
        assert_eq!(Kind::of(kind.group(), kind.as_str()), Some(kind));
        assert_eq!(Kind::of("example.com", kind.as_str()), None);
        assert_eq!(Kind::of(kind.group(), kind.plural()), None);
    }
}

fn object(kind: Kind, spec: &Value) -> Projected {
    projected(kind, &json!({"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "1"}, "spec": spec}))
}

pub(crate) fn many<T>(number: usize, entry: impl Fn(usize) -> T) -> Value
where
    Value: From<T>,
{
    (0..number).map(|number| Value::from(entry(number))).collect::<Vec<_>>().into()
}

/// Compares the findings of an object, and the number of lines of its text that contain a word.
#[track_caller]
pub(crate) fn check(kind: Kind, spec: &Value, (word, lines): (&str, usize), told: &[&str]) {
    let projected = object(kind, spec);
    let findings: Vec<String> = projected.findings.iter().map(tidegate_config::finding::Finding::note).collect();
    assert_eq!(findings, told);
    assert_eq!(render(&projected).matches(word).count(), lines, "{word} in {}", render(&projected));
}

pub(crate) fn listener(number: usize) -> Value {
    json!({"name": format!("l{number}"), "port": 80, "protocol": "HTTP", "hostname": format!("l{number}.example")})
}

fn gateway(spec: Value) -> Value {
    let mut spec = spec;
    spec["gatewayClassName"] = json!("tidegate");
    spec
}

#[test]
fn lists_of_a_gateway_are_limited_as_in_the_schema() {
    let one = |tls: Value, routes: Value| {
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "tls": tls, "allowedRoutes": routes});
        gateway(json!({"listeners": [listener]}))
    };
    check(
        Kind::Gateway,
        &gateway(json!({"listeners": many(66, listener)})),
        ("listener l", 64),
        &[r#"spec.listeners[64]: "2 more entries" exceed the limit of 64, so it is dropped"#],
    );
    let secrets = many(65, |number| json!({"name": format!("secret{number}")}));
    check(
        Kind::Gateway,
        &one(json!({"certificateRefs": secrets}), json!({})),
        ("shop/secret", 64),
        &[r#"spec.listeners[0].tls.certificateRefs[64]: "1 more entries" exceed the limit of 64, so it is dropped"#],
    );
    let options: serde_json::Map<String, Value> = (0..17).map(|number| (format!("o{number}"), json!("x"))).collect();
    check(
        Kind::Gateway,
        &one(json!({"options": options}), json!({})),
        ("tls option", 16),
        &[r#"spec.listeners[0].tls.options: "1 more entries" exceed the limit of 16, so it is dropped"#],
    );
    let kinds = many(9, |number| json!({"kind": format!("Kind{number}")}));
    check(
        Kind::Gateway,
        &one(json!({}), json!({"kinds": kinds})),
        (".gateway.networking.k8s.io", 8),
        &[r#"spec.listeners[0].allowedRoutes.kinds[8]: "1 more entries" exceed the limit of 8, so it is dropped"#],
    );
    check(
        Kind::Gateway,
        &gateway(json!({"addresses": many(17, |number| json!({"value": format!("192.0.2.{number}")}))})),
        ("address Ip", 16),
        &[r#"spec.addresses[16]: "1 more entries" exceed the limit of 16, so it is dropped"#],
    );
    check(
        Kind::Gateway,
        &gateway(json!({"infrastructure": {"labels": options, "annotations": options}})),
        ("=x\n", 24),
        &[
            r#"spec.infrastructure.labels: "9 more entries" exceed the limit of 8, so it is dropped"#,
            r#"spec.infrastructure.annotations: "1 more entries" exceed the limit of 16, so it is dropped"#,
        ],
    );
}

#[test]
fn too_many_ports_with_validation_close_every_port() {
    let ports = many(65, |number| json!({"port": number + 1, "tls": {}}));
    let frontend = json!({"default": {}, "perPort": ports});
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": frontend}})),
        ("clients: AllowValidOnly by \n", 1),
        &[r#"spec.tls.frontend.perPort: "65 entries" exceed the limit of 64, so every request is refused"#],
    );
    let twice = json!([{"port": 443, "tls": {}}, {"port": 443, "tls": {"validation": {}}}]);
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": {"default": {}, "perPort": twice}}})),
        ("clients: AllowValidOnly by \n", 1),
        &[concat!(
            r#"spec.tls.frontend.perPort[1].port: "443" is also the port of an earlier entry, "#,
            "so every request is refused"
        )],
    );
    let authorities = many(17, |number| json!({"group": "", "kind": "ConfigMap", "name": format!("ca{number}")}));
    check(
        Kind::Gateway,
        &gateway(json!({"tls": {"frontend": {"default": {"validation": {"caCertificateRefs": authorities}}}}})),
        ("ConfigMap", 16),
        &[concat!(
            r#"spec.tls.frontend.default.validation.caCertificateRefs[16]: "1 more entries" exceed the limit of 16, "#,
            "so it is dropped"
        )],
    );
}

#[test]
fn the_validation_of_a_port_overrides_the_default() {
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
fn a_grant_permits_only_its_listed_references() {
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
fn lists_of_a_grant_are_limited_as_in_the_schema() {
    let from = many(17, |number| json!({"group": "g", "kind": "K", "namespace": format!("n{number}")}));
    let to = many(18, |number| json!({"group": "g", "kind": "K", "name": format!("o{number}")}));
    let spec = json!({"from": from, "to": to});
    let told = [
        r#"spec.from[16]: "1 more entries" exceed the limit of 16, so it is dropped"#,
        r#"spec.to[16]: "2 more entries" exceed the limit of 16, so it is dropped"#,
    ];
    check(Kind::ReferenceGrant, &spec, ("from K.g in", 16), &told);
    check(Kind::ReferenceGrant, &spec, ("to K.g o", 16), &told);
}

fn rule(number: usize) -> Value {
    json!({"name": format!("r{number}"), "matches": [{"path": {"value": format!("/{number}")}}]})
}

/// One rule.
fn route(rule: &Value) -> Value {
    json!({"rules": [rule]})
}

#[test]
fn lists_of_an_http_route_are_limited_as_in_the_schema() {
    let limit = |field: &str, limit: usize| {
        format!("{field}[{limit}]: \"1 more entries\" exceed the limit of {limit}, so it is dropped")
    };
    let check = |spec: Value, counted: (&str, usize), told: String| check(Kind::HttpRoute, &spec, counted, &[&told]);
    let parents = many(33, |number| json!({"name": format!("gw{number}")}));
    check(json!({"parentRefs": parents, "rules": []}), ("shop/gw", 32), limit("spec.parentRefs", 32));
    let hosts = many(17, |number| format!("h{number}.example"));
    check(json!({"hostnames": hosts, "rules": []}), (".example", 16), limit("spec.hostnames", 16));
    check(json!({"rules": many(17, rule)}), ("rule", 17), limit("spec.rules", 16));
    let paths = many(65, |number| json!({"path": {"value": format!("/{number}")}}));
    check(route(&json!({"matches": paths})), ("prefix /", 64), limit("spec.rules[0].matches", 64));
    let backends = many(17, |number| json!({"name": format!("b{number}"), "port": 80}));
    check(route(&json!({"backendRefs": backends})), ("shop/b", 16), limit("spec.rules[0].backendRefs", 16));
    let origins = many(65, |number| format!("https://o{number}.example"));
    let cors = json!([{"type": "CORS", "cors": {"allowOrigins": origins}}]);
    check(
        route(&json!({"filters": cors})),
        ("OriginPattern {", 64),
        limit("spec.rules[0].filters[0].cors.allowOrigins", 64),
    );
}

#[test]
fn matches_per_route_are_limited_and_a_rule_without_any_left_is_dropped() {
    let paths = |number| json!({"matches": many(number, |number| json!({"path": {"value": format!("/{number}")}}))});
    check(
        Kind::HttpRoute,
        &json!({"rules": [paths(64), paths(60), paths(6), paths(1), {"name": "last"}]}),
        ("prefix /", 129),
        &[
            r#"spec.rules[2].matches[4]: "2 more entries" exceed the limit of 4, so it is dropped"#,
            r#"spec.rules[3].matches: "1 entries" exceed the limit of 128 of all rules, so it is dropped"#,
        ],
    );
}

#[test]
fn conditions_beyond_a_limit_drop_the_rule() {
    let check = |one: Value, told: &str| {
        let spec = route(&json!({"matches": [one]}));
        check(Kind::HttpRoute, &spec, ("dropped rules [0]", 1), &[told]);
    };
    let headers = many(17, |number| json!({"name": format!("x{number}"), "value": "1"}));
    check(
        json!({"headers": headers}),
        r#"spec.rules[0].matches[0].headers: "17 entries" exceed the limit of 16, so it is dropped"#,
    );
    check(
        json!({"queryParams": headers}),
        r#"spec.rules[0].matches[0].queryParams: "17 entries" exceed the limit of 16, so it is dropped"#,
    );
    let long = "a".repeat(80);
    check(
        json!({"path": {"value": format!("/{}", "a".repeat(1024))}}),
        &format!(
            r#"spec.rules[0].matches[0].path.value: "/{}…" is longer than 1024 bytes, so it is dropped"#,
            &long[1..]
        ),
    );
    check(
        json!({"headers": [{"name": "x", "value": "a".repeat(4097)}]}),
        &format!(r#"spec.rules[0].matches[0].headers[0].value: "{long}…" is longer than 4096 bytes, so it is dropped"#),
    );
    check(
        json!({"path": {"type": "RegularExpression", "value": "/(a{1000}){1000}"}}),
        concat!(
            r#"spec.rules[0].matches[0].path.value: "/(a{1000}){1000}" is not a usable expression "#,
            "(its states take more than 131072 bytes), so it is dropped"
        ),
    );
}

#[test]
fn regular_expressions_per_route_are_limited() {
    let headers = |from: usize| {
        many(16, |number| json!({"name": format!("x{}", from + number), "value": "a.", "type": "RegularExpression"}))
    };
    let rules = many(9, |number| json!({"name": format!("r{number}"), "matches": [{"headers": headers(number)}]}));
    check(
        Kind::HttpRoute,
        &json!({"rules": rules}),
        ("dropped rules [8]", 1),
        &[concat!(
            r#"spec.rules[8].matches[0].headers[0].value: "a." exceeds the limit of 128 expressions, "#,
            "so it is dropped"
        )],
    );
}

/// With an expression of so many states, each letter of a path would take thousands of steps.
#[test]
fn expressions_that_cost_too_much_drop_their_rules() {
    let value = "/.*[ab][a-z]{3000}[q-z]";
    let hostile = |_| json!({"path": {"type": "RegularExpression", "value": value}});
    let rules = many(16, |number| json!({"name": format!("r{number}"), "matches": many(8, hostile)}));
    let why = "is not a usable expression (its states take more than 131072 bytes), so it is dropped";
    let told: Vec<String> =
        (0..16).map(|rule| format!("spec.rules[{rule}].matches[0].path.value: \"{value}\" {why}")).collect();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let dropped = "dropped rules [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]";
    check(Kind::HttpRoute, &json!({"rules": rules}), (dropped, 1), &told);
}

#[test]
fn filters_beyond_a_limit_make_the_rule_answer_500() {
    let check = |filters: Value, told: &str| {
        check(Kind::HttpRoute, &route(&json!({"filters": filters})), ("500: Unsupported", 1), &[told]);
    };
    let mirror = |_| json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "m", "port": 80}}});
    check(
        many(17, mirror),
        r#"spec.rules[0].filters: "17 entries" exceed the limit of 16, so the edge answers 500 in its place"#,
    );
    let edits = |edits: Value| json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": edits}]);
    check(
        edits(json!({"set": many(17, |number| json!({"name": format!("x{number}"), "value": "1"}))})),
        concat!(
            r#"spec.rules[0].filters[0].requestHeaderModifier.set: "17 entries" exceed the limit of 16, "#,
            "so the edge answers 500 in its place"
        ),
    );
    check(
        edits(json!({"remove": many(17, |number| format!("x{number}"))})),
        concat!(
            r#"spec.rules[0].filters[0].requestHeaderModifier.remove: "17 entries" exceed the limit of 16, "#,
            "so the edge answers 500 in its place"
        ),
    );
    let headers = many(65, |number| format!("x{number}"));
    let backend = json!({"name": "auth", "port": 80});
    let auth = json!({"protocol": "HTTP", "backendRef": backend, "http": {"allowedHeaders": headers}});
    check(
        json!([{"type": "ExternalAuth", "externalAuth": auth}]),
        concat!(
            r#"spec.rules[0].filters[0].externalAuth.http.allowedHeaders: "65 entries" exceed the limit of 64, "#,
            "so the edge answers 500 in its place"
        ),
    );
}
