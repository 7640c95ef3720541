//! What tenants may write to harm others: each row is some objects, and what becomes of them. The neighbour, whose host was there
//! before, must not notice: its routes and endpoints stay the very same objects.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_config::model::{Backend, HostPattern, HostRoutes, SnapshotParts};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_config::project::project;
use tidegate_control::options::{AddressPolicy, Options};
use tidegate_control::{Event, Reconciler, Source};

/// Characters that no finding may have more of for each of its values.
const TOLD_MAX: usize = 1000;

struct Edge {
    reconciler: Reconciler,
    now: Instant,
}

impl Edge {
    /// A running loop in which `neighbour.example` leads to `quiet/calm` with one endpoint.
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn new() -> Self {
        let sources = Kind::ALL.map(|kind| Source { kind, namespace: None });
        let addresses = AddressPolicy {
            own: ["10.9.9.9".parse().unwrap()].into(),
            refused: ["10.96.0.1/32".parse().unwrap()].into(),
            ..AddressPolicy::default()
        };
        let reconciler = Reconciler::new(Options { addresses, ..Options::default() }, sources.clone());
        let mut edge = Self { reconciler, now: Instant::now() };
        for source in sources {
            let (objects, resource_version, received) = (Vec::new(), "1".into(), edge.now);
            let event = Event::Listed { source, objects, complete: true, resource_version, received };
            assert_eq!(edge.reconciler.observe(event, edge.now), None);
        }
        edge.settle();
        let class = json!({"metadata": {"name": "tidegate"}, "spec": {"controller": "tidegate.io/ingress"}});
        edge.apply(Kind::IngressClass, class);
        edge.apply(Kind::Service, service("quiet", "calm"));
        edge.apply(Kind::EndpointSlice, slice("quiet", "calm", &["10.0.0.1"]));
        edge.apply(Kind::Ingress, ingress("quiet", "calm", "neighbour.example", &json!(["/"])));
        edge.settle();
        edge
    }

    /// Takes an object as it is now. One that can be nobody's is left out, as informers do.
    fn apply(&mut self, kind: Kind, mut object: Value) {
        object["metadata"]["resourceVersion"] = "2".into();
        let Ok(projected) = project(kind, object.to_string().as_bytes()) else { return };
        let event = Event::Applied { projected: Box::new(projected), received: self.now };
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    /// Everything that waits is compiled, and the names that are then looked up all lead to loopback.
    fn settle(&mut self) {
        loop {
            let Some(step) = self.reconciler.reconcile(self.now) else { break };
            for name in step.names.iter().flat_map(|names| &**names) {
                let addresses = Ok(["127.0.0.1".parse().unwrap()].into());
                self.reconciler.observe(Event::Resolved { name: Arc::clone(name), addresses }, self.now);
            }
        }
        self.now += self.reconciler.options().pace.settle;
        while self.reconciler.reconcile(self.now).is_some() {}
    }

    fn parts(&self) -> &SnapshotParts {
        &self.reconciler.compiled().parts
    }

    fn neighbour(&self) -> (Arc<HostRoutes>, Arc<Backend>) {
        let routes = self.parts().hosts.get(&HostPattern::Exact("neighbour.example".into())).expect("the neighbour");
        let backend = self.parts().backends.iter().find(|(key, _)| key.service == ObjectName::new("quiet", "calm"));
        (Arc::clone(routes), Arc::clone(backend.expect("its endpoints").1))
    }
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn external(dns: &str) -> Value {
    json!({"metadata": {"namespace": "loud", "name": "x"}, "spec": {"type": "ExternalName", "externalName": dns, "ports": [{"port": 80}]}})
}

fn slice(namespace: &str, service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let family = if addresses.first().is_some_and(|address| address.contains(':')) { "IPv6" } else { "IPv4" };
    json!({
        "metadata": {"namespace": namespace, "name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family, "ports": [{"port": 80}], "endpoints": endpoints,
    })
}

/// The quiet ones were there first.
fn ingress(namespace: &str, service: &str, host: &str, paths: &Value) -> Value {
    let created = if namespace == "quiet" { "2026-01-01T00:00:00Z" } else { "2026-01-02T00:00:00Z" };
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let paths = paths.as_array().expect("paths").iter();
    let paths: Vec<Value> = paths.map(|path| json!({"path": path, "pathType": "Prefix", "backend": backend})).collect();
    json!({
        "metadata": {"namespace": namespace, "name": service, "creationTimestamp": created},
        "spec": {"ingressClassName": "tidegate", "rules": [{"host": host, "http": {"paths": paths}}]},
    })
}

/// An Ingress `loud/x` for `loud.example`, and what it leads to.
fn with(mut objects: Vec<(Kind, Value)>) -> Vec<(Kind, Value)> {
    objects.push((Kind::Ingress, ingress("loud", "x", "loud.example", &json!(["/"]))));
    objects
}

fn led_to(addresses: &[&str]) -> Vec<(Kind, Value)> {
    with(vec![(Kind::Service, service("loud", "x")), (Kind::EndpointSlice, slice("loud", "x", addresses))])
}

/// Applies the objects, and holds what became of them against the row: routes of `loud` and their endpoints, and the reasons
/// that its owner is told.
#[track_caller]
fn check(what: &str, objects: Vec<(Kind, Value)>, routes: usize, endpoints: usize, told: &[&str]) {
    let mut edge = Edge::new();
    let before = edge.neighbour();
    for (kind, object) in objects {
        edge.apply(kind, object);
    }
    edge.settle();
    let after = edge.neighbour();
    assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1), "{what}: the neighbour noticed");
    let loud = |namespace: &str| namespace == "loud";
    let made = edge
        .parts()
        .hosts
        .iter()
        .map(|(_, host)| host.all().filter(|route| loud(&route.origin.object.name.namespace)).count());
    assert_eq!(made.sum::<usize>(), routes, "{what}: routes");
    let backends = edge.parts().backends.iter().filter(|(key, _)| loud(&key.service.namespace));
    assert_eq!(backends.map(|(_, backend)| backend.endpoints.len()).sum::<usize>(), endpoints, "{what}: endpoints");
    let mut reasons = BTreeSet::new();
    for finding in edge.reconciler.compiled().all_findings() {
        assert!(loud(&finding.object.name.namespace), "{what}: {finding} is told to somebody else");
        let text = finding.to_string();
        assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
        assert!(text.chars().count() < TOLD_MAX, "{what}: {} characters", text.chars().count());
        reasons.insert(finding.problem.reason());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), told, "{what}");
}

#[test]
fn addresses_lead_nowhere_near_the_edge() {
    for (what, address) in [
        ("loopback", "127.0.0.1"),
        ("loopback", "::1"),
        ("loopback as IPv4 in IPv6", "::ffff:127.0.0.1"),
        ("link-local: the cloud's metadata", "169.254.169.254"),
        ("link-local", "fe80::1"),
        ("the edge itself", "10.9.9.9"),
        ("the API server, which the operator refuses", "10.96.0.1"),
        ("no host", "0.0.0.0"),
    ] {
        check(what, led_to(&[address]), 1, 0, &["AddressRefused"]);
    }
    check("one good address among bad ones", led_to(&["127.0.0.1", "10.0.0.2"]), 1, 1, &["AddressRefused"]);
    for dns in ["localhost", "metadata.google.internal", "rebound.example"] {
        check(dns, with(vec![(Kind::Service, external(dns))]), 1, 0, &["AddressRefused"]);
    }
    for dns in ["127.0.0.1", "", "..", "a b", "\u{0}", &"a".repeat(300)] {
        let objects = with(vec![(Kind::Service, external(dns))]);
        let mut edge = Edge::new();
        objects.into_iter().for_each(|(kind, object)| edge.apply(kind, object));
        edge.settle();
        let endpoints = edge.parts().backends.iter().filter(|(key, _)| &*key.service.namespace == "loud");
        assert_eq!(endpoints.map(|(_, backend)| backend.endpoints.len()).sum::<usize>(), 0, "{dns:?}");
    }
}

#[test]
fn much_of_anything_is_its_owners_alone() {
    let slow = || led_to(&["10.0.0.2"]);
    let paths = |count: usize| json!((0..count).map(|number| format!("/{number}")).collect::<Vec<_>>());
    let mut many = slow();
    many.push((Kind::Ingress, ingress("loud", "x", "loud.example", &paths(10_000))));
    check("10,000 paths", many, 10_000, 1, &[]);
    let mut more = slow();
    more.push((Kind::Ingress, ingress("loud", "x", "loud.example", &paths(20_000))));
    check("20,000 paths", more, 16_384, 1, &["RuleDropped"]);

    let mut annotated = ingress("loud", "x", "loud.example", &json!(["/"]));
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
        objects.push((Kind::Ingress, ingress("loud", "x", &host, &json!(["/"]))));
        check(&host, objects, routes, usize::from(routes > 0), told);
    }

    let mut objects = slow();
    for number in 0..5000 {
        let mut another = ingress("loud", "x", "loud.example", &json!([format!("/{number}")]));
        another["metadata"]["name"] = format!("i{number}").into();
        objects.push((Kind::Ingress, another));
    }
    check("5,000 Ingresses for one host", objects, 5001, 1, &[]);
    let endpoints: Vec<String> = (0..10_500).map(|number| format!("10.1.{}.{}", number / 250, number % 250)).collect();
    let addresses: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    check("10,500 endpoints in one slice", led_to(&addresses), 1, 10_000, &["RuleDropped"]);
}

#[test]
fn a_claim_on_the_neighbours_host_takes_nothing_away() {
    let mut edge = Edge::new();
    let (before, _) = edge.neighbour();
    for number in 0..50 {
        let mut claim = ingress("loud", "x", "neighbour.example", &json!(["/", "/only-here"]));
        claim["metadata"]["name"] = format!("i{number}").into();
        edge.apply(Kind::Ingress, claim);
    }
    edge.settle();
    let (after, _) = edge.neighbour();
    let own = |host: &HostRoutes| -> Vec<_> {
        host.all().filter(|route| &*route.origin.object.name.namespace == "quiet").cloned().collect()
    };
    assert_eq!(own(&before), own(&after), "the rules of the older object serve as before");
    let lost = edge.reconciler.compiled().all_findings();
    assert!(lost.iter().all(|finding| &*finding.object.name.namespace == "loud"), "{lost:?}");
}

#[test]
fn garbage_is_told_to_its_owner() {
    let secret = |data: Value| json!({"metadata": {"namespace": "loud", "name": "s"}, "type": "kubernetes.io/tls", "data": data});
    let mut with_tls = ingress("loud", "x", "loud.example", &json!(["/"]));
    with_tls["spec"]["tls"] = json!([{"hosts": ["loud.example"], "secretName": "s"}]);
    for data in [
        json!({"tls.crt": "!", "tls.key": "!"}),
        json!({"tls.crt": "AAAA", "tls.key": "AAAA"}),
        json!({"tls.crt": "A".repeat(1 << 20), "tls.key": "A".repeat(1 << 20)}),
        json!({"tls.crt": {}, "tls.key": []}),
        json!([]),
        json!({}),
    ] {
        let mut objects = led_to(&["10.0.0.2"]);
        objects.push((Kind::Ingress, with_tls.clone()));
        objects.push((Kind::Secret, secret(data.clone())));
        let text = data.to_string();
        check(&text[..text.len().min(60)], objects, 1, 1, &["CertificateBroken"]);
    }
}

/// Every text of an object in turn becomes what no API server would let pass, and nothing happens to anybody else.
#[test]
fn strange_texts_stay_where_they_are() {
    let texts = [
        "\u{0}",
        "\u{1b}[2J",
        "\r\nX: y",
        "../../etc/passwd",
        "a/b",
        "\u{202e}abc",
        "💣",
        "%00",
        "{}",
        "$(id)",
        "'\"`;",
    ];
    let originals = [
        (Kind::Service, service("loud", "x")),
        (Kind::EndpointSlice, slice("loud", "x", &["10.0.0.2"])),
        (Kind::Ingress, ingress("loud", "x", "loud.example", &json!(["/"]))),
    ];
    for (which, (_, original)) in originals.iter().enumerate() {
        for place in places(original) {
            for text in texts {
                let mut edge = Edge::new();
                let before = edge.neighbour();
                for (number, (kind, object)) in originals.iter().enumerate() {
                    let mut object = object.clone();
                    if number == which {
                        *object.pointer_mut(&place).expect("the place") = text.into();
                    }
                    edge.apply(*kind, object);
                }
                edge.settle();
                let after = edge.neighbour();
                assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1), "{place} {text:?}");
                for finding in edge.reconciler.compiled().all_findings() {
                    let said = finding.to_string();
                    assert!(!said.chars().any(char::is_control), "{place} {text:?}: {said:?}");
                }
            }
        }
    }
}

/// Where the texts of an object are, as JSON pointers.
fn places(value: &Value) -> Vec<String> {
    let inner = |name: String, value: &Value| -> Vec<String> {
        places(value).into_iter().map(|place| format!("/{name}{place}")).collect()
    };
    match value {
        Value::String(_) => vec![String::new()],
        Value::Array(list) => list.iter().enumerate().flat_map(|(n, value)| inner(n.to_string(), value)).collect(),
        Value::Object(map) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            map.iter().flat_map(|(name, value)| inner(escaped(name), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}
