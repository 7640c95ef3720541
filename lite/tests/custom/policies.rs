//! Policies of Kuadrant: the objects that their definition accepts, and the messages about others.

use serde_json::{Value, json};

use crate::server::Server;

const POLICIES: &str = "/apis/kuadrant.io/v1/namespaces/default/ratelimitpolicies";

async fn server() -> Server {
    let server = Server::new();
    for text in tidegate_lite::KUADRANT {
        server.define(&serde_saphyr::from_str(text).unwrap()).await;
    }
    server
}

fn policy(spec: &Value) -> Value {
    json!({"apiVersion": "kuadrant.io/v1", "kind": "RateLimitPolicy", "metadata": {"name": "ip"}, "spec": spec})
}

fn on(target: &Value, limits: &Value) -> Value {
    let mut spec = limits.clone();
    spec["targetRef"] = target.clone();
    spec
}

fn route() -> Value {
    json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"})
}

fn limits() -> Value {
    json!({"ip": {"rates": [{"limit": 5, "window": "1m30s"}]}})
}

/// Creates a policy; compares the cause of its refusal with the wanted one, empty for an accepted policy.
#[track_caller]
fn check<'a>(server: &'a Server, spec: Value, want: &'a str) -> impl Future<Output = ()> + 'a {
    let place = std::panic::Location::caller();
    async move {
        let said = server.ask(&format!("POST {POLICIES}?dryRun=All"), Some(&policy(&spec))).await;
        // The last cause of an object with a wrong field says that the rules were not checked.
        let causes = said.body["details"]["causes"].as_array().into_iter().flatten();
        let causes = causes.filter(|cause| cause["field"] != "<nil>");
        let told: Vec<String> = causes
            .map(|cause| format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
            .collect();
        let status = if want.is_empty() { 201 } else { 422 };
        assert_eq!((said.status, &*told.join("; ")), (status, want), "{place}: {spec}");
    }
}

#[tokio::test]
async fn limits_are_in_exactly_one_block() {
    let server = server().await;
    let block = json!({"limits": limits()});
    let wrong = "spec: Invalid value: needs exactly one of limits, defaults and overrides";
    for (spec, want) in [
        (json!({"limits": limits()}), ""),
        (json!({"when": [{"predicate": "true"}], "limits": limits()}), ""),
        (json!({"defaults": block}), ""),
        (json!({"overrides": block}), ""),
        (json!({"limits": limits(), "defaults": block}), wrong),
        (json!({"limits": limits(), "overrides": block}), wrong),
        (json!({"defaults": block, "overrides": block}), wrong),
        (json!({"limits": limits(), "defaults": block, "overrides": block}), wrong),
        (json!({}), wrong),
        (json!({"when": [{"predicate": "true"}]}), wrong),
        (json!({"limits": {}}), "spec.limits: Invalid value: 0: spec.limits in body should have at least 1 properties"),
        (json!({"defaults": {}}), "spec.defaults.limits: Required value"),
        (
            json!({"overrides": {"limits": {}}}),
            "spec.overrides.limits: Invalid value: 0: spec.overrides.limits in body should have at least 1 properties",
        ),
        (
            json!({"overrides": {"strategy": "Merge", "limits": limits()}}),
            r#"spec.overrides.strategy: Unsupported value: "Merge": supported values: "atomic", "merge""#,
        ),
    ] {
        check(&server, on(&route(), &spec), want).await;
    }
}

#[tokio::test]
async fn a_target_is_a_gateway_or_a_route() {
    let server = server().await;
    let target = |group: &str, kind: &str, section: Value| {
        let mut target = json!({"group": group, "kind": kind, "name": "web"});
        if section.is_string() {
            target["sectionName"] = section;
        }
        on(&target, &json!({"limits": limits()}))
    };
    let group = "gateway.networking.k8s.io";
    for kind in ["Gateway", "HTTPRoute", "GRPCRoute"] {
        check(&server, target(group, kind, json!(null)), "").await;
        check(&server, target(group, kind, json!("a.b-1")), "").await;
    }
    let kinds = r#"supported values: "Gateway", "HTTPRoute", "GRPCRoute""#;
    let want = format!(r#"spec.targetRef.kind: Unsupported value: "TLSRoute": {kinds}"#);
    check(&server, target(group, "TLSRoute", json!(null)), &want).await;
    let want = format!(r#"spec.targetRef.group: Unsupported value: "example.com": supported values: "{group}""#);
    check(&server, target("example.com", "HTTPRoute", json!(null)), &want).await;
    check(&server, json!({"limits": limits()}), "spec.targetRef: Required value").await;
}

#[tokio::test]
async fn windows_have_units_of_at_most_an_hour() {
    let server = server().await;
    let pattern = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";
    for window in ["1ms", "0s", "99999h1m1s1ms"] {
        let limits = json!({"limits": {"ip": {"rates": [{"limit": -1, "window": window}]}}});
        check(&server, on(&route(), &limits), "").await;
    }
    for window in ["1d", "1", "100000s", "1.5s", ""] {
        let limits = json!({"limits": {"ip": {"rates": [{"limit": 1, "window": window}]}}});
        let field = "spec.limits.ip.rates[0].window";
        let want = format!("{field}: Invalid value: \"{window}\": {field} in body should match '{pattern}'");
        check(&server, on(&route(), &limits), &want).await;
    }
}

#[tokio::test]
async fn a_status_is_written_by_itself() {
    let server = server().await;
    let block = json!({"defaults": {"limits": limits()}});
    let made = server.gives(&format!("POST {POLICIES}"), Some(&policy(&on(&route(), &block))), 201).await;
    assert_eq!(made["spec"]["defaults"]["strategy"], "atomic");
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": 1,
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"observedGeneration": 1, "conditions": [condition("Accepted"), condition("Enforced")]});
    let (line, changes) = (format!("PATCH {POLICIES}/ip/status"), json!({"status": status, "spec": null}));
    let written = server.gives(&line, Some(&changes), 200).await;
    assert_eq!((&written["status"], &written["spec"]), (&status, &made["spec"]));
    assert_eq!(written["metadata"]["generation"], 1);
    let twice = json!({"status": {"conditions": [condition("Accepted"), condition("Accepted")]}});
    let said = server.ask(&line, Some(&twice)).await;
    assert_eq!((said.status, said.message().contains("Duplicate value")), (422, true), "{}", said.message());
}

/// What users write for AuthPolicies, with fields of later versions.
#[tokio::test]
async fn policies_of_access_are_accepted() {
    let server = server().await;
    let policies = [
        include_str!("../../../config/tests/golden/auth-policy/anonymous.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/api_keys.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/credentials.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/jwt.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/metadata.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/only_callbacks.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/reviews.yaml"),
        include_str!("../../../config/tests/golden/auth-policy/unsupported.yaml"),
    ];
    for text in policies {
        let policy: Value = serde_saphyr::from_str(text).unwrap();
        check_auth(&server, &policy, "").await;
    }
    let block = json!({"rules": {"authentication": {"public": {"anonymous": {}}}}});
    let wrong = "spec: Invalid value: needs exactly one of rules, defaults and overrides";
    for (spec, want) in [
        (json!({"defaults": block, "overrides": block}), wrong),
        (json!({"defaults": block, "rules": block["rules"]}), wrong),
        (json!({}), wrong),
        (
            json!({"defaults": block, "when": [{"predicate": "true"}]}),
            "spec: Invalid value: needs when and patterns in the block with the rules",
        ),
        (json!({"rules": {}}), "spec.rules: Invalid value: needs at least one rule"),
        (json!({"rules": {"authentication": {}}}), "spec.rules: Invalid value: needs at least one rule"),
    ] {
        let policy = json!({"metadata": {"name": "auth"}, "spec": on(&route(), &spec)});
        check_auth(&server, &policy, want).await;
    }
}

async fn check_auth(server: &Server, policy: &Value, want: &str) {
    let mut policy = policy.clone();
    policy["apiVersion"] = json!("kuadrant.io/v1");
    policy["kind"] = json!("AuthPolicy");
    let path = POLICIES.replace("ratelimitpolicies", "authpolicies");
    let said = server.ask(&format!("POST {path}?dryRun=All&fieldValidation=Strict"), Some(&policy)).await;
    let message = said.body["message"].as_str().unwrap_or_default();
    let status = if want.is_empty() { 201 } else { 422 };
    assert!(said.status == status && message.contains(want), "{policy}: {} {message}", said.status);
}
