//! The rules of a kind: its defaults, and its validation. One file per kind, one row here.
//!
//! Only defaults and checks that matter to routing and its users are here; the real server has more.

mod access;
mod definition;
mod config_map;
mod deployment;
mod event;
mod ingress;
mod ingress_class;
mod lease;
mod metadata;
mod load_balancer;
mod namespace;
mod pod;
mod policy;
mod replica_set;
mod secret;
mod service;
mod slice;
mod volume;
pub(crate) mod warnings;
mod workload;

use std::collections::HashSet;
use std::hash::Hash;

use serde_json::{Map, Value, json};

use crate::causes::Causes;
use crate::failure::Failure;
use crate::fields::schema;
use crate::kind::Kind;

/// Sets the defaults of a new version of an object. `old` is absent at creation.
type Defaults = fn(new: &mut Value, old: Option<&Value>, serial: u64);
/// Reports the errors of a new version of an object.
type Validate = fn(new: &Value, old: Option<&Value>, causes: &mut Causes);

struct Rules {
    kind: &'static str,
    defaults: Defaults,
    validate: Validate,
}

static RULES: &[Rules] = &[
    Rules { kind: "CustomResourceDefinition", defaults: definition::defaults, validate: definition::validate },
    Rules { kind: "Namespace", defaults: namespace::defaults, validate: namespace::validate },
    Rules { kind: "Service", defaults: service::defaults, validate: service::validate },
    Rules { kind: "ConfigMap", defaults: |_, _, _| {}, validate: config_map::validate },
    Rules { kind: "Secret", defaults: secret::defaults, validate: secret::validate },
    Rules { kind: "Event", defaults: event::defaults, validate: event::validate },
    Rules { kind: "Deployment", defaults: deployment::defaults, validate: deployment::validate },
    Rules { kind: "ReplicaSet", defaults: replica_set::defaults, validate: replica_set::validate },
    Rules { kind: "Pod", defaults: pod::defaults, validate: pod::validate },
    Rules { kind: "Ingress", defaults: ingress::defaults, validate: ingress::validate },
    Rules { kind: "IngressClass", defaults: |_, _, _| {}, validate: ingress_class::validate },
    Rules { kind: "PersistentVolume", defaults: volume::volume_defaults, validate: volume::volume },
    Rules { kind: "PersistentVolumeClaim", defaults: volume::claim_defaults, validate: volume::claim },
    Rules {
        kind: "ReplicationController",
        defaults: workload::replication_controller_defaults,
        validate: workload::replication_controller,
    },
    Rules { kind: "StatefulSet", defaults: workload::stateful_set_defaults, validate: workload::stateful_set },
    Rules { kind: "DaemonSet", defaults: workload::daemon_set_defaults, validate: workload::daemon_set },
    Rules { kind: "Job", defaults: workload::job_defaults, validate: workload::job },
    Rules { kind: "CronJob", defaults: workload::cron_job_defaults, validate: workload::cron_job },
    Rules { kind: "Role", defaults: |_, _, _| {}, validate: access::role },
    Rules { kind: "ClusterRole", defaults: |_, _, _| {}, validate: access::cluster_role },
    Rules { kind: "RoleBinding", defaults: access::binding_defaults, validate: access::role_binding },
    Rules { kind: "ClusterRoleBinding", defaults: access::binding_defaults, validate: access::cluster_role_binding },
    Rules { kind: "NetworkPolicy", defaults: policy::network_policy_defaults, validate: policy::network_policy },
    Rules { kind: "PodDisruptionBudget", defaults: policy::budget_defaults, validate: policy::budget },
    Rules { kind: "HorizontalPodAutoscaler", defaults: policy::autoscaler_defaults, validate: policy::autoscaler },
    Rules { kind: "Lease", defaults: |_, _, _| {}, validate: lease::validate },
    Rules { kind: "EndpointSlice", defaults: slice::defaults, validate: slice::validate },
];

fn of(kind: &Kind) -> Option<&'static Rules> {
    RULES.iter().find(|rules| Some(rules.kind) == kind.built_in())
}

/// Sets the defaults of a new version of an object. `serial` is different for every write, for values that must be
/// unique.
pub(crate) fn fill_in(kind: &Kind, new: &mut Value, old: Option<&Value>, serial: u64) {
    if let Some(rules) = of(kind) {
        (rules.defaults)(new, old, serial);
    }
}

/// Checks a new version of an object, its metadata included.
pub(crate) fn check(kind: &Kind, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
    let mut causes = Causes::default();
    metadata::validate(kind, new, old, &mut causes);
    if let Some(custom) = kind.custom() {
        custom.check(new, old, &mut causes);
    }
    if let Some(rules) = of(kind) {
        (rules.validate)(new, old, &mut causes);
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if causes.0.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, name, &causes.0)) }
}

/// The object under a key, created if it is absent or has another type. `parent` becomes an object if it is none.
fn child<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    let child = &mut parent[key];
    if !child.is_object() {
        *child = json!({});
    }
    child
}

/// Sets a field that is absent or null.
fn default(object: &mut Value, key: &str, value: impl Into<Value>) {
    if object.get(key).is_none_or(Value::is_null) {
        object[key] = value.into();
    }
}

/// The elements under a key; none if there is no list.
fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// For each element of a list, whether an earlier one has the same key. Its work grows with the list, and not with the
/// pairs of its elements.
fn repeated<'a, K: Hash + Eq>(list: &'a [Value], key: impl Fn(&'a Value) -> K) -> Vec<bool> {
    let mut seen = HashSet::with_capacity(list.len());
    list.iter().map(|one| !seen.insert(key(one))).collect()
}

/// The text under a key; empty if there is none.
fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// The elements under a key, for defaults. Elements that are not objects are skipped.
fn elements<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter(|one| one.is_object())
}

/// Complains of a text that is none of the few values that a field of a type may have.
fn check_value(of: &str, name: &str, field: impl Into<String>, value: &Value, causes: &mut Causes) {
    let values = schema::values(of, name);
    if !value.as_str().is_some_and(|value| values.contains(&value)) {
        causes.unsupported(field, value, values);
    }
}

/// Complains about a number that is no port.
fn check_port(field: &str, port: &Value, causes: &mut Causes) {
    let port = if port.is_null() { &Value::from(0) } else { port };
    if !port.as_i64().is_some_and(|port| (1..=65_535).contains(&port)) {
        causes.invalid(field, port, "must be between 1 and 65535, inclusive");
    }
}

/// Complains about a number below zero.
fn check_count(field: &str, count: &Value, causes: &mut Causes) {
    if count.as_i64().is_some_and(|count| count < 0) {
        causes.invalid(field, count, "must be greater than or equal to 0");
    }
}

/// Reports a change of an immutable field.
fn check_immutable(field: &str, new: &Value, old: &Value, causes: &mut Causes) {
    if new != old {
        causes.immutable(field, new);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kind::KindId;

    /// Sets the defaults of an object with a name, checks it, and returns the message of the refusal.
    pub(crate) fn outcome(of: &str, mut new: Value, old: Option<&Value>) -> Result<Value, String> {
        let id = KindId::built_in(of).unwrap();
        let kind = id.description();
        default(child(&mut new, "metadata"), "name", "x");
        fill_in(kind, &mut new, old, 7);
        match check(kind, &new, old) {
            Ok(()) => Ok(new),
            Err(failure) => Err(failure.status()["message"].as_str().unwrap().to_owned()),
        }
    }

    /// Asserts that an object is refused with this message after `Kind "x" is invalid: `.
    #[track_caller]
    pub(crate) fn check_refused(of: &str, new: Value, old: Option<&Value>, expected: &str) {
        let message = outcome(of, new, old).expect_err("should be refused");
        assert_eq!(message.split_once(" is invalid: ").map(|(_, why)| why), Some(expected));
    }
}
