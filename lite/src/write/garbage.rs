//! Garbage collection: dependents go with their owner, by the policy of its deletion. The real server leaves this to a
//! controller; here it is a part of the write that removes the owner.
//!
//! Namespaces and definitions are not collected: their contents go with them by other rules.

use std::sync::Arc;

use serde_json::Value;

use super::delete::{mark, take};
use super::{Target, definition, finalizers, is_held, namespace};
use crate::causes::Causes;
use crate::clock::Moment;
use crate::failure::Failure;
use crate::kind::{Kind, KindId, group_version};
use crate::store::{Key, Object, State};

/// The policy for the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// They are deleted once it is gone.
    #[default]
    Background,
    /// It waits for those with `blockOwnerDeletion`.
    Foreground,
    /// They stay, and have one owner less.
    Orphan,
}

/// The finalizer under which an owner waits.
const WAITS: &str = "foregroundDeletion";

impl Policy {
    /// Reads the policy from DeleteOptions, or else from the query.
    pub(crate) fn read(options: &Value, query: &str) -> Result<Self, Failure> {
        if !options["orphanDependents"].is_null() && !options["propagationPolicy"].is_null() {
            let mut causes = Causes::default();
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.invalid("propagationPolicy", &options["propagationPolicy"], why);
            return Err(Failure::invalid_options("DeleteOptions", &causes.0));
        }
        if options["orphanDependents"] == true {
            return Ok(Self::Orphan);
        }
        match options["propagationPolicy"].as_str().unwrap_or(query) {
            "" | "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            "Orphan" => Ok(Self::Orphan),
            other => {
                let mut causes = Causes::default();
                let known = ["Foreground", "Background", "Orphan", "nil"];
                causes.unsupported("propagationPolicy", &other.into(), &known);
                Err(Failure::invalid_options("DeleteOptions", &causes.0))
            }
        }
    }
}

fn is_collected(kind: &Kind) -> bool {
    !namespace::is_kind(kind) && !definition::is_kind(kind)
}

/// The owners that an object names.
fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// An owner of an unknown kind, whose existence is unknown.
#[derive(Debug, PartialEq, Eq)]
struct UnknownKind;

/// The place of an owner, if it exists.
fn owner(state: &State, reference: &Value, namespace: &str) -> Result<Option<(KindId, Key)>, UnknownKind> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let of_kind = |kind: &&KindId| {
        let description = kind.description();
        description.kind == text("kind")
            && group_version(&description.group, &description.version) == text("apiVersion")
    };
    let kind = state.kinds().iter().find(of_kind).cloned().ok_or(UnknownKind)?;
    let namespace = if kind.description().namespaced() { namespace } else { "" };
    let key = Key { namespace: namespace.to_owned(), name: text("name").to_owned() };
    let there = state.get(&kind, &key).is_some_and(|object| object.metadata("uid") == text("uid"));
    Ok(there.then_some((kind, key)))
}

/// Returns `true` if every owner of an object has gone.
fn is_garbage(state: &State, object: &Value, key: &Key) -> bool {
    owners(object).next().is_some()
        && owners(object).all(|reference| owner(state, reference, &key.namespace) == Ok(None))
}

/// The objects that name this one as an owner.
fn dependents(state: &State, uid: &str, namespace: &str) -> Vec<(KindId, Key)> {
    let owned = state.owned_by(uid).into_iter();
    owned
        .filter(|(kind, key)| is_collected(kind.description()) && (namespace.is_empty() || key.namespace == namespace))
        .collect()
}

/// Removes an object, and then everything without a remaining owner, or that was waiting for it.
pub(super) fn remove(state: &mut State, kind: &KindId, key: &Key, moment: &Moment) -> Option<Arc<Object>> {
    let last = take(state, kind, key, moment)?;
    follow(state, key, last.clone(), moment);
    Some(last)
}

/// Follows up on the removal of an object, object after object: a chain of owners may have any length.
fn follow(state: &mut State, key: &Key, last: Arc<Object>, moment: &Moment) {
    let mut gone = vec![(key.namespace.clone(), last)];
    while let Some((namespace, owner)) = gone.pop() {
        for (kind, key) in dependents(state, owner.metadata("uid"), &namespace) {
            let Some(object) = state.get(&kind, &key).cloned() else { continue };
            let last = if !is_garbage(state, object.value(), &key) {
                disown(state, &kind, &key, owner.metadata("uid"), moment);
                None
            } else if is_held(object.value()) {
                mark(state, &Target { kind, key: key.clone(), subresource: None }, object, moment, None);
                None
            } else {
                take(state, &kind, &key, moment)
            };
            gone.extend(last.map(|last| (key.namespace, last)));
        }
        for reference in owners(owner.value()) {
            let Ok(Some((kind, key))) = self::owner(state, reference, &namespace) else { continue };
            gone.extend(release(state, &kind, &key, moment).map(|last| (key.namespace, last)));
        }
    }
}

/// Removes an object if all its owners have gone: the real server's controller finds it a moment after it was written.
pub(super) fn collect(state: &mut State, target: &Target, moment: &Moment) {
    let Some(object) = state.get(&target.kind, &target.key).cloned() else { return };
    if is_collected(target.description()) && !is_held(object.value()) && is_garbage(state, object.value(), &target.key)
    {
        drop(remove(state, &target.kind, &target.key, moment));
    }
}

/// Marks an object and all its dependents, and removes those that wait for nothing.
pub(super) fn foreground(state: &mut State, target: &Target, moment: &Moment) {
    let (mut found, mut marked) = (vec![(target.kind.clone(), target.key.clone())], Vec::new());
    while let Some((kind, key)) = found.pop() {
        let Some(object) = state.get(&kind, &key).cloned() else { continue };
        // A dependent with another owner that stays is not deleted.
        let stays = owners(object.value()).any(|reference| waits(state, reference, &key.namespace) == Some(false));
        if finalizers(object.value()).any(|one| one == WAITS) || (stays && !marked.is_empty()) {
            continue;
        }
        found.extend(dependents(state, object.metadata("uid"), &key.namespace));
        let each = Target { kind: kind.clone(), key: key.clone(), subresource: None };
        mark(state, &each, object, moment, Some(WAITS));
        marked.push((kind, key));
    }
    for (kind, key) in marked.into_iter().rev() {
        if let Some(last) = release(state, &kind, &key, moment) {
            follow(state, &key, last, moment);
        }
    }
}

/// Returns `true` if an owner waits for its dependents, and `None` if it does not exist.
fn waits(state: &State, reference: &Value, namespace: &str) -> Option<bool> {
    let (kind, key) = owner(state, reference, namespace).ok()??;
    let object = state.get(&kind, &key)?;
    Some(finalizers(object.value()).any(|one| one == WAITS))
}

/// Releases an owner that no longer waits for anything. It is removed if nothing else holds it.
fn release(state: &mut State, kind: &KindId, key: &Key, moment: &Moment) -> Option<Arc<Object>> {
    let object = state.get(kind, key).cloned()?;
    let uid = object.metadata("uid");
    if object.metadata("deletionTimestamp").is_empty() || finalizers(object.value()).all(|one| one != WAITS) {
        return None;
    }
    let blocks = |reference: &Value| reference["uid"] == uid && reference["blockOwnerDeletion"] == true;
    let owned = dependents(state, uid, &key.namespace);
    let blocked = owned.iter().filter_map(|(kind, key)| state.get(kind, key));
    if blocked.into_iter().any(|object| owners(object.value()).any(blocks)) {
        return None;
    }
    let mut free = object.value().clone();
    retain(&mut free, "finalizers", |one| one != WAITS);
    let held = is_held(&free);
    state.put(kind, key.clone(), free, moment.since_start);
    if held { None } else { take(state, kind, key, moment) }
}

/// Takes an owner from everything that names it.
pub(super) fn orphan(state: &mut State, target: &Target, uid: &str, moment: &Moment) {
    for (kind, key) in dependents(state, uid, &target.key.namespace) {
        disown(state, &kind, &key, uid, moment);
    }
}

fn disown(state: &mut State, kind: &KindId, key: &Key, uid: &str, moment: &Moment) {
    let Some(object) = state.get(kind, key) else { return };
    let mut free = object.value().clone();
    retain(&mut free, "ownerReferences", |one| one["uid"] != uid);
    state.put(kind, key.clone(), free, moment.since_start);
}

/// Keeps some elements of a list of the metadata; an empty list is absent.
fn retain(object: &mut Value, field: &str, keep: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(list) = metadata.get_mut(field).and_then(Value::as_array_mut) else { return };
    list.retain(keep);
    if list.is_empty() {
        metadata.remove(field);
    }
}
