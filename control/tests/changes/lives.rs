//! The first model, incomplete lists, restarts of the loop, and DNS names.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::Unit;
use tidegate_control::options::Options;

use crate::bench::{Bench, KINDS, all_of};
use crate::manifests::{class, external, ingress, service, slice};

const SECOND: Duration = Duration::from_secs(1);
const ADDRESS: Option<&str> = Some("192.0.2.1");

impl Bench {
    /// A running loop in which `web.example` leads to the Service `ext`, whose addresses are those of `e.example`.
    fn by_name() -> Self {
        let mut bench = Self::running(Options::default());
        bench.apply(Kind::Service, external("ext", "e.example"));
        bench.apply(Kind::Ingress, ingress("ext"));
        bench.reconcile();
        bench.resolve("e.example", ADDRESS);
        bench.reconcile();
        bench
    }

    /// Compiles, and compares the wanted names, separated by spaces; `None` if they are unchanged.
    #[track_caller]
    fn check_told(&mut self, want: Option<&str>) {
        let names = self.reconcile();
        let names = names.map(|names| names.keys().map(|name| &**name).collect::<Vec<_>>().join(" "));
        assert_eq!(names.as_deref(), want);
    }

    /// The time of the first model in seconds after the start, if it needs no further events.
    fn starts_after(&mut self) -> Option<u64> {
        self.reconcile();
        if !self.reconciler.running() {
            self.now = self.reconciler.wake()?;
            self.reconcile();
        }
        assert!(self.reconciler.running());
        Some((self.now - self.begun).as_secs())
    }
}

/// Compares the time of the first model if the kinds are listed at these seconds. Kinds without a time are never
/// listed; the last ones fail.
#[track_caller]
fn check_start(required_s: u64, optional_s: &[(Kind, u64)], failing: &[Kind], want_s: Option<u64>) {
    let mut bench = Bench::untold(Options::default());
    for kind in failing {
        bench.fail(*kind);
    }
    let required = [(Kind::Service, 0), (Kind::EndpointSlice, 0), (Kind::Ingress, required_s)];
    let mut lists: Vec<_> = required.iter().chain(optional_s).copied().collect();
    lists.sort_by_key(|(_, at_s)| *at_s);
    for (kind, at_s) in lists {
        let at = bench.begun + SECOND * u32::try_from(at_s).unwrap();
        if bench.reconciler.wake().is_some_and(|wake| wake <= at) {
            break;
        }
        bench.now = at;
        bench.list(kind, &[]);
    }
    assert_eq!(bench.starts_after(), want_s);
}

#[test]
fn the_first_model_waits_longer_for_slow_collections_than_for_failing_ones() {
    use Kind::{IngressClass, Secret};
    check_start(3, &[(IngressClass, 1), (Secret, 2)], &[], Some(3));
    check_start(3, &[(IngressClass, 1), (Secret, 100)], &[], Some(100));
    check_start(3, &[(IngressClass, 1), (Secret, 200)], &[], Some(123));
    // The grace begins with the last of the required kinds, not with the first list of anything.
    check_start(40, &[(IngressClass, 1)], &[Secret], Some(55));
    check_start(40, &[(IngressClass, 1), (Secret, 50)], &[Secret], Some(50));
    // A slow collection is waited for even if another one fails.
    check_start(3, &[(IngressClass, 60)], &[Secret], Some(60));
}

#[test]
fn the_first_model_needs_every_required_kind() {
    let mut bench = Bench::untold(Options::default());
    for kind in [Kind::Service, Kind::Ingress, Kind::Secret, Kind::IngressClass] {
        bench.list(kind, &[]);
    }
    bench.fail(Kind::EndpointSlice);
    assert_eq!(bench.starts_after(), None);
}

#[test]
fn the_first_model_does_not_wait_for_unserved_kinds() {
    let mut bench = Bench::untold(Options::default());
    bench.fail(Kind::Secret);
    bench.unserve(Kind::Secret);
    for kind in [Kind::IngressClass, Kind::Ingress, Kind::Service, Kind::EndpointSlice] {
        bench.list(kind, &[]);
    }
    assert_eq!(bench.starts_after(), Some(0));
}

#[test]
fn objects_of_a_kind_are_dropped_while_it_is_unserved() {
    let all: Vec<Value> = (0..40).map(|number| service(&format!("s{number}"))).collect();
    let mut bench = Bench::running(Options::default());
    bench.list(Kind::Service, &all);
    bench.apply(Kind::EndpointSlice, slice("s0", &["10.0.0.1"]));
    bench.apply(Kind::Ingress, ingress("s0"));
    bench.reconcile();
    let backends = |bench: &Bench| bench.reconciler.model().compiled().parts.backends.size();
    assert_eq!((services(&bench), backends(&bench)), (40, 1));
    bench.unserve(Kind::Service);
    bench.reconcile();
    assert_eq!((services(&bench), backends(&bench)), (0, 0), "that needs no second word");
    bench.list(Kind::Service, &all);
    bench.reconcile();
    assert_eq!((services(&bench), backends(&bench)), (40, 1));
}

fn services(bench: &Bench) -> usize {
    bench.reconciler.model().world().names_of(Kind::Service, None).count()
}

/// Lists `left` of `held` Services and `others` that are new; compares whether the list is unconfirmed, and the
/// Services.
#[track_caller]
fn check_doubt(held: usize, (left, others): (usize, usize), unconfirmed: bool) {
    let all: Vec<Value> = (0..held).map(|number| service(&format!("s{number}"))).collect();
    let mut bench = Bench::running(Options::default());
    assert_eq!(bench.list(Kind::Service, &all), None);
    let others: Vec<Value> = (0..others).map(|number| service(&format!("other{number}"))).collect();
    let named = [&all[..left], &others].concat();
    assert_eq!(bench.list(Kind::Service, &named), unconfirmed.then(|| all_of(Kind::Service)));
    assert_eq!(services(&bench), if unconfirmed { held + others.len() } else { named.len() });
    assert_eq!(bench.list(Kind::Service, &named), None, "the second one is believed");
    assert_eq!(services(&bench), named.len());
}

#[test]
fn a_list_that_lacks_most_objects_must_be_confirmed() {
    check_doubt(40, (29, 0), false);
    check_doubt(40, (20, 0), false);
    check_doubt(40, (19, 0), true);
    check_doubt(12, (2, 0), false);
    check_doubt(12, (1, 0), true);
    check_doubt(10, (1, 0), false);
    check_doubt(10, (0, 0), true);
    check_doubt(1, (0, 0), true);
    check_doubt(0, (0, 0), false);
}

#[test]
fn additions_in_a_list_do_not_offset_its_removals() {
    check_doubt(40, (0, 40), true);
    check_doubt(40, (0, 400), true);
    check_doubt(40, (19, 21), true);
    check_doubt(40, (20, 20), false);
    check_doubt(1, (0, 1), true);
    check_doubt(0, (0, 1), false);
}

#[test]
fn deletions_by_watch_need_no_confirmation() {
    let mut bench = Bench::running(Options::default());
    bench.list(Kind::Service, &[service("last")]);
    bench.delete(Kind::Service, "last");
    assert_eq!(services(&bench), 0);
}

#[test]
fn after_a_restart_lists_are_compared_with_the_serving_objects() {
    let all: Vec<Value> = (0..40).map(|number| service(&format!("s{number}"))).collect();
    let mut bench = Bench::running(Options::default());
    assert_eq!(bench.list(Kind::Service, &all), None);
    bench.reconcile();

    bench.reconciler.start_over(KINDS.map(all_of));
    assert!(!bench.reconciler.running());
    assert_eq!(
        bench.list(Kind::Service, &all[..5]),
        Some(all_of(Kind::Service)),
        "a list that lost most is unconfirmed"
    );
    assert_eq!(services(&bench), 40);
    for kind in [Kind::Ingress, Kind::EndpointSlice, Kind::Secret] {
        bench.list(kind, &[]);
    }
    bench.list(Kind::IngressClass, &[class()]);
    bench.reconcile();
    assert!(!bench.reconciler.running(), "nothing is published while a list is unconfirmed");
    assert_eq!(bench.list(Kind::Service, &all), None);
    bench.reconcile();
    assert!(bench.reconciler.running());
    assert_eq!(services(&bench), 40);
}

#[test]
fn after_a_restart_unlistable_kinds_stay_and_deleted_objects_go() {
    let mut bench = Bench::running(Options::default());
    bench.apply(Kind::Secret, json!({"metadata": {"namespace": "shop", "name": "kept"}}));
    bench.apply(Kind::Service, service("gone"));
    bench.apply(Kind::Service, external("ext", "e.example"));
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.check_told(Some("e.example"));
    bench.resolve("e.example", ADDRESS);
    bench.reconcile();

    bench.reconciler.start_over(KINDS.map(all_of));
    bench.fail(Kind::Secret);
    bench.list(Kind::Service, &[external("ext", "e.example")]);
    bench.list(Kind::Ingress, &[ingress("ext")]);
    bench.list(Kind::EndpointSlice, &[]);
    bench.list(Kind::IngressClass, &[class()]);
    bench.now += SECOND * 60;
    bench.check_told(Some("e.example"));
    let world = bench.reconciler.model().world();
    let secret = ObjectRef::new(Kind::Secret, ObjectName::new("shop", "kept"));
    assert!(world.get(&secret).is_some(), "Secrets are as of before");
    assert_eq!(services(&bench), 1);
    assert!(world.names.contains_key("e.example"), "and so are names, until they are looked up again");
}

#[test]
fn dns_names_are_announced_only_when_they_may_have_changed() {
    let mut bench = Bench::running(Options::default());
    bench.apply(Kind::Service, external("ext", "e.example"));
    bench.check_told(None);
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.check_told(Some("e.example"));
    bench.resolve("e.example", ADDRESS);
    bench.check_told(None);
    bench.apply(Kind::Service, service("plain"));
    bench.apply(Kind::EndpointSlice, slice("plain", &["10.0.0.1"]));
    bench.check_told(None);
    bench.apply(Kind::EndpointSlice, slice("plain", &["10.0.0.2"]));
    bench.check_told(None);
    let mut other = external("ext", "e.example");
    other["spec"]["ports"][0]["port"] = 81.into();
    bench.apply(Kind::Service, other);
    bench.check_told(None);
    bench.apply(Kind::Service, external("ext", "f.example"));
    bench.check_told(Some("f.example"));
    bench.apply(Kind::Ingress, ingress("plain"));
    bench.check_told(Some(""));
    bench.delete(Kind::Service, "plain");
    bench.check_told(None);
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.check_told(Some("f.example"));
    bench.delete(Kind::Service, "ext");
    bench.check_told(Some(""));
}

#[test]
fn addresses_of_a_dns_name_are_dropped_with_its_last_reference() {
    let mut bench = Bench::by_name();
    assert_eq!(bench.reconciler.model().world().names.len(), 1);
    bench.delete(Kind::Ingress, "web");
    bench.reconcile();
    assert_eq!(bench.reconciler.model().world().names.len(), 0);
    bench.resolve("e.example", ADDRESS);
    assert_eq!(bench.reconciler.model().world().names.len(), 0, "an answer that comes too late");
    bench.now += SECOND * 86_400;
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.check_told(Some("e.example"));
    let unit = Unit::Service(ObjectName::new("shop", "ext"));
    let told = bench.reconciler.model().compiled().findings.of(&unit).next().map(|finding| finding.problem.reason());
    assert_eq!(told, Some("NameUnresolved"), "nothing of the day before is used");
}

#[test]
fn a_waiting_host_keeps_its_dns_name() {
    let mut bench = Bench::by_name();
    bench.apply(Kind::Ingress, ingress("new"));
    bench.check_told(None);
    assert!(bench.reconciler.model().world().names.contains_key("e.example"));
    bench.now = bench.reconciler.wake().expect("it waits");
    bench.check_told(Some(""));
    assert!(bench.reconciler.model().world().names.is_empty());
}
