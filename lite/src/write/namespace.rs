//! The effects of namespaces on other writes: objects need an existing one, and are deleted with it.

use std::sync::Arc;
use std::time::Duration;

use super::{Preconditions, Target, WriteOptions, is_held};
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
            drop(super::delete::delete(state, &target, options, &Preconditions::default()));
        }
    }
    close_if_empty(state, namespace, options.moment.since_start);
}

/// Removes a namespace that is being deleted and is empty.
pub(super) fn close_if_empty(state: &mut State, namespace: &str, at: Duration) {
    let Some((kind, object)) = find(state, namespace) else { return };
    let going = !object.metadata("deletionTimestamp").is_empty() && !is_held(object.value());
    if going && !state.holds_any(namespace) {
        drop(state.remove(&kind, &key(namespace), at));
    }
}
