//! Policies on the paths of a Gateway: what is in effect where, what is compiled after a change, and the conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::model::{ListenerOrigin, PathPolicies};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::{GatewayServices, Kuadrant, Options, Secrets};
use tidegate_control::{Desired, PendingStatusUpdates, compile};

use crate::bench::Bench;
use crate::gateways::{options, running_under};

const POLICY: Kind = Kind::RateLimitPolicy;

/// A loop with the Gateway `edge`, whose listeners are `web` on port 80 and `api` on port 81.
pub(crate) fn running() -> Bench {
    running_with(Secrets::Watched)
}

/// The same with this way of reading Secrets.
pub(crate) fn running_with(secrets: Secrets) -> Bench {
    running_where(|options| options.secrets = secrets)
}

/// The same with changed options.
pub(crate) fn running_where(change: impl FnOnce(&mut Options)) -> Bench {
    let mut options = options(&["192.0.2.1"], GatewayServices::Off);
    options.sources.kuadrant = Some(Kuadrant::default());
    change(&mut options);
    let listener = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "HTTP"});
    running_under(options, &json!([listener("web", 80), listener("api", 81)]))
}

/// A route of the Gateway with a rule `first`, and one without a name.
pub(crate) fn route(name: &str, hostname: &str) -> Value {
    let rule = |path: &str| json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}]});
    let mut first = rule("/first");
    first["name"] = json!("first");
    let spec = json!({"parentRefs": [{"name": "edge"}], "hostnames": [hostname], "rules": [first, rule("/second")]});
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec})
}

/// Applies a policy that was created in the given second for a target such as `Gateway edge` or `HTTPRoute web/first`.
/// Its limits are named as in `D/merge ip 600, login 20`, each with its number of requests a minute; `D/-` and `O/-`
/// are atomic, and without either they stand directly in the specification.
pub(crate) fn policy(bench: &mut Bench, name: &str, second: u32, target: &str, limits: &str) {
    bench.apply(POLICY, manifest(name, second, target, limits));
}

/// Applies it while it is being deleted: a finalizer of another controller still has work to do.
pub(crate) fn policy_being_deleted(bench: &mut Bench, name: &str, second: u32, target: &str, limits: &str) {
    let mut manifest = manifest(name, second, target, limits);
    manifest["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    manifest["metadata"]["finalizers"] = json!(["example.com/backup"]);
    bench.apply(POLICY, manifest);
}

fn manifest(name: &str, second: u32, target: &str, limits: &str) -> Value {
    let (kind, target) = target.split_once(' ').unwrap();
    let (target, section) = target.split_once('/').map_or((target, None), |(name, section)| (name, Some(section)));
    let (how, entries) = limits.split_once(' ').filter(|(how, _)| how.contains('/')).unwrap_or(("", limits));
    let entry = |entry: &str| {
        let (name, max) = entry.split_once(' ')?;
        Some((name.to_owned(), json!({"rates": [{"limit": max.parse::<u32>().unwrap(), "window": "1m"}]})))
    };
    let limits: serde_json::Map<String, Value> = entries.split(", ").filter_map(entry).collect();
    let strategy = if how.ends_with("/merge") { "merge" } else { "atomic" };
    let block = json!({"strategy": strategy, "limits": limits});
    let mut spec = match how.split_once('/').map_or("", |(scope, _)| scope) {
        "D" => json!({"defaults": block}),
        "O" => json!({"overrides": block}),
        _ => json!({"limits": limits}),
    };
    spec["targetRef"] = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": target});
    if let Some(section) = section {
        spec["targetRef"]["sectionName"] = json!(section);
    }
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let metadata = json!({"namespace": "shop", "name": name, "creationTimestamp": created, "generation": 1});
    json!({"metadata": metadata, "spec": spec})
}

pub(crate) fn object(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef::new(kind, ObjectName::new("shop", name))
}

/// The limits in effect over a listener of the Gateway on a rule of a route: `ip 60 (l), login 20 (g)`.
fn limits(bench: &Bench, listener: &str, route: &str, rule: u32) -> String {
    let policies = &bench.parts().policies;
    let origin = ListenerOrigin { gateway: object(Kind::Gateway, "edge"), set: None, name: listener.into() };
    let target = policies.get(&object(Kind::HttpRoute, route)).or_else(|| policies.get(&origin.gateway));
    let name: Option<Arc<str>> = (rule == 0).then(|| "first".into());
    let path: Option<&Arc<PathPolicies>> = target.and_then(|target| target.of(Some(&origin), name.as_ref(), rule));
    let limits = path.map_or(&[][..], |path| &path.limits).iter();
    let limits =
        limits.map(|limit| format!("{} {} ({})", limit.id.name(), limit.rates[0].max, limit.id.policy().name.name));
    limits.collect::<Vec<_>>().join(", ")
}

/// Compares the limits over the listener `web` and over `api`, on each rule of the route `web`. Incremental changes
/// must give what a compilation of everything gives.
#[track_caller]
fn check(bench: &mut Bench, want: [[&str; 2]; 2]) {
    bench.reconcile();
    let got = ["web", "api"].map(|listener| [0, 1].map(|rule| limits(bench, listener, "web", rule)));
    assert_eq!(got, want.map(|rules| rules.map(str::to_owned)));
    let model = bench.reconciler.model();
    let full = compile(model.world(), model.options(), model.frozen_backends());
    let all = |policies: &tidegate_config::model::PolicyMap| -> BTreeMap<_, _> {
        policies.iter().map(|(target, policies)| (target.clone(), Arc::clone(policies))).collect()
    };
    assert_eq!(all(&bench.parts().policies), all(&full.parts.policies));
    assert_eq!(model.compiled().verdicts, full.verdicts);
}

/// Compares the conditions of a policy as `Accepted True Accepted; Enforced False Overridden: overridden by [shop/g]`.
#[track_caller]
pub(crate) fn check_status(bench: &Bench, name: &str, want: &str) {
    check_status_of(bench, &object(POLICY, name), want);
}

/// The same for a policy of any kind.
#[track_caller]
pub(crate) fn check_status_of(bench: &Bench, name: &ObjectRef, want: &str) {
    let desired = bench.reconciler.desired_reports().status(name);
    let Some(Desired::Status { status, .. }) = desired else { panic!("{name} has no status to write") };
    let text = |it: &tidegate_config::project::gateway::Condition| {
        let message = if it.message.is_empty() { String::new() } else { format!(": {}", it.message) };
        format!("{} {} {}{message}", it.kind, it.status, it.reason)
    };
    assert_eq!(status.conditions.iter().map(text).collect::<Vec<_>>().join("; "), want, "{name}");
}

/// Compares the policies whose status may have to be written since the last call.
#[track_caller]
fn check_told(bench: &mut Bench, want: &[&str]) {
    bench.reconcile();
    let PendingStatusUpdates { all, changed, counting, rewritten, .. } =
        bench.reconciler.pending_reports().status_updates();
    let objects = all.into_iter().chain(changed).chain(counting).chain(rewritten);
    let policies: BTreeSet<ObjectRef> = objects.filter(|object| object.kind == POLICY).collect();
    assert_eq!(policies.iter().map(|policy| &*policy.name.name).collect::<Vec<_>>(), want);
}

#[test]
fn the_status_of_a_policy_is_written_when_its_effect_changes() {
    let mut bench = running();
    check_told(&mut bench, &[]);
    policy(&mut bench, "g", 1, "Gateway edge", "D/merge ip 600, login 20");
    check_told(&mut bench, &["g"]);
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    check_told(&mut bench, &["g"]);
    policy(&mut bench, "l", 2, "Gateway edge/web", "D/- ip 60");
    check_told(&mut bench, &["g", "l"]);
    policy(&mut bench, "u", 3, "HTTPRoute web/first", "ip 9");
    check_told(&mut bench, &["g", "l", "u"]);
    policy(&mut bench, "u", 3, "HTTPRoute web/first", "login 9");
    check_told(&mut bench, &["g", "l", "u"]);
    policy(&mut bench, "g", 1, "Gateway edge", "O/- ip 6");
    check_told(&mut bench, &["g", "l", "u"]);
    // Its rules may be others.
    bench.apply(Kind::HttpRoute, route("web", "b.example"));
    check_told(&mut bench, &["g", "l", "u"]);
    // It has policies of its own, so that this one is the first that inherits.
    bench.apply(Kind::HttpRoute, route("more", "c.example"));
    check_told(&mut bench, &["g", "l"]);
    bench.apply(Kind::HttpRoute, route("further", "d.example"));
    check_told(&mut bench, &[]);
    bench.delete(Kind::HttpRoute, "further");
    check_told(&mut bench, &[]);
    bench.delete(Kind::HttpRoute, "more");
    check_told(&mut bench, &["g", "l"]);
    bench.delete(Kind::HttpRoute, "web");
    check_told(&mut bench, &["g", "l", "u"]);
}

/// The policies that the status of an object names: of a Gateway, then of its listeners; or of a route for each parent.
fn affecting(bench: &Bench, object: &ObjectRef) -> Vec<String> {
    let Some(Desired::Status { status, .. }) = bench.reconciler.desired_reports().status(object) else {
        panic!("{object} has no status to write")
    };
    let listeners = status.listeners.iter().map(|listener| &listener.conditions);
    let parents = status.parents.iter().map(|parent| &parent.conditions);
    let own = (object.kind == Kind::Gateway).then_some(&status.conditions);
    let named = |conditions: &Vec<tidegate_config::project::gateway::Condition>| {
        let found = conditions.iter().find(|it| it.kind == *"kuadrant.io/RateLimitPolicyAffected");
        found.map_or_else(String::new, |it| it.message.replace("affected by RateLimitPolicy ", ""))
    };
    own.into_iter().chain(listeners).chain(parents).map(named).collect()
}

#[test]
fn objects_name_the_policies_that_affect_them() {
    let mut bench = running();
    let mut web = route("web", "a.example");
    web["spec"]["parentRefs"] = json!([{"name": "edge", "sectionName": "web"}, {"name": "edge", "sectionName": "api"}]);
    bench.apply(Kind::HttpRoute, web);
    bench.reconcile();
    let (gateway, web) = (object(Kind::Gateway, "edge"), object(Kind::HttpRoute, "web"));
    let check = |bench: &mut Bench, of_gateway: [&str; 3], of_route: [&str; 2]| {
        bench.reconcile();
        assert_eq!(affecting(bench, &gateway), of_gateway);
        assert_eq!(affecting(bench, &web), of_route);
        let PendingStatusUpdates { all, changed, counting, .. } = bench.reconciler.pending_reports().status_updates();
        let objects: BTreeSet<ObjectRef> = all.into_iter().chain(changed).chain(counting).collect();
        [&gateway, &web].map(|object| objects.contains(object))
    };
    check(&mut bench, ["", "", ""], ["", ""]);
    policy(&mut bench, "g", 1, "Gateway edge", "ip 600");
    let told = check(&mut bench, ["[shop/g]"; 3], ["[shop/g]"; 2]);
    assert_eq!(told, [true, true]);
    policy(&mut bench, "l", 2, "Gateway edge/web", "ip 60");
    let told = check(&mut bench, ["[shop/g]", "[shop/g, shop/l]", "[shop/g]"], ["[shop/g]", "[shop/g, shop/l]"]);
    assert_eq!(told, [true, true]);
    policy(&mut bench, "r", 3, "HTTPRoute web", "ip 6");
    policy(&mut bench, "u", 3, "HTTPRoute web/first", "ip 6");
    let of_route = ["[shop/g, shop/r]", "[shop/g, shop/l, shop/r]"];
    let told = check(&mut bench, ["[shop/g]", "[shop/g, shop/l]", "[shop/g]"], of_route);
    assert_eq!(told, [false, true]);
    // A changed limit changes no name.
    policy(&mut bench, "g", 1, "Gateway edge", "ip 700");
    let told = check(&mut bench, ["[shop/g]", "[shop/g, shop/l]", "[shop/g]"], of_route);
    assert_eq!(told, [false, false]);
    for name in ["g", "l", "r", "u"] {
        bench.delete(POLICY, name);
    }
    check(&mut bench, ["", "", ""], ["", ""]);
}

pub(crate) const ENFORCED: &str = "Accepted True Accepted; Enforced True Enforced";

#[test]
fn a_policy_is_in_effect_on_the_paths_through_its_target() {
    let mut bench = running();
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    check(&mut bench, [["", ""], ["", ""]]);
    policy(&mut bench, "g", 1, "Gateway edge", "D/merge ip 600, login 20");
    let everywhere = "ip 600 (g), login 20 (g)";
    check(&mut bench, [[everywhere; 2]; 2]);
    check_status(&bench, "g", ENFORCED);
    policy(&mut bench, "l", 2, "Gateway edge/web", "D/- ip 60");
    let over_web = "ip 60 (l), login 20 (g)";
    check(&mut bench, [[over_web; 2], [everywhere; 2]]);
    check_status(
        &bench,
        "g",
        "Accepted True Accepted; Enforced True Enforced: partially enforced: overridden on some paths by [shop/l]",
    );
    policy(&mut bench, "u", 3, "HTTPRoute web/first", "ip 9");
    check(&mut bench, [["ip 9 (u), login 20 (g)", over_web], ["ip 9 (u), login 20 (g)", everywhere]]);
    policy(&mut bench, "u", 3, "HTTPRoute web/rule-2", "ip 9");
    check(&mut bench, [[over_web, "ip 9 (u), login 20 (g)"], [everywhere, "ip 9 (u), login 20 (g)"]]);
    policy(&mut bench, "g", 1, "Gateway edge", "O/- ip 6");
    check(&mut bench, [["ip 6 (g)"; 2]; 2]);
    for loser in ["l", "u"] {
        let overridden = "Accepted True Accepted; Enforced False Overridden: overridden by [shop/g]";
        check_status(&bench, loser, overridden);
    }
    bench.delete(POLICY, "g");
    check(&mut bench, [["ip 60 (l)", "ip 9 (u)"], ["", "ip 9 (u)"]]);
    bench.delete(POLICY, "l");
    bench.delete(POLICY, "u");
    check(&mut bench, [["", ""], ["", ""]]);
    assert!(bench.parts().policies.is_empty());
}

#[test]
fn a_policy_that_is_being_deleted_takes_no_part_and_has_no_status() {
    let mut bench = running();
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    policy(&mut bench, "g", 1, "Gateway edge", "D/merge ip 600");
    policy(&mut bench, "r", 2, "HTTPRoute web", "O/- login 1");
    check(&mut bench, [["ip 600 (g), login 1 (r)"; 2]; 2]);
    policy_being_deleted(&mut bench, "r", 2, "HTTPRoute web", "O/- login 1");
    check(&mut bench, [["ip 600 (g)"; 2]; 2]);
    assert_eq!(bench.reconciler.desired_reports().status(&object(POLICY, "r")), None);
    assert_eq!(affecting(&bench, &object(Kind::HttpRoute, "web")), ["[shop/g]"]);
    check_status(&bench, "g", ENFORCED);
    policy_being_deleted(&mut bench, "g", 1, "Gateway edge", "D/merge ip 600");
    check(&mut bench, [["", ""], ["", ""]]);
    bench.delete(POLICY, "g");
    bench.delete(POLICY, "r");
    check(&mut bench, [["", ""], ["", ""]]);
}

#[test]
fn a_changed_policy_of_a_gateway_compiles_no_host() {
    let mut bench = running();
    for number in 0..50 {
        bench.apply(Kind::HttpRoute, route(&format!("r{number}"), &format!("r{number}.example")));
    }
    policy(&mut bench, "r7", 1, "HTTPRoute r7", "upload 5");
    bench.reconcile();
    let compiled = |bench: &mut Bench| {
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        while bench.reconciler.busy() {
            let step = bench.reconciler.reconcile(bench.now).expect("something waits");
            for (unit, count) in step.touched.compiled {
                *all.entry(unit).or_default() += count;
            }
        }
        all.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    policy(&mut bench, "g", 2, "Gateway edge", "D/merge ip 600");
    assert_eq!(compiled(&mut bench), [("object", 1), ("policies", 2)], "the Gateway's paths, and those of one route");
    policy(&mut bench, "g", 2, "Gateway edge", "D/merge ip 60");
    assert_eq!(compiled(&mut bench), [("policies", 2)]);
    policy(&mut bench, "r7", 1, "HTTPRoute r7", "upload 6");
    assert_eq!(compiled(&mut bench), [("policies", 1)]);
    bench.apply(Kind::HttpRoute, route("r8", "r8.example"));
    assert_eq!(compiled(&mut bench), [], "an unchanged route");
}

#[test]
fn a_policy_waits_for_its_target_and_for_routes() {
    let mut bench = running();
    policy(&mut bench, "r", 1, "HTTPRoute web", "ip 1");
    policy(&mut bench, "u", 1, "HTTPRoute web/third", "ip 1");
    policy(&mut bench, "l", 1, "Gateway edge/db", "ip 1");
    policy(&mut bench, "g", 1, "Gateway edge", "ip 1");
    policy(&mut bench, "other", 1, "Gateway other", "ip 1");
    bench.reconcile();
    let missing = |what: &str| format!("Accepted False TargetNotFound: {what}");
    check_status(&bench, "r", &missing("HTTPRoute shop/web does not exist"));
    check_status(&bench, "l", &missing("Gateway shop/edge has no listener with the name db"));
    check_status(&bench, "other", &missing("Gateway shop/other does not exist"));
    let no_route = "Accepted True Accepted; Enforced False Unknown: not in the path of any accepted route";
    check_status(&bench, "g", no_route);
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    check(&mut bench, [["ip 1 (r)"; 2]; 2]);
    check_status(&bench, "r", ENFORCED);
    check_status(&bench, "u", &missing("HTTPRoute shop/web has no rule with the name third"));
    // Every route has a policy of its own, so nothing is left for the Gateway's.
    check_status(&bench, "g", "Accepted True Accepted; Enforced False Overridden: overridden by [shop/r]");
    bench.apply(Kind::HttpRoute, route("more", "b.example"));
    bench.reconcile();
    let partly =
        "Accepted True Accepted; Enforced True Enforced: partially enforced: overridden on some paths by [shop/r]";
    check_status(&bench, "g", partly);
    bench.delete(Kind::HttpRoute, "more");
    bench.delete(Kind::HttpRoute, "web");
    check(&mut bench, [["ip 1 (g)"; 2]; 2]);
    check_status(&bench, "r", &missing("HTTPRoute shop/web does not exist"));
    check_status(&bench, "g", no_route);
    // Another controller's Gateway is another controller's matter.
    let spec = json!({"gatewayClassName": "theirs", "listeners": []});
    bench.apply(Kind::Gateway, json!({"metadata": {"namespace": "shop", "name": "other"}, "spec": spec}));
    bench.reconcile();
    assert_eq!(bench.reconciler.desired_reports().status(&object(POLICY, "other")), None);
}

/// The Gateway with its listeners, the second of this protocol.
fn gateway(second: &str) -> Value {
    let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let listeners = [listener("web", 80, "HTTP"), listener("api", 81, second)];
    let spec = json!({"gatewayClassName": "tidegate", "listeners": listeners});
    json!({"metadata": {"namespace": "shop", "name": "edge"}, "spec": spec})
}

#[test]
fn the_status_follows_gateways_and_listeners() {
    let mut bench = running();
    bench.delete(Kind::Gateway, "edge");
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    policy(&mut bench, "r", 1, "HTTPRoute web", "ip 1");
    check_told(&mut bench, &[]);
    let status = |bench: &Bench| bench.reconciler.desired_reports().status(&object(POLICY, "r"));
    assert_eq!(status(&bench), None, "the route of another controller, as far as is known");
    bench.apply(Kind::Gateway, gateway("HTTP"));
    check_told(&mut bench, &["r"]);
    check_status(&bench, "r", ENFORCED);
    policy(&mut bench, "l", 1, "Gateway edge/api", "O/merge login 1");
    check_told(&mut bench, &["l", "r"]);
    check_status(&bench, "l", ENFORCED);
    // A listener that is not accepted serves no path.
    bench.apply(Kind::Gateway, gateway("FTP"));
    check_told(&mut bench, &["l", "r"]);
    let nowhere = "Accepted True Accepted; Enforced False Unknown: not in the path of any accepted route";
    check_status(&bench, "l", nowhere);
    check_status(&bench, "r", ENFORCED);
    bench.apply(Kind::Gateway, gateway("HTTP"));
    check_told(&mut bench, &["l", "r"]);
    check_status(&bench, "l", ENFORCED);
    // Without the Gateway the route is nobody's, and only conditions of ours are out of date.
    bench.delete(Kind::Gateway, "edge");
    bench.reconcile();
    assert_eq!(status(&bench), None);
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let limits = json!({"ip": {"rates": [{"limit": 1, "window": "1m"}]}});
    let enforced =
        json!({"type": "Enforced", "status": "True", "reason": "Enforced", "message": "", "observedGeneration": 1});
    bench.apply(
        POLICY,
        json!({
            "metadata": {"namespace": "shop", "name": "r", "creationTimestamp": "2026-01-01T00:00:01Z", "generation": 1},
            "spec": {"targetRef": target, "limits": limits}, "status": {"conditions": [enforced]},
        }),
    );
    bench.reconcile();
    let Some(Desired::Status { only_in_place_of_ours: true, .. }) = status(&bench) else {
        panic!("{:?}", status(&bench))
    };
    check_status(&bench, "r", nowhere);
}

#[test]
fn a_policy_whose_every_rule_has_its_own_is_not_in_effect() {
    let mut bench = running();
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    policy(&mut bench, "r", 1, "HTTPRoute web", "ip 1");
    policy(&mut bench, "first", 2, "HTTPRoute web/first", "ip 2");
    bench.reconcile();
    let partly = "Accepted True Accepted; Enforced True Enforced: partially enforced: overridden on some paths by ";
    check_status(&bench, "r", &format!("{partly}[shop/first]"));
    policy(&mut bench, "second", 2, "HTTPRoute web/rule-2", "ip 3");
    bench.reconcile();
    check_status(
        &bench,
        "r",
        "Accepted True Accepted; Enforced False Overridden: overridden by [shop/first, shop/second]",
    );
}

#[test]
fn a_policy_that_contradicts_itself_affects_nothing() {
    let mut bench = running();
    bench.apply(Kind::HttpRoute, route("web", "a.example"));
    policy(&mut bench, "g", 1, "Gateway edge", "D/- ip 600");
    policy(&mut bench, "empty", 2, "Gateway edge", "O/- ");
    policy(&mut bench, "service", 2, "Service web", "ip 5");
    check(&mut bench, [["ip 600 (g)"; 2]; 2]);
    for invalid in ["empty", "service"] {
        let desired = bench.reconciler.desired_reports().status(&object(POLICY, invalid));
        let Some(Desired::Status { status, .. }) = desired else { panic!("{invalid} has no status") };
        let reasons: Vec<&str> = status.conditions.iter().map(|it| &*it.reason).collect();
        assert_eq!(reasons, ["Invalid"], "{invalid}: {:?}", status.conditions);
    }
}

#[test]
fn a_policy_of_tokens_has_no_effect_and_its_status_says_so() {
    const TOKENS: Kind = Kind::TokenRateLimitPolicy;
    let mut bench = running();
    bench.apply(Kind::HttpRoute, route("web", "web.test"));
    let tokens = |bench: &mut Bench, target: &str| {
        bench.apply(TOKENS, manifest("t", 1, target, "free 20000"));
        bench.reconcile();
    };
    let own = object(TOKENS, "t");
    let not_served = "Accepted True Accepted; Enforced False NotServed: limits of tokens are not served by this edge";
    for target in ["Gateway edge", "Gateway edge/web", "HTTPRoute web", "HTTPRoute web/first"] {
        tokens(&mut bench, target);
        check_status_of(&bench, &own, not_served);
    }
    policy(&mut bench, "r", 2, "HTTPRoute web", "ip 60");
    check(&mut bench, [["ip 60 (r)"; 2]; 2]);
    check_status_of(&bench, &own, not_served);
    let all = bench.reconciler.model().compiled().all_findings();
    let found: Vec<String> = all.iter().filter(|finding| finding.object == own).map(ToString::to_string).collect();
    assert!(matches!(&found[..], [one] if one.contains("so the policy is not enforced")), "{found:?}");
    tokens(&mut bench, "HTTPRoute none");
    check_status_of(&bench, &own, "Accepted False TargetNotFound: HTTPRoute shop/none does not exist");
    bench.delete(Kind::HttpRoute, "web");
    tokens(&mut bench, "Gateway edge");
    check_status_of(
        &bench,
        &own,
        "Accepted True Accepted; Enforced False Unknown: not in the path of any accepted route",
    );
    // Routes do not name it, as if it limited something.
    bench.delete(TOKENS, "t");
    bench.reconcile();
    assert_eq!(bench.reconciler.desired_reports().status(&own), None);
}
