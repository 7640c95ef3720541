//! The effects of namespaces on other writes: objects need an existing one, and are deleted with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Preconditions, Target, WriteOptions, is_held};
use crate::clock::Moment;
use crate::definition::{condition, set_condition};
use crate::failure::Failure;
use crate::kind::{Kind, KindId};
use crate::store::{Key, Object, Part, State};

/// Returns `true` if this is the kind of the namespaces themselves.
pub(super) fn is_kind(kind: &Kind) -> bool {
    kind.built_in() == Some("Namespace")
}

/// The kind of the namespaces themselves, and the current state of one.
fn find(state: &State, namespace: &str) -> Option<(KindId, Arc<Object>)> {
    let kind = KindId::built_in("Namespace")?;
    let object = state.get(&kind, &key(namespace))?.clone();
    Some((kind, object))
}

/// Namespaces that are there from the start and stay.
pub(crate) const BUILT_IN: &[&str] = &["default", "kube-system"];

fn key(namespace: &str) -> Key {
    Key { namespace: String::new(), name: namespace.to_owned() }
}

/// Refuses a new object whose namespace does not exist or is being deleted.
pub(super) fn check_open(state: &State, kind: &Kind, new: &Key) -> Result<(), Failure> {
    let Some((_, namespace)) = find(state, &new.namespace) else {
        return Err(Failure::no_namespace(&new.namespace));
    };
    if namespace.metadata("deletionTimestamp").is_empty() {
        return Ok(());
    }
    let why = format!("namespace {} is being terminated", new.namespace);
    let refusal = format!("unable to create new content in namespace {} because it is being terminated", new.namespace);
    Err(Failure::forbidden(kind, &new.name, &refusal).caused_by("NamespaceTerminating", &why, "metadata.namespace"))
}

pub(super) fn check_deletable(target: &Target) -> Result<(), Failure> {
    if is_kind(target.description()) && BUILT_IN.contains(&target.key.name.as_str()) {
        let why = "this namespace may not be deleted";
        return Err(Failure::forbidden(target.description(), &target.key.name, why));
    }
    Ok(())
}

/// Deletes everything in a namespace, and the namespace if nothing holds it.
pub(super) fn empty(state: &mut State, namespace: &str, options: &WriteOptions) {
    let part = Part { namespace: Some(namespace.to_owned()), name: None };
    let kinds = state.kinds().clone();
    for kind in kinds.places().filter(|kind| kind.description().namespaced()) {
        let keys: Vec<Key> = state.list(kind, &part).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let target = Target { kind: kind.clone(), key, subresource: None };
            // This cannot be refused: the object exists, under the same lock, and there are no preconditions.
            drop(super::delete::delete_one(state, &target, options, &Preconditions::default()));
        }
    }
    close_if_empty(state, namespace, options.moment.since_start);
    tell_what_is_left(state, namespace, &options.moment);
}

/// Removes a namespace that is being deleted and is empty.
pub(super) fn close_if_empty(state: &mut State, namespace: &str, at: Duration) {
    let Some((kind, object)) = find(state, namespace) else { return };
    let going = !object.metadata("deletionTimestamp").is_empty() && !is_held(object.value());
    if going && finalizers(object.value()).all(|one| one == OWN_FINALIZER) && !state.holds_any(namespace) {
        drop(state.remove(&kind, &key(namespace), at));
    }
}

/// The finalizer in the `spec` of every Namespace, which stands for its contents.
const OWN_FINALIZER: &str = "kubernetes";

/// The finalizers in the `spec` of a Namespace.
fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    namespace["spec"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The objects of a namespace: their numbers by kind and by finalizer.
struct Left {
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn in_namespace(state: &State, namespace: &str) -> Self {
        let part = Part { namespace: Some(namespace.to_owned()), name: None };
        let mut left = Self { kinds: BTreeMap::new(), finalizers: BTreeMap::new() };
        for kind in state.kinds().places().filter(|kind| kind.description().namespaced()) {
            for (_, object) in state.list(kind, &part) {
                let Kind { plural, group, .. } = kind.description();
                *left.kinds.entry(format!("{plural}.{group}")).or_default() += 1;
                for finalizer in super::finalizers(object.value()).filter_map(Value::as_str) {
                    *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
                }
            }
        }
        left
    }

    fn conditions(&self) -> [Value; 5] {
        let list = |counts: &BTreeMap<String, usize>, between: &str| {
            let one = |(name, count): (&String, &usize)| format!("{name} {between} {count} resource instances");
            counts.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let content = if self.kinds.is_empty() {
            condition("NamespaceContentRemaining", false, "ContentRemoved", "All content successfully removed")
        } else {
            let why = format!("Some resources are remaining: {}", list(&self.kinds, "has"));
            condition("NamespaceContentRemaining", true, "SomeResourcesRemain", &why)
        };
        let of = "NamespaceFinalizersRemaining";
        let finalizers = if self.finalizers.is_empty() {
            condition(of, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
        } else {
            let why = list(&self.finalizers, "in");
            let why = format!("Some content in the namespace has finalizers remaining: {why}");
            condition(of, true, "SomeFinalizersRemain", &why)
        };
        let deleted = "All content successfully deleted, may be waiting on finalization";
        let discovered = "All resources successfully discovered";
        let parsed = "All legacy kube types successfully parsed";
        [
            condition("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", discovered),
            condition("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsed),
            condition("NamespaceDeletionContentFailure", false, "ContentDeleted", deleted),
            content,
            finalizers,
        ]
    }
}

/// Sets the conditions of a namespace that is being deleted, in the words of the real server's controller. Its work
/// grows with the objects of the namespace, so that a write of many objects calls it once.
pub(super) fn tell_what_is_left(state: &mut State, namespace: &str, moment: &Moment) {
    let Some((kind, object)) = find(state, namespace) else { return };
    if object.metadata("deletionTimestamp").is_empty() {
        return;
    }
    let mut told = object.value().clone();
    let now = moment.timestamp();
    for condition in Left::in_namespace(state, namespace).conditions() {
        set_condition(&mut told["status"], condition, &now);
    }
    if told != *object.value() {
        state.put(&kind, key(namespace), told, moment.since_start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_the_words_of_the_real_server() {
        let counts =
            |counts: &[(&str, usize)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let check = |kinds: &[(&str, usize)], finalizers: &[(&str, usize)], want: [&str; 2]| {
            let left = Left { kinds: counts(kinds), finalizers: counts(finalizers) };
            let [_, _, _, content, held] = left.conditions();
            assert_eq!([&content["message"], &held["message"]], want);
            let status = |some: bool| if some { "True" } else { "False" };
            assert_eq!(
                [&content["status"], &held["status"]],
                [status(!kinds.is_empty()), status(!finalizers.is_empty())]
            );
        };
        check(&[], &[], ["All content successfully removed", "All content-preserving finalizers finished"]);
        check(
            &[("configmaps.", 1), ("ingresses.networking.k8s.io", 2)],
            &[("example.com/x", 3)],
            [
                "Some resources are remaining: configmaps. has 1 resource instances, \
                 ingresses.networking.k8s.io has 2 resource instances",
                "Some content in the namespace has finalizers remaining: example.com/x in 3 resource instances",
            ],
        );
    }
}
