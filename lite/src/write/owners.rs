//! The owners of the fields that a write changes: the facts about kinds and requests for `apply`.

use serde_json::{Map, Value};

use super::{Target, WriteOptions};
use crate::apply::{self, Fields, Node, Writer};
use crate::fields::schema::Shape;
use crate::kind::{Kind, Subresource};

/// The way in which a write tracks owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracking {
    /// Changed fields go to the writer.
    Update,
    /// An apply has tracked them itself.
    Settled,
}

/// Fields of the spec of a Service or a Namespace that the server assigns: they have no owner, unless the request names
/// them.
const GIVEN_OUT: &[&str] =
    &["finalizers", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"];

/// Fields of a Service that another type loses. The real server tracks owners before it drops them.
const LOST: &[&str] =
    &["allocateLoadBalancerNodePorts", "externalTrafficPolicy", "internalTrafficPolicy", "loadBalancerClass"];

/// The part of an object to be remembered before defaults, so that assigned fields have no owner.
pub(super) fn sent(kind: &Kind, object: &Value) -> Option<Value> {
    matches!(kind.built_in(), Some("Service" | "Namespace")).then(|| object["spec"].clone())
}

/// The object without the fields that the server has assigned.
fn without_given_out(mut object: Value, sent: &Value) -> Value {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    for field in GIVEN_OUT.iter().filter(|field| sent[**field].is_null()) {
        spec.remove(*field);
    }
    for field in LOST.iter().filter(|field| !sent[**field].is_null()) {
        spec.entry(*field).or_insert_with(|| sent[*field].clone());
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for (nth, port) in ports.enumerate().filter_map(|(nth, port)| Some((nth, port.as_object_mut()?))) {
        if sent["ports"][nth]["nodePort"].is_null() {
            port.remove("nodePort");
        }
    }
    if object["spec"].as_object().is_some_and(Map::is_empty) {
        object.as_object_mut().and_then(|object| object.remove("spec"));
    }
    object
}

/// An Event without the fields that are there even if they are empty: nobody owns those.
fn without_empty(mut event: Value) -> Value {
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && *value != "");
    }
    event
}

/// The fields that a request to a target cannot change.
pub(super) fn reset(target: &Target) -> Fields {
    match target.subresource {
        None if target.description().has(Subresource::Status) => Fields::named(&[&["status"]]),
        None | Some(Subresource::Scale | Subresource::Log | Subresource::Finalize) => Fields::default(),
        Some(Subresource::Status) => Fields::named(&[&["spec"], &["metadata"]]),
    }
}

/// Calls `act` with the writer, and with the root of the kind's objects.
pub(super) fn as_writer<T>(target: &Target, options: &WriteOptions, act: impl FnOnce(Node<'_>, &Writer<'_>) -> T) -> T {
    let (api_version, time, reset) = (target.description().api_version(), options.moment.timestamp(), reset(target));
    let writer = Writer {
        manager: &options.manager,
        api_version: &api_version,
        subresource: target.subresource.map_or("", Subresource::name),
        time: &time,
        reset: &reset,
    };
    let kind = target.description();
    match (kind.built_in(), kind.custom()) {
        (Some(name), _) => act(Node::root(&Node::shape_of(name)), &writer),
        (None, Some(custom)) => act(Node::custom(&custom.schema), &writer),
        (None, None) => act(Node::root(&Shape::Any), &writer),
    }
}

/// Updates the owners in the metadata of `new` for its changes. `sent` is the result of [`sent`].
pub(super) fn track(
    target: &Target,
    old: Option<&Value>,
    new: &mut Value,
    sent: Option<&Value>,
    options: &WriteOptions,
) {
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let given = metadata.remove("managedFields").filter(|_| target.subresource.is_none());
    let given = given.filter(|entries| !entries.is_null());
    let bare = match (sent, target.description().built_in()) {
        (Some(sent), _) => Some(without_given_out(new.clone(), sent)),
        (None, Some("Event")) => Some(without_empty(new.clone())),
        (None, _) => None,
    };
    let compared = bare.as_ref().unwrap_or(new);
    let entries =
        as_writer(target, options, |node, writer| apply::track(node, (old, compared), given.as_ref(), writer));
    if let (Some(entries), Some(metadata)) = (entries, new.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// Undoes a change of nothing but the times of managers.
pub(super) fn keep_times(new: &mut Value, old: &Value) {
    let (new_entries, old_entries) = (new["metadata"]["managedFields"].take(), &old["metadata"]["managedFields"]);
    let same = || apply::timeless(&new_entries) == apply::timeless(old_entries) && same_but_owners(new, old);
    let entries = if new_entries != *old_entries && same() { old_entries.clone() } else { new_entries };
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        if entries.is_null() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }
}

/// The metadata of an object except for its owners.
fn others(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["metadata"].as_object().into_iter().flatten().filter(|(key, _)| *key != "managedFields")
}

/// Returns `true` if two objects are equal except for their owners. Those of `new` were taken out.
fn same_but_owners(new: &Value, old: &Value) -> bool {
    let fields = |object: &Value| object.as_object().map(serde_json::Map::len);
    let rest =
        || new.as_object().into_iter().flatten().all(|(key, value)| key == "metadata" || old.get(key) == Some(value));
    fields(new) == fields(old) && others(new).eq(others(old)) && rest()
}
