//! What a list brings is compiled in the order that the caller gives: what is in use first.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::net::IpAddr;
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::project;
use tidegate_control::options::{Options, Pace};
use tidegate_control::{Event, Order, Reconciler, Share, Source};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn class() -> Value {
    json!({"metadata": {"name": "tidegate"}, "spec": {"controller": "tidegate.io/ingress"}})
}

fn ingress(name: &str) -> Value {
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "ingressClassName": "tidegate",
            "rules": [{"host": format!("{name}.example"), "http": {"paths": [path]}}],
        },
    })
}

fn service(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn slice(name: &str, address: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    })
}

fn list(reconciler: &mut Reconciler, kind: Kind, objects: impl IntoIterator<Item = Value>, now: Instant) {
    let projected = |mut object: Value| {
        object["metadata"]["resourceVersion"] = "2".into();
        project(kind, object.to_string().as_bytes()).expect("an identity")
    };
    let objects = objects.into_iter().map(projected).collect();
    let source = Source { kind, namespace: None };
    let event = Event::Listed { source, objects, complete: true, resource_version: "1".into(), received: now };
    assert_eq!(reconciler.observe(event, now), None);
}

/// A second list of slices has another address for each; the Services get theirs in this order.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
fn check(order: Order, want: [&str; 4]) {
    let now = Instant::now();
    let pace = Pace::default();
    let pace = Pace { share: Share { slow_batch_max: 1, ..pace.share }, ..pace };
    let options = Options { pace, ..Options::default() };
    let sources = Kind::ALL.map(|kind| Source { kind, namespace: None });
    let mut reconciler = Reconciler::new(options, sources).ordered(order);
    list(&mut reconciler, Kind::IngressClass, [class()], now);
    list(&mut reconciler, Kind::Ingress, NAMES.map(ingress), now);
    list(&mut reconciler, Kind::Service, NAMES.map(service), now);
    list(&mut reconciler, Kind::EndpointSlice, NAMES.map(|name| slice(name, "10.0.0.1")), now);
    list(&mut reconciler, Kind::Secret, [], now);
    assert!(reconciler.reconcile(now).is_some() && !reconciler.busy());
    list(&mut reconciler, Kind::EndpointSlice, NAMES.map(|name| slice(name, "10.0.0.2")), now);
    let (moved_to, mut came) = (IpAddr::from([10, 0, 0, 2]), Vec::<String>::new());
    while reconciler.reconcile(now).is_some() {
        let backends = reconciler.compiled().parts.backends.iter();
        let moved = backends.filter(|(_, backend)| backend.endpoints.iter().any(|e| e.address.ip() == moved_to));
        let moved: Vec<String> = moved.map(|(key, _)| key.service.name.to_string()).collect();
        came.extend(moved.into_iter().filter(|name| !came.contains(name)).collect::<Vec<_>>());
        if !reconciler.busy() {
            break;
        }
    }
    assert_eq!(came, want);
}

#[test]
fn what_is_in_use_goes_first() {
    check(Order::default(), ["a", "b", "c", "d"]);
    check(Order::by(|ingress| u64::from(&*ingress.name.name != "c")), ["c", "a", "b", "d"]);
    check(Order::by(|ingress| u64::from(&*ingress.name.name < "c")), ["c", "d", "a", "b"]);
}
