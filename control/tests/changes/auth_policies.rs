//! Authentication and authorisation on the paths of a Gateway: which rules are in effect where, and the keys in
//! Secrets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_config::model::auth::{AuthenticationMethod, KeySet, KeySource, PathAuth};
use tidegate_config::model::{ListenerOrigin, PathPolicies, PolicyMap, SnapshotParts};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_control::options::Secrets;
use tidegate_control::{Desired, Event, compile};

use crate::bench::Bench;
use crate::policies::{ENFORCED, check_status_of, object, policy, route, running, running_with};

/// Applies a policy that was created in the given second for a target such as `HTTPRoute web/first`; `how` is as in
/// `D/merge`.
pub(crate) fn auth_policy(bench: &mut Bench, name: &str, (second, target, how): (u32, &str, &str), rules: &Value) {
    let (kind, target) = target.split_once(' ').unwrap();
    let (target, section) = target.split_once('/').map_or((target, None), |(name, section)| (name, Some(section)));
    let (scope, strategy) = how.split_once('/').unwrap();
    let block = if scope == "O" { "overrides" } else { "defaults" };
    let mut spec = json!({block: {"strategy": strategy, "rules": rules}});
    spec["targetRef"] = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": target});
    if let Some(section) = section {
        spec["targetRef"]["sectionName"] = json!(section);
    }
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let metadata = json!({"namespace": "shop", "name": name, "creationTimestamp": created, "generation": 1});
    bench.apply(Kind::AuthPolicy, json!({"metadata": metadata, "spec": spec}));
}

fn anonymous() -> Value {
    json!({"authentication": {"public": {"anonymous": {}}}})
}

fn api_keys() -> Value {
    let selector = json!({"matchLabels": {"app": "shop"}});
    json!({"authentication": {"partners": {"apiKey": {"selector": selector}}}})
}

/// The policies over the listener `web` on a rule of a route.
pub(crate) fn path(parts: &SnapshotParts, route: &str, rule: u32) -> Option<Arc<PathPolicies>> {
    let origin = ListenerOrigin { gateway: object(Kind::Gateway, "edge"), set: None, name: "web".into() };
    let target = parts.policies.get(&object(Kind::HttpRoute, route)).or_else(|| parts.policies.get(&origin.gateway))?;
    let name: Option<Arc<str>> = (rule == 0).then(|| "first".into());
    target.of(Some(&origin), name.as_ref(), rule).cloned()
}

/// The rules of a path as `public (g)`, those that cannot be used after `!`; `closed` for one that refuses everything.
fn in_effect(bench: &Bench, route: &str, rule: u32) -> String {
    let Some(path) = path(bench.parts(), route, rule) else { return String::new() };
    if path.closed {
        return "closed".to_owned();
    }
    let Some(auth) = &path.auth else { return String::new() };
    let unusable: Vec<_> = auth.unusable.iter().map(|rule| rule.id()).collect();
    let rules = auth.ids().map(|id| {
        let mark = if unusable.contains(&id) { "!" } else { "" };
        format!("{mark}{} ({})", id.name, id.policy.name.name)
    });
    rules.collect::<Vec<_>>().join(", ")
}

/// Compares the rules on the first rule of the route `web`, on its second one, and on the route `more`. Incremental
/// changes must give what a compilation of everything gives.
#[track_caller]
fn check(bench: &mut Bench, want: [&str; 3]) {
    bench.reconcile();
    assert_eq!([("web", 0), ("web", 1), ("more", 0)].map(|(route, rule)| in_effect(bench, route, rule)), want);
    let model = bench.reconciler.model();
    let full = compile(model.world(), model.options(), model.frozen_backends());
    let all = |policies: &PolicyMap| -> BTreeMap<ObjectRef, _> {
        policies.iter().map(|(target, policies)| (target.clone(), Arc::clone(policies))).collect()
    };
    assert_eq!(all(&bench.parts().policies), all(&full.parts.policies));
    assert_eq!(model.compiled().verdicts, full.verdicts);
}

#[track_caller]
fn check_status(bench: &Bench, name: &str, want: &str) {
    check_status_of(bench, &object(Kind::AuthPolicy, name), want);
}

pub(crate) fn with_routes(mut bench: Bench) -> Bench {
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    bench.apply(Kind::HttpRoute, route("more", "b.example"));
    bench
}

#[test]
fn rules_are_merged_by_their_sections_and_names() {
    let mut bench = with_routes(running());
    check(&mut bench, ["", "", ""]);
    let mut of_gateway = api_keys();
    of_gateway["response"] = json!({"unauthenticated": {"code": 302}});
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &of_gateway);
    check(&mut bench, ["partners (g), unauthenticated (g)"; 3]);
    check_status(&bench, "g", ENFORCED);
    let office = json!({"authorization": {"office": {"patternMatching": {"patterns": [{"predicate": "true"}]}}}});
    auth_policy(&mut bench, "l", (2, "Gateway edge/web", "O/merge"), &office);
    check(&mut bench, ["partners (g), office (l), unauthenticated (g)"; 3]);
    let tokens = json!({"authentication": {"partners": {"jwt": {"issuerUrl": "https://login.example"}}}});
    auth_policy(&mut bench, "u", (3, "HTTPRoute web/first", "D/atomic"), &tokens);
    let of_rule = "partners (u), office (l), unauthenticated (g)";
    let of_others = "partners (g), office (l), unauthenticated (g)";
    check(&mut bench, [of_rule, of_others, of_others]);
    let auth = path(bench.parts(), "web", 0).unwrap().auth.clone().unwrap();
    assert!(matches!(auth.authentication[0].rule.method, AuthenticationMethod::Jwt(_)));
    check_status(
        &bench,
        "g",
        "Accepted True Accepted; Enforced True Enforced: partially enforced: overridden on some paths by [shop/u]",
    );
    auth_policy(&mut bench, "g", (1, "Gateway edge", "O/atomic"), &anonymous());
    check(&mut bench, ["public (g)"; 3]);
    check_status(&bench, "u", "Accepted True Accepted; Enforced False Overridden: overridden by [shop/g]");
    for name in ["g", "l", "u"] {
        bench.delete(Kind::AuthPolicy, name);
    }
    check(&mut bench, ["", "", ""]);
    assert!(bench.parts().policies.is_empty());
}

/// An invalid policy is not accepted, although it closes its target.
#[test]
fn routes_name_the_accepted_policies() {
    let mut bench = with_routes(running());
    let web = object(Kind::HttpRoute, "web");
    let named = |bench: &mut Bench| {
        bench.reconcile();
        let Some(Desired::Status { status, .. }) = bench.reconciler.desired_reports().status(&web) else { panic!() };
        let all = status.parents.iter().flat_map(|parent| &parent.conditions);
        let affected = all.filter(|it| it.kind.starts_with("kuadrant.io/"));
        affected.map(|it| format!("{}: {}", it.kind, it.message)).collect::<Vec<_>>()
    };
    assert!(named(&mut bench).is_empty());
    policy(&mut bench, "limits", 1, "Gateway edge", "ip 5");
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &anonymous());
    auth_policy(&mut bench, "r", (2, "HTTPRoute web", "D/merge"), &anonymous());
    auth_policy(&mut bench, "x", (3, "HTTPRoute web", "D/merge"), &json!([]));
    let of_auth = "kuadrant.io/AuthPolicyAffected: affected by AuthPolicy [shop/g, shop/r]".to_owned();
    let of_limits = "kuadrant.io/RateLimitPolicyAffected: affected by RateLimitPolicy [shop/limits]".to_owned();
    assert_eq!(named(&mut bench), [of_auth, of_limits]);
}

#[test]
fn rules_are_in_the_order_of_their_priorities() {
    let mut bench = with_routes(running());
    let rule = |priority: i64| json!({"anonymous": {}, "priority": priority});
    let rules = json!({"authentication": {"a": rule(2), "b": rule(-1), "c": rule(0), "d": rule(-1)}});
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/atomic"), &rules);
    check(&mut bench, ["b (g), d (g), c (g), a (g)"; 3]);
}

/// A policy that cannot be used closes what it is for, and nothing else.
#[test]
fn what_cannot_be_used_closes_its_own_paths() {
    let mut bench = with_routes(running());
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &anonymous());
    auth_policy(&mut bench, "r", (2, "HTTPRoute web", "D/atomic"), &json!([]));
    check(&mut bench, ["closed", "closed", "public (g)"]);
    check_status(&bench, "r", "Accepted False Invalid: spec.defaults.rules: \"[]\" is not an object");
    auth_policy(&mut bench, "r", (2, "HTTPRoute web/first", "D/atomic"), &json!({}));
    check(&mut bench, ["closed", "public (g)", "public (g)"]);
    // An unusable rule, and one that another policy replaces.
    let unusable = json!({"authentication": {"own": {"x509": {"selector": {}}}}});
    auth_policy(&mut bench, "r", (2, "HTTPRoute web/first", "D/atomic"), &unusable);
    check(&mut bench, ["public (g), !own (r)", "public (g)", "public (g)"]);
    check_status(
        &bench,
        "r",
        "Accepted True Accepted; Enforced False InvalidCelExpression: requests are refused: \
         spec.defaults.rules.authentication[own].x509: \"{\\\"selector\\\":{}}\" is not supported yet",
    );
    let replaced = json!({"authentication": {"own": {"anonymous": {}}}});
    auth_policy(&mut bench, "g", (1, "Gateway edge", "O/merge"), &replaced);
    check(&mut bench, ["own (g)"; 3]);
    check_status(&bench, "r", "Accepted True Accepted; Enforced False Overridden: overridden by [shop/g]");
    // Without its target it closes nothing.
    auth_policy(&mut bench, "r", (2, "HTTPRoute none", "D/atomic"), &json!([]));
    check(&mut bench, ["own (g)"; 3]);
    bench.delete(Kind::AuthPolicy, "g");
    check(&mut bench, ["", "", ""]);
}

/// The policy may be meant for any rule of the route. Other routes, and a Gateway without the listener, serve on.
#[test]
fn a_policy_for_a_rule_that_does_not_exist_closes_its_route() {
    let mut bench = with_routes(running());
    let tokens = json!({"authentication": {"staff": {"jwt": {"issuerUrl": "https://login.example"}}}});
    auth_policy(&mut bench, "r", (2, "HTTPRoute web/admin", "D/atomic"), &tokens);
    check(&mut bench, ["closed", "closed", ""]);
    check_status(&bench, "r", "Accepted False TargetNotFound: HTTPRoute shop/web has no rule with the name admin");
    let told = "spec.targetRef.sectionName: \"admin\" is no rule of HTTPRoute shop/web, so requests under the policy are refused";
    assert_eq!(findings(&bench, "r"), [told]);
    let mut renamed = route("web", "a.example");
    renamed["spec"]["rules"][0]["name"] = json!("admin");
    bench.apply(Kind::HttpRoute, renamed);
    bench.reconcile();
    assert!(findings(&bench, "r").is_empty());
    check_status(&bench, "r", ENFORCED);
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    check(&mut bench, ["closed", "closed", ""]);
    for target in ["HTTPRoute web/rule-1", "HTTPRoute web/rule-3", "HTTPRoute web/rule-0"] {
        auth_policy(&mut bench, "r", (2, target, "D/atomic"), &tokens);
        check(&mut bench, ["closed", "closed", ""]);
    }
    for target in ["HTTPRoute none/first", "Gateway edge/none"] {
        auth_policy(&mut bench, "r", (2, target, "D/atomic"), &tokens);
        check(&mut bench, ["", "", ""]);
    }
    let (annotations, of_rule) = (
        json!({"tidegate.io/enforcement": "shadow"}),
        json!({"kind": "HTTPRoute", "name": "web", "sectionName": "admin"}),
    );
    let mut target = of_rule;
    target["group"] = json!("gateway.networking.k8s.io");
    let metadata = json!({"namespace": "shop", "name": "r", "annotations": annotations});
    bench.apply(Kind::AuthPolicy, json!({"metadata": metadata, "spec": {"targetRef": target, "rules": tokens}}));
    check(&mut bench, ["", "", ""]);
}

#[test]
fn limits_by_identity_need_a_policy_that_determines_it() {
    let mut bench = with_routes(running());
    let limits =
        json!({"user": {"counters": [{"expression": "auth.identity.sub"}], "rates": [{"limit": 5, "window": "1m"}]}});
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let spec = json!({"targetRef": target, "limits": limits});
    bench.apply(Kind::RateLimitPolicy, json!({"metadata": {"namespace": "shop", "name": "limits"}, "spec": spec}));
    let lists = |bench: &mut Bench| {
        bench.reconcile();
        let path = path(bench.parts(), "web", 0).unwrap();
        [path.limits.len(), path.identity_limits.len(), path.without_identity.len()]
    };
    assert_eq!(lists(&mut bench), [0, 0, 1]);
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &anonymous());
    assert_eq!(lists(&mut bench), [0, 1, 0]);
    check_status_of(&bench, &object(Kind::RateLimitPolicy, "limits"), ENFORCED);
    bench.delete(Kind::AuthPolicy, "g");
    assert_eq!(lists(&mut bench), [0, 0, 1]);
}

/// A Secret with a key, created in the given second.
fn key(name: &str, second: u32, key: &str, labels: &Value) -> Value {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let metadata = json!({
        "namespace": "shop", "name": name, "creationTimestamp": created, "labels": labels,
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": key, "plan": "free"},
    });
    json!({"metadata": metadata, "data": {"api_key": STANDARD.encode(key)}})
}

/// Whom a key is accepted from, by the models that are published from now on; each is a publication.
fn published(bench: &mut Bench, key: &str) -> Vec<Option<String>> {
    let mut all = Vec::new();
    while bench.reconciler.busy() {
        let step = bench.reconciler.reconcile(bench.now).expect("something waits");
        if let Some((parts, changes)) = step.published {
            all.push(owner(&parts, key));
            let hosts = changes.units.routing.first.iter().filter(|unit| unit.to_string().starts_with("host"));
            assert_eq!(hosts.count(), 0, "a key compiles no host");
        }
    }
    all
}

fn owner(parts: &SnapshotParts, key: &str) -> Option<String> {
    let auth: Arc<PathAuth> = path(parts, "web", 0)?.auth.clone()?;
    let AuthenticationMethod::ApiKey(keys) = &auth.authentication[0].rule.method else { panic!("{auth:?}") };
    let metadata = &keys.identity(key)?["metadata"];
    assert_eq!(metadata["annotations"], json!({"plan": "free"}), "the last manifest has the key");
    Some(metadata["name"].as_str().unwrap().to_owned())
}

pub(crate) fn findings(bench: &Bench, policy: &str) -> Vec<String> {
    let all = bench.reconciler.model().compiled().all_findings();
    let own = all.iter().filter(|finding| finding.object == object(Kind::AuthPolicy, policy));
    own.map(|finding| format!("{}: {}", finding.field, finding.problem)).collect()
}

#[test]
fn a_key_is_in_effect_from_one_publication_to_another() {
    let mut bench = with_routes(running());
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &api_keys());
    bench.reconcile();
    assert_eq!(owner(bench.parts(), "secret-1"), None);
    let (ours, others) = (json!({"app": "shop"}), json!({"app": "other"}));
    let is = |name: &str| vec![Some(name.to_owned())];
    bench.apply(Kind::Secret, key("b", 2, "secret-1", &ours));
    assert_eq!(published(&mut bench, "secret-1"), is("b"));
    bench.apply(Kind::Secret, key("b", 2, "secret-2", &ours));
    assert_eq!(published(&mut bench, "secret-1"), [None]);
    assert_eq!(owner(bench.parts(), "secret-2").as_deref(), Some("b"));
    bench.apply(Kind::Secret, key("b", 2, "secret-2", &others));
    assert_eq!(published(&mut bench, "secret-2"), [None]);
    bench.apply(Kind::Secret, key("b", 2, "secret-2", &ours));
    assert_eq!(published(&mut bench, "secret-2"), is("b"));
    // Of two with one key the older one counts, and the other one takes its place.
    assert!(findings(&bench, "g").is_empty());
    bench.apply(Kind::Secret, key("a", 3, "secret-2", &ours));
    assert_eq!(published(&mut bench, "secret-2"), Vec::new());
    let field = "rules.authentication[partners].apiKey";
    let told = format!("{field}: \"Secret shop/a\" has no effect: its key is that of Secret shop/b, which is older");
    assert_eq!(findings(&bench, "g"), [told]);
    bench.delete(Kind::Secret, "b");
    assert_eq!(published(&mut bench, "secret-2"), is("a"));
    assert!(findings(&bench, "g").is_empty());
    bench.delete(Kind::Secret, "a");
    assert_eq!(published(&mut bench, "secret-2"), [None]);
    // A Secret of another namespace, and one without a usable key.
    let mut elsewhere = key("c", 1, "secret-2", &ours);
    elsewhere["metadata"]["namespace"] = json!("other");
    bench.apply(Kind::Secret, elsewhere);
    let mut broken = key("d", 1, "secret-2", &ours);
    broken["data"]["api_key"] = json!("");
    bench.apply(Kind::Secret, broken);
    assert_eq!(published(&mut bench, "secret-2"), Vec::new());
    assert_eq!(findings(&bench, "g"), [format!("{field}: \"Secret shop/d\" has no effect: its api_key is empty")]);
    check_status(&bench, "g", ENFORCED);
}

/// A Secret costs nothing where its key is not accepted, however many policies there are.
#[test]
fn a_secret_attaches_the_policies_that_select_it() {
    let select = |selector: Value| json!({"authentication": {"partners": {"apiKey": {"selector": selector}}}});
    let attached_by = |others: u32| {
        let mut bench = with_routes(running());
        auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &select(json!({"matchLabels": {"app": "shop"}})));
        for number in 0..others {
            let labels = json!({"matchLabels": {"app": format!("app-{number}"), "tier": "1"}});
            auth_policy(&mut bench, &format!("p{number}"), (2, "HTTPRoute none", "D/merge"), &select(labels));
            let labels = json!({"matchLabels": {"tier": "1"}, "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["shop"]}]});
            auth_policy(&mut bench, &format!("q{number}"), (3, "HTTPRoute none", "D/merge"), &select(labels));
        }
        bench.reconcile();
        let counted = |bench: &mut Bench, change: &dyn Fn(&mut Bench)| {
            let before = bench.reconciler.model().attached();
            change(bench);
            bench.reconcile();
            bench.reconciler.model().attached() - before
        };
        let labels = json!({"app": "shop", "tier": "1"});
        let certificate =
            json!({"metadata": {"namespace": "shop", "name": "c", "labels": labels}, "data": {"tls.crt": ""}});
        let counts = [
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, key("k", 1, "secret-1", &labels))),
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, key("k", 1, "secret-2", &labels))),
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, key("k", 1, "secret-2", &json!({"app": "x"})))),
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, key("k", 1, "secret-3", &json!({"app": "x"})))),
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, key("k", 1, "secret-3", &labels))),
            counted(&mut bench, &|bench| bench.apply(Kind::Secret, certificate.clone())),
            counted(&mut bench, &|bench| bench.delete(Kind::Secret, "k")),
        ];
        check(&mut bench, ["partners (g)"; 3]);
        counts
    };
    let alone = attached_by(0);
    assert_eq!(attached_by(50), alone);
    // Each is the Secret itself, and the policy if it selects the Secret before or after.
    assert_eq!(alone, [2, 2, 2, 1, 2, 1, 2]);
}

#[test]
fn a_rule_tells_of_a_limited_number_of_secrets() {
    let mut bench = with_routes(running());
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &api_keys());
    for number in 0..20 {
        bench.apply(Kind::Secret, key(&format!("s{number:02}"), number, "secret-1", &json!({"app": "shop"})));
    }
    bench.reconcile();
    let told = findings(&bench, "g");
    assert_eq!(told.len(), 17);
    let rest = r#"rules.authentication[partners].apiKey: "3 more Secrets" has no effect: their keys are not used"#;
    assert_eq!(told.iter().filter(|told| *told == rest).count(), 1);
    assert_eq!(owner(bench.parts(), "secret-1").as_deref(), Some("s00"));
}

/// Whether the rule for tokens on the first rule of `web` has keys.
fn has_keys(parts: &SnapshotParts) -> bool {
    let auth = path(parts, "web", 0).unwrap().auth.clone().unwrap();
    let AuthenticationMethod::Jwt(jwt) = &auth.authentication[0].rule.method else { panic!("{auth:?}") };
    jwt.keys.is_some()
}

#[test]
fn keys_of_issuers_reach_the_rules_that_name_them() {
    let mut bench = with_routes(running());
    let issuer = "https://login.example";
    let tokens = json!({"authentication": {"staff": {"jwt": {"issuerUrl": issuer}}}});
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &tokens);
    bench.reconcile();
    assert!(!has_keys(bench.parts()) && findings(&bench, "g").is_empty());
    let fetch = |bench: &mut Bench, fetched: Result<KeySet, &str>| {
        let fetched = fetched.map(Arc::new).map_err(Into::into);
        bench.observe(Event::KeySet { source: KeySource::Issuer(issuer.into()), fetched });
        bench.reconcile();
    };
    fetch(&mut bench, Err("no answer"));
    let told = format!(
        "rules.authentication[staff].jwt: \"{issuer}\" has no effect: it accepts no token, because its keys cannot be \
         fetched: no answer"
    );
    assert_eq!((has_keys(bench.parts()), findings(&bench, "g")), (false, vec![told]));
    fetch(&mut bench, Ok(KeySet::default()));
    assert!(has_keys(bench.parts()) && findings(&bench, "g").is_empty());
    fetch(&mut bench, Err("no answer"));
    assert!(has_keys(bench.parts()) && findings(&bench, "g").is_empty(), "the last keys stay");
    check(&mut bench, ["staff (g)"; 3]);
}

/// The oldest policies have the keys that they name, in whatever order policies come and go.
#[test]
fn a_namespace_has_keys_of_a_limited_number_of_issuers() {
    let tokens = |range: std::ops::Range<u32>| {
        let rule = |n: u32| (format!("r{n:03}"), json!({"jwt": {"issuerUrl": format!("https://login.example/{n}")}}));
        json!({"authentication": range.map(rule).collect::<serde_json::Map<_, _>>()})
    };
    let mut bench = with_routes(running());
    let usable = |bench: &mut Bench| {
        bench.reconcile();
        ["web", "more"].map(|route| !in_effect(bench, route, 0).contains('!'))
    };
    auth_policy(&mut bench, "new", (9, "HTTPRoute more", "D/atomic"), &tokens(100..120));
    assert_eq!(usable(&mut bench), [true, true]);
    auth_policy(&mut bench, "old", (1, "HTTPRoute web", "D/atomic"), &tokens(0..100));
    assert_eq!(usable(&mut bench), [true, false]);
    let why = "needs keys beyond the limit of 100 issuers and key sets of a namespace, of which the oldest policies have theirs";
    assert_eq!(findings(&bench, "new").len(), 20);
    let told = format!(r#"rules.authentication[r100].jwt: "r100" {why}, so requests under the policy are refused"#);
    assert_eq!(findings(&bench, "new")[0], told);
    let wanted = |bench: &Bench| bench.reconciler.model().topology().key_sources().count();
    assert_eq!(wanted(&bench), 100, "no more are fetched");
    // A source that another policy has already costs nothing.
    auth_policy(&mut bench, "new", (9, "HTTPRoute more", "D/atomic"), &tokens(50..100));
    assert_eq!(usable(&mut bench), [true, true]);
    auth_policy(&mut bench, "new", (9, "HTTPRoute more", "D/atomic"), &tokens(99..101));
    assert_eq!((usable(&mut bench), findings(&bench, "new").len()), ([true, false], 1));
    auth_policy(&mut bench, "old", (1, "HTTPRoute web", "D/atomic"), &tokens(0..98));
    assert_eq!((usable(&mut bench), findings(&bench, "new").len()), ([true, true], 0));
    auth_policy(&mut bench, "new", (9, "HTTPRoute more", "D/atomic"), &tokens(100..120));
    assert_eq!((usable(&mut bench), findings(&bench, "new").len()), ([true, false], 18));
    bench.delete(Kind::AuthPolicy, "old");
    assert_eq!((usable(&mut bench), findings(&bench, "new").len()), ([true, true], 0));
    let more = (0..20).map(|n| format!("r{n:03} (new)", n = n + 100)).collect::<Vec<_>>().join(", ");
    check(&mut bench, ["", "", &more]);
}

#[test]
fn keys_need_secrets_that_are_watched() {
    let mut bench = with_routes(running_with(Secrets::Referenced { refresh: Duration::from_secs(60) }));
    auth_policy(&mut bench, "g", (1, "Gateway edge", "D/merge"), &api_keys());
    check(&mut bench, ["!partners (g)"; 3]);
    let why = "needs Secrets by their labels, and --secrets reads them by their names only";
    let field = "rules.authentication[partners].apiKey";
    assert_eq!(
        findings(&bench, "g"),
        [format!("{field}: \"partners\" {why}, so requests under the policy are refused")]
    );
    check_status(
        &bench,
        "g",
        &format!("Accepted True Accepted; Enforced False InvalidCelExpression: requests are refused: {field} {why}"),
    );
}

/// A name stands for the policies of both kinds.
#[test]
fn an_ingress_names_policies_of_both_kinds() {
    let mut bench = running();
    bench.apply(Kind::IngressClass, crate::manifests::class());
    let mut ingress = crate::manifests::ingress("web");
    ingress["metadata"]["annotations"] = json!({"tidegate.io/policy": "calm"});
    bench.apply(Kind::Ingress, ingress);
    let ingress = object(Kind::Ingress, "web");
    let check = |bench: &mut Bench, want: [usize; 3]| {
        bench.reconcile();
        let target = bench.parts().policies.get(&ingress).unwrap();
        let path = target.of(None, None, 0).unwrap();
        let rules = path.auth.as_ref().map_or(0, |auth| auth.ids().count());
        assert_eq!([usize::from(path.closed), path.limits.len(), rules], want);
    };
    check(&mut bench, [1, 0, 0]);
    auth_policy(&mut bench, "calm", (1, "HTTPRoute none", "D/atomic"), &anonymous());
    check(&mut bench, [0, 0, 1]);
    check_status(&bench, "calm", "Accepted True Accepted: HTTPRoute shop/none does not exist; Enforced True Enforced");
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 5");
    check(&mut bench, [0, 1, 1]);
    auth_policy(&mut bench, "calm", (1, "HTTPRoute none", "D/atomic"), &json!([]));
    check(&mut bench, [1, 1, 0]);
    bench.delete(Kind::AuthPolicy, "calm");
    check(&mut bench, [0, 1, 0]);
    bench.delete(Kind::RateLimitPolicy, "calm");
    check(&mut bench, [1, 0, 0]);
}
