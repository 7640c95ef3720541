//! Policies that Ingresses and applications of a Deis router name: what is in effect, what is compiled after a change,
//! and the conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::model::{Guard, PolicyMap, Route, TargetPolicies};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_control::options::{GatewayServices, Ingresses, Kuadrant, Options, Sources};
use tidegate_control::{Unit, compile};

use crate::bench::{Bench, all_of};
use crate::deis::{PLATFORM, app, deis, router};
use crate::manifests::{class, ingress, ingress_of, slice};
use crate::policies::{ENFORCED, check_status, object, policy, policy_being_deleted};

const POLICY: Kind = Kind::RateLimitPolicy;

/// The sources without the Gateway API.
fn sources() -> Sources {
    let kuadrant = Some(Kuadrant::default());
    Sources { ingress: Some(Ingresses::default()), deis: Some(deis()), gateway: None, kuadrant }
}

/// A loop with the Deis router and the Ingress class, after every kind but these has been listed.
fn running(sources: Sources, unlisted: &[Kind]) -> Bench {
    let mut bench = Bench::of(Options { sources, ..Options::default() }, Kind::ALL.map(all_of));
    for kind in Kind::ALL.into_iter().filter(|kind| !unlisted.contains(kind)) {
        bench.list(kind, &[]);
    }
    bench.now += Duration::from_secs(3600);
    bench.reconcile();
    bench.apply(Kind::IngressClass, class());
    bench.apply(Kind::Deployment, router(&[PLATFORM]));
    bench.apply(Kind::EndpointSlice, slice("blog", &["10.0.0.1"]));
    bench.apply(Kind::Service, app("blog", "blog"));
    bench.apply(Kind::Ingress, ingress("blog"));
    bench.reconcile();
    bench
}

fn naming(mut object: Value, policy: &str) -> Value {
    object["metadata"]["annotations"]["tidegate.io/policy"] = json!(policy);
    object
}

/// The two objects whose annotation is tested, naming a policy.
fn objects(policy: &str) -> [(Kind, Value); 2] {
    [(Kind::Ingress, naming(ingress("blog"), policy)), (Kind::Service, naming(app("blog", "blog"), policy))]
}

const NAMES: [(Kind, &str); 2] = [(Kind::Ingress, "web"), (Kind::Service, "blog")];

/// What is in effect on the routes of an object: its limits, `closed`, or nothing.
fn in_effect(bench: &Bench, object: &ObjectRef) -> String {
    let Some(target) = bench.parts().policies.get(object) else { return String::new() };
    let path = target.of(None, None, 0).unwrap();
    let limits = path.limits.iter().map(|limit| format!("{} {}", limit.id.name(), limit.rates[0].max));
    path.closed.then(|| "closed".to_owned()).into_iter().chain(limits).collect::<Vec<_>>().join(", ")
}

/// The findings about the annotation of an object.
fn findings(bench: &Bench, object: &ObjectRef) -> Vec<String> {
    let all = bench.reconciler.model().compiled().all_findings();
    all.iter().filter(|finding| finding.object == *object).map(ToString::to_string).collect()
}

/// Compares what is in effect on the Ingress and on the application; `why` follows the name of the policy in the
/// finding about each of them. Incremental changes must give what a compilation of everything gives.
#[track_caller]
fn check(bench: &mut Bench, want: &str, why: &str) {
    bench.reconcile();
    for (kind, name) in NAMES {
        let object = object(kind, name);
        assert_eq!(in_effect(bench, &object), want, "{object}");
        let said = (!why.is_empty()).then(|| {
            format!(
                "{object}: metadata.annotations[tidegate.io/policy]: \"calm\" names {why}, so every request is refused"
            )
        });
        assert_eq!(findings(bench, &object), Vec::from_iter(said));
    }
    let model = bench.reconciler.model();
    let full = compile(model.world(), model.options(), model.frozen_backends());
    let all = |policies: &PolicyMap| -> BTreeMap<ObjectRef, Arc<TargetPolicies>> {
        policies.iter().map(|(target, policies)| (target.clone(), Arc::clone(policies))).collect()
    };
    assert_eq!(all(&bench.parts().policies), all(&full.parts.policies));
    assert_eq!(model.compiled().verdicts, full.verdicts);
}

/// The number of routing units that the next changes of the snapshot differ in.
#[track_caller]
fn check_changed(bench: &mut Bench, want: &[&str]) {
    bench.changes = Default::default();
    bench.reconcile();
    let changed: Vec<String> = bench.changes.units.routing.first.iter().map(Unit::to_string).collect();
    assert_eq!(changed, want);
}

#[test]
fn an_object_is_closed_unless_the_policy_that_it_names_is_usable() {
    let mut bench = running(sources(), &[]);
    check(&mut bench, "", "");
    for (kind, object) in objects("calm") {
        bench.apply(kind, object);
    }
    check(&mut bench, "closed", "neither a RateLimitPolicy nor an AuthPolicy in shop");
    policy(&mut bench, "other", 1, "HTTPRoute none", "ip 5");
    check(&mut bench, "closed", "neither a RateLimitPolicy nor an AuthPolicy in shop");
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 5, login 1");
    check(&mut bench, "ip 5, login 1", "");
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 6");
    check(&mut bench, "ip 6", "");
    policy(&mut bench, "calm", 1, "HTTPRoute none", "D/- ");
    bench.reconcile();
    for (kind, name) in NAMES {
        assert_eq!(in_effect(&bench, &object(kind, name)), "closed");
        let found = findings(&bench, &object(kind, name));
        assert!(found.len() == 1 && found[0].contains("calm, which is invalid: "), "{found:?}");
    }
    policy(&mut bench, "calm", 1, "HTTPRoute none", "O/merge ip 7");
    check(&mut bench, "ip 7", "");
    policy_being_deleted(&mut bench, "calm", 1, "HTTPRoute none", "O/merge ip 7");
    check(&mut bench, "closed", "RateLimitPolicy shop/calm, which is being deleted");
    bench.delete(POLICY, "calm");
    check(&mut bench, "closed", "neither a RateLimitPolicy nor an AuthPolicy in shop");
    for (kind, object) in objects("not a name") {
        bench.apply(kind, object);
    }
    bench.reconcile();
    for (kind, name) in NAMES {
        let found = findings(&bench, &object(kind, name));
        assert!(found.len() == 1 && found[0].ends_with("so every request is refused"), "{found:?}");
    }
    let objects = NAMES.map(|(kind, name)| object(kind, name));
    let routes = bench.parts().hosts.iter().flat_map(|(_, host)| host.all().cloned().collect::<Vec<_>>());
    let routes: Vec<Arc<Route>> = routes.filter(|route| objects.contains(&route.origin.object)).collect();
    assert_eq!(routes.len(), 2);
    assert!(routes.iter().all(|route| route.guards.contains(&Guard::DenyAll)));
    bench.apply(Kind::Ingress, ingress("blog"));
    bench.apply(Kind::Service, app("blog", "blog"));
    check(&mut bench, "", "");
    assert!(bench.parts().policies.is_empty());
}

#[test]
fn a_changed_policy_compiles_no_host() {
    let mut bench = running(sources(), &[]);
    for number in 0..20 {
        let name = format!("i{number}");
        bench.apply(Kind::Ingress, naming(ingress_of(&name, &format!("{name}.example"), "blog", &["/"]), "calm"));
    }
    for (kind, object) in objects("calm") {
        bench.apply(kind, object);
    }
    bench.reconcile();
    bench.apply(Kind::Ingress, naming(ingress("blog"), "other"));
    check_changed(&mut bench, &[]);
    policy(&mut bench, "other", 1, "HTTPRoute none", "ip 5");
    check_changed(&mut bench, &["the policies of Ingress shop/web"]);
    bench.apply(Kind::Ingress, ingress("blog"));
    check_changed(&mut bench, &["the policies of Ingress shop/web"]);
    let before = bench.parts().hosts.clone();
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 5");
    bench.changes = Default::default();
    bench.reconcile();
    assert_eq!(bench.changes.units.routing.total, 21, "the policies of 20 Ingresses and one application");
    for (host, routes) in before.iter() {
        assert!(Arc::ptr_eq(routes, bench.parts().hosts.get(&host).unwrap()), "{host}");
    }
}

#[test]
fn objects_are_closed_until_policies_are_listed() {
    let mut bench = running(sources(), &[POLICY]);
    for (kind, object) in objects("calm") {
        bench.apply(kind, object);
    }
    check(&mut bench, "closed", "RateLimitPolicy shop/calm, and policies in shop have not been listed yet");
    bench.list(POLICY, &[]);
    check(&mut bench, "closed", "neither a RateLimitPolicy nor an AuthPolicy in shop");
    let mut bench = running(Sources { kuadrant: None, ..sources() }, &[]);
    for (kind, object) in objects("calm") {
        bench.apply(kind, object);
    }
    check(&mut bench, "closed", "a policy, and policies are not read: --source does not list kuadrant");
}

#[test]
fn a_named_policy_is_accepted_whether_its_target_exists_or_not() {
    let mut bench = running(sources(), &[]);
    let desired = |bench: &mut Bench| {
        bench.reconcile();
        bench.reconciler.desired_reports().status(&object(POLICY, "calm"))
    };
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 5");
    assert_eq!(desired(&mut bench), None, "without the Gateway API, its target is another controller's");
    bench.apply(Kind::Ingress, naming(ingress("blog"), "calm"));
    bench.reconcile();
    check_status(&bench, "calm", ENFORCED);
    let mut empty = naming(ingress("blog"), "calm");
    empty["spec"]["rules"] = json!([]);
    bench.apply(Kind::Ingress, empty);
    bench.reconcile();
    let nowhere = "Accepted True Accepted; Enforced False Unknown: not in the path of any accepted route";
    check_status(&bench, "calm", nowhere);
    bench.apply(Kind::Ingress, ingress("blog"));
    assert_eq!(desired(&mut bench), None);

    let gateway = crate::gateways::options(&["192.0.2.1"], GatewayServices::Off).sources.gateway;
    let mut bench = running(Sources { gateway, ..sources() }, &[]);
    policy(&mut bench, "calm", 1, "HTTPRoute none", "ip 5");
    bench.reconcile();
    check_status(&bench, "calm", "Accepted False TargetNotFound: HTTPRoute shop/none does not exist");
    bench.apply(Kind::Service, naming(app("blog", "blog"), "calm"));
    bench.reconcile();
    let named = "Accepted True Accepted: HTTPRoute shop/none does not exist; Enforced True Enforced";
    check_status(&bench, "calm", named);
    bench.delete(Kind::Service, "blog");
    bench.reconcile();
    check_status(&bench, "calm", "Accepted False TargetNotFound: HTTPRoute shop/none does not exist");
}
