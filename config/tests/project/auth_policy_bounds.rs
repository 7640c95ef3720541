//! Limits for a single AuthPolicy, and for a Secret with an API key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tidegate_config::finding::Finding;
use tidegate_config::model::auth::AuthEntry;
use tidegate_config::object::Kind;
use tidegate_config::project::{Object, Projected};

use crate::gateway_bounds::{check as check_spec, many};
use crate::manifest::projected;

fn spec(rules: &Value) -> Value {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    json!({"targetRef": target, "rules": rules})
}

/// Checks that a rule of authentication is used, or the reason why not.
#[track_caller]
fn check(rule: &Value, want: Option<&str>) {
    let rules = spec(&json!({"authentication": {"a": rule}}));
    match want {
        None => check_spec(Kind::AuthPolicy, &rules, ("Unusable", 0), &[]),
        Some(why) => {
            let told = format!("spec.rules.authentication[a]{why}, so requests under the policy are refused");
            check_spec(Kind::AuthPolicy, &rules, ("  Unusable", 1), &[&told]);
        }
    }
}

fn map(number: usize, value: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..number).map(|number| (format!("n{number}"), value(number))).collect::<Map<_, _>>())
}

#[test]
fn a_policy_with_too_many_rules_refuses_everything() {
    let rules = |number: usize| {
        let rules = json!({
            "authentication": map(number / 2, |_| json!({"anonymous": {}})),
            "response": {"success": {"headers": map(number - number / 2, |_| json!({"plain": {"value": "x"}}))}},
        });
        spec(&rules)
    };
    check_spec(Kind::AuthPolicy, &rules(100), ("Anonymous", 50), &[]);
    let told = "spec.rules.response.success.headers: \"101 rules\" exceed the limit of 100, so requests under the policy are refused";
    check_spec(Kind::AuthPolicy, &rules(101), ("no rules", 1), &[told]);
    let name = "is not a name of 1 to 253 bytes without control characters, so requests under the policy are refused";
    let rules = spec(&json!({"authorization": {"": {}}}));
    check_spec(Kind::AuthPolicy, &rules, ("no rules", 1), &[&format!("spec.rules.authorization: \"\" {name}")]);
}

#[test]
fn a_rule_with_too_much_in_it_refuses_everything() {
    let when = |list: Value| json!({"anonymous": {}, "when": list});
    let condition = |number: usize| json!({"selector": "request.host", "operator": "eq", "value": number.to_string()});
    check(&when(many(64, condition)), None);
    check(&when(many(65, condition)), Some(".when: \"65 entries\" exceed the limit of 64 of one list"));
    check(&when(json!([{"any": many(63, condition)}])), None);
    let why = ".when[0].any: \"64 entries\" exceed the limit of 64 of one list";
    check(&when(json!([{"any": many(64, condition)}])), Some(why));
    let nested = |depth: usize| (0..depth).fold(condition(0), |inner, _| json!({"all": [inner]}));
    check(&when(json!([nested(8)])), None);
    let told = format!(
        ".when[0]{}.all: {:?} is nested deeper than 8 levels",
        ".all[0]".repeat(8),
        json!([condition(0)]).to_string()
    );
    check(&when(json!([nested(9)])), Some(&told));
    let text = |length: usize| json!({"selector": "request.host", "operator": "eq", "value": "a".repeat(length)});
    check(&when(json!([text(4096)])), None);
    check(&when(json!([text(4097)])), Some(".when[0].value: \"4097 bytes\" exceed the limit of 4096"));
    let selector =
        |length: usize| json!({"plain": {"selector": format!("request.headers.{}", "a".repeat(length - 16))}});
    check(&selector(1024), None);
    check(&selector(1025), Some(".plain.selector: \"1025 bytes\" exceed the limit of 1024"));
    let overrides = |overrides: Value| json!({"anonymous": {}, "overrides": overrides});
    let value = |_: usize| json!({"value": 1});
    check(&overrides(map(64, value)), None);
    check(&overrides(map(65, value)), Some(".overrides: \"65 entries\" exceed the limit of 64"));
    // With its quotes.
    let constant = |length: usize| overrides(json!({"a": {"value": "a".repeat(length)}}));
    check(&constant(8190), None);
    check(&constant(8191), Some(".overrides[a].value: \"8193 bytes\" exceed the limit of 8192"));
    let cookie = |length: usize| json!({"anonymous": {}, "credentials": {"cookie": {"name": "a".repeat(length)}}});
    check(&cookie(256), None);
    let shown = format!("{}…", "a".repeat(80));
    check(&cookie(257), Some(&format!(".credentials.cookie.name: \"{shown}\" is not a name of 1 to 256 bytes")));
    let url = |length: usize| json!({"jwt": {"jwksUrl": format!("https://a.test/{}", "a".repeat(length - 15))}});
    check(&url(2048), None);
    check(&url(2049), Some(".jwt.jwksUrl: \"2049 bytes\" exceed the limit of 2048"));
}

/// Rules are read in the order of their sections and names. The conditions of the policy count for each rule.
#[test]
fn rules_with_too_many_steps_in_all_refuse_everything() {
    let rule = json!({"anonymous": {}, "when": [{"predicate": "request.headers['a'].split(',').size() > 2"}]});
    let rules = spec(&json!({"authentication": map(6, |_| rule.clone())}));
    let told = |name: &str| {
        format!(
            "spec.rules.authentication[{name}]: \"1932 steps\" exceed the 464 that the rules before it leave of 8192, so \
             requests under the policy are refused"
        )
    };
    check_spec(Kind::AuthPolicy, &rules, ("  Unusable", 2), &[&told("n4"), &told("n5")]);
    let mut rules = spec(&json!({"authentication": map(6, |_| json!({"anonymous": {}}))}));
    rules["when"] = rule["when"].clone();
    check_spec(Kind::AuthPolicy, &rules, ("  Unusable", 2), &[&told("n4"), &told("n5")]);
}

/// The name of a rule takes part in merges, so that it stays.
#[test]
fn rules_with_patterns_are_unusable_if_there_is_no_room_for_patterns() {
    let condition = json!({"selector": "request.path", "operator": "matches", "value": "^/a+"});
    let authentication = json!({"a": {"anonymous": {}, "when": [condition]}, "b": {"anonymous": {}}});
    let json = json!({
        "metadata": {"namespace": "shop", "name": "auth", "resourceVersion": "1", "annotations": {"tidegate.io/enforcement": "shadow"}},
        "spec": spec(&json!({"authentication": authentication})),
    });
    let mut whole = projected(Kind::AuthPolicy, &json);
    assert_eq!(whole.object.as_ref().unwrap().expressions().unwrap().all.len(), 1);
    let findings = whole.object.as_mut().unwrap().leave_out_expressions(&whole.meta.object, "has no room");
    let told: Vec<String> = findings.iter().map(Finding::note).collect();
    let why = r#"rules[authentication#a]: "^/a+" has no room"#;
    assert_eq!(told, [format!("{why}, so requests under the policy are refused")]);
    let Some(Object::AuthPolicy(left)) = whole.object else { panic!("{:?}", whole.object) };
    let rules: Vec<_> =
        left.rules.as_ref().unwrap().entries.iter().map(|(key, rule)| (&**key, rule.id().shadow)).collect();
    assert_eq!(rules, [("authentication#a", true), ("authentication#b", true)]);
    assert_eq!(*left.unusable, [why.to_owned()]);
    assert!(Object::AuthPolicy(left).expressions().is_none());
}

#[test]
fn a_secret_with_too_much_in_it_has_no_key() {
    let key = |length: usize, annotation: usize| {
        let metadata = json!({
            "namespace": "shop", "name": "a", "resourceVersion": "1", "annotations": {"a": "b".repeat(annotation)},
        });
        let data = json!({"api_key": STANDARD.encode("k".repeat(length))});
        let Projected { object, findings, .. } = projected(Kind::Secret, &json!({"metadata": metadata, "data": data}));
        assert_eq!(findings, []);
        let Some(Object::Secret(secret)) = object else { panic!("no Secret") };
        secret.api_key.as_ref().unwrap().key.map(drop)
    };
    assert_eq!(key(4096, 16_383), Ok(()));
    assert_eq!(key(4097, 0), Err("its api_key is longer than 4096 bytes"));
    assert_eq!(key(1, 16_384), Err("its labels and annotations are longer than 16384 bytes"));
}

#[test]
fn a_rule_with_a_call_that_is_too_large_refuses_everything() {
    let introspection = |endpoint: String, more: Value| {
        let mut rule = json!({"endpoint": endpoint, "credentialsRef": {"name": "client"}});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"oauth2Introspection": rule})
    };
    let url = |length: usize| introspection(format!("https://a.test/{}", "a".repeat(length - 15)), json!({}));
    check(&url(2048), None);
    check(&url(2049), Some(".oauth2Introspection.endpoint: \"2049 bytes\" exceed the limit of 2048"));
    let timeout = |timeout: i64| introspection("https://a.test".to_owned(), json!({"timeout": timeout}));
    for usable in [0, 1, 60_000] {
        check(&timeout(usable), None);
    }
    for (number, shown) in [(-1, "-1"), (60_001, "60001"), (i64::MAX, "9223372036854775807")] {
        let why = format!(".oauth2Introspection.timeout: \"{shown}\" is not a number of milliseconds up to 60000");
        check(&timeout(number), Some(&why));
    }
    let review = |audiences: Value| json!({"kubernetesTokenReview": {"audiences": audiences}});
    check(&review(many(64, |_| json!("a"))), None);
    let why = ".kubernetesTokenReview.audiences: \"65 entries\" exceed the limit of 64";
    check(&review(many(65, |_| json!("a"))), Some(why));
    check(&review(json!(["a".repeat(1024)])), None);
    let why = ".kubernetesTokenReview.audiences: \"1025 bytes\" exceed the limit of 1024";
    check(&review(json!(["a".repeat(1025)])), Some(why));
}

/// Results of a rule are kept under its digest: another rule, and the rule after a change, must have another one.
#[test]
fn the_digest_of_a_cached_rule_is_that_of_the_rule_in_its_place() {
    let digest = |policy: &str, name: &str, ttl_s: u64| {
        let rule = json!({"kubernetesTokenReview": {}, "cache": {"key": {"value": "a"}, "ttl": ttl_s}});
        let json = json!({
            "metadata": {"namespace": "shop", "name": policy, "resourceVersion": "1"},
            "spec": spec(&json!({"authentication": {name: rule}})),
        });
        let Some(Object::AuthPolicy(policy)) = projected(Kind::AuthPolicy, &json).object else { panic!("no policy") };
        let entry = policy.rules.as_ref().unwrap().entries.values().next().unwrap();
        let AuthEntry::Authentication(rule) = &**entry else { panic!("{entry:?}") };
        rule.cache.as_ref().unwrap().digest
    };
    let all = [digest("a", "x", 1), digest("a", "x", 2), digest("a", "y", 1), digest("b", "x", 1)];
    assert_eq!(all[0], digest("a", "x", 1));
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
}
