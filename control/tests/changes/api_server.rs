//! No route leads to the API server: its addresses as they are resolved, as they change, and as they appear in its own
//! Service.

use std::sync::Arc;

use serde_json::Value;
use tidegate_config::object::Kind;
use tidegate_control::Event;
use tidegate_control::options::{Options, Sources};

use crate::bench::{Bench, all_of};
use crate::deis::{deis, router};
use crate::manifests::{external, ingress, ingress_of, service, slice};

impl Bench {
    fn api_server_at(&mut self, sockets: &[&str]) {
        let sockets = Arc::new(sockets.iter().map(|at| at.parse().expect("a socket")).collect());
        assert_eq!(self.reconciler.observe(Event::ApiServer { sockets }, self.now), None);
        self.reconcile();
    }

    fn now(&mut self, kind: Kind, object: Value) {
        self.apply(kind, object);
        self.reconcile();
    }

    /// Compares the findings of the Service `old` and its endpoints.
    #[track_caller]
    fn check_found(&self, want: &[&str]) {
        let told: Vec<String> =
            self.reconciler.model().compiled().all_findings().iter().map(ToString::to_string).collect();
        assert_eq!(told, want);
    }
}

const TOLD: &str = "EndpointSlice shop/old: endpoints: address 10.0.0.1 is not used: it is the API server";

#[test]
fn endpoints_are_left_out_once_the_api_server_has_their_address() {
    let mut bench = Bench::web();
    bench.check("10.0.0.1");
    bench.api_server_at(&["10.0.0.1:80"]);
    bench.check("no endpoint");
    bench.check_found(&[TOLD]);
    assert_eq!(bench.changes.causes.first[0].to_string(), "the API server has other addresses");
    bench.api_server_at(&["10.0.0.1:443", "10.0.0.2:80"]);
    bench.check("10.0.0.1");
    bench.check_found(&[]);
    bench.now(Kind::EndpointSlice, slice("old", &["10.0.0.2"]));
    bench.check("no endpoint");
}

#[test]
fn addresses_of_a_dns_name_are_left_out_too() {
    let mut bench = Bench::web();
    bench.now(Kind::Service, external("old", "api.example"));
    bench.resolve("api.example", Some("10.0.0.9"));
    bench.reconcile();
    bench.check("10.0.0.9");
    bench.api_server_at(&["10.0.0.9:80"]);
    bench.check("no endpoint");
    bench.check_found(&[
        "Service shop/old: spec.externalName: address 10.0.0.9 of api.example is not used: it is the API server",
    ]);
}

#[test]
fn only_the_kubernetes_service_routes_to_its_endpoints() {
    let mut bench = Bench::web();
    bench.now(Kind::EndpointSlice, slice("default/kubernetes", &["10.0.0.1", "10.0.0.2"]));
    bench.check("no endpoint");
    bench.check_found(&[TOLD]);
    bench.now(Kind::EndpointSlice, slice("default/kubernetes", &["10.0.0.2"]));
    bench.check("10.0.0.1");
    bench.check_found(&[]);

    // Users who may write Ingresses in its namespace may route to it, but not to the addresses that the edge itself
    // uses.
    let mut bench = Bench::running(Options::default());
    bench.apply(Kind::Service, service("default/kubernetes"));
    bench.apply(Kind::EndpointSlice, slice("default/kubernetes", &["10.0.0.1"]));
    bench.now(Kind::Ingress, ingress_of("default/api", "web.example", "kubernetes", &["/"]));
    bench.check("10.0.0.1");
    bench.api_server_at(&["10.0.0.1:80"]);
    bench.check("no endpoint");
}

#[test]
fn the_default_service_of_deis_is_left_out_too() {
    const TOLD: &str = "Deployment deis/deis-router: metadata.annotations[router.deis.io/nginx.defaultServiceIP]: \
                        address 10.0.0.1 is not used: it is the API server";
    let sources = Sources { ingress: None, deis: Some(deis()), gateway: None, kuadrant: None };
    let mut bench = Bench::of(Options { sources, ..Options::default() }, Kind::ALL.map(all_of));
    for kind in Kind::ALL {
        bench.list(kind, &[]);
    }
    bench.reconcile();
    bench.now(Kind::Deployment, router(&[("defaultServiceEnabled", "true"), ("defaultServiceIP", "10.0.0.1")]));
    bench.check_found(&[]);
    for (at, want) in [("10.0.0.1:80", &[TOLD][..]), ("10.0.0.2:80", &[]), ("10.0.0.1:80", &[TOLD])] {
        bench.api_server_at(&[at]);
        bench.check_found(want);
    }
    bench.api_server_at(&[]);
    bench.check_found(&[]);
    for (at, want) in [("10.0.0.1", &[TOLD][..]), ("10.0.0.2", &[])] {
        bench.now(Kind::EndpointSlice, slice("default/kubernetes", &[at]));
        bench.check_found(want);
    }
}

#[test]
fn an_endpointslice_of_another_name_is_ignored() {
    let mut bench = Bench::web();
    let mut forged = slice("default/kubernetes", &["10.0.0.1"]);
    forged["metadata"]["name"] = "kubernetes-x".into();
    bench.apply(Kind::EndpointSlice, forged);
    bench.apply(Kind::EndpointSlice, slice("shop/kubernetes", &["10.0.0.1"]));
    bench.now(Kind::Ingress, ingress("old"));
    bench.check("10.0.0.1");
    bench.check_found(&[]);
}

/// The API server may move as often as its cluster is upgraded, and may pretend to: no live change waits while all
/// Services are compiled again.
#[test]
fn a_live_change_does_not_wait_for_all_services() {
    let mut bench = Bench::web();
    for number in 0..1000 {
        let (name, host) = (format!("s{number}"), format!("s{number}.example"));
        bench.apply(Kind::Service, service(&format!("crowd/{name}")));
        bench.apply(Kind::EndpointSlice, slice(&format!("crowd/{name}"), &["10.0.1.1"]));
        bench.apply(Kind::Ingress, ingress_of(&format!("crowd/{name}"), &host, &name, &["/"]));
    }
    bench.reconcile();
    let slow_batch_max = Options::default().pace.share.slow_batch_max;
    for (at, live) in [("10.0.0.7", "10.0.0.2"), ("10.0.0.8", "10.0.0.3")] {
        bench.apply(Kind::EndpointSlice, slice("default/kubernetes", &[at]));
        bench.apply(Kind::EndpointSlice, slice("old", &[live]));
        let mut batches = 0;
        while bench.reconciler.busy() {
            let step = bench.reconciler.reconcile(bench.now).expect("a batch");
            assert!(step.touched.compiled["service"] <= slow_batch_max, "{:?} in a batch", step.touched.compiled);
            bench.published = step.published.map(|(parts, _)| parts).or(bench.published);
            bench.check(live);
            batches += 1;
        }
        assert!(batches >= 1000_usize.div_ceil(slow_batch_max), "{batches} batches");
    }
}
