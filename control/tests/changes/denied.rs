//! Selected namespaces that may not be read: the time of the first model without them, and the reports meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::PublicAddress;
use tidegate_control::Collection;
use tidegate_control::options::{Options, Publish};

use crate::bench::{Bench, all_of};
use crate::manifests::{class, ingress, ingress_of};

const SECOND: Duration = Duration::from_secs(1);
const NAMESPACED: [Kind; 4] = [Kind::Ingress, Kind::Service, Kind::EndpointSlice, Kind::Secret];

fn collection(kind: Kind, namespace: &str) -> Collection {
    Collection { kind, namespace: Some(Arc::from(namespace)) }
}

impl Bench {
    /// A loop for the namespaces `shop` and `blog`, and a Service in another namespace whose addresses are published;
    /// only the class is listed.
    fn of_two() -> Self {
        let publish = Publish::Service(ObjectName::new("edge", "lb"));
        let named = ["shop", "blog"].into_iter().flat_map(|of| NAMESPACED.map(|kind| collection(kind, of)));
        let collections = named.chain([collection(Kind::Service, "edge"), all_of(Kind::IngressClass)]);
        let mut bench = Self::of(Options { publish, ..Options::default() }, collections);
        bench.list(Kind::IngressClass, &[class()]);
        bench
    }

    fn lists(&mut self, kinds: &[Kind], namespace: &str) {
        for kind in kinds {
            self.listed_in(collection(*kind, namespace), &[], true);
        }
    }

    fn denies(&mut self, kinds: &[Kind], namespace: &str) {
        kinds.iter().for_each(|kind| self.fail_in(collection(*kind, namespace), true));
    }

    /// Checks whether the first model exists after this many more seconds.
    #[track_caller]
    fn check_runs(&mut self, after_s: u64, want: bool) {
        self.now += SECOND * u32::try_from(after_s).unwrap();
        self.reconcile();
        assert_eq!(self.reconciler.running(), want);
    }

    /// Checks whether reports about an Ingress in this namespace are possible.
    #[track_caller]
    fn check_tells(&self, namespace: &str, want: bool) {
        let name = ObjectName::new(namespace, "web");
        let told = self.reconciler.desired_reports().findings(&ObjectRef::new(Kind::Ingress, name)).is_some();
        assert_eq!(told, want, "{namespace}");
    }
}

#[test]
fn a_denied_namespace_delays_the_first_model_by_its_grace_only() {
    for denied in [&NAMESPACED[..], &NAMESPACED[..1], &NAMESPACED[2..3]] {
        let mut bench = Bench::of_two();
        bench.lists(&NAMESPACED, "shop");
        bench.lists(&[Kind::Service], "edge");
        NAMESPACED.iter().filter(|kind| !denied.contains(kind)).for_each(|kind| bench.lists(&[*kind], "blog"));
        bench.check_runs(100, false);
        bench.denies(denied, "blog");
        bench.check_runs(0, false);
        bench.check_runs(14, false);
        bench.check_runs(1, true);
        bench.check_tells("shop", true);
        bench.check_tells("blog", false);
        bench.lists(denied, "blog");
        bench.check_tells("blog", true);
    }
}

#[test]
fn a_collection_that_fails_without_denial_is_waited_for() {
    let mut bench = Bench::of_two();
    bench.lists(&NAMESPACED, "shop");
    bench.lists(&NAMESPACED[1..], "blog");
    bench.lists(&[Kind::Service], "edge");
    bench.fail_in(collection(Kind::Ingress, "blog"), false);
    bench.check_runs(1000, false);
    bench.denies(&[Kind::Ingress], "blog");
    bench.check_runs(14, false);
    // An earlier denial has no effect.
    bench.fail_in(collection(Kind::Ingress, "blog"), false);
    bench.check_runs(1000, false);
    bench.denies(&[Kind::Ingress], "blog");
    bench.check_runs(14, false);
    bench.check_runs(1, true);
}

#[test]
fn a_required_kind_that_is_denied_everywhere_prevents_readiness() {
    let mut bench = Bench::of_two();
    bench.lists(&[Kind::Service], "edge");
    for namespace in ["shop", "blog"] {
        bench.lists(&[Kind::Ingress, Kind::EndpointSlice, Kind::Secret], namespace);
        bench.denies(&[Kind::Service], namespace);
    }
    bench.check_runs(1000, false);
    bench.lists(&[Kind::Service], "shop");
    bench.check_runs(15, true);

    // A watch of all namespaces has no other namespaces to wait for.
    let mut bench = Bench::untold(Options::default());
    for kind in [Kind::IngressClass, Kind::Secret, Kind::Service, Kind::EndpointSlice] {
        bench.list(kind, &[]);
    }
    bench.fail_in(all_of(Kind::Ingress), true);
    bench.check_runs(1000, false);
}

#[test]
fn the_published_service_does_not_delay_the_first_model() {
    for denied in [true, false] {
        let mut bench = Bench::of_two();
        for namespace in ["shop", "blog"] {
            bench.lists(&NAMESPACED, namespace);
        }
        bench.fail_in(collection(Kind::Service, "edge"), denied);
        bench.check_runs(14, false);
        bench.check_runs(1, true);
        // An expected collection may change the report.
        bench.check_tells("shop", denied);
        bench.check_tells("edge", false);
    }
}

/// The status in the known namespace is written at once, and the one in the other namespace once it is known.
#[test]
fn a_denied_namespace_does_not_suppress_the_statuses_of_others() {
    let addresses = Publish::Addresses(vec![PublicAddress::of_ip("192.0.2.1")]);
    let named = ["shop", "blog"].into_iter().flat_map(|of| NAMESPACED.map(|kind| collection(kind, of)));
    let options = Options { publish: addresses, ..Options::default() };
    let mut bench = Bench::of(options, named.chain([all_of(Kind::IngressClass)]));
    bench.list(Kind::IngressClass, &[class()]);
    bench.lists(&NAMESPACED, "shop");
    bench.listed_in(collection(Kind::Ingress, "shop"), &[ingress("none")], true);
    bench.listed_in(collection(Kind::Ingress, "blog"), &[ingress_of("blog/web", "blog.example", "none", &["/"])], true);
    bench.lists(&NAMESPACED[1..3], "blog");
    bench.denies(&[Kind::Secret], "blog");
    bench.check_runs(15, true);
    let names = |all: Vec<ObjectRef>| all.iter().map(|object| object.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(bench.reconciler.pending_reports().status_updates().all), ["shop/web"]);
    let found = |bench: &mut Bench| {
        bench
            .reconciler
            .pending_reports()
            .changed_findings()
            .all
            .iter()
            .map(|it| it.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&mut bench), ["shop/web"]);
    bench.lists(&[Kind::Secret], "blog");
    assert_eq!(names(bench.reconciler.pending_reports().status_updates().all), ["blog/web", "shop/web"]);
    assert_eq!(found(&mut bench), ["blog/web", "shop/web"]);
}
