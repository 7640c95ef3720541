//! Limits for a single route other than an HTTPRoute, for a ListenerSet, and for a policy.

use serde_json::json;
use tidegate_config::object::Kind;

use crate::gateway_bounds::{check, listener, many};

#[test]
fn a_listener_set_is_limited_like_a_gateway() {
    check(
        Kind::ListenerSet,
        &json!({"parentRef": {"name": "edge"}, "listeners": many(65, listener)}),
        ("listener l", 64),
        &[r#"spec.listeners[64]: "1 more entries" exceed the limit of 64, so it is dropped"#],
    );
}

#[test]
fn lists_of_a_grpc_route_are_limited_as_in_the_schema() {
    let methods =
        |number| json!({"matches": many(number, |number| json!({"method": {"service": format!("s{number}")}}))});
    check(
        Kind::GrpcRoute,
        &json!({"rules": [methods(65), methods(64), methods(1)]}),
        ("  prefix /s", 128),
        &[
            r#"spec.rules[0].matches[64]: "1 more entries" exceed the limit of 64, so it is dropped"#,
            r#"spec.rules[2].matches: "1 entries" exceed the limit of 128 of all rules, so it is dropped"#,
        ],
    );
    check(
        Kind::GrpcRoute,
        &json!({"rules": many(17, |_| json!({}))}),
        ("  prefix /", 16),
        &[r#"spec.rules[16]: "1 more entries" exceed the limit of 16, so it is dropped"#],
    );
    let long = "a".repeat(1025);
    check(
        Kind::GrpcRoute,
        &json!({"rules": [{"matches": [{"method": {"service": long}}]}]}),
        ("dropped rules [0]", 1),
        &[&format!(
            r#"spec.rules[0].matches[0].method.service: "{}…" is longer than 1024 bytes, so it is dropped"#,
            "a".repeat(80)
        )],
    );
}

#[test]
fn a_tls_tcp_or_udp_route_has_one_rule() {
    let rules = many(
        2,
        |number| json!({"name": format!("r{number}"), "backendRefs": many(17, |number| json!({"name": format!("b{number}"), "port": 80}))}),
    );
    for kind in [Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute] {
        check(
            kind,
            &json!({"rules": rules}),
            ("shop/b", 16),
            &[
                r#"spec.rules[1]: "1 more entries" exceed the limit of 1, so it is dropped"#,
                r#"spec.rules[0].backendRefs[16]: "1 more entries" exceed the limit of 16, so it is dropped"#,
            ],
        );
    }
    check(
        Kind::TlsRoute,
        &json!({"hostnames": many(1025, |number| format!("h{number}.example"))}),
        (".example", 1024),
        &[r#"spec.hostnames[1024]: "1 more entries" exceed the limit of 1024, so it is dropped"#],
    );
}

#[test]
fn lists_of_a_policy_are_limited_as_in_the_schema_and_keep_every_name() {
    let system = json!({"wellKnownCACertificates": "System", "hostname": "a.example"});
    let targets = many(17, |number| json!({"group": "", "kind": "Service", "name": format!("t{number}")}));
    check(
        Kind::BackendTlsPolicy,
        &json!({"targetRefs": targets, "validation": system}),
        ("shop/t", 16),
        &[r#"spec.targetRefs[16]: "1 more entries" exceed the limit of 16, so it is dropped"#],
    );
    let authorities = many(9, |number| json!({"group": "", "kind": "ConfigMap", "name": format!("ca{number}")}));
    check(
        Kind::BackendTlsPolicy,
        &json!({"validation": {"caCertificateRefs": authorities, "hostname": "a.example"}}),
        ("shop/ca", 8),
        &[r#"spec.validation.caCertificateRefs[8]: "1 more entries" exceed the limit of 8, so it is dropped"#],
    );
    let names = many(6, |number| json!({"type": "Hostname", "hostname": format!("h{number}.example")}));
    let validation = json!({"wellKnownCACertificates": "System", "hostname": "a.example", "subjectAltNames": names});
    check(
        Kind::BackendTlsPolicy,
        &json!({"validation": validation}),
        ("validation (unreadable)", 1),
        &[r#"spec.validation.subjectAltNames: "6 entries" exceed the limit of 5, so every request is refused"#],
    );
}
