//! The cost of a change among a thousand applications of the Deis router with three domains each, as the number of
//! compiled units, and of applications that are attached again in one step.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_config::model::HostPattern;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::{Ingresses, Options, Pace, Sources};

use crate::bench::{Bench, all_of};
use crate::deis::{PLATFORM, app, deis, router};
use crate::manifests::slice;

const APPS: usize = 1000;
/// The number of hosts of all applications, and the one for unknown names.
const HOSTS: usize = 3 * APPS + 1;

/// The application with this number: a short name, a domain of its own and a wildcard.
fn numbered(number: usize) -> Value {
    app(&name(number), &format!("app-{number},www.{number}.example,*.wild.{number}.example"))
}

fn name(number: usize) -> String {
    format!("app-{number}")
}

/// All applications, as after a start.
fn running() -> Bench {
    let sources = Sources { ingress: Some(Ingresses::default()), deis: Some(deis()), gateway: None, kuadrant: None };
    let mut bench = Bench::of(Options { sources, ..Options::default() }, Kind::ALL.map(all_of));
    let services: Vec<Value> = (0..APPS).map(numbered).collect();
    let slices: Vec<Value> = (0..APPS).map(|number| slice(&name(number), &["10.0.0.1"])).collect();
    for kind in Kind::ALL {
        let objects: &[Value] = match kind {
            Kind::Deployment => &[router(&[PLATFORM])],
            Kind::Service => &services,
            Kind::EndpointSlice => &slices,
            Kind::Ingress | Kind::IngressClass | Kind::Secret => &[],
            Kind::Namespace
            | Kind::ConfigMap
            | Kind::GatewayClass
            | Kind::Gateway
            | Kind::ReferenceGrant
            | Kind::HttpRoute
            | Kind::ListenerSet
            | Kind::GrpcRoute
            | Kind::TlsRoute
            | Kind::TcpRoute
            | Kind::UdpRoute
            | Kind::BackendTlsPolicy
            | Kind::RateLimitPolicy
            | Kind::TokenRateLimitPolicy
            | Kind::AuthPolicy => &[],
        };
        assert_eq!(bench.list(kind, objects), None);
    }
    bench.reconcile();
    assert_eq!(bench.parts().hosts.len(), HOSTS);
    bench
}

/// Makes one step; returns the number of compiled units by kind.
fn step(bench: &mut Bench) -> BTreeMap<&'static str, usize> {
    let step = bench.reconciler.reconcile(bench.now).expect("something waits");
    step.touched.compiled.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Applies an object; compares the number of compiled units by kind until the queue is empty.
#[track_caller]
fn check(bench: &mut Bench, kind: Kind, object: Value, want: &[(&'static str, usize)]) {
    bench.apply(kind, object);
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    while bench.reconciler.busy() {
        for (unit, count) in step(bench) {
            *all.entry(unit).or_default() += count;
        }
    }
    assert_eq!(all, want.iter().copied().collect());
}

#[test]
fn an_application_change_compiles_one_host_per_domain() {
    let mut bench = running();
    let mut closed = numbered(7);
    closed["metadata"]["annotations"]["router.deis.io/whitelist"] = "10.0.0.0/8".into();
    check(&mut bench, Kind::Service, closed, &[("host", 3), ("service", 1)]);
    check(&mut bench, Kind::Service, numbered(7), &[("host", 3), ("service", 1)]);
    let added = app(&name(7), "app-7,www.7.example,*.wild.7.example,new.7.example");
    check(&mut bench, Kind::Service, added, &[("host", 1), ("service", 1)]);
    check(&mut bench, Kind::Service, numbered(7), &[("host", 1), ("service", 1)]);
    check(&mut bench, Kind::EndpointSlice, slice(&name(7), &["10.0.0.2"]), &[("service", 1)]);
}

#[test]
fn a_router_change_compiles_only_the_settings_that_change_and_the_hosts_that_move() {
    let mut bench = running();
    let [applications, all] = [[("scope", 1)], [("globals", 1)]];
    check(&mut bench, Kind::Deployment, router(&[PLATFORM, ("defaultTimeout", "90s")]), &applications);
    check(&mut bench, Kind::Deployment, router(&[PLATFORM]), &applications);
    check(&mut bench, Kind::Deployment, router(&[PLATFORM, ("proxyRealIpCidrs", "192.0.2.0/24")]), &all);
    check(&mut bench, Kind::Deployment, router(&[PLATFORM]), &all);
    let platform = router(&[("platformDomain", "other.example")]);
    // The endpoints of an application are compiled because its host has changed.
    check(&mut bench, Kind::Deployment, platform, &[("host", 2 * APPS), ("service", APPS)]);
    let moved = bench.parts().hosts.shared().get(&HostPattern::Exact("app-7.other.example".into()));
    assert_eq!((moved.is_some(), bench.parts().hosts.len()), (true, HOSTS));
}

/// The number of applications whose short name is a subdomain of `other.example`, compiled or not.
fn attached(bench: &Bench) -> usize {
    let moved = |number: &usize| {
        let object = ObjectRef::new(Kind::Service, ObjectName::new("shop", name(*number)));
        let host = HostPattern::Exact(format!("app-{number}.other.example").into()).into();
        bench.reconciler.model().topology().get(&object).is_some_and(|attachment| attachment.claim(&host).is_some())
    };
    (0..APPS).filter(moved).count()
}

/// Makes one step while the platform domain changes: at most one turn of the slow lane. Each key brings the host that
/// an application leaves, the host that replaces it, and the endpoints of both, so a turn may compile twice as many
/// units as keys.
#[track_caller]
fn check_turn(bench: &mut Bench) {
    let slow_max = Pace::default().share.slow_batch_max;
    let before = attached(bench);
    let compiled: usize = step(bench).values().sum();
    let attached = attached(bench) - before;
    assert!(attached <= slow_max && compiled <= 2 * slow_max, "{attached} attached, {compiled} compiled");
}

#[test]
fn a_live_change_waits_for_at_most_one_batch_of_a_platform_domain_change() {
    let mut bench = running();
    bench.apply(Kind::Deployment, router(&[("platformDomain", "other.example")]));
    let mut live = 0;
    while bench.reconciler.busy() {
        check_turn(&mut bench);
        let number = live * 7;
        bench.apply(Kind::EndpointSlice, slice(&name(number), &["10.0.0.2"]));
        for turn in 1.. {
            check_turn(&mut bench);
            if endpoint(&bench, &format!("www.{number}.example")) == "10.0.0.2" {
                break;
            }
            assert!(turn < 2, "a live change waits behind what is not live");
        }
        live += 1;
    }
    assert!(attached(&bench) == APPS && live > 10, "{live} changes meanwhile");
}

/// The endpoint that answers for a host.
fn endpoint(bench: &Bench, host: &str) -> String {
    let parts = bench.parts();
    let route = parts
        .hosts
        .shared()
        .get(&HostPattern::Exact(host.into()))
        .and_then(|host| host.routes().into_iter().next())
        .expect("a route");
    let target = route.action.targets().next().expect("a target");
    let backend = parts.backends.get(&target.backend).expect("a backend");
    backend.endpoints.first().map(|endpoint| endpoint.address.ip().to_string()).unwrap_or_default()
}
