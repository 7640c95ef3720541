//! The control loop with restored state: it serves at once, and writes no reports to the cluster.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_config::object::Kind;
use tidegate_config::project::{Projected, PublicAddress, project};
use tidegate_control::options::{Kuadrant, Options, Publish, Sources};
use tidegate_control::{ChangedFindings, Collection, Event, Reconciler};

const KINDS: [Kind; 5] = [Kind::Ingress, Kind::IngressClass, Kind::Service, Kind::EndpointSlice, Kind::Secret];

fn all_of(kind: Kind) -> Collection {
    Collection { kind, namespace: None }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn ingress(name: &str) -> Projected {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "resourceVersion": "1",
            "annotations": {"kubernetes.io/ingress.class": "tidegate"},
        },
        "spec": {"rules": [{"host": format!("{name}.example"), "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": backend},
        ]}}]},
    });
    project(Kind::Ingress, object.to_string().as_bytes()).unwrap()
}

fn listed(kind: Kind, objects: Vec<Projected>, now: Instant) -> Event {
    Event::Listed { collection: all_of(kind), objects, complete: true, resource_version: "9".into(), received: now }
}

fn hosts(reconciler: &Reconciler) -> Vec<String> {
    let mut hosts: Vec<String> =
        reconciler.model().compiled().parts.hosts.iter().map(|(host, _)| host.to_string()).collect();
    hosts.sort();
    hosts
}

/// A loop with one restored Ingress, and the other kinds that were stored.
fn restored(kinds: &[Kind], now: Instant) -> Reconciler {
    let publish = Publish::Addresses(vec![PublicAddress::of_ip("192.0.2.1")]);
    let mut reconciler = Reconciler::new(Options { publish, ..Options::default() }, KINDS.map(all_of));
    for kind in kinds {
        let objects = if *kind == Kind::Ingress { vec![ingress("web")] } else { Vec::new() };
        reconciler.restore(&all_of(*kind), objects, 1000, now);
    }
    reconciler
}

/// Runs until the queue is empty.
fn settle(reconciler: &mut Reconciler, now: Instant) {
    while let Some(step) = reconciler.reconcile(now) {
        drop(step);
        reconciler.finish(now);
    }
}

#[test]
fn restored_state_serves_at_once_and_reports_nothing() {
    let now = now();
    let mut reconciler = restored(&KINDS, now);
    assert!(reconciler.wake().is_some_and(|wake| wake <= now), "nothing has to happen first");
    settle(&mut reconciler, now);
    assert!(reconciler.running());
    assert_eq!(hosts(&reconciler), ["web.example"]);
    assert_eq!(reconciler.listing().restored_as_of_s(&all_of(Kind::Ingress)), Some(1000));
    // The Service of the route is missing, which only an Event may report.
    assert_eq!(reconciler.model().compiled().findings.objects().count(), 1);
    for kind in KINDS {
        assert_eq!(
            reconciler.pending_reports().status_updates().all.len(),
            0,
            "no status is written before {kind} is known"
        );
        assert_eq!(
            reconciler.pending_reports().changed_findings(),
            ChangedFindings::default(),
            "no Event is sent before {kind} is known"
        );
        assert_eq!(reconciler.pending_reports().infrastructure(), [], "no Service is made before {kind} is known");
        let resumed = Event::Resumed { collection: all_of(kind), resource_version: "9".into(), received: now };
        assert_eq!(reconciler.observe(resumed, now), None);
        settle(&mut reconciler, now);
    }
    assert_eq!(reconciler.listing().restored_as_of_s(&all_of(Kind::Ingress)), None);
    assert_eq!(reconciler.pending_reports().status_updates().all.len(), 1, "now it is");
    assert_eq!(reconciler.pending_reports().changed_findings().all.len(), 1);
}

#[test]
fn deleted_objects_stay_until_a_complete_list() {
    let now = now();
    let mut reconciler = restored(&KINDS, now);
    settle(&mut reconciler, now);
    let applied = Event::Applied { projected: Box::new(ingress("other")), received: now };
    reconciler.observe(applied, now);
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), ["other.example", "web.example"]);
    let failing = Event::Failing { collection: all_of(Kind::Ingress), why: "away".to_owned(), denied: false };
    reconciler.observe(failing, now);
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), ["other.example", "web.example"]);
    assert_eq!(reconciler.observe(listed(Kind::Ingress, vec![ingress("other")], now), now), None);
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), ["other.example"]);
}

#[test]
fn an_empty_list_over_restored_state_must_be_confirmed() {
    let now = now();
    let mut reconciler = restored(&KINDS, now);
    settle(&mut reconciler, now);
    let unconfirmed = reconciler.observe(listed(Kind::Ingress, Vec::new(), now), now);
    assert_eq!(unconfirmed, Some(all_of(Kind::Ingress)));
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), ["web.example"]);
    assert_eq!(reconciler.observe(listed(Kind::Ingress, Vec::new(), now), now), None);
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), [""; 0]);
}

#[test]
fn unrestored_secrets_are_waited_for_briefly() {
    let begun = now();
    let but_secrets = [Kind::Ingress, Kind::IngressClass, Kind::Service, Kind::EndpointSlice];
    let mut reconciler = restored(&but_secrets, begun);
    settle(&mut reconciler, begun);
    assert!(!reconciler.running(), "the API server may be there");
    let wake = reconciler.wake().unwrap();
    assert!(wake <= begun + Duration::from_secs(2), "{:?}", wake - begun);
    settle(&mut reconciler, wake);
    assert!(reconciler.running());
}

#[test]
fn an_unrestored_required_kind_is_waited_for() {
    let begun = now();
    let mut reconciler = restored(&[Kind::Ingress, Kind::IngressClass, Kind::Service, Kind::Secret], begun);
    settle(&mut reconciler, begun + Duration::from_secs(3600));
    assert!(!reconciler.running(), "without endpoints there is nothing to serve");
}

#[test]
fn a_restarted_loop_still_knows_the_state_as_restored() {
    let now = now();
    let mut reconciler = restored(&KINDS, now);
    settle(&mut reconciler, now);
    reconciler.start_over(KINDS.map(all_of));
    for kind in KINDS {
        assert_eq!(reconciler.listing().restored_as_of_s(&all_of(kind)), Some(1000), "{kind}");
    }
    settle(&mut reconciler, now);
    assert!(!reconciler.running(), "what a panic left is not made into a model before it is listed");
    for kind in KINDS {
        let objects = if kind == Kind::Ingress { vec![ingress("web")] } else { Vec::new() };
        reconciler.observe(listed(kind, objects, now), now);
        assert_eq!(reconciler.listing().restored_as_of_s(&all_of(kind)), None);
    }
    settle(&mut reconciler, now);
    assert_eq!(hosts(&reconciler), ["web.example"]);
}

fn auth_policy() -> Projected {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let spec = json!({"targetRef": target, "rules": {}});
    let object = json!({"metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"}, "spec": spec});
    project(Kind::AuthPolicy, object.to_string().as_bytes()).unwrap()
}

/// A loop that reads AuthPolicies by default, with one restored policy if `has_policy`, after this event about their
/// collection, and the lists of the others. Checks how many policies are in effect, whether the loop runs without
/// waiting for anything, and until when their state counts as stale.
#[track_caller]
fn check_policies(has_policy: bool, event: Event, want: (usize, bool, Option<u64>)) {
    let now = now();
    let sources = Sources { kuadrant: Some(Kuadrant { optional: true }), ..Sources::default() };
    let policies = all_of(Kind::AuthPolicy);
    let collections = KINDS.map(all_of).into_iter().chain([policies.clone()]);
    let mut reconciler = Reconciler::new(Options { sources, ..Options::default() }, collections);
    if has_policy {
        reconciler.restore(&policies, vec![auth_policy()], 1000, now);
    }
    for kind in KINDS {
        reconciler.observe(listed(kind, Vec::new(), now), now);
    }
    let told = format!("{event:?}");
    reconciler.observe(event, now);
    settle(&mut reconciler, now);
    let held = |reconciler: &Reconciler| reconciler.model().world().names_of(Kind::AuthPolicy, None).count();
    let stale = reconciler.listing().restored_as_of_s(&policies);
    assert_eq!((held(&reconciler), reconciler.running(), stale), want, "{told}");
    // So it is if the loop starts again.
    reconciler.start_over(KINDS.map(all_of).into_iter().chain([policies]));
    assert_eq!(held(&reconciler), want.0, "{told}");
}

#[test]
fn policies_that_may_no_longer_be_read_stay_in_effect() {
    let (collection, received) = (all_of(Kind::AuthPolicy), now());
    let absent = || Event::Unserved { collection: collection.clone(), received };
    let unreadable = || Event::Unreadable { collection: collection.clone(), why: "denied".to_owned(), received };
    let denied = || Event::Failing { collection: collection.clone(), why: "denied".to_owned(), denied: true };
    check_policies(false, absent(), (0, true, None));
    check_policies(true, absent(), (0, true, None));
    check_policies(false, unreadable(), (0, true, None));
    check_policies(true, unreadable(), (1, true, Some(1000)));
    check_policies(true, denied(), (1, true, Some(1000)));
    // The definition may be read: an API server that has just started denies the policies for a moment.
    check_policies(false, denied(), (0, false, None));
}
