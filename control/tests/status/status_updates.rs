//! Ingresses whose status must be written, as a table of changes and the objects that are reported after each.

use std::time::Instant;

use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::project;
use tidegate_control::options::{Options, Publish};
use tidegate_control::{Collection, Event, PendingStatusUpdates, Reconciler};

use crate::edge::addresses;

pub(crate) struct Table {
    pub(crate) reconciler: Reconciler,
    now: Instant,
    version: u64,
}

pub(crate) fn ingress(class: &str, ips: &[&str]) -> Value {
    let entries: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"spec": {"ingressClassName": class}, "status": {"loadBalancer": {"ingress": entries}}})
}

fn lb(ips: &[&str]) -> Value {
    let entries: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": entries}}})
}

/// The kinds that are read where Ingresses alone make routes.
const KINDS: [Kind; 5] = [Kind::Ingress, Kind::IngressClass, Kind::Service, Kind::EndpointSlice, Kind::Secret];

impl Table {
    /// A loop that has listed no kind yet.
    fn new(publish: Publish) -> Self {
        Self::with(Options { publish, ..Options::default() })
    }

    #[allow(clippy::disallowed_methods, reason = "a table needs some instant to start from")]
    pub(crate) fn with(options: Options) -> Self {
        let collections = KINDS.map(|kind| Collection { kind, namespace: None });
        Self { reconciler: Reconciler::new(options, collections), now: Instant::now(), version: 1 }
    }

    fn projected(&mut self, kind: Kind, name: &str, mut object: Value) -> tidegate_config::project::Projected {
        self.version += 1;
        let version = self.version.to_string();
        let uid = format!("00000000-0000-0000-0000-{:012x}", name.len());
        object["metadata"] = json!({"namespace": "a", "name": name, "uid": uid, "resourceVersion": version});
        project(kind, object.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn list(&mut self, kind: Kind, objects: Vec<(&str, Value)>) -> &mut Self {
        let objects = objects.into_iter().map(|(name, object)| self.projected(kind, name, object)).collect();
        let collection = Collection { kind, namespace: None };
        let event =
            Event::Listed { collection, objects, complete: true, resource_version: "1".into(), received: self.now };
        self.reconciler.observe(event, self.now);
        self
    }

    /// Lists every kind: our class, and these Ingresses.
    pub(crate) fn start(&mut self, ingresses: Vec<(&str, Value)>) -> &mut Self {
        let class = json!({"spec": {"controller": "tidegate.io/ingress"}});
        self.list(Kind::Ingress, ingresses).list(Kind::IngressClass, vec![("tidegate", class)]);
        self.list(Kind::EndpointSlice, vec![]).list(Kind::Secret, vec![]).list(Kind::Service, vec![])
    }

    pub(crate) fn apply(&mut self, kind: Kind, name: &str, object: Value) -> &mut Self {
        let projected = Box::new(self.projected(kind, name, object));
        self.reconciler.observe(Event::Applied { projected, received: self.now }, self.now);
        self
    }

    pub(crate) fn delete(&mut self, name: &str) -> &mut Self {
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("a", name));
        let event = Event::Deleted { object, resource_version: "9".into(), received: self.now };
        self.reconciler.observe(event, self.now);
        self
    }

    pub(crate) fn later(&mut self, seconds: u64) -> &mut Self {
        self.now += std::time::Duration::from_secs(seconds);
        self
    }

    /// Compiles until the queue is empty.
    pub(crate) fn settle(&mut self) {
        while self.reconciler.reconcile(self.now).is_some() {}
    }

    /// Compares the queued objects: those from a full check, changed ones, and rewritten ones.
    #[track_caller]
    fn check(&mut self, all: &[&str], changed: &[&str], rewritten: &[&str]) -> &mut Self {
        self.settle();
        let names = |names: &[&str]| names.iter().map(|name| named(name)).collect();
        let [all, changed, rewritten]: [Vec<ObjectRef>; 3] = [all, changed, rewritten].map(names);
        let updates = self.reconciler.pending_reports().status_updates();
        let PendingStatusUpdates { overwritten, .. } = &updates;
        assert!(overwritten.iter().all(|object| rewritten.contains(object)), "{overwritten:?}");
        let want =
            PendingStatusUpdates { all, changed, rewritten, overwritten: overwritten.clone(), counting: Vec::new() };
        assert_eq!(updates, want);
        assert_eq!(
            self.reconciler.pending_reports().status_updates(),
            PendingStatusUpdates::default(),
            "each is named once"
        );
        self
    }
}

fn named(ingress: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, ObjectName::new("a", ingress))
}

#[test]
fn only_differing_statuses_are_pending() {
    let right = || ingress("tidegate", &["1.1.1.1"]);
    let mut table = Table::new(addresses(&["1.1.1.1"]));
    let others = || ingress("nginx", &["2.2.2.2"]);
    table.start(vec![("right", right()), ("wrong", ingress("tidegate", &["2.2.2.2"])), ("others", others())]);
    table.apply(Kind::Ingress, "bare", ingress("tidegate", &[]));
    table.check(&["bare", "wrong"], &[], &[]);

    table.apply(Kind::Ingress, "wrong", right()).check(&[], &[], &[]);
    table.apply(Kind::Ingress, "right", ingress("tidegate", &["3.3.3.3"])).check(&[], &[], &["right"]);
    table.apply(Kind::Ingress, "right", ingress("tidegate", &[])).check(&[], &[], &["right"]);
    table.apply(Kind::Ingress, "others", ingress("nginx", &["3.3.3.3"])).check(&[], &[], &[]);
    table.apply(Kind::Ingress, "new", ingress("tidegate", &[])).check(&[], &["new"], &[]);
    table.apply(Kind::Ingress, "new", ingress("nginx", &[])).check(&[], &[], &[]);
    table.delete("wrong").check(&[], &[], &[]);
    assert_eq!(table.reconciler.desired_reports().status(&named("wrong")), None, "it is gone");
    assert_eq!(table.reconciler.desired_reports().status(&named("new")), None, "it is not ours");
    assert!(table.reconciler.desired_reports().status(&named("right")).is_some());
}

#[test]
fn a_class_that_becomes_ours_makes_its_ingresses_pending() {
    let mut table = Table::new(addresses(&["1.1.1.1"]));
    table.start(vec![("one", ingress("other", &[])), ("two", ingress("other", &["1.1.1.1"]))]).check(&[], &[], &[]);
    let class = json!({"spec": {"controller": "tidegate.io/ingress"}});
    table.apply(Kind::IngressClass, "other", class).check(&[], &["one"], &[]);
}

#[test]
fn no_status_is_pending_before_every_kind_is_listed() {
    let mut table = Table::new(addresses(&["1.1.1.1"]));
    table.list(Kind::Ingress, vec![("one", ingress("tidegate", &[]))]).list(Kind::Service, vec![]);
    table.list(Kind::EndpointSlice, vec![]).list(Kind::IngressClass, vec![]);
    table.later(600).check(&[], &[], &[]);
    assert!(table.reconciler.running(), "what serves does not wait for Secrets");
    let class = json!({"spec": {"controller": "tidegate.io/ingress"}});
    table.apply(Kind::IngressClass, "tidegate", class).check(&[], &[], &[]);
    table.list(Kind::Secret, vec![]).check(&["one"], &[], &[]);
}

#[test]
fn all_follow_the_addresses_of_a_service() {
    let mut table = Table::new(Publish::Service(ObjectName::new("a", "lb")));
    let all = vec![("one", ingress("tidegate", &["1.1.1.1"])), ("two", ingress("tidegate", &["2.2.2.2"]))];
    table.start(all).check(&[], &[], &[]);
    table.apply(Kind::Service, "other", lb(&["2.2.2.2"])).check(&[], &[], &[]);
    table.apply(Kind::Service, "lb", lb(&[])).check(&[], &[], &[]);
    table.apply(Kind::Service, "lb", lb(&["2.2.2.2"])).check(&["one"], &[], &[]);
    table.apply(Kind::Service, "lb", lb(&["2.2.2.2", "3.3.3.3"])).check(&["one", "two"], &[], &[]);
    table.apply(Kind::Service, "lb", lb(&[])).check(&[], &[], &[]);
    assert!(table.reconciler.desired_reports().status(&named("one")).is_some(), "the last addresses are still right");
}

#[test]
fn after_a_restart_every_status_is_compared_again() {
    let mut table = Table::new(addresses(&["1.1.1.1"]));
    table.start(vec![("one", ingress("tidegate", &[]))]).check(&["one"], &[], &[]);
    table.reconciler.start_over(KINDS.map(|kind| Collection { kind, namespace: None }));
    table.check(&[], &[], &[]);
    table.start(vec![("one", ingress("tidegate", &[]))]).check(&["one"], &[], &[]);
    table.reconciler.pending_reports().look_again();
    table.check(&["one"], &[], &[]);
}
