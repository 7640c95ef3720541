//! Objects whose findings have changed, as a table of changes and the objects that are reported after each.

use serde_json::{Value, json};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_control::options::Options;
use tidegate_control::{ChangedFindings, ObjectFindings};

use crate::status_updates::Table;

/// An Ingress with this number of paths, each to a Service of its own.
fn ingress(class: &str, paths: usize) -> Value {
    let backend = |number| json!({"service": {"name": format!("s{number}"), "port": {"number": 80}}});
    let path = |number| json!({"path": format!("/{number}"), "pathType": "Prefix", "backend": backend(number)});
    let paths: Vec<Value> = (0..paths).map(path).collect();
    json!({"spec": {"ingressClassName": class, "rules": [{"host": "a.test", "http": {"paths": paths}}, {"host": "b.test", "http": {"paths": paths}}]}})
}

fn service() -> Value {
    json!({"spec": {"ports": [{"port": 80}]}})
}

fn object(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, ObjectName::new("a", name))
}

impl Table {
    /// Compares the queued objects: those from a full check, and changed ones.
    #[track_caller]
    fn check_found(&mut self, all: &[&str], changed: &[&str]) -> &mut Self {
        self.settle();
        let names = |names: &[&str]| names.iter().map(|name| object(name)).collect();
        assert_eq!(
            self.reconciler.pending_reports().changed_findings(),
            ChangedFindings { all: names(all), changed: names(changed) }
        );
        assert_eq!(
            self.reconciler.pending_reports().changed_findings(),
            ChangedFindings::default(),
            "each is named once"
        );
        self
    }

    /// The number of findings to report about an object, if they are known.
    fn told(&self, name: &str) -> Option<usize> {
        self.reconciler.desired_reports().findings(&object(name)).map(|standing| standing.findings.len())
    }
}

#[test]
fn objects_with_changed_findings_are_listed() {
    let mut table = Table::with(Options::default());
    table.start(vec![("bad", ingress("tidegate", 1)), ("others", ingress("nginx", 1))]);
    table.check_found(&["bad", "others"], &[]);
    assert_eq!((table.told("bad"), table.told("others"), table.told("none")), (Some(2), Some(1), Some(0)));
    table.apply(Kind::IngressClass, "nginx", json!({"spec": {"controller": "k8s.io/ingress-nginx"}}));
    table.check_found(&[], &["others"]);
    assert_eq!(table.told("others"), Some(0), "it is another controller's");

    table.apply(Kind::Ingress, "bad", ingress("tidegate", 1)).check_found(&[], &[]);
    table.apply(Kind::Ingress, "new", ingress("tidegate", 1)).check_found(&[], &["new"]);
    table.apply(Kind::Service, "s0", service()).check_found(&[], &["bad", "new"]);
    // The younger of the two has lost its rules, which it had before.
    assert_eq!((table.told("bad"), table.told("new")), (Some(0), Some(2)));
    table.apply(Kind::Service, "s0", service()).check_found(&[], &[]);
    table.delete("bad").check_found(&[], &["new"]);
    assert_eq!(table.told("new"), Some(0));
    table.apply(Kind::Ingress, "new", ingress("unheard-of", 1)).check_found(&[], &["new"]);
    assert_eq!(table.told("new"), Some(1), "its class is unknown");
}

#[test]
fn unread_changes_are_not_kept() {
    let mut table = Table::with(Options::default());
    table.start(vec![("bad", ingress("tidegate", 1))]).check_found(&["bad"], &[]);
    table.apply(Kind::Ingress, "new", ingress("tidegate", 1)).settle();
    table.reconciler.pending_reports().drop_all();
    table.check_found(&[], &[]);
    table.reconciler.pending_reports().look_again();
    table.check_found(&["bad", "new"], &[]);
}

#[test]
fn nothing_is_listed_when_events_are_off() {
    let mut table = Table::with(Options { events: false, ..Options::default() });
    table.start(vec![("bad", ingress("tidegate", 1))]).check_found(&[], &[]);
    table.apply(Kind::Ingress, "new", ingress("tidegate", 1)).check_found(&[], &[]);
}

#[test]
fn findings_are_unknown_before_every_kind_is_listed() {
    let mut table = Table::with(Options::default());
    table.list(Kind::Ingress, vec![("bad", ingress("tidegate", 1))]).list(Kind::Service, vec![]);
    table.list(Kind::EndpointSlice, vec![]).list(Kind::IngressClass, vec![]);
    table.later(600).check_found(&[], &[]);
    assert!(table.reconciler.running(), "what serves does not wait for Secrets");
    assert_eq!(table.told("bad"), None);
    table.list(Kind::Secret, vec![]).check_found(&["bad"], &[]);
    assert_eq!(table.told("bad"), Some(1), "it has no class");
}

#[test]
fn the_findings_of_one_object_are_limited() {
    let mut table = Table::with(Options::default());
    table.start(vec![("few", ingress("tidegate", 3)), ("many", ingress("tidegate", 500))]).settle();
    assert_eq!(table.told("many"), Some(25));
    let Some(ObjectFindings { uid, findings }) = table.reconciler.desired_reports().findings(&object("few")) else {
        panic!("it is known")
    };
    assert_eq!(uid.map(|uid| uid.to_string()).as_deref(), Some("00000000-0000-0000-0000-000000000003"));
    assert!((1..findings.len()).all(|place| !findings[..place].contains(&findings[place])), "each once");
    assert!(findings.iter().all(|finding| finding.object == object("few")), "and none of the other one");
}
