//! Attachment of routes to the listeners of a Gateway while routes are created and deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::model::{Bind, BindKey, BindProtocol, Listener};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::{Deis, GatewayApi, GatewayServices, Options, Sources};
use tidegate_control::{Collection, Desired, Event, Verdict, compile};

use crate::bench::{Bench, all_of};
use crate::manifests;

/// A loop with a Gateway that has these listeners.
pub(crate) fn running(listeners: &Value) -> Bench {
    running_from(&["192.0.2.1"], listeners)
}

/// The same with these addresses for Gateways.
fn running_from(pool: &[&str], listeners: &Value) -> Bench {
    running_with(pool, GatewayServices::Off, listeners)
}

/// The options with these addresses and Services for Gateways.
pub(crate) fn options(pool: &[&str], services: GatewayServices) -> Options {
    let gateway = GatewayApi {
        controller: "tidegate.io/gateway".into(),
        addresses: pool.iter().map(|address| address.parse().unwrap()).collect(),
        services,
        optional: false,
    };
    Options { sources: Sources { gateway: Some(gateway), ..Sources::default() }, ..Options::default() }
}

/// The same with these Services for Gateways.
fn running_with(pool: &[&str], services: GatewayServices, listeners: &Value) -> Bench {
    running_under(options(pool, services), listeners)
}

/// The same with these options.
pub(crate) fn running_under(options: Options, listeners: &Value) -> Bench {
    let mut bench = Bench::of(options, Kind::ALL.map(all_of));
    for kind in Kind::ALL {
        bench.list(kind, &[]);
    }
    bench.reconcile();
    let class = json!({"metadata": {"name": "tidegate"}, "spec": {"controllerName": "tidegate.io/gateway"}});
    bench.apply(Kind::GatewayClass, class);
    let spec = json!({"gatewayClassName": "tidegate", "listeners": listeners});
    bench.apply(Kind::Gateway, json!({"metadata": {"namespace": "shop", "name": "edge"}, "spec": spec}));
    bench.reconcile();
    bench
}

/// A route with these hostnames, created in the given second.
fn route(name: &str, created_s: u32, hostnames: &[&str]) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{created_s}Z")},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": hostnames, "rules": [{}]},
    })
}

/// Runs the loop until it is idle. `want` is the reason of each route's condition `Accepted`.
#[track_caller]
fn check(bench: &mut Bench, want: &[(Kind, &str, &str)]) {
    bench.reconcile();
    for (kind, name, reason) in want {
        let object = ObjectRef::new(*kind, ObjectName::new("shop", *name));
        let report =
            bench.reconciler.model().topology().get(&object).and_then(|it| it.report.clone()).expect("a report");
        let Some(Verdict::Route(status)) = &report.verdict else { panic!("{object} has no status") };
        let status = status.written();
        let accepted = status.parents[0].conditions.iter().find(|condition| condition.kind == *"Accepted");
        assert_eq!(accepted.map(|condition| condition.reason.to_string()).as_deref(), Some(*reason), "{object}");
    }
}

/// Compares the reason of the class's condition about CRD releases; `None` without the condition.
#[track_caller]
fn check_release(bench: &mut Bench, want: Option<&str>) {
    bench.reconcile();
    let class = ObjectRef::new(Kind::GatewayClass, ObjectName::new("", "tidegate"));
    let Some(Verdict::Status(status)) = bench.reconciler.model().compiled().verdicts.get(&class).cloned() else {
        panic!("no status")
    };
    let said = status.conditions.iter().find(|condition| condition.kind == *"SupportedVersion");
    assert_eq!(said.map(|condition| &*condition.reason), want);
    check_like_a_full_compile(bench);
}

#[track_caller]
fn check_like_a_full_compile(bench: &Bench) {
    let full = compile(
        bench.reconciler.model().world(),
        bench.reconciler.model().options(),
        bench.reconciler.model().frozen_backends(),
    );
    assert_eq!(full.verdicts, bench.reconciler.model().compiled().verdicts);
    assert_eq!(full.findings.by_unit(), bench.reconciler.model().compiled().findings.by_unit());
}

/// Compares the addresses in the status of each Gateway.
#[track_caller]
fn check_addresses(bench: &mut Bench, want: &[(&str, &[&str])]) {
    bench.reconcile();
    for (name, want) in want {
        let gateway = ObjectRef::new(Kind::Gateway, ObjectName::new("shop", *name));
        let Some(Verdict::Status(status)) = bench.reconciler.model().compiled().verdicts.get(&gateway).cloned() else {
            panic!("{name} has no status")
        };
        let got: Vec<&str> = status.addresses.iter().map(|address| &*address.value).collect();
        assert_eq!(got, *want, "{name}");
    }
}

#[test]
fn gateways_keep_their_addresses_when_another_one_requests_them() {
    let mut bench = running_from(&["192.0.2.1", "192.0.2.2", "192.0.2.3"], &json!([]));
    let create = |bench: &mut Bench, name: &str, second: u32, requested: &[&str], assigned: &[&str]| {
        let of = |addresses: &[&str]| addresses.iter().map(|address| json!({"value": address})).collect::<Vec<_>>();
        let metadata =
            json!({"namespace": "shop", "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")});
        let spec = json!({"gatewayClassName": "tidegate", "listeners": [], "addresses": of(requested)});
        bench.apply(Kind::Gateway, json!({"metadata": metadata, "spec": spec, "status": {"addresses": of(assigned)}}));
    };
    create(&mut bench, "second", 2, &[], &["192.0.2.2"]);
    check_addresses(&mut bench, &[("edge", &["192.0.2.1"]), ("second", &["192.0.2.2"])]);
    create(&mut bench, "third", 3, &["192.0.2.2"], &[]);
    check_addresses(&mut bench, &[("second", &["192.0.2.2"]), ("third", &[]), ("edge", &["192.0.2.1"])]);
    // Nor does an older one get it that requests it beside one of its own.
    create(&mut bench, "oldest", 0, &["192.0.2.2", "192.0.2.3"], &[]);
    check_addresses(&mut bench, &[("second", &["192.0.2.2"]), ("oldest", &["192.0.2.3"])]);
    bench.delete(Kind::Gateway, "second");
    check_addresses(&mut bench, &[("oldest", &["192.0.2.3", "192.0.2.2"]), ("third", &[])]);
    bench.delete(Kind::Gateway, "oldest");
    check_addresses(&mut bench, &[("third", &["192.0.2.2"]), ("edge", &["192.0.2.1"])]);
    bench.delete(Kind::Gateway, "third");
    create(&mut bench, "second", 2, &[], &["192.0.2.2"]);
    // An address that is not in the pool is not kept.
    create(&mut bench, "fourth", 4, &[], &["203.0.113.9"]);
    check_addresses(&mut bench, &[("second", &["192.0.2.2"]), ("fourth", &["192.0.2.3"])]);
    // `edge`, which says nothing about its age and comes last, has no address in its status yet. It keeps its own.
    create(&mut bench, "fifth", 5, &[], &["203.0.113.9"]);
    check_addresses(&mut bench, &[("fifth", &[]), ("edge", &["192.0.2.1"])]);
    // The status prevails, because clients read it.
    create(&mut bench, "fifth", 5, &[], &["192.0.2.1"]);
    check_addresses(&mut bench, &[("fifth", &["192.0.2.1"]), ("edge", &[])]);
    bench.delete(Kind::Gateway, "fifth");
    check_addresses(&mut bench, &[("edge", &["192.0.2.1"])]);
    check_like_a_full_compile(&bench);
}

#[test]
fn the_class_reports_whether_the_crd_releases_are_supported() {
    let mut bench = running(&json!([]));
    check_release(&mut bench, None);
    let steps = [
        (Kind::Gateway, Some("v1.7.0"), Some("SupportedVersion")),
        (Kind::HttpRoute, Some("v1.8.0"), Some("UnsupportedVersion")),
        (Kind::HttpRoute, None, Some("SupportedVersion")),
        (Kind::HttpRoute, Some(""), Some("UnsupportedVersion")),
        (Kind::HttpRoute, Some("v1.6.1"), Some("SupportedVersion")),
        (Kind::HttpRoute, Some("v1.6.1"), Some("SupportedVersion")),
    ];
    for (kind, release, want) in steps {
        let event = Event::Defined { kind, release: release.map(Into::into), received: bench.now };
        assert_eq!(bench.reconciler.observe(event, bench.now), None);
        check_release(&mut bench, want);
    }
    assert!(!bench.reconciler.busy());
}

#[test]
fn the_younger_of_an_http_and_a_grpc_route_attaches_once_the_older_is_deleted() {
    const LOST: &str = "HostnameConflict";
    use Kind::{GrpcRoute, HttpRoute};
    let mut bench = running(&json!([{"name": "http", "port": 80, "protocol": "HTTP"}]));
    bench.apply(HttpRoute, route("young", 3, &["a.example", "b.example"]));
    check(&mut bench, &[(HttpRoute, "young", "Accepted")]);
    // An older route claims one of its two hostnames.
    bench.apply(GrpcRoute, route("old", 2, &["a.example"]));
    check(&mut bench, &[(HttpRoute, "young", LOST), (GrpcRoute, "old", "Accepted")]);
    // The oldest route also conflicts with `old`, so `young` is attached again: no attached route has its hostnames.
    bench.apply(HttpRoute, route("oldest", 1, &["*.example"]));
    check(&mut bench, &[(HttpRoute, "young", "Accepted"), (GrpcRoute, "old", LOST), (HttpRoute, "oldest", "Accepted")]);
    // Its hostnames change.
    bench.apply(HttpRoute, route("oldest", 1, &["*.test"]));
    check(&mut bench, &[(HttpRoute, "young", LOST), (GrpcRoute, "old", "Accepted"), (HttpRoute, "oldest", "Accepted")]);
    // The same name, created after the others.
    bench.apply(GrpcRoute, route("old", 4, &["a.example"]));
    check(&mut bench, &[(HttpRoute, "young", "Accepted"), (GrpcRoute, "old", LOST)]);
    bench.delete(HttpRoute, "young");
    check(&mut bench, &[(GrpcRoute, "old", "Accepted")]);
}

#[test]
fn a_route_without_any_valid_rule_is_kept_off_a_listener_too() {
    let dropped = |name: &str, created_s: u32| {
        let mut route = route(name, created_s, &["a.example"]);
        let filter = json!({"type": "ExtensionRef", "extensionRef": {"group": "x.test", "kind": "X", "name": "x"}});
        route["spec"]["rules"] = json!([{"filters": [filter]}]);
        route
    };
    for (kind, other) in [(Kind::HttpRoute, Kind::GrpcRoute), (Kind::GrpcRoute, Kind::HttpRoute)] {
        // Whichever of the two comes first. Without any accepted route, the dropped one keeps its hosts.
        for order in [[true, false], [false, true]] {
            let mut bench = running(&json!([{"name": "http", "port": 80, "protocol": "HTTP"}]));
            for is_old in order {
                match is_old {
                    true => bench.apply(other, route("old", 1, &["a.example"])),
                    false => bench.apply(kind, dropped("dropped", 2)),
                }
                bench.reconcile();
            }
            check_like_a_full_compile(&bench);
            check(&mut bench, &[(kind, "dropped", "HostnameConflict"), (other, "old", "Accepted")]);
            bench.delete(other, "old");
            check(&mut bench, &[(kind, "dropped", "UnsupportedValue")]);
            check_like_a_full_compile(&bench);
        }
    }
}

#[test]
fn a_policy_is_in_force_for_the_routes_to_its_services_alone() {
    let mut bench = running(&json!([{"name": "http", "port": 80, "protocol": "HTTP"}]));
    for name in ["a", "b"] {
        bench.apply(
            Kind::Service,
            json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"ports": [{"port": 80}]}}),
        );
        let mut route = route(name, 1, &[&format!("{name}.example")]);
        route["spec"]["rules"] = json!([{"backendRefs": [{"name": name, "port": 80}]}]);
        bench.apply(Kind::HttpRoute, route);
    }
    let policy = |name: &str, services: &[&str], hostname: &str| {
        let targets: Vec<_> = services.iter().map(|it| json!({"group": "", "kind": "Service", "name": it})).collect();
        let validation = json!({"wellKnownCACertificates": "System", "hostname": hostname});
        json!({
            "metadata": {"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"targetRefs": targets, "validation": validation},
        })
    };
    // A policy by its name, or the name of a deleted one, and then the server names of the connections of each route.
    let steps = [
        (Ok(policy("p", &["a"], "one.test")), [Some("one.test"), None]),
        (Ok(policy("p", &["a"], "two.test")), [Some("two.test"), None]),
        (Ok(policy("p", &["b"], "two.test")), [None, Some("two.test")]),
        (Ok(policy("q", &["a", "b"], "three.test")), [Some("three.test"), Some("two.test")]),
        (Err("p"), [Some("three.test"), Some("three.test")]),
        (Err("q"), [None, None]),
    ];
    for (number, (step, want)) in steps.into_iter().enumerate() {
        match step {
            Ok(policy) => bench.apply(Kind::BackendTlsPolicy, policy),
            Err(name) => bench.delete(Kind::BackendTlsPolicy, name),
        }
        bench.reconcile();
        let got = ["a", "b"].map(|name| {
            let route = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", name));
            let attachment = bench.reconciler.model().topology().get(&route).expect("an attachment");
            let target = attachment.claims[0].routes[0].action.targets().next().expect("a target");
            target.tls.as_ref().and_then(|tls| tls.server_name.clone())
        });
        assert_eq!([got[0].as_deref(), got[1].as_deref()], want, "step {number}");
    }
}

#[test]
fn a_listener_on_a_socket_of_the_operator_is_refused() {
    let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let listeners = [listener("web", 80, "HTTP"), listener("git", 2222, "TCP"), listener("other", 2222, "UDP")];
    let mut options = options(&["192.0.2.1"], GatewayServices::Off);
    let key = BindKey { address: "192.0.2.1:80".parse().unwrap(), protocol: BindProtocol::Http };
    options.binds = [Bind { key, listeners: [Listener::for_every_host("http")].into() }].into();
    let name = |name| ObjectName::new("deis", name);
    let builder = Some((name("deis-builder"), "192.0.2.1:2222".parse().unwrap()));
    options.sources.deis = Some(Deis { router: name("deis-router"), builder });
    let bench = running_under(options, &json!(listeners));
    let gateway = ObjectRef::new(Kind::Gateway, ObjectName::new("shop", "edge"));
    let Some(Verdict::Status(status)) = bench.reconciler.model().compiled().verdicts.get(&gateway).cloned() else {
        panic!("no status")
    };
    let accepted = status.listeners.iter().map(|listener| {
        let condition = listener.conditions.iter().find(|condition| condition.kind == *"Accepted");
        condition.map(|condition| condition.reason.to_string()).unwrap_or_default()
    });
    assert_eq!(accepted.collect::<Vec<_>>(), ["PortUnavailable", "PortUnavailable", "Accepted"]);
    check_like_a_full_compile(&bench);
}

#[test]
fn routes_are_closed_while_the_policies_of_their_services_cannot_be_read() {
    let of = |kind: Kind, namespace: &str| Collection { kind, namespace: kind.namespaced().then(|| namespace.into()) };
    let collections: BTreeSet<Collection> =
        Kind::ALL.into_iter().flat_map(|kind| [of(kind, "shop"), of(kind, "blog")]).collect();
    let mut bench = Bench::of(options(&["192.0.2.1"], GatewayServices::Off), collections.clone());
    let (denied, other) = (of(Kind::BackendTlsPolicy, "shop"), of(Kind::BackendTlsPolicy, "blog"));
    for collection in collections.into_iter().filter(|collection| ![&denied, &other].contains(&collection)) {
        bench.listed_in(collection, &[], true);
    }
    bench.fail_in(denied.clone(), true);
    bench.now += Duration::from_secs(3600);
    bench.reconcile();
    assert!(bench.reconciler.running(), "an Ingress needs no policies");
    let class = json!({"metadata": {"name": "tidegate"}, "spec": {"controllerName": "tidegate.io/gateway"}});
    bench.apply(Kind::GatewayClass, class);
    let listener =
        json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}});
    let spec = json!({"gatewayClassName": "tidegate", "listeners": [listener]});
    bench.apply(Kind::Gateway, json!({"metadata": {"namespace": "shop", "name": "edge"}, "spec": spec}));
    let route = |namespace: &str, port: u16| {
        let backends = json!([{"name": "web", "port": port}]);
        let parents = json!([{"namespace": "shop", "name": "edge"}]);
        let spec = json!({"parentRefs": parents, "hostnames": [namespace], "rules": [{"backendRefs": backends}]});
        json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": spec})
    };
    for namespace in ["shop", "blog"] {
        let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 443}]);
        let metadata = json!({"namespace": namespace, "name": "web"});
        bench.apply(Kind::Service, json!({"metadata": metadata, "spec": {"ports": ports}}));
        let (parents, backends) =
            (json!([{"namespace": "shop", "name": "edge"}]), json!([{"name": "web", "port": 80}]));
        let spec = json!({"parentRefs": parents, "hostnames": [namespace], "rules": [{"backendRefs": backends}]});
        bench.apply(Kind::HttpRoute, json!({"metadata": metadata, "spec": spec}));
    }
    let check = |bench: &mut Bench, want: [usize; 2]| {
        bench.reconcile();
        let targets = ["shop", "blog"].map(|namespace| {
            let route = ObjectRef::new(Kind::HttpRoute, ObjectName::new(namespace, "web"));
            let attachment = bench.reconciler.model().topology().get(&route).expect("an attachment");
            attachment.claims[0].routes[0].action.targets().count()
        });
        assert_eq!(targets, want);
        check_like_a_full_compile(bench);
    };
    check(&mut bench, [0, 0]);
    bench.listed_in(other.clone(), &[], true);
    check(&mut bench, [0, 1]);
    bench.listed_in(denied, &[], true);
    check(&mut bench, [1, 1]);
    // The definition has just been created: there may be policies that are not listed.
    let now = bench.now;
    bench.observe(Event::Unserved { collection: other.clone(), received: now });
    bench.observe(Event::Unlisted { collection: other.clone() });
    bench.apply(Kind::HttpRoute, route("blog", 443));
    check(&mut bench, [1, 0]);
    bench.listed_in(other, &[], true);
    check(&mut bench, [1, 1]);
}

#[test]
fn a_listener_set_keeps_its_status_while_the_gateways_of_its_parent_are_unknown() {
    let namespaces = |kind: Kind| if kind.namespaced() { vec![Some("a"), Some("b")] } else { vec![None] };
    let collections = Kind::ALL.into_iter().flat_map(|kind| {
        namespaces(kind).into_iter().map(move |namespace| Collection { kind, namespace: namespace.map(Into::into) })
    });
    let collections: Vec<Collection> = collections.collect();
    let denied = Collection { kind: Kind::Gateway, namespace: Some("b".into()) };
    let mut bench = Bench::of(options(&["192.0.2.1"], GatewayServices::Off), collections.clone());
    let condition = json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                           "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let set = json!({
        "metadata": {"namespace": "a", "name": "more", "generation": 1},
        "spec": {"parentRef": {"namespace": "b", "name": "edge"}, "listeners": []},
        "status": {"conditions": [condition]},
    });
    for collection in collections {
        let of_set = collection.kind == Kind::ListenerSet && collection.namespace.as_deref() == Some("a");
        let objects = if of_set { vec![set.clone()] } else { Vec::new() };
        if collection == denied {
            bench.fail_in(collection, true);
        } else {
            bench.listed_in(collection, &objects, true);
        }
    }
    bench.now += Duration::from_secs(60);
    bench.reconcile();
    let object = ObjectRef::new(Kind::ListenerSet, ObjectName::new("a", "more"));
    assert_eq!(bench.reconciler.desired_reports().status(&object), None, "the Gateway may exist");
    bench.listed_in(denied, &[], true);
    bench.reconcile();
    assert!(bench.reconciler.desired_reports().status(&object).is_some(), "it does not exist");
}

/// The number of parents in the status to write to a route; `None` if there is nothing to write.
fn parents_to_write(bench: &Bench, name: &str) -> Option<usize> {
    let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", name));
    match bench.reconciler.desired_reports().status(&object)? {
        Desired::Status { status, .. } => Some(status.parents.len()),
        Desired::Addresses { .. } => panic!("addresses for a route"),
    }
}

#[test]
fn a_route_that_has_left_our_gateways_loses_our_part_of_its_status() {
    let mut bench = running(&json!([{"name": "one", "port": 80, "protocol": "HTTP"}]));
    let entry =
        |controller: &str| json!({"parentRef": {"name": "edge"}, "controllerName": controller, "conditions": []});
    let mut web = route("web", 1, &["a.example"]);
    let mut check = |parent: &Value, controllers: &[&str], want: Option<usize>| {
        web["spec"]["parentRefs"] = parent.clone();
        web["status"] = json!({"parents": controllers.iter().map(|controller| entry(controller)).collect::<Vec<_>>()});
        bench.apply(Kind::HttpRoute, web.clone());
        bench.reconcile();
        assert_eq!(parents_to_write(&bench, "web"), want, "{parent} {controllers:?}");
    };
    let (ours, theirs) = ("tidegate.io/gateway", "example.com/gateway");
    let edge = json!([{"name": "edge"}]);
    check(&edge, &[], Some(1));
    check(&edge, &[theirs], Some(1));
    for elsewhere in [json!([]), json!([{"name": "absent"}]), json!([{"kind": "Service", "group": "", "name": "edge"}])]
    {
        check(&elsewhere, &[ours, theirs], Some(0));
        check(&elsewhere, &[theirs], None);
        check(&elsewhere, &[], None);
    }
}

#[test]
fn a_gateway_is_looked_at_again_when_its_service_or_endpoints_change() {
    let listeners = json!([{"name": "one", "port": 80, "protocol": "HTTP"}]);
    let mut bench = running_with(&["192.0.2.1"], GatewayServices::Headless, &listeners);
    let uid = "00000000-0000-0000-0000-000000000001";
    let owner = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": uid,
                       "controller": true});
    let service = json!({
        "metadata": {
            "namespace": "shop", "name": "edge-tidegate", "ownerReferences": [owner],
            "annotations": {"tidegate.io/gateway-controller": "tidegate.io/gateway"},
        },
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    });
    let check = |bench: &mut Bench, want: &[&str]| {
        bench.reconcile();
        let pending = bench.reconciler.pending_reports().infrastructure();
        assert_eq!(pending.iter().map(|gateway| gateway.name.to_string()).collect::<Vec<_>>(), want);
    };
    check(&mut bench, &["shop/edge"]);
    check(&mut bench, &[]);
    bench.apply(Kind::Service, service);
    check(&mut bench, &["shop/edge"]);
    bench.apply(Kind::EndpointSlice, manifests::slice("edge-tidegate", &["192.0.2.1"]));
    check(&mut bench, &["shop/edge"]);
    bench.apply(Kind::EndpointSlice, manifests::slice("another", &["192.0.2.1"]));
    check(&mut bench, &[]);
    bench.delete(Kind::EndpointSlice, "edge-tidegate");
    check(&mut bench, &["shop/edge"]);
    bench.delete(Kind::Service, "edge-tidegate");
    check(&mut bench, &["shop/edge"]);
    bench.delete(Kind::EndpointSlice, "another");
    check(&mut bench, &[]);
}
