//! Objects with which tenants may try to harm others: each row has objects and their outcome. The neighbour, whose host
//! existed before, must not be affected: its routes and endpoints stay the same allocations.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::model::{Backend, HostPattern, HostRoutes};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::Event;
use tidegate_control::options::{AddressPolicy, Options};

use crate::bench::Bench;
use crate::manifests::{external, ingress_of, service, slice};

/// The maximum number of characters of each value in a finding.
pub(crate) const TOLD_MAX: usize = 1000;

impl Bench {
    /// A running loop in which `neighbour.example` leads to `quiet/calm` with one endpoint.
    pub(crate) fn quiet() -> Self {
        let addresses = AddressPolicy {
            own: ["10.9.9.9".parse().unwrap()].into(),
            refused: ["10.97.0.0/16".parse().unwrap()].into(),
            ..AddressPolicy::default()
        };
        let mut bench = Self::running(Options { addresses, ..Options::default() });
        let sockets = Arc::new(["10.96.0.1:80".parse().unwrap()].into());
        bench.reconciler.observe(Event::ApiServer { sockets }, bench.now);
        bench.apply(Kind::Service, service("default/kubernetes"));
        bench.apply(Kind::EndpointSlice, slice("default/kubernetes", &["10.3.0.1"]));
        bench.apply(Kind::Service, service("quiet/calm"));
        bench.apply(Kind::EndpointSlice, slice("quiet/calm", &["10.0.0.1"]));
        bench.apply(Kind::Ingress, ingress_of("quiet/calm", "neighbour.example", "calm", &["/"]));
        bench.settle();
        bench
    }

    /// Compiles until the queue is empty; all looked-up names resolve to loopback.
    pub(crate) fn settle(&mut self) {
        while let Some(step) = self.reconciler.reconcile(self.now) {
            for name in step.names.iter().flat_map(|names| names.keys()) {
                let addresses = Ok(["127.0.0.1".parse().unwrap()].into());
                self.reconciler.observe(Event::Resolved { name: Arc::clone(name), addresses }, self.now);
            }
        }
        self.now += self.reconciler.model().options().pace.settle;
        while self.reconciler.reconcile(self.now).is_some() {}
    }

    pub(crate) fn neighbour(&self) -> (Arc<HostRoutes>, Arc<Backend>) {
        let routes =
            self.parts().hosts.shared().get(&HostPattern::Exact("neighbour.example".into())).expect("the neighbour");
        let backend = self.parts().backends.iter().find(|(key, _)| key.service == ObjectName::new("quiet", "calm"));
        (Arc::clone(routes), Arc::clone(backend.expect("its endpoints").1))
    }
}

/// An Ingress that is younger than the neighbour's.
pub(crate) fn loud(name: &str, host: &str, paths: &[&str]) -> Value {
    let mut ingress = ingress_of(&format!("loud/{name}"), host, "x", paths);
    ingress["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
    ingress
}

/// An Ingress `loud/x` for `loud.example`, with its Services and endpoints.
fn with(mut objects: Vec<(Kind, Value)>) -> Vec<(Kind, Value)> {
    objects.push((Kind::Ingress, loud("x", "loud.example", &["/"])));
    objects
}

fn service_at(addresses: &[&str]) -> Vec<(Kind, Value)> {
    with(vec![(Kind::Service, service("loud/x")), (Kind::EndpointSlice, slice("loud/x", addresses))])
}

/// Applies the objects, and compares the outcome with the row: the number of routes of `loud`, their endpoints, and the
/// reasons of its findings.
#[track_caller]
fn check(what: &str, objects: Vec<(Kind, Value)>, routes: usize, endpoints: usize, told: &[&str]) {
    let mut bench = Bench::quiet();
    let before = bench.neighbour();
    for (kind, object) in objects {
        bench.apply(kind, object);
    }
    bench.settle();
    let after = bench.neighbour();
    assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1), "{what}: the neighbour noticed");
    let is_loud = |namespace: &str| namespace == "loud";
    let made = bench
        .parts()
        .hosts
        .iter()
        .map(|(_, host)| host.all().filter(|route| is_loud(&route.origin.object.name.namespace)).count());
    assert_eq!(made.sum::<usize>(), routes, "{what}: routes");
    let backends = bench.parts().backends.iter().filter(|(key, _)| is_loud(&key.service.namespace));
    assert_eq!(backends.map(|(_, backend)| backend.endpoints.len()).sum::<usize>(), endpoints, "{what}: endpoints");
    let mut reasons = BTreeSet::new();
    for finding in bench.reconciler.model().compiled().all_findings() {
        assert!(is_loud(&finding.object.name.namespace), "{what}: {finding} is told to somebody else");
        let text = finding.to_string();
        assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
        assert!(text.chars().count() < TOLD_MAX, "{what}: {} characters", text.chars().count());
        reasons.insert(finding.problem.reason());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), told, "{what}");
}

#[test]
fn endpoints_at_protected_addresses_are_left_out() {
    for (what, address) in [
        ("loopback", "127.0.0.1"),
        ("loopback", "::1"),
        ("loopback as IPv4 in IPv6", "::ffff:127.0.0.1"),
        ("link-local: the cloud's metadata", "169.254.169.254"),
        ("link-local", "fe80::1"),
        ("the edge itself", "10.9.9.9"),
        ("what the operator refuses", "10.97.0.1"),
        ("the API server, where the edge reaches it", "10.96.0.1"),
        ("the same as a translator takes it", "64:ff9b::a60:1"),
        ("the API server, where it says that it is", "10.3.0.1"),
        ("the same as IPv4 in IPv6", "::ffff:10.3.0.1"),
        ("no host", "0.0.0.0"),
        ("no host: this network", "0.1.2.3"),
        ("the cloud's metadata, IPv4-compatible", "::169.254.169.254"),
        ("the cloud's metadata, IPv4-translated", "::ffff:0:169.254.169.254"),
        ("the cloud's metadata as a client of Teredo", "2001:0:c000:201::5601:5601"),
        ("the cloud's metadata as a server of Teredo", "2001:0:a9fe:a9fe::3fff:fdfe"),
        ("the cloud's metadata by ISATAP", "2001:db8::5efe:169.254.169.254"),
    ] {
        check(what, service_at(&[address]), 1, 0, &["AddressRefused"]);
    }
    check("one good address among bad ones", service_at(&["127.0.0.1", "10.0.0.2"]), 1, 1, &["AddressRefused"]);
    for dns in ["localhost", "metadata.google.internal", "rebound.example"] {
        check(dns, with(vec![(Kind::Service, external("loud/x", dns))]), 1, 0, &["AddressRefused"]);
    }
    for dns in ["127.0.0.1", "", "..", "a b", "\u{0}", &"a".repeat(300)] {
        let objects = with(vec![(Kind::Service, external("loud/x", dns))]);
        let mut bench = Bench::quiet();
        objects.into_iter().for_each(|(kind, object)| bench.apply(kind, object));
        bench.settle();
        let endpoints = bench.parts().backends.iter().filter(|(key, _)| &*key.service.namespace == "loud");
        assert_eq!(endpoints.map(|(_, backend)| backend.endpoints.len()).sum::<usize>(), 0, "{dns:?}");
    }
}

#[test]
fn large_objects_affect_their_owner_only() {
    let slow = || service_at(&["10.0.0.2"]);
    let paths: Vec<String> = (0..20_000).map(|number| format!("/{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut many = slow();
    many.push((Kind::Ingress, loud("x", "loud.example", &paths[..10_000])));
    check("10,000 paths", many, 10_000, 1, &[]);
    let mut more = slow();
    more.push((Kind::Ingress, loud("x", "loud.example", &paths)));
    check("20,000 paths", more, 16_384, 1, &["RuleDropped"]);

    let mut annotated = loud("x", "loud.example", &["/"]);
    annotated["metadata"]["annotations"] = json!({
        "example.com/notes": "x".repeat(1 << 20),
        "tidegate.io/connect-timeout": "9".repeat(1 << 20),
    });
    let mut objects = slow();
    objects.push((Kind::Ingress, annotated));
    check("annotations of 1 MiB", objects, 1, 1, &["SettingIgnored"]);

    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    for (host, routes, told) in [
        (longest.clone(), 1, &[][..]),
        (format!("a{longest}"), 0, &["RuleDropped"]),
        ("a".repeat(64), 0, &["RuleDropped"]),
    ] {
        let mut objects = slow();
        objects.push((Kind::Ingress, loud("x", &host, &["/"])));
        check(&host, objects, routes, usize::from(routes > 0), told);
    }

    let mut objects = slow();
    for number in 0..5000 {
        objects.push((Kind::Ingress, loud(&format!("i{number}"), "loud.example", &[&format!("/{number}")])));
    }
    check("5,000 Ingresses for one host", objects, 5001, 1, &[]);
    let endpoints: Vec<String> = (0..10_500).map(|number| format!("10.1.{}.{}", number / 250, number % 250)).collect();
    let addresses: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    check("10,500 endpoints in one slice", service_at(&addresses), 1, 10_000, &["RuleDropped"]);
}

#[test]
fn younger_claims_on_a_host_do_not_change_the_older_routes() {
    let mut bench = Bench::quiet();
    let (before, _) = bench.neighbour();
    for number in 0..50 {
        bench.apply(Kind::Ingress, loud(&format!("i{number}"), "neighbour.example", &["/", "/only-here"]));
    }
    bench.settle();
    let (after, _) = bench.neighbour();
    let own = |host: &HostRoutes| -> Vec<_> {
        host.all().filter(|route| &*route.origin.object.name.namespace == "quiet").cloned().collect()
    };
    assert_eq!(own(&before), own(&after), "the rules of the older object serve as before");
    let lost = bench.reconciler.model().compiled().all_findings();
    assert!(lost.iter().all(|finding| &*finding.object.name.namespace == "loud"), "{lost:?}");
}

#[test]
fn unreadable_objects_become_findings_of_their_owner() {
    let secret = |data: Value| json!({"metadata": {"namespace": "loud", "name": "s"}, "type": "kubernetes.io/tls", "data": data});
    let mut with_tls = loud("x", "loud.example", &["/"]);
    with_tls["spec"]["tls"] = json!([{"hosts": ["loud.example"], "secretName": "s"}]);
    for data in [
        json!({"tls.crt": "!", "tls.key": "!"}),
        json!({"tls.crt": "AAAA", "tls.key": "AAAA"}),
        json!({"tls.crt": "A".repeat(1 << 20), "tls.key": "A".repeat(1 << 20)}),
        json!({"tls.crt": {}, "tls.key": []}),
        json!([]),
        json!({}),
    ] {
        let mut objects = service_at(&["10.0.0.2"]);
        objects.push((Kind::Ingress, with_tls.clone()));
        objects.push((Kind::Secret, secret(data.clone())));
        let text = data.to_string();
        check(&text[..text.len().min(60)], objects, 1, 1, &["CertificateBroken"]);
    }
}

/// An HTTPRoute of the loud tenant with 128 expressions of 8 KB each, which no other has.
fn expressive(number: usize, created: &str) -> Value {
    let one = |entry: usize| json!({"path": {"type": "RegularExpression", "value": format!(r"/{number}/{entry}/\w+")}});
    let rules: Vec<Value> = (0..16)
        .map(|rule| json!({"matches": (0..8).map(|entry| one(8 * rule + entry)).collect::<Vec<Value>>()}))
        .collect();
    let metadata = json!({"namespace": "loud", "name": format!("r{number:03}"), "creationTimestamp": created});
    json!({"metadata": metadata, "spec": {"rules": rules}})
}

/// The memory of expressions has a limit for a namespace; what an older object leaves no room for is dropped.
#[test]
fn expressions_beyond_the_memory_of_a_namespace_are_dropped() {
    let mut bench = Bench::quiet();
    let before = bench.neighbour();
    let without = |bench: &Bench| {
        let told = bench.reconciler.model().world().findings.iter();
        let lost = told.filter(|(_, findings)| findings.iter().any(|it| it.to_string().contains("of a namespace")));
        lost.map(|(object, _)| object.name.name.to_string()).collect::<Vec<_>>()
    };
    let mut count = 0;
    while without(&bench).is_empty() {
        assert!(count < 64, "no limit");
        bench.apply(Kind::HttpRoute, expressive(count, "2026-01-02T00:00:00Z"));
        count += 1;
    }
    let last = format!("r{:03}", count - 1);
    assert!(count > 8, "there is room for {count} objects");
    bench.apply(Kind::HttpRoute, expressive(100, "2026-01-01T00:00:00Z"));
    bench.settle();
    let mut lost = without(&bench);
    assert!(!lost.contains(&"r100".to_owned()), "the oldest object has lost its expressions: {lost:?}");
    lost.retain(|name| *name != last);
    assert_eq!(lost.len(), 1, "{lost:?}");
    let after = bench.neighbour();
    assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1), "the neighbour noticed");
}
