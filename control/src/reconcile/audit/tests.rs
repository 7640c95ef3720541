//! Tests of unnoticed drift and its repair by the audit.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Backend, BackendKey, Certificate, HostPattern, HostRoutes, SnapshotParts, VirtualHost};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::StatusReading;
use tidegate_config::project::{Meta, Object, Projected, Secret, SecretTexts, project};
use tidegate_config::published::{self, Publisher};

use crate::attachment::Attachment;
use crate::clock;
use crate::command::Command;
use crate::compile::Compiled;
use crate::event::{Collection, Event};
use crate::options::Options;
use crate::reference::compile;
use crate::sources::attach_all;
use crate::world::World;

use super::*;

impl Reconciler {
    /// World, to be changed without events.
    pub(crate) fn unseen(&mut self) -> &mut World {
        &mut self.model.world
    }
}

fn projected(kind: Kind, name: &str, mut object: Value) -> Projected {
    object["metadata"]["name"] = name.into();
    object["metadata"]["resourceVersion"] = "1".into();
    if kind.namespaced() {
        object["metadata"]["namespace"] = "shop".into();
    }
    project(kind, object.to_string().as_bytes()).unwrap()
}

/// The Ingress of `NAME.example`, with a Service as its backend.
fn ingress(name: &str, service: &str) -> Projected {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": format!("{name}.example"), "http": {"paths": paths}}]);
    projected(Kind::Ingress, name, json!({"spec": {"ingressClassName": "tidegate", "rules": rules}}))
}

fn service(name: &str) -> Projected {
    projected(Kind::Service, name, json!({"spec": {"ports": [{"port": 80}]}}))
}

fn slice(service: &str, address: &str) -> Projected {
    let object = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": [{"addresses": [address]}],
    });
    projected(Kind::EndpointSlice, service, object)
}

fn class(controller: &str) -> Projected {
    projected(Kind::IngressClass, "tidegate", json!({"spec": {"controller": controller}}))
}

/// The default certificate, newly created.
fn certificate() -> Projected {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(name("default"), chain.as_bytes(), key.as_bytes()).map(Arc::new);
    let object = Object::Secret(Arc::new(Secret {
        name: name("default"),
        certificate,
        api_key: None,
        texts: SecretTexts::default(),
    }));
    let key = object_ref(Kind::Secret, "default");
    let meta = Meta { object: key, uid: None, resource_version: "1".into(), generation: None };
    Projected {
        meta,
        object: Some(object),
        findings: Vec::new(),
        addresses: Vec::new(),
        status: StatusReading::default(),
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

fn object_ref(kind: Kind, object: &str) -> ObjectRef {
    ObjectRef::new(kind, name(object))
}

fn host(name: &str) -> VirtualHost {
    HostPattern::Exact(format!("{name}.example").into()).into()
}

fn key(service: &str) -> BackendKey {
    BackendKey::tcp(name(service), 80)
}

/// A loop that serves `a.example` and `b.example`, each with an Ingress, a Service and a slice of its name, and a
/// default certificate.
struct Bench {
    reconciler: Reconciler,
    publisher: Publisher,
    now: Instant,
}

impl Bench {
    fn new(slow_batch_max: usize) -> Self {
        let mut options = Options { default_certificate: Some(name("default")), ..Options::default() };
        options.pace.share.slow_batch_max = slow_batch_max;
        let collections = Kind::ALL.map(|kind| Collection { kind, namespace: None });
        let reconciler = Reconciler::new(options, collections.clone());
        let mut bench = Self { reconciler, publisher: published::channel().0, now: clock::now() };
        for collection in collections {
            let objects = match collection.kind {
                Kind::Ingress => vec![ingress("a", "a"), ingress("b", "b")],
                Kind::IngressClass => vec![class("tidegate.io/ingress")],
                Kind::Service => vec![service("a"), service("b")],
                Kind::EndpointSlice => vec![slice("a", "10.0.0.1"), slice("b", "10.0.0.2")],
                Kind::Secret => vec![certificate()],
                Kind::Deployment => Vec::new(),
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
                | Kind::AuthPolicy => Vec::new(),
            };
            let (resource_version, received) = ("1".into(), bench.now);
            bench.observe(Event::Listed { collection, objects, complete: true, resource_version, received });
        }
        bench.settle();
        bench
    }

    fn observe(&mut self, event: Event) {
        assert_eq!(self.reconciler.observe(event, self.now), None);
    }

    /// Compiles and publishes all waiting units.
    fn settle(&mut self) {
        while let Some(step) = self.reconciler.reconcile(self.now) {
            self.publish(step);
        }
    }

    fn publish(&mut self, step: Step) -> bool {
        let published = step.published.map(|(parts, _)| {
            let ready = self.publisher.prepare(parts);
            self.publisher.publish(ready);
        });
        published.is_some()
    }

    /// One round of the audit: the drift it found, the number of turns, and whether anything was published.
    fn round(&mut self) -> (Vec<String>, usize, bool) {
        let (mut drifted, mut turns, mut published) = (Vec::new(), 0, false);
        loop {
            self.now = self.now.max(self.reconciler.audit_due().expect("nothing waits"));
            let audit = self.reconciler.audit(&self.publisher.serving(), self.now, u64::MAX).expect("it is due");
            drifted.extend(audit.drifted.iter().map(Unit::to_string));
            turns += 1;
            published |= audit.step.is_some_and(|step| self.publish(step));
            if audit.whole {
                return (drifted, turns, published);
            }
        }
    }

    /// Checks that everything equals a compilation from scratch, and serves.
    #[track_caller]
    fn check_right(&self) {
        let Reconciler {
            model: Model { options, world, topology, frozen_backends, compiled, attached: _ },
            holding,
            ..
        } = &self.reconciler;
        let full = compile(world, options, frozen_backends);
        assert_eq!(all(&compiled.parts), all(&full.parts));
        assert_eq!((compiled.findings.by_unit(), &compiled.verdicts), (full.findings.by_unit(), &full.verdicts));
        assert!(topology.attachments().eq(attach_all(world, options).attachments()));
        let serving = self.publisher.serving();
        let backends = serving.backends().iter().map(|(key, backend)| (key.clone(), Arc::clone(backend)));
        assert_eq!(backends.collect::<BTreeMap<_, _>>(), all(&compiled.parts).1);
        if !holding.holds() {
            let hosts = serving.hosts().iter().map(|(host, routes)| (host, Arc::clone(routes)));
            assert_eq!(hosts.collect::<BTreeMap<_, _>>(), all(&compiled.parts).0);
            assert_eq!(serving.default_certificate(), compiled.parts.default_certificate.as_ref());
        }
    }
}

type All = (BTreeMap<VirtualHost, Arc<HostRoutes>>, BTreeMap<BackendKey, Arc<Backend>>, Option<Arc<Certificate>>);

fn all(parts: &SnapshotParts) -> All {
    let hosts = parts.hosts.iter().map(|(host, routes)| (host, Arc::clone(routes)));
    let backends = parts.backends.iter().map(|(key, backend)| (key.clone(), Arc::clone(backend)));
    (hosts.collect(), backends.collect(), parts.default_certificate.clone())
}

/// Makes a correct loop drift: the next round finds `found`, and publishes a repair if `publishes`. After it everything
/// is correct, and the round after that finds nothing, whatever the length of a turn.
#[track_caller]
fn check(drift: impl Fn(&mut Bench), found: &[&str], publishes: bool) {
    for slow_batch_max in [1, 3, 64] {
        let mut bench = Bench::new(slow_batch_max);
        assert_eq!(bench.round().0, [""; 0], "nothing has drifted yet");
        drift(&mut bench);
        let (drifted, _, published) = bench.round();
        assert_eq!(drifted, found, "{slow_batch_max} units a turn");
        assert_eq!(published, publishes, "{slow_batch_max} units a turn");
        bench.check_right();
        let generation = bench.publisher.serving().generation();
        assert_eq!(bench.round().0, [""; 0], "all is mended");
        assert_eq!(bench.publisher.serving().generation(), generation);
    }
}

#[test]
fn the_effect_of_a_lost_change_is_repaired() {
    let delete = |kind, name| {
        move |bench: &mut Bench| {
            bench.reconciler.unseen().delete(&object_ref(kind, name));
        }
    };
    let change = |object: fn() -> Projected| {
        move |bench: &mut Bench| {
            bench.reconciler.unseen().apply(object());
        }
    };
    let all_of_a = ["Ingress shop/a", "host a.example", "endpoints of shop/a"];
    check(delete(Kind::Ingress, "a"), &all_of_a, true);
    check(change(|| ingress("a", "b")), &all_of_a, true);
    check(change(|| ingress("c", "b")), &["Ingress shop/c", "host c.example"], true);
    check(change(|| service("c")), &[], false);
    check(delete(Kind::Service, "b"), &["Ingress shop/b", "host b.example", "endpoints of shop/b"], true);
    check(change(|| slice("a", "10.0.0.9")), &["endpoints of shop/a"], true);
    check(delete(Kind::EndpointSlice, "a"), &["EndpointSlice shop/a", "endpoints of shop/a"], true);
    check(change(certificate), &["Secret shop/default", "the global settings"], true);
    let others = [
        "Ingress shop/a",
        "Ingress shop/b",
        "host a.example",
        "endpoints of shop/a",
        "host b.example",
        "endpoints of shop/b",
    ];
    check(change(|| class("example.com/other")), &others, true);
}

#[test]
fn missing_compiled_parts_are_repaired() {
    let compiled = |change: fn(&mut Compiled)| move |bench: &mut Bench| change(&mut bench.reconciler.model.compiled);
    let lost_host = |compiled: &mut Compiled| assert!(compiled.parts.hosts.remove(&host("a")));
    check(compiled(lost_host), &["host a.example"], true);
    let swapped = |compiled: &mut Compiled| {
        let other = Arc::clone(compiled.parts.hosts.get(&host("b")).unwrap());
        compiled.parts.hosts.insert(&host("a"), other);
    };
    check(compiled(swapped), &["host a.example"], true);
    let lost_backend = |compiled: &mut Compiled| assert!(compiled.parts.backends.remove_mut(&key("b")));
    check(compiled(lost_backend), &["endpoints of shop/b"], true);
    let lost_certificate = |compiled: &mut Compiled| compiled.parts.default_certificate = None;
    check(compiled(lost_certificate), &["the global settings"], true);
    let lost_verdict =
        |compiled: &mut Compiled| assert!(compiled.verdicts.remove(&object_ref(Kind::Ingress, "a")).is_some());
    check(compiled(lost_verdict), &["Ingress shop/a"], false);
    let odd_verdict = |compiled: &mut Compiled| {
        let verdict = compiled.verdicts[&object_ref(Kind::Ingress, "a")].clone();
        compiled.verdicts.insert(object_ref(Kind::Ingress, "gone"), verdict);
    };
    check(compiled(odd_verdict), &["Ingress shop/gone"], false);
    let odd_finding = |compiled: &mut Compiled| {
        let problem = Problem::ProcessingFailed { why: "it was".to_owned() };
        let finding = Finding::new(object_ref(Kind::Ingress, "a"), "spec", problem);
        compiled.findings.put(Unit::Host(host("gone")), vec![finding]);
    };
    check(compiled(odd_finding), &["host gone.example"], false);
    let unlinked = |bench: &mut Bench| {
        bench.reconciler.model.topology.replace(&object_ref(Kind::Ingress, "a"), Attachment::default());
    };
    check(unlinked, &["Ingress shop/a"], false);
}

#[test]
fn compiled_parts_that_do_not_serve_are_published() {
    let serve = |change: fn(&mut SnapshotParts)| {
        move |bench: &mut Bench| {
            let mut parts = bench.reconciler.model.compiled.parts.clone();
            change(&mut parts);
            let ready = bench.publisher.prepare(parts);
            bench.publisher.publish(ready);
        }
    };
    check(serve(|parts| assert!(parts.hosts.remove(&host("a")))), &["host a.example"], true);
    check(serve(|parts| assert!(parts.backends.remove_mut(&key("a")))), &["endpoints of shop/a"], true);
    check(serve(|parts| parts.default_certificate = None), &["the global settings"], true);
    let too_many = |parts: &mut SnapshotParts| {
        let routes = Arc::clone(parts.hosts.get(&host("a")).unwrap());
        parts.hosts.insert(&host("left"), routes);
        let backend = Arc::clone(parts.backends.get(&key("a")).unwrap());
        parts.backends.insert_mut(key("left"), backend);
    };
    check(serve(too_many), &["host left.example", "endpoints of shop/left"], true);
}

#[test]
fn during_a_hold_drift_is_repaired_and_endpoints_are_published() {
    let mut bench = Bench::new(64);
    let generation = bench.publisher.serving().generation();
    let routes = bench.reconciler.model.compiled.parts.clone();
    bench.reconciler.hold(Command::Freeze, generation, routes, bench.now);
    bench.settle();
    bench.reconciler.unseen().apply(ingress("a", "b"));
    assert_eq!(bench.round(), (vec!["Ingress shop/a".to_owned(), "host a.example".to_owned()], 1, false));
    bench.reconciler.unseen().apply(slice("a", "10.0.0.9"));
    assert_eq!(bench.round(), (vec!["endpoints of shop/a".to_owned()], 1, true));
    bench.check_right();
    assert_eq!(backends_of_host(&bench.publisher.serving()), "shop/a:80", "these routes are held");
    bench.reconciler.thaw(Command::Thaw, bench.now);
    bench.settle();
    assert_eq!(backends_of_host(&bench.publisher.serving()), "shop/b:80");
    bench.check_right();
    assert_eq!(bench.round().0, [""; 0]);
}

/// The backend of `a.example`.
fn backends_of_host(serving: &Snapshot) -> String {
    let routes = serving.hosts().get(&host("a")).unwrap().routes();
    routes[0].action.targets().next().unwrap().backend.to_string()
}

/// The audit does nothing while keys wait, or before its time; and a turn is no longer than a slow batch.
#[test]
fn an_audit_yields_to_changes() {
    let mut bench = Bench::new(3);
    assert_eq!(bench.reconciler.round.due, bench.reconciler.audit_due());
    let due = bench.reconciler.audit_due().unwrap();
    let serving = bench.publisher.serving();
    let before = due.checked_sub(Duration::from_nanos(1)).unwrap();
    assert!(bench.reconciler.audit(&serving, before, 0).is_none(), "it is not due");
    bench.observe(Event::Applied { projected: Box::new(slice("a", "10.0.0.9")), received: due });
    assert_eq!(bench.reconciler.audit_due(), None);
    assert!(bench.reconciler.audit(&serving, due, 0).is_none(), "a change waits");
    bench.now = due;
    bench.settle();

    // Eight objects, including a class and a Secret; two hosts; two Services; the default certificate: thirteen units.
    let (_, turns, _) = bench.round();
    assert_eq!(turns, 5);
    let begun = bench.now;
    bench.round();
    let (round, settled) = (bench.now - begun, bench.reconciler.model.options.pace.audit);
    assert!(settled < round && round <= settled * 3 / 2, "{round:?}");

    // A turn ends with a host that has as many routes as one may compile: after the first host, and after the second.
    bench.reconciler.model.options.pace.audit_routes_max = 1;
    bench.reconciler.model.options.pace.share.slow_batch_max = 64;
    let (_, turns, _) = bench.round();
    assert_eq!(turns, 3);

    let mut waiting = Reconciler::new(Options::default(), [Collection { kind: Kind::Ingress, namespace: None }]);
    assert_eq!((waiting.audit_due(), waiting.audit(&serving, due, 0).is_none()), (None, true), "there is no model yet");
}
