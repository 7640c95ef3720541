//! The objects of a list are compiled in the order of the caller, which is recently used first.

use std::net::IpAddr;

use tidegate_config::object::Kind;
use tidegate_control::options::{Options, Pace};
use tidegate_control::{LaneShares, Order};

use crate::bench::Bench;
use crate::manifests::{class, ingress_of, service, slice};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The second list of EndpointSlices changes every address; compares the order in which the Services get them.
#[track_caller]
fn check(order: Order, want: [&str; 4]) {
    let pace = Pace::default();
    let pace = Pace { share: LaneShares { slow_batch_max: 1, ..pace.share }, ..pace };
    let mut bench = Bench::untold(Options { pace, ..Options::default() });
    bench.reconciler = bench.reconciler.ordered(order);
    let ingresses = NAMES.map(|name| ingress_of(name, &format!("{name}.example"), name, &["/"]));
    let slices = |address: &str| NAMES.map(|name| slice(name, &[address]));
    for (kind, objects) in [
        (Kind::IngressClass, &[class()][..]),
        (Kind::Ingress, &ingresses),
        (Kind::Service, &NAMES.map(service)),
        (Kind::EndpointSlice, &slices("10.0.0.1")),
        (Kind::Secret, &[]),
    ] {
        assert_eq!(bench.list(kind, objects), None);
    }
    assert!(bench.reconciler.reconcile(bench.now).is_some() && !bench.reconciler.busy());
    bench.list(Kind::EndpointSlice, &slices("10.0.0.2"));
    let (moved_to, mut came) = (IpAddr::from([10, 0, 0, 2]), Vec::<String>::new());
    while bench.reconciler.reconcile(bench.now).is_some() {
        let backends = bench.parts().backends.iter();
        let moved = backends.filter(|(_, backend)| backend.endpoints.iter().any(|e| e.address.ip() == moved_to));
        let moved: Vec<String> = moved.map(|(key, _)| key.service.name.to_string()).collect();
        came.extend(moved.into_iter().filter(|name| !came.contains(name)).collect::<Vec<_>>());
        if !bench.reconciler.busy() {
            break;
        }
    }
    assert_eq!(came, want);
}

#[test]
fn recently_used_hosts_are_compiled_first() {
    check(Order::default(), ["a", "b", "c", "d"]);
    check(Order::by(|ingress| u64::from(&*ingress.name.name != "c")), ["c", "a", "b", "d"]);
    check(Order::by(|ingress| u64::from(&*ingress.name.name < "c")), ["c", "d", "a", "b"]);
}
