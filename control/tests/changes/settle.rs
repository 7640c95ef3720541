//! Make before break: kinds arrive in any order, so a working route waits for the Service or the endpoints of its new
//! backend for a bounded time. Changes that need nothing new act at once.

use std::time::Duration;

use serde_json::json;
use tidegate_config::object::Kind;

use crate::bench::Bench;
use crate::manifests::{external, ingress, ingress_of, service, slice};

#[test]
fn a_route_moves_at_once_to_an_existing_backend() {
    let mut bench = Bench::web();
    bench.check("10.0.0.1");
    bench.apply(Kind::Service, service("new"));
    bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    bench.check("10.0.0.2");
}

#[test]
fn a_working_route_waits_for_the_endpoints_of_its_new_backend() {
    let mut bench = Bench::web();
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.apply(Kind::Service, service("new"));
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
    bench.reconcile();
    bench.check("10.0.0.2");
}

#[test]
fn the_endpoints_of_a_waiting_route_stay_current() {
    let mut bench = Bench::web();
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.9"]));
    bench.reconcile();
    bench.check("10.0.0.9");
}

#[test]
fn the_wait_is_bounded() {
    let mut bench = Bench::web();
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    let wake = bench.reconciler.wake().expect("a deadline");
    assert_eq!(wake, bench.now + bench.reconciler.model().options().pace.settle);
    bench.now = wake - Duration::from_millis(1);
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.now = wake;
    bench.reconcile();
    bench.check("no target");
    assert_eq!(bench.reconciler.wake(), None);
}

#[test]
fn a_wait_is_reported_with_its_cause_and_deadline() {
    let mut bench = Bench::web();
    bench.check_withheld(&[]);
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    let why = "Service shop/new or its endpoints";
    let waits =
        |until| format!("host web.example: unchanged until 1970-01-01T00:01:{until}Z at the latest, waiting for {why}");
    bench.check_withheld(&[&waits("01.000")]);
    bench.now += Duration::from_millis(400);
    bench.apply(Kind::Service, service("new"));
    bench.reconcile();
    bench.check_withheld(&[&waits("00.600")]);
    bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
    bench.reconcile();
    bench.check_withheld(&[]);
}

#[test]
fn a_deleted_service_is_removed_at_once() {
    let mut bench = Bench::web();
    bench.delete(Kind::Service, "old");
    bench.reconcile();
    bench.check("no target");
}

#[test]
fn deleted_endpoints_are_removed_at_once() {
    let mut bench = Bench::web();
    bench.delete(Kind::EndpointSlice, "old");
    bench.reconcile();
    bench.check("no endpoint");
}

#[test]
fn a_route_without_endpoints_moves_at_once() {
    let mut bench = Bench::web();
    bench.delete(Kind::EndpointSlice, "old");
    bench.reconcile();
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    bench.check("no target");
}

/// The Service and its endpoints are known, so nothing is about to arrive.
#[test]
fn a_port_that_does_not_exist_is_not_waited_for() {
    let mut bench = Bench::web();
    let mut other = ingress("old");
    other["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] = json!({"number": 81});
    bench.apply(Kind::Ingress, other);
    bench.reconcile();
    bench.check("no target");
    assert_eq!(bench.reconciler.wake(), None);
}

#[test]
fn an_update_that_changes_nothing_is_ignored() {
    let mut bench = Bench::web();
    let mut again = ingress("old");
    again["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    again["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    bench.apply(Kind::Ingress, again);
    assert!(!bench.reconciler.busy());
}

#[test]
fn a_working_route_waits_for_the_addresses_of_an_external_name() {
    let mut bench = Bench::web();
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.reconcile();
    bench.apply(Kind::Service, external("ext", "e.test"));
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.check_names(&["e.test"]);
    bench.resolve("e.test", Some("192.0.2.9"));
    bench.reconcile();
    bench.check("192.0.2.9");
    assert_eq!(bench.reconciler.wake(), None);
}

#[test]
fn a_dns_name_without_addresses_is_not_waited_for() {
    let mut bench = Bench::web();
    bench.apply(Kind::Service, external("ext", "e.test"));
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.resolve("e.test", None);
    bench.reconcile();
    bench.check("no endpoint");
}

#[test]
fn an_external_name_without_ports_stays_while_a_route_waits() {
    let mut bench = Bench::web();
    bench.apply(Kind::Service, external("ext", "e.test"));
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.reconcile();
    bench.resolve("e.test", Some("192.0.2.9"));
    bench.reconcile();
    bench.check("192.0.2.9");
    bench.apply(Kind::Ingress, ingress("new"));
    bench.reconcile();
    bench.check("192.0.2.9");
    bench.check_names(&["e.test"]);
    bench.resolve("e.test", Some("192.0.2.10"));
    bench.reconcile();
    bench.check("192.0.2.10");
    bench.now = bench.reconciler.wake().expect("a deadline");
    bench.reconcile();
    bench.check("no target");
    bench.check_names(&[]);
    assert_eq!(bench.reconciler.model().compiled().parts.backends.size(), 0);
}

/// A path and a default backend are different places, although both may match every request.
#[test]
fn the_default_backend_and_a_path_wait_independently() {
    let mut bench = Bench::web();
    let with_default = |path: &str| {
        let mut object = ingress(path);
        object["spec"]["defaultBackend"] = json!({"service": {"name": "old", "port": {"number": 80}}});
        object
    };
    bench.apply(Kind::Ingress, with_default("missing"));
    bench.reconcile();
    bench.now = bench.reconciler.wake().expect("the working path waits");
    bench.reconcile();
    bench.check("no target");
    bench.apply(Kind::Service, service("new"));
    bench.apply(Kind::Ingress, with_default("new"));
    bench.reconcile();
    bench.check("no endpoint");
}

#[test]
fn ingresses_of_other_controllers_cause_no_work() {
    let mut bench = Bench::web();
    let mut foreign = ingress("ext");
    foreign["metadata"]["name"] = "foreign".into();
    foreign["spec"]["ingressClassName"] = "nginx".into();
    foreign["spec"]["rules"][0]["host"] = "foreign.example".into();
    bench.apply(Kind::Service, external("ext", "e.test"));
    bench.apply(Kind::Ingress, foreign);
    let class = |controller: &str| json!({"metadata": {"name": "nginx"}, "spec": {"controller": controller}});
    for (controller, names) in [("k8s.io/ingress-nginx", &[][..]), ("tidegate.io/ingress", &["e.test"]), ("x/y", &[])] {
        bench.apply(Kind::IngressClass, class(controller));
        bench.reconcile();
        bench.check_names(names);
        let compiled = bench.reconciler.model().compiled();
        assert_eq!(compiled.parts.backends.size(), 1 + names.len(), "{controller}");
        assert_eq!(compiled.all_findings().len(), names.len(), "{controller}");
    }
}

/// Waiting hosts cost the batches of others nothing, and each is compiled when its missing object arrives.
#[test]
fn waiting_hosts_are_not_compiled_with_every_batch() {
    const WAITING: usize = 300;
    let mut bench = Bench::web();
    let host = |n: usize, service: &str| ingress_of(&format!("w{n}"), &format!("w{n}.example"), service, &["/"]);
    (0..WAITING).for_each(|n| bench.apply(Kind::Ingress, host(n, "old")));
    bench.reconcile();
    (0..WAITING).for_each(|n| bench.apply(Kind::Ingress, host(n, &format!("new{n}"))));
    bench.reconcile();
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.2"]));
    let step = bench.reconciler.reconcile(bench.now).expect("a batch");
    assert_eq!(step.touched.compiled, [("service", 1)].into(), "the neighbour's batch");
    let waits = |bench: &Bench| bench.reconciler.not_serving(bench.now, std::time::SystemTime::UNIX_EPOCH).waits.len();
    assert_eq!(waits(&bench), WAITING);
    bench.apply(Kind::Service, service("new7"));
    bench.apply(Kind::EndpointSlice, slice("new7", &["10.0.0.3"]));
    let step = bench.reconciler.reconcile(bench.now).expect("a batch");
    assert_eq!(step.touched.compiled["host"], 1);
    assert_eq!(waits(&bench), WAITING - 1);
    bench.now = bench.reconciler.wake().expect("a deadline");
    bench.reconcile();
    assert_eq!(waits(&bench), 0);
}
