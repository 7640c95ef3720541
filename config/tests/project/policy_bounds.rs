//! Limits for a single policy of Kuadrant.

use serde_json::{Map, Value, json};
use tidegate_config::object::Kind;

use crate::gateway_bounds::{check, many};

fn rate(number: usize) -> Value {
    json!({"limit": 1, "window": format!("{}s", number + 1)})
}

/// A policy with this one limit.
fn one(limit: &Value) -> Value {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    json!({"targetRef": target, "limits": {"ip": limit}})
}

fn many_limits(number: usize) -> Value {
    let limits = (0..number).map(|number| (format!("l{number}"), json!({"rates": [rate(number)]})));
    let mut spec = one(&json!(null));
    spec["limits"] = Value::Object(limits.collect::<Map<_, _>>());
    spec
}

#[test]
fn a_policy_with_too_many_limits_is_not_enforced() {
    check(Kind::RateLimitPolicy, &many_limits(100), ("limit l", 100), &[]);
    check(
        Kind::RateLimitPolicy,
        &many_limits(101),
        ("no limits", 1),
        &[r#"spec.limits: "101 limits" exceed the limit of 100, so the policy is not enforced"#],
    );
}

#[test]
fn a_policy_with_an_unusable_name_of_a_limit_is_not_enforced() {
    let named = |name: &str| {
        let mut spec = one(&json!(null));
        spec["limits"] = json!({name: {"rates": [rate(0)]}});
        spec
    };
    check(Kind::RateLimitPolicy, &named(&"a".repeat(253)), ("  1 in 1s", 1), &[]);
    check(Kind::RateLimitPolicy, &named("für alle"), ("  1 in 1s", 1), &[]);
    for (name, told) in [(String::new(), String::new()), ("a".repeat(254), format!("{}…", "a".repeat(80)))] {
        let why = "is not a name of 1 to 253 bytes without control characters";
        let told = format!("spec.limits: \"{told}\" {why}, so the policy is not enforced");
        check(Kind::RateLimitPolicy, &named(&name), ("no limits", 1), &[&told]);
    }
    check(
        Kind::RateLimitPolicy,
        &named("a\u{1b}[2J"),
        ("no limits", 1),
        &[concat!(
            r#"spec.limits: "a\u{1b}[2J" is not a name of 1 to 253 bytes without control characters, "#,
            "so the policy is not enforced"
        )],
    );
}

#[test]
fn a_limit_with_too_much_in_it_is_not_enforced() {
    let check_list = |field: &str, entry: fn(usize) -> Value| {
        let limit = |number| {
            let mut limit = json!({"rates": [rate(0)]});
            limit[field] = many(number, entry);
            one(&limit)
        };
        check(Kind::RateLimitPolicy, &limit(10), ("left out", 0), &[]);
        let told =
            format!("spec.limits[ip].{field}: \"11 entries\" exceed the limit of 10, so the limit is not enforced");
        check(Kind::RateLimitPolicy, &limit(11), ("left out", 1), &[&told]);
    };
    check_list("rates", rate);
    check_list("when", |number| json!({"predicate": format!("request.size > {number}")}));
    check_list("counters", |number| json!({"expression": format!("request.headers.h{number}")}));
}

/// Limits are read in the order of their names. Comparisons with constants cost little.
#[test]
fn limits_with_too_many_steps_in_all_are_not_enforced() {
    let policy = |number: usize, predicate: &str| {
        let limit =
            |name: usize| (format!("l{name:02}"), json!({"rates": [rate(0)], "when": [{"predicate": predicate}]}));
        let mut spec = one(&json!(null));
        spec["limits"] = Value::Object((0..number).map(limit).collect::<Map<_, _>>());
        spec
    };
    let cheap = "request.method == 'POST' && request.url_path.startsWith('/a') && request.headers['a'] == 'b'";
    check(Kind::RateLimitPolicy, &policy(100, cheap), ("left out", 0), &[]);
    // Four take 7,728 steps, and a cheap one after those without room is in effect.
    let mut spec = policy(6, "request.headers['a'].split(',').size() > 2");
    spec["limits"]["m"] = json!({"rates": [rate(0)], "when": [{"predicate": cheap}]});
    let told = |name: &str| {
        format!(
            "spec.limits[{name}]: \"1932 steps\" exceed the 464 that the limits before it leave of 8192, so the limit \
             is not enforced"
        )
    };
    check(Kind::RateLimitPolicy, &spec, ("left out", 2), &[&told("l04"), &told("l05")]);
    check(Kind::RateLimitPolicy, &spec, (" in 1s", 5), &[&told("l04"), &told("l05")]);
}

/// None of its limits is: each has the conditions of the policy before its own.
#[test]
fn a_policy_with_too_many_conditions_is_not_enforced() {
    let mut spec = many_limits(2);
    spec["when"] = many(11, |_| json!({"predicate": "true"}));
    check(
        Kind::RateLimitPolicy,
        &spec,
        ("left out", 1),
        &[r#"spec.when: "11 entries" exceed the limit of 10, so the policy is not enforced"#],
    );
    check(
        Kind::RateLimitPolicy,
        &spec,
        (" in ", 0),
        &[r#"spec.when: "11 entries" exceed the limit of 10, so the policy is not enforced"#],
    );
}
