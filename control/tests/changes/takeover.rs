//! An object that replaces another one: every request has a backend, whatever else is queued and in whatever order the
//! two arrive.

use serde_json::Value;
use tidegate_config::object::Kind;
use tidegate_control::Order;
use tidegate_control::options::Options;

use crate::bench::Bench;
use crate::manifests::{ingress, ingress_of, service, slice};

/// Other objects of the same kind that change as well: several batches.
const OTHERS: usize = 200;

/// A change.
type Act<'a> = dyn Fn(&mut Bench) + 'a;

fn others(path: &str) -> Vec<Value> {
    let other = |n| ingress_of(&format!("by{n}"), &format!("by{n}.example"), &format!("by{n}"), &[path]);
    (0..OTHERS).map(other).collect()
}

fn with_others(path: &str, last: Value) -> Vec<Value> {
    others(path).into_iter().chain([last]).collect()
}

/// Plays a change of `web.example`, which leads to 10.0.0.1 through the Service `old`: with recently used units first,
/// and with removed objects last in their list. After each batch the route must lead to one of `want`,
/// and finally to the last.
#[track_caller]
fn check(act: &Act<'_>, want: &[&str]) {
    for order in [Order::default(), Order::by(|ingress| u64::from(&*ingress.name.name != "web"))] {
        let mut bench = Bench::running(Options::default());
        bench.reconciler = bench.reconciler.ordered(order);
        let others = (0..OTHERS).map(|n| (format!("by{n}"), "10.0.1.1"));
        for (name, address) in [("old".into(), "10.0.0.1"), ("new".into(), "10.0.0.2")].into_iter().chain(others) {
            bench.apply(Kind::Service, service(&name));
            bench.apply(Kind::EndpointSlice, slice(&name, &[address]));
        }
        with_others("/", ingress("old")).into_iter().for_each(|ingress| bench.apply(Kind::Ingress, ingress));
        bench.reconcile();
        bench.check("10.0.0.1");
        act(&mut bench);
        let mut batches = 0;
        while bench.reconciler.busy() {
            let step = bench.reconciler.reconcile(bench.now).expect("a batch");
            bench.published = step.published.map(|(parts, _)| parts).or(bench.published);
            let leads = bench.leads();
            assert!(want.contains(&&*leads), "after {batches} batches to {leads}");
            batches += 1;
        }
        assert!(batches > 2, "{batches} batches");
        bench.check(want.last().expect("something"));
    }
}

fn taken_over(to: &str) -> Value {
    ingress_of("web-2", "web.example", to, &["/"])
}

#[test]
fn a_replaced_ingress_hands_its_host_over_without_a_gap() {
    // In one list, with other Ingresses that have changed.
    check(
        &|bench: &mut Bench| assert_eq!(bench.list(Kind::Ingress, &with_others("/x", taken_over("new"))), None),
        &["10.0.0.1", "10.0.0.2"],
    );
    // The new object arrives in a list, and the old one is removed by a watch event.
    let told_apart = |bench: &mut Bench| {
        let both = with_others("/x", taken_over("new")).into_iter().chain([ingress("old")]);
        assert_eq!(bench.list(Kind::Ingress, &both.collect::<Vec<_>>()), None);
        bench.delete(Kind::Ingress, "web");
    };
    check(&told_apart, &["10.0.0.1", "10.0.0.2"]);
    // The old object continues with another host.
    let moved = |bench: &mut Bench| {
        let both = with_others("/x", taken_over("new")).into_iter().chain([ingress("old")]);
        assert_eq!(bench.list(Kind::Ingress, &both.collect::<Vec<_>>()), None);
        bench.apply(Kind::Ingress, ingress_of("web", "other.example", "old", &["/"]));
    };
    check(&moved, &["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn a_replaced_ingress_hands_over_to_a_new_service_without_a_gap() {
    let all_new = |bench: &mut Bench| {
        let mut services: Vec<Value> = ["old", "new", "newest"].map(service).into();
        services.extend((0..OTHERS).map(|n| service(&format!("by{n}"))));
        assert_eq!(bench.list(Kind::Service, &services), None);
        assert_eq!(bench.list(Kind::Ingress, &with_others("/x", taken_over("newest"))), None);
        let mut slices: Vec<Value> = (0..OTHERS).map(|n| slice(&format!("by{n}"), &["10.0.1.1"])).collect();
        slices
            .extend([("old", "10.0.0.1"), ("new", "10.0.0.2"), ("newest", "10.0.0.3")].map(|(s, at)| slice(s, &[at])));
        assert_eq!(bench.list(Kind::EndpointSlice, &slices), None);
    };
    check(&all_new, &["10.0.0.1", "10.0.0.3"]);
}

#[test]
fn a_replaced_endpointslice_leaves_no_gap() {
    let replaced = |bench: &mut Bench| {
        let mut after = slice("old", &["10.0.0.7"]);
        after["metadata"]["name"] = "old-2".into();
        let mut slices: Vec<Value> = (0..OTHERS).map(|n| slice(&format!("by{n}"), &["10.0.1.2"])).collect();
        slices.extend([after, slice("new", &["10.0.0.2"])]);
        assert_eq!(bench.list(Kind::EndpointSlice, &slices), None);
    };
    check(&replaced, &["10.0.0.1", "10.0.0.7"]);
}

/// An Ingress waits for its new backend. Whatever happens to the old one, a request goes to one of them.
#[test]
fn a_waiting_ingress_routes_to_its_old_or_its_new_service() {
    let left = |bench: &mut Bench| {
        assert_eq!(bench.list(Kind::Ingress, &with_others("/x", ingress("new"))), None);
    };
    let listed = |bench: &mut Bench, services: &[&str], kind: Kind, object: fn(&str) -> Value| {
        let by: Vec<String> = (0..OTHERS).map(|n| format!("by{n}")).collect();
        let all = services.iter().copied().chain(by.iter().map(String::as_str));
        assert_eq!(bench.list(kind, &all.map(object).collect::<Vec<_>>()), None);
    };
    let acts: [(&str, &Act<'_>); 6] = [
        ("it moves", &|bench| bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.1"]))),
        ("its endpoints go", &|bench| bench.apply(Kind::EndpointSlice, slice("old", &[]))),
        ("its slice goes", &|bench| bench.delete(Kind::EndpointSlice, "old")),
        ("it goes", &|bench| bench.delete(Kind::Service, "old")),
        ("it goes, and is listed to", &|bench| listed(bench, &["new"], Kind::Service, service)),
        ("its slice goes, and is listed to", &|bench| {
            listed(bench, &["new"], Kind::EndpointSlice, |name| {
                slice(name, &[if name == "new" { "10.0.0.2" } else { "10.0.1.1" }])
            });
        }),
    ];
    for (what, act) in acts {
        println!("{what}");
        check(
            &|bench: &mut Bench| {
                left(bench);
                act(bench);
            },
            &["10.0.0.1", "10.0.0.2"],
        );
    }
}
