//! The compiled units after a change of a Deis application, or of the router's own Deployment.

use serde_json::{Value, json};
use tidegate_config::model::{Guard, HostPattern};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::options::{Deis, Ingresses, Options, Sources};

use crate::bench::{Bench, all_of};
use crate::manifests::{ingress_of, slice};

/// The router of these tests, and its builder.
pub(crate) fn deis() -> Deis {
    let builder = Some((ObjectName::new("deis", "deis-builder"), ([127, 0, 0, 1], 2222).into()));
    Deis { router: ObjectName::new("deis", "deis-router"), builder }
}

/// The router with these annotations.
pub(crate) fn router(annotations: &[(&str, &str)]) -> Value {
    let said = annotations.iter().map(|(key, value)| (format!("router.deis.io/nginx.{key}"), json!(value)));
    let said: Value = Value::Object(said.collect());
    json!({"metadata": {"namespace": "deis", "name": "deis-router", "annotations": said}})
}

/// An application in `shop` with these domains.
pub(crate) fn app(name: &str, domains: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "shop",
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"router.deis.io/routable": "true"},
            "annotations": {"router.deis.io/domains": domains},
        },
        "spec": {"ports": [{"port": 80}]},
    })
}

pub(crate) const PLATFORM: (&str, &str) = ("platformDomain", "apps.example");

/// Two applications below a platform domain; one of them also has a domain of its own.
fn running() -> Bench {
    let sources = Sources { ingress: Some(Ingresses::default()), deis: Some(deis()), gateway: None, kuadrant: None };
    let mut bench = Bench::of(Options { sources, ..Options::default() }, Kind::ALL.map(all_of));
    for kind in Kind::ALL {
        bench.list(kind, &[]);
    }
    bench.reconcile();
    bench.apply(Kind::Deployment, router(&[PLATFORM]));
    for (name, domains) in [("blog", "blog"), ("wiki", "wiki,wiki.example")] {
        bench.apply(Kind::Service, app(name, domains));
        bench.apply(Kind::EndpointSlice, slice(name, &["10.0.0.1"]));
    }
    bench.reconcile();
    bench
}

/// Applies an object and compares the units whose part of the snapshot differs afterwards.
#[track_caller]
fn check(bench: &mut Bench, kind: Kind, object: Value, want: &[&str]) {
    bench.apply(kind, object);
    bench.changes = Default::default();
    bench.reconcile();
    let changed: Vec<String> = bench.changes.units.routing.first.iter().map(ToString::to_string).collect();
    assert_eq!(changed, want);
}

#[test]
fn a_router_change_compiles_only_the_affected_units() {
    let mut bench = running();
    let shared: &[&str] = &["the settings of source deis"];
    check(&mut bench, Kind::Deployment, router(&[PLATFORM, ("defaultTimeout", "90s")]), shared);
    check(&mut bench, Kind::Deployment, router(&[PLATFORM, ("defaultTimeout", "90s"), ("errorLogLevel", "warn")]), &[]);
    check(
        &mut bench,
        Kind::Deployment,
        router(&[PLATFORM, ("defaultTimeout", "90s"), ("gzip.compLevel", "9")]),
        shared,
    );
    check(&mut bench, Kind::Deployment, router(&[PLATFORM, ("gzip.enabled", "false")]), shared);
    check(&mut bench, Kind::Deployment, router(&[PLATFORM]), shared);
    check(
        &mut bench,
        Kind::Deployment,
        router(&[PLATFORM, ("proxyRealIpCidrs", "192.0.2.0/24")]),
        &["the global settings"],
    );
    for setting in [
        ("useProxyProtocol", "true"),
        ("ssl.protocols", "TLSv1.3"),
        ("http2Enabled", "false"),
        ("largeHeaderBuffersSize", "8k"),
        ("logFormat", "$status"),
    ] {
        check(&mut bench, Kind::Deployment, router(&[PLATFORM, setting]), &["the global settings"]);
    }
    check(
        &mut bench,
        Kind::Deployment,
        router(&[PLATFORM, ("proxyRealIpCidrs", "192.0.2.0/24")]),
        &["the global settings"],
    );
    check(
        &mut bench,
        Kind::Deployment,
        router(&[("platformDomain", "other.example"), ("proxyRealIpCidrs", "192.0.2.0/24")]),
        &["host blog.apps.example", "host blog.other.example", "host wiki.apps.example", "host wiki.other.example"],
    );
}

#[test]
fn a_change_of_an_application_compiles_its_own_hosts() {
    let mut bench = running();
    let mut blog = app("blog", "blog");
    blog["metadata"]["annotations"]["router.deis.io/whitelist"] = "10.0.0.0/8".into();
    check(&mut bench, Kind::Service, blog, &["host blog.apps.example"]);
    let wiki = app("wiki", "wiki.example,new.example");
    check(&mut bench, Kind::Service, wiki, &["host new.example", "host wiki.apps.example"]);
    let beside = ingress_of("docs", "new.example", "blog", &["/docs"]);
    bench.apply(Kind::IngressClass, crate::manifests::class());
    check(&mut bench, Kind::Ingress, beside, &["host new.example"]);
}

#[test]
fn without_the_router_deployment_every_route_denies() {
    let mut bench = running();
    let deployment = tidegate_config::object::ObjectRef::new(Kind::Deployment, ObjectName::new("deis", "deis-router"));
    bench.delete_object(deployment);
    bench.reconcile();
    let parts = bench.published.as_ref().expect("a model");
    assert!(parts.scopes.is_empty());
    let mut hosts: Vec<String> = parts.hosts.iter().map(|(host, _)| host.to_string()).collect();
    hosts.sort();
    assert_eq!(hosts, ["blog.*", "wiki.*", "wiki.example"]);
    for (host, routes) in parts.hosts.iter() {
        let settings = parts.effective(routes.routes().first().expect("a route"));
        assert_eq!((settings.read_timeout.as_secs(), settings.body_bytes_max), (1300, Some(1 << 20)), "{host}");
        assert!(routes.all().all(|route| route.guards.contains(&Guard::DenyAll)), "{host}");
    }
}

#[test]
fn proxy_locations_on_hosts_of_another_application_are_limited() {
    let mut bench = running();
    let list = |make: fn(usize) -> String| (0..512).map(make).collect::<Vec<_>>().join(",");
    bench.apply(Kind::Service, app("host", &list(|number| format!("h{number}.host.example"))));
    let mut guest = app("guest", "guest");
    guest["metadata"]["annotations"]["router.deis.io/proxyDomain"] = json!("h7.host.example");
    guest["metadata"]["annotations"]["router.deis.io/proxyLocations"] = json!(list(|number| format!("/p{number}")));
    bench.apply(Kind::Service, guest);
    bench.reconcile();
    let compiled = bench.reconciler.model().compiled();
    let paths =
        |host: &str| compiled.parts.hosts.shared().get(&HostPattern::parse(host).unwrap()).map_or(0, |it| it.len());
    // The named host has all paths, and other hosts have them as long as the limit allows.
    assert_eq!((paths("h7.host.example"), paths("h0.host.example"), paths("h511.host.example")), (513, 513, 1));
    let all: usize = compiled.parts.hosts.iter().map(|(_, routes)| routes.len()).sum();
    assert!((4096..4096 + 600).contains(&all), "{all}");
    let findings = compiled.all_findings();
    assert!(findings.iter().any(|finding| finding.to_string().contains("more than 4096 in all")), "{findings:?}");
}

#[test]
fn the_domains_of_an_expression_are_limited() {
    let mut bench = running();
    bench.apply(Kind::Deployment, router(&[PLATFORM, ("enableRegexDomains", "true")]));
    let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let mut many = app("many", &names.join(","));
    many["metadata"]["annotations"]["router.deis.io/regexDomain"] = json!(names.join("|"));
    bench.apply(Kind::Service, many);
    let mut long = app("long", "long");
    long["metadata"]["annotations"]["router.deis.io/regexDomain"] = json!("long".repeat(300));
    bench.apply(Kind::Service, long);
    bench.reconcile();
    let compiled = bench.reconciler.model().compiled();
    let expressions =
        compiled.parts.hosts.iter().filter(|(host, _)| matches!(host.pattern, HostPattern::Expression(_)));
    assert_eq!(expressions.count(), 1);
    let told: Vec<String> = compiled.all_findings().iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|it| it.contains("\"n16\" exceeds the limit of 16 domains")), "{told:?}");
    assert!(told.iter().any(|it| it.contains("is longer than 1024 bytes")), "{told:?}");
}
