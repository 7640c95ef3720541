//! Make before break for HTTP, TCP, TLS and UDP routes of the Gateway API: a working route waits for its new backends
//! for a bounded time.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::model::{Action, SnapshotParts};
use tidegate_config::object::Kind;

use crate::bench::Bench;
use crate::gateways::running;
use crate::manifests;

/// Each kind of route, with the protocol of its listener.
const KINDS: [(Kind, &str); 5] = [
    (Kind::HttpRoute, "HTTP"),
    (Kind::GrpcRoute, "HTTP"),
    (Kind::TlsRoute, "TLS"),
    (Kind::TcpRoute, "TCP"),
    (Kind::UdpRoute, "UDP"),
];

fn ports() -> Value {
    json!([{"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}])
}

fn service(name: &str) -> Value {
    let mut service = manifests::service(name);
    service["spec"]["ports"] = ports();
    service
}

fn slice(service: &str, addresses: &[&str]) -> Value {
    let mut slice = manifests::slice(service, addresses);
    slice["ports"] = ports();
    slice
}

/// `shop/web`: everything on the listener goes to Services, by weight.
fn route(to: &[(&str, u32)]) -> Value {
    let backends: Vec<Value> =
        to.iter().map(|(name, weight)| json!({"name": name, "port": 80, "weight": weight})).collect();
    let spec = json!({"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": backends}]});
    json!({"metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
}

/// A loop in which the route of a kind leads to the Service `old` with one endpoint.
fn web(kind: Kind, protocol: &str) -> Bench {
    let mut listener = json!({"name": "one", "port": 80, "protocol": protocol});
    if protocol == "TLS" {
        listener["tls"] = json!({"mode": "Passthrough"});
    }
    let mut bench = running(&json!([listener]));
    bench.apply(Kind::Service, service("old"));
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.1"]));
    bench.apply(kind, route(&[("old", 1)]));
    bench.reconcile();
    bench
}

/// The first endpoint of each share with a weight, or the reason why there is none.
fn leads(parts: &SnapshotParts) -> String {
    let routes: Vec<_> = parts.hosts.iter().flat_map(|(_, host)| host.all().cloned().collect::<Vec<_>>()).collect();
    let shares = routes.iter().flat_map(|route| match &route.action {
        Action::Forward(shares) => shares.to_vec(),
        Action::Redirect(_) | Action::Respond(_) => Vec::new(),
    });
    let of_requests = shares.filter(|share| share.weight > 0).filter_map(|share| Some(share.target()?.backend.clone()));
    let shares = parts.streams.iter().flat_map(|(_, route)| &route.backends).filter(|share| share.weight > 0);
    let of_streams = shares.filter_map(|share| Some(share.to.as_ref()?.backend.clone()));
    let backend = |key| match parts.backends.get(&key).map(|backend| backend.endpoints.first()) {
        None => "no backend".to_owned(),
        Some(None) => "no endpoint".to_owned(),
        Some(Some(endpoint)) => endpoint.address.ip().to_string(),
    };
    let shares: Vec<String> = of_requests.chain(of_streams).map(backend).collect();
    if shares.is_empty() { "no target".to_owned() } else { shares.join(", ") }
}

#[track_caller]
fn check(bench: &mut Bench, kind: Kind, want: &str) {
    bench.reconcile();
    assert_eq!(leads(bench.published.as_ref().expect("a model")), want, "{kind}");
}

#[test]
fn a_working_route_waits_for_the_endpoints_of_its_new_backend() {
    for (kind, protocol) in KINDS {
        let mut bench = web(kind, protocol);
        check(&mut bench, kind, "10.0.0.1");
        bench.apply(kind, route(&[("new", 1)]));
        check(&mut bench, kind, "10.0.0.1");
        let unit = if kind == Kind::HttpRoute || kind == Kind::GrpcRoute { "host" } else { "connections for" };
        let why =
            "unchanged until 1970-01-01T00:01:01.000Z at the latest, waiting for Service shop/new or its endpoints";
        bench.check_withheld(&[&format!("{unit} * of shop/edge/one: {why}")]);
        // The endpoints of its old Service stay current.
        bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.9"]));
        check(&mut bench, kind, "10.0.0.9");
        bench.apply(Kind::Service, service("new"));
        check(&mut bench, kind, "10.0.0.9");
        bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
        check(&mut bench, kind, "10.0.0.2");
        bench.check_withheld(&[]);
    }
}

#[test]
fn the_wait_is_bounded() {
    for (kind, protocol) in KINDS {
        let mut bench = web(kind, protocol);
        bench.apply(kind, route(&[("new", 1)]));
        bench.reconcile();
        let wake = bench.reconciler.wake().expect("a deadline");
        assert_eq!(wake, bench.now + bench.reconciler.model().options().pace.settle);
        bench.now = wake - Duration::from_millis(1);
        check(&mut bench, kind, "10.0.0.1");
        bench.now = wake;
        check(&mut bench, kind, "no target");
        assert_eq!(bench.reconciler.wake(), None);
    }
}

#[test]
fn changes_without_a_new_backend_act_at_once() {
    for (kind, protocol) in KINDS {
        let mut bench = web(kind, protocol);
        bench.delete(Kind::Service, "old");
        check(&mut bench, kind, "no target");
        // The route no longer works, so moving it loses nothing.
        bench.apply(kind, route(&[("new", 1)]));
        check(&mut bench, kind, "no target");
        bench.check_withheld(&[]);
        let mut bench = web(kind, protocol);
        bench.apply(Kind::Service, service("new"));
        bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
        bench.apply(kind, route(&[("new", 1)]));
        check(&mut bench, kind, "10.0.0.2");
        bench.apply(kind, route(&[]));
        check(&mut bench, kind, "no target");
        bench.delete(kind, "web");
        check(&mut bench, kind, "no target");
    }
}

/// A backend with the weight 0 does not count as working.
#[test]
fn a_route_that_moves_by_weight_waits_too() {
    for (kind, protocol) in KINDS {
        let mut bench = web(kind, protocol);
        bench.apply(kind, route(&[("old", 0), ("new", 1)]));
        check(&mut bench, kind, "10.0.0.1");
        bench.apply(Kind::Service, service("new"));
        bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
        check(&mut bench, kind, "10.0.0.2");
        let mut bench = web(kind, protocol);
        bench.apply(kind, route(&[("old", 9), ("new", 1)]));
        bench.reconcile();
        // One share still works.
        bench.check_withheld(&[]);
    }
}

/// A route that moves while its Service is deleted does not lose its endpoints first.
#[test]
fn endpoints_are_removed_after_the_routes_that_lead_to_them() {
    for (kind, protocol) in KINDS {
        let mut bench = web(kind, protocol);
        bench.apply(Kind::Service, service("new"));
        bench.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
        bench.reconcile();
        // The route comes with a list, and the deletion of the Service with a watch.
        bench.list(kind, &[route(&[("new", 1)])]);
        bench.delete(Kind::EndpointSlice, "old");
        bench.delete(Kind::Service, "old");
        let mut seen = Vec::new();
        while let Some(step) = bench.reconciler.reconcile(bench.now) {
            seen.extend(step.published.map(|(parts, _)| leads(&parts)));
        }
        assert_eq!(seen, ["10.0.0.2"], "{kind}");
    }
}

/// The canary of a header is broken before and after, so inserting a rule above it breaks nothing.
#[test]
fn a_route_that_was_broken_before_holds_nothing_back() {
    let rule = |header: Option<&str>, service: &str| {
        let headers: Vec<Value> = header.iter().map(|name| json!({"name": name, "value": "yes"})).collect();
        json!({"matches": [{"headers": headers}], "backendRefs": [{"name": service, "port": 80}]})
    };
    let mut web_route = route(&[]);
    web_route["spec"]["rules"] = json!([rule(Some("x-canary"), "none"), rule(None, "old")]);
    let mut bench = web(Kind::HttpRoute, "HTTP");
    bench.apply(Kind::HttpRoute, web_route.clone());
    bench.reconcile();
    bench.now = bench.reconciler.wake().expect("a deadline");
    check(&mut bench, Kind::HttpRoute, "10.0.0.1");
    web_route["spec"]["rules"] =
        json!([rule(Some("x-first"), "old"), rule(Some("x-canary"), "none"), rule(None, "old")]);
    bench.apply(Kind::HttpRoute, web_route.clone());
    check(&mut bench, Kind::HttpRoute, "10.0.0.1, 10.0.0.1");
    bench.check_withheld(&[]);
    // A new canary takes requests away from a rule that serves them.
    web_route["spec"]["rules"] = json!([rule(Some("x-second"), "new"), rule(None, "old")]);
    bench.apply(Kind::HttpRoute, web_route);
    check(&mut bench, Kind::HttpRoute, "10.0.0.1, 10.0.0.1");
    assert!(bench.reconciler.wake().is_some());
}
