//! Routes that an operator holds: the routes stay whatever changes in the cluster, and their endpoints follow the
//! cluster.

use std::time::Duration;

use tidegate_config::model::{Generation, HostPattern};
use tidegate_config::object::Kind;
use tidegate_control::{Cause, Command, Unit};

use crate::bench::{Bench, KINDS, all_of};
use crate::manifests::{external, ingress, service, slice};

const FIRST: Generation = Generation(1);

impl Bench {
    /// Holds the serving routes.
    fn freeze(&mut self) {
        let routes = self.published.clone().expect("a model");
        self.reconciler.hold(Command::Freeze, FIRST, routes, self.now);
        self.reconcile();
    }

    fn thaw(&mut self) {
        self.reconciler.thaw(Command::Thaw, self.now);
        self.reconcile();
    }

    /// `web.example` moves to another Service, which exists.
    fn move_away(&mut self) {
        self.apply(Kind::Service, service("new"));
        self.apply(Kind::EndpointSlice, slice("new", &["10.0.0.2"]));
        self.apply(Kind::Ingress, ingress("new"));
        self.reconcile();
    }

    #[track_caller]
    fn check_causes(&self, want: &[&str]) {
        let causes: Vec<String> = self.changes.causes.first.iter().map(Cause::to_string).collect();
        assert_eq!(causes, want);
    }
}

#[test]
fn frozen_routes_stay_and_their_endpoints_follow() {
    let mut bench = Bench::web();
    bench.freeze();
    bench.check("10.0.0.1");
    bench.check_causes(&["an operator's freeze"]);
    assert_eq!(bench.reconciler.held(), Some(FIRST));
    bench.move_away();
    bench.check("10.0.0.1");
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.9"]));
    bench.reconcile();
    bench.check("10.0.0.9");
    bench.check_causes(&["EndpointSlice shop/old at resourceVersion 2"]);
    bench.delete(Kind::Ingress, "web");
    bench.reconcile();
    bench.check("10.0.0.9");
    bench.delete(Kind::EndpointSlice, "old");
    bench.reconcile();
    bench.check("no endpoint");
    bench.delete(Kind::Service, "old");
    bench.reconcile();
    bench.check("no backend");
}

#[test]
fn a_hold_is_reported_with_its_generation_and_start() {
    let mut bench = Bench::web();
    let routes = bench.published.clone().expect("a model");
    let whatever = "since 1970-01-01T00:00:50.000Z, regardless of the cluster's routes";
    for (command, how) in [(Command::Freeze, "frozen at"), (Command::Rollback(FIRST), "rolled back to")] {
        bench.reconciler.hold(command, FIRST, routes.clone(), bench.now);
        bench.reconcile();
        bench.now += Duration::from_secs(10);
        bench.check_withheld(&[&format!("{how} generation 1 {whatever}")]);
    }
    bench.thaw();
    bench.check_withheld(&[]);
}

#[test]
fn a_thaw_publishes_the_cluster_routes_and_all_withheld_causes() {
    let mut bench = Bench::web();
    bench.freeze();
    bench.move_away();
    bench.thaw();
    bench.check("10.0.0.2");
    assert_eq!(bench.reconciler.held(), None);
    let causes = bench.changes.causes.first.iter().map(Cause::to_string).collect::<Vec<_>>();
    assert_eq!(causes[0], "an operator's thaw");
    assert!(causes.contains(&"Ingress shop/web at resourceVersion 2".to_owned()), "{causes:?}");
    assert_eq!(bench.changes.units.routing.first, [Unit::Host(HostPattern::Exact("web.example".into()).into())]);
    // No route leads to the old Service any more.
    let parts = &bench.reconciler.model().compiled().parts;
    assert_eq!(parts.backends.keys().map(ToString::to_string).collect::<Vec<_>>(), ["shop/new:80"]);
}

#[test]
fn a_rollback_uses_current_endpoints_at_once() {
    let mut bench = Bench::web();
    let before = bench.published.clone().unwrap();
    bench.move_away();
    bench.check("10.0.0.2");
    // No route uses these endpoints now.
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.7"]));
    bench.reconcile();
    bench.reconciler.hold(Command::Rollback(FIRST), FIRST, before, bench.now);
    let (parts, _) = bench.reconciler.reconcile(bench.now).and_then(|step| step.published).expect("a model");
    bench.published = Some(parts);
    bench.check("10.0.0.7");
    bench.apply(Kind::EndpointSlice, slice("old", &["10.0.0.8"]));
    bench.reconcile();
    bench.check("10.0.0.8");
    bench.thaw();
    bench.check("10.0.0.2");
}

#[test]
fn external_names_of_held_routes_are_still_resolved() {
    let mut bench = Bench::web();
    bench.apply(Kind::Service, external("ext", "e.test"));
    bench.apply(Kind::Ingress, ingress("ext"));
    bench.reconcile();
    bench.resolve("e.test", Some("192.0.2.9"));
    bench.reconcile();
    bench.freeze();
    bench.move_away();
    bench.check_names(&["e.test"]);
    bench.resolve("e.test", Some("192.0.2.10"));
    bench.reconcile();
    bench.check("192.0.2.10");
    bench.thaw();
    bench.check("10.0.0.2");
    bench.check_names(&[]);
}

#[test]
fn a_hold_survives_a_restart_of_the_loop() {
    let mut bench = Bench::web();
    bench.freeze();
    bench.move_away();
    bench.reconciler.start_over(KINDS.map(all_of));
    assert_eq!(bench.reconciler.held(), Some(FIRST));
    for kind in KINDS {
        bench.list_in_part(kind);
    }
    bench.reconcile();
    bench.check("10.0.0.1");
    bench.check_causes(&["start of the control loop"]);
    bench.thaw();
    bench.check("10.0.0.2");
}

#[test]
fn a_command_without_effect_is_still_published_with_its_cause() {
    let mut bench = Bench::web();
    bench.freeze();
    bench.thaw();
    bench.check("10.0.0.1");
    bench.check_causes(&["an operator's thaw"]);
    assert!(!bench.changes.units.routes());
}
