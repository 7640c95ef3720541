//! The cost of an idle cluster for the API server: every request of an hour without changes is counted, and only those
//! of the table are allowed. The hour is simulated.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_control::ElectionTiming;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::edge::{Api, Edge, addresses, eventually, service};

const HOUR: Duration = Duration::from_secs(3600);

const COLLECTIONS: [&str; 5] = [
    "/api/v1/secrets",
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/networking.k8s.io/v1/ingresses",
];
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/tidegate";

/// A watch lasts 120 to 200 s and is opened again at once; one may begin at either end of the hour, and one begins with
/// each list.
const WATCHES: RangeInclusive<usize> = 18..=38;
/// A list is made 600 to 900 s after the one before it.
const LISTS: RangeInclusive<usize> = 3..=7;
/// The Lease is read or renewed every 2 to 2.4 s, with a millisecond of the timer.
const ROUNDS: RangeInclusive<usize> = 1499..=1801;

/// The requests since the last call, by method and path; a watch counts as a method of its own.
fn counted(requests: &mut UnboundedReceiver<String>) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    while let Ok(request) = requests.try_recv() {
        *counted.entry(request).or_default() += 1;
    }
    counted
}

/// Checks that a replica has made only the expected requests, with this one for the election.
#[track_caller]
fn check(mut counted: BTreeMap<String, usize>, election: &str) {
    let of = |path: &str| [(format!("WATCH {path}"), WATCHES), (format!("GET {path}"), LISTS)];
    let rows = COLLECTIONS.into_iter().flat_map(of).chain([(format!("{election} {LEASE}"), ROUNDS)]);
    for (request, bounds) in rows {
        let count = counted.remove(&request).unwrap_or(0);
        println!("{request}: {count}, of {bounds:?}");
        assert!(bounds.contains(&count), "{request}: {count}, not {bounds:?}");
    }
    assert_eq!(counted, BTreeMap::new(), "and nothing else");
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_causes_only_watches_drift_lists_and_lease_renewals() {
    let api = Api::new().await;
    for name in ["one", "two", "three"] {
        api.ingress(name, "tidegate").await;
    }
    // There are no findings to report.
    api.create("/api/v1/namespaces/default/services", service("web", "ClusterIP")).await;
    let replica = |identity| {
        let (asked, requests) = unbounded_channel();
        let edge = Edge::on(api.heard_client(asked), addresses(&["192.0.2.1"]), identity, ElectionTiming::default());
        (edge, requests)
    };
    let (leader, mut of_leader) = replica("a");
    api.told("three", &["192.0.2.1"]).await;
    let (other, mut of_other) = replica("b");
    eventually(|| async { other.ready() }).await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    let generations = || [&leader, &other].map(|edge| *edge.view.generation().borrow());
    let (_, _, before) = (counted(&mut of_leader), counted(&mut of_other), generations());
    tokio::time::sleep(HOUR).await;
    check(counted(&mut of_leader), "PUT");
    check(counted(&mut of_other), "GET");

    assert_eq!(generations(), before, "nothing was published");
    for edge in [&leader, &other] {
        // Lists and audits were made, a round in 5 to 7½ minutes, and found nothing.
        let rounds = edge.metric("tidegate_audits_total", "");
        assert!((8..=13).contains(&rounds), "{rounds} rounds");
        for unit in ["object", "host", "service", "globals"] {
            assert_eq!(edge.metric("tidegate_audit_drift_total", unit), 0, "{unit}");
        }
        for kind in ["IngressClass", "Ingress", "Service", "EndpointSlice", "Secret"] {
            assert_eq!(edge.metric("tidegate_drift_total", kind), 0, "{kind}");
        }
    }
    assert_eq!((leader.leads(), other.leads(), leader.writes("written")), (1, 0, 3));
}
