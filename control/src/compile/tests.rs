//! Units: one that panics does not affect the others, whether everything is compiled or only dirty units; and the audit
//! can tell which do not serve as compiled.

use std::cell::RefCell;
use std::net::IpAddr;

use serde_json::{Value, json};
use tidegate_config::model::{BindProtocol, HostPattern, ScopeId};
use tidegate_config::object::Kind;
use tidegate_config::project::project;

use super::*;
use crate::options::{Deis, GatewayApi, GatewayServices, Options, Sources};
use crate::reference::compile;
use crate::sources::attach_all;
use crate::world::World;

thread_local! {
    /// The unit whose compilation panics in this test.
    static TRIPS: RefCell<Option<Unit>> = const { RefCell::new(None) };
}

/// Called before each unit is compiled.
pub(super) fn trip(unit: &Unit) {
    let trips = TRIPS.with_borrow(|trips| trips.as_ref() == Some(unit));
    assert!(!trips, "tripped");
}

fn ingress(name: &str) -> Value {
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    json!({
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"},
        "spec": {
            "rules": [{"host": format!("{name}.example"), "http": {"paths": [{"pathType": "Prefix", "backend": backend}]}}],
        },
    })
}

/// Two Ingresses `a` and `b` of the default class, each with a host, and a Service, of its name. A Gateway `a` whose
/// one listener passes on the connections for `a.example` to that Service, by a TLSRoute `a`. A Deis router.
fn world() -> World {
    let mut world = World::default();
    let mut put = |kind, object: Value| world.apply(project(kind, object.to_string().as_bytes()).unwrap());
    for name in ["a", "b"] {
        put(Kind::Ingress, ingress(name));
        let meta = json!({"namespace": "shop", "name": name, "resourceVersion": "1"});
        put(Kind::Service, json!({"metadata": meta, "spec": {"ports": [{"port": 80}]}}));
    }
    let default = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    let meta = json!({"name": "tidegate", "resourceVersion": "1", "annotations": default});
    put(Kind::IngressClass, json!({"metadata": meta, "spec": {"controller": "tidegate.io/ingress"}}));
    let meta = json!({"namespace": "shop", "name": "a", "resourceVersion": "1"});
    let class =
        json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"controllerName": "tidegate.io/gateway"}});
    put(Kind::GatewayClass, class);
    let listener = json!({"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}});
    put(Kind::Gateway, json!({"metadata": meta, "spec": {"gatewayClassName": "a", "listeners": [listener]}}));
    let rules = json!([{"backendRefs": [{"name": "a", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "a"}], "hostnames": ["a.example"], "rules": rules});
    put(Kind::TlsRoute, json!({"metadata": meta, "spec": spec}));
    put(Kind::Deployment, json!({"metadata": meta}));
    world
}

fn options() -> Options {
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: [IpAddr::from([127, 0, 0, 1])].into(),
        services: GatewayServices::Off,
        optional: false,
    };
    let deis = Deis { router: name("a"), builder: None };
    let sources = Sources { gateway: Some(gateway), deis: Some(deis), ..Sources::default() };
    Options { default_certificate: Some(name("a")), sources, ..Options::default() }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

fn host(name: &str) -> VirtualHost {
    HostPattern::Exact(format!("{name}.example").into()).into()
}

fn bind() -> BindKey {
    BindKey { address: ([127, 0, 0, 1], 443).into(), protocol: BindProtocol::Https }
}

/// The host of the TLSRoute, in the table of its listener.
fn stream(compiled: &Compiled) -> VirtualHost {
    compiled.parts.streams.iter().next().expect("a stream").0
}

/// The contents of a unit: its routes, backends, verdict.
fn there(compiled: &Compiled, unit: &Unit) -> bool {
    match unit {
        Unit::Host(host) => compiled.parts.hosts.get(host).is_some(),
        Unit::Service(service) => compiled.backends.iter().any(|key| key.service == *service),
        Unit::Policies(target) => compiled.parts.policies.contains_key(target),
        Unit::Object(object) => compiled.verdicts.contains_key(object),
        Unit::Bind(bind) => compiled.binds.contains(bind),
        Unit::Stream(host) => compiled.parts.streams.get(host).is_some(),
        Unit::Scope(scope) => compiled.parts.scopes.contains_key(scope),
        Unit::Globals(()) => !compiled.parts.trusted_proxies.is_empty(),
    }
}

fn recompile(compiled: &mut Compiled, world: &World, options: &Options) {
    let (topology, frozen_backends) = (attach_all(world, options), BTreeSet::new());
    let inputs = Inputs { world, options, topology: &topology, frozen_backends: &frozen_backends };
    let objects = ["a", "b"].map(|it| Unit::Object(ObjectRef::new(Kind::Ingress, name(it))));
    let others = ["a", "b"].into_iter().flat_map(|it| [Unit::Host(host(it)), Unit::Service(name(it))]);
    let stream = Unit::Stream(stream(compiled));
    let rest = [Unit::Globals(()), Unit::Bind(bind()), Unit::Scope(ScopeId("deis".into())), stream];
    let dirty = objects.into_iter().chain(others).chain(rest).collect();
    compiled.recompile(inputs, dirty, Defer { waits: &|_| false, decide: &mut |_, _| false });
}

/// Lets a unit panic and compiles everything twice: from scratch, and again over a good state.
#[track_caller]
fn check(unit: &Unit, owner: &ObjectRef) {
    let (world, options, frozen_backends) = (world(), options(), BTreeSet::new());
    let good = compile(&world, &options, &frozen_backends);
    let others =
        [Unit::Host(host("b")), Unit::Service(name("b")), Unit::Object(ObjectRef::new(Kind::Ingress, name("b")))];
    let mut again = compile(&world, &options, &frozen_backends);

    TRIPS.set(Some(unit.clone()));
    let full = compile(&world, &options, &frozen_backends);
    recompile(&mut again, &world, &options);
    TRIPS.set(None);

    assert!(!there(&full, unit), "{unit:?} has no good state to stay in");
    assert_eq!(there(&again, unit), there(&good, unit), "{unit:?} stays as it was");
    for compiled in [&full, &again] {
        let problem = Problem::ProcessingFailed { why: "tripped".to_owned() };
        assert_eq!(compiled.findings.of(unit).collect::<Vec<_>>(), [&Finding::new(owner.clone(), "", problem)]);
        for other in &others {
            assert!(there(compiled, other), "{other:?} beside {unit:?}");
            let (left, right) = (compiled.findings.by_unit(), good.findings.by_unit());
            assert_eq!(left.get(other), right.get(other), "{other:?} beside {unit:?}");
        }
    }

    recompile(&mut again, &world, &options);
    assert_eq!(
        again.findings.by_unit(),
        good.findings.by_unit(),
        "once it does not panic any more, nothing is left of it"
    );
}

#[test]
fn a_panic_affects_only_its_own_unit() {
    let object = |kind| ObjectRef::new(kind, name("a"));
    check(&Unit::Host(host("a")), &object(Kind::Ingress));
    check(&Unit::Service(name("a")), &object(Kind::Service));
    check(&Unit::Object(object(Kind::Ingress)), &object(Kind::Ingress));
    check(&Unit::Bind(bind()), &object(Kind::Gateway));
    check(&Unit::Stream(stream(&compile(&world(), &options(), &BTreeSet::new()))), &object(Kind::TlsRoute));
    check(&Unit::Scope(ScopeId("deis".into())), &object(Kind::Deployment));
}

#[test]
fn a_unit_without_its_part_does_not_serve() {
    let (options, frozen_backends) = (options(), BTreeSet::new());
    let compiled = compile(&world(), &options, &frozen_backends);
    let empty = compile(&World::default(), &options, &frozen_backends).parts;
    let stream = Unit::Stream(stream(&compiled));
    let deis = Unit::Scope(ScopeId("deis".into()));
    for unit in [Unit::Host(host("a")), Unit::Service(name("a")), Unit::Bind(bind()), stream, deis, Unit::Globals(())] {
        assert!(unit.serves(&compiled, &compiled.parts), "{unit:?}");
        assert!(!unit.serves(&compiled, &empty), "{unit:?}");
    }
}

#[test]
fn a_host_with_many_claims_keeps_them_for_the_next_change() {
    for (whole_host_max, kept) in [(0, true), (1, false)] {
        let compiled = compile(&world(), &Options { whole_host_max, ..options() }, &BTreeSet::new());
        assert_eq!(compiled.claims.contains_key(&host("a")), kept, "{whole_host_max}");
    }
}
