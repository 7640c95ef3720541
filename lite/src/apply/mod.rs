//! Server-side apply: the owners of an object's fields, and the result of an apply.
//!
//! The semantics are those of the real server's structured merge
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>), for one version of each kind. Nothing here
//! knows the store or a request: objects in, objects out.

mod conflict;
mod fields;
mod managers;
mod merge;
mod node;
mod step;
#[cfg(test)]
mod tests;
mod validate;
mod walk;

use serde_json::{Map, Value};

use self::conflict::Conflicts;
pub(crate) use self::fields::Fields;
pub(crate) use self::managers::timeless;
use self::managers::{Manager, Managers, Operation, Owned};
pub(crate) use self::node::Node;
use self::walk::{Comparison, compare, fields_of, remove};
use crate::failure::Failure;

/// The owner of existing fields at the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager name of `kubectl apply`, and the annotation in which it stores its last applied configuration.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields without owners.
const STRIPPED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// The author of a write, and its circumstances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time, as the API writes it.
    pub(crate) time: &'a str,
    /// Fields that a request of this sort cannot change.
    pub(crate) reset: &'a Fields,
}

impl Writer<'_> {
    fn identity(&self, operation: Operation) -> Manager {
        let api_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => self.api_version.to_owned(),
        };
        let name = if self.manager.is_empty() { "unknown" } else { self.manager };
        Manager { operation, name: name.to_owned(), api_version, subresource: self.subresource.to_owned() }
    }
}

/// The `managedFields` after a write that was not an apply. `given` are those of the request; malformed ones are
/// ignored, and an empty list removes all owners.
pub(crate) fn track(
    node: Node<'_>,
    (live, new): (Option<&Value>, &Value),
    given: Option<&Value>,
    writer: &Writer<'_>,
) -> Option<Value> {
    let kept = || live.and_then(|live| managers::decode(&live["metadata"]["managedFields"])).unwrap_or_default();
    let mut managers = match given {
        Some(entries) if is_reset(entries) => Managers::new(),
        Some(entries) => managers::decode(entries).filter(|managers| !managers.is_empty()).unwrap_or_else(kept),
        None => kept(),
    };
    if managers.is_empty() && live.is_some() {
        return None;
    }
    let nothing = Value::Object(Map::new());
    update(node, (live.unwrap_or(&nothing), new), &mut managers, writer);
    managers::encode(&managers)
}

/// Returns `true` if a request resets all managers: by an empty list, or by one empty entry.
fn is_reset(entries: &Value) -> bool {
    entries.as_array().is_some_and(|entries| match entries.as_slice() {
        [] => true,
        [one] => one.as_object().is_some_and(Map::is_empty),
        [_, _, ..] => false,
    })
}

fn update(node: Node<'_>, (live, new): (&Value, &Value), managers: &mut Managers, writer: &Writer<'_>) {
    let found = compare(node, live, new).outside(writer.reset);
    release(managers, &found, None);
    let mine = found.written.without(&Fields::named(STRIPPED));
    if !mine.is_empty() {
        let id = writer.identity(Operation::Update);
        let before = managers.remove(&id).map(|owned| owned.fields).unwrap_or_default();
        let owned = owned(before.union(&mine), writer);
        managers.insert(id, owned);
    }
    managers::cap(managers);
}

fn owned(fields: Fields, writer: &Writer<'_>) -> Owned {
    Owned { fields, api_version: writer.api_version.to_owned(), time: Some(writer.time.to_owned()) }
}

/// Removes changed fields from all managers but one.
fn release(managers: &mut Managers, found: &Comparison, except: Option<&Manager>) {
    for (_, owned) in managers.iter_mut().filter(|(manager, _)| except != Some(manager)) {
        owned.fields = owned.fields.without(&found.written).without(&found.removed);
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
}

/// The live object with a manager's configuration, `managedFields` included. `live` is `None` if the apply creates the
/// object.
pub(crate) fn apply(
    node: Node<'_>,
    live: Option<&Value>,
    config: &Value,
    force: bool,
    writer: &Writer<'_>,
) -> Result<Value, Failure> {
    if !config["metadata"]["managedFields"].is_null() {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let refused =
        |why: String| Failure::internal(format!("failed to create typed patch object ({}): {why}", named(config)));
    validate::validate(node, config).map_err(refused)?;
    let nothing = Value::Object(Map::new());
    let mut managers = match live {
        None => Managers::new(),
        Some(live) => managers::decode(&live["metadata"]["managedFields"])
            .ok_or_else(|| Failure::internal("failed to decode managed fields"))?,
    };
    let bare = without_managers(live.unwrap_or(&nothing));
    if let (true, Some(_)) = (managers.is_empty(), live) {
        update(node, (&nothing, &bare), &mut managers, &Writer { manager: BEFORE_FIRST_APPLY, ..*writer });
    }
    let before = managers.clone();
    let applied = match attempt(node, &bare, config, &mut managers, (force, writer)) {
        Ok(applied) => applied,
        Err(conflicts) => {
            // Fields that kubectl has applied on the client side do not conflict with it: it keeps their ownership.
            let allowed = if writer.manager == KUBECTL { last_applied(node, &bare) } else { None };
            let left = allowed.map_or_else(|| conflicts.clone(), |allowed| conflicts.without(&allowed));
            if !left.is_empty() {
                return Err(left.failure());
            }
            managers = before;
            match attempt(node, &bare, config, &mut managers, (true, writer)) {
                Ok(applied) => applied,
                Err(conflicts) => return Err(conflicts.failure()),
            }
        }
    };
    Ok(finish(applied, config, &managers, writer))
}

/// One attempt: the object, or the conflicts.
fn attempt(
    node: Node<'_>,
    live: &Value,
    config: &Value,
    managers: &mut Managers,
    (force, writer): (bool, &Writer<'_>),
) -> Result<Value, Conflicts> {
    let merged = merge::merge(node, live, config);
    let id = writer.identity(Operation::Apply);
    let last = managers.get(&id).map(|owned| owned.fields.clone()).unwrap_or_default();
    let time = managers.get(&id).and_then(|owned| owned.time.clone());
    let mine = fields_of(node, config).outside(writer.reset);
    managers.insert(id.clone(), Owned { time, ..owned(mine, writer) });
    let new = prune(node, &merged, &last, managers);
    let found = compare(node, live, &new).outside(writer.reset);
    let conflicts = managers.iter().filter(|(manager, _)| **manager != id).filter_map(|(manager, owned)| {
        let fields = owned.fields.common(&found.written);
        (!fields.is_empty()).then(|| (manager.clone(), fields))
    });
    let conflicts = Conflicts(conflicts.collect());
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    release(managers, &found, Some(&id));
    if let Some(owned) = managers.get_mut(&id) {
        owned.fields = owned.fields.without(&Fields::named(STRIPPED));
        if new != *live {
            owned.time = Some(writer.time.to_owned());
        }
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok(new)
}

/// The merged object without the fields that the manager applied last time and no longer applies, unless they have
/// another owner.
fn prune(node: Node<'_>, merged: &Value, last: &Fields, managers: &Managers) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    // A field of a type is not a member of a set by itself, but it is removed when nothing in it is left.
    let whole = |fields: &Fields| fields.with_named(node, &Node::at_step);
    let last = whole(last);
    let pruned = remove(node, merged, &last);
    let all = whole(&fields_of(node, merged));
    let mut managed = Fields::default();
    managers.values().for_each(|owned| managed.extend(&owned.fields));
    let kept = whole(&fields_of(node, &pruned)).union(&whole(&managed));
    let pruned = remove(node, merged, &all.without(&kept));
    // Fields that were removed along with their parent and had other owners come back.
    let left = whole(&fields_of(node, &pruned));
    remove(node, merged, &all.without(&left).common(&last))
}

/// The fields of the live object that still have the values in kubectl's annotation.
fn last_applied(node: Node<'_>, live: &Value) -> Option<Fields> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != live["apiVersion"] {
        return None;
    }
    let found = compare(node, &last, live);
    Some(fields_of(node, &last).without(&found.written).without(&found.removed))
}

/// The object with its managers, and for kubectl with the annotation of client-side apply, if it has one.
fn finish(mut new: Value, config: &Value, managers: &Managers, writer: &Writer<'_>) -> Value {
    let annotation = new.pointer_mut("/metadata/annotations").and_then(|annotations| annotations.get_mut(LAST_APPLIED));
    if let Some(annotation) = annotation.filter(|text| writer.manager == KUBECTL && text.as_str() != Some("")) {
        let mut applied = config.clone();
        if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        *annotation = format!("{applied}\n").into();
    }
    let metadata = new.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(entries), Some(metadata)) = (managers::encode(managers), metadata) {
        metadata.insert("managedFields".to_owned(), entries);
    }
    new
}

fn without_managers(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    bare
}

/// The name of an object in the real server's messages.
fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let version = text(&object["apiVersion"]);
    let group = if version.contains('/') { "" } else { "/" };
    format!(
        "{}/{}; {group}{version}, Kind={}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&object["kind"])
    )
}
