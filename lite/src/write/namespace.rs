//! What namespaces mean for other writes: objects need one that is open, and leave with it.

use std::time::Duration;

use super::{Preconditions, Target, Terms, is_held};
use crate::failure::Failure;
use crate::kind::{Kind, KindId};
use crate::store::{Key, Part, State};

/// The kind of the namespaces themselves.
pub(super) const NAMESPACES: KindId = KindId(0);

/// Namespaces that are there from the start and stay.
pub(crate) const BUILT_IN: &[&str] = &["default", "kube-system"];

fn key(namespace: &str) -> Key {
    Key { namespace: String::new(), name: namespace.to_owned() }
}

/// Refuses a new object whose namespace is not there or is going.
pub(super) fn check_open(state: &State, kind: &Kind, new: &Key) -> Result<(), Failure> {
    let Some(namespace) = state.get(NAMESPACES, &key(&new.namespace)) else {
        return Err(Failure::not_found(NAMESPACES.row(), &new.namespace));
    };
    if namespace.metadata("deletionTimestamp").is_empty() {
        return Ok(());
    }
    let why = format!("namespace {} is being terminated", new.namespace);
    let message = format!(
        "{} \"{}\" is forbidden: unable to create new content in namespace {} because it is being terminated",
        kind.qualified(),
        new.name,
        new.namespace
    );
    Err(Failure::forbidden(message).caused_by("NamespaceTerminating", &why, "metadata.namespace"))
}

pub(super) fn check_deletable(target: &Target) -> Result<(), Failure> {
    if target.kind == NAMESPACES && BUILT_IN.contains(&target.key.name.as_str()) {
        let message = format!("namespaces \"{}\" is forbidden: this namespace may not be deleted", target.key.name);
        return Err(Failure::forbidden(message));
    }
    Ok(())
}

/// Deletes everything in a namespace, and the namespace if nothing holds on.
pub(super) fn empty(state: &mut State, namespace: &str, terms: &Terms) {
    let part = Part { namespace: Some(namespace.to_owned()), name: None };
    for (kind, _) in KindId::all().filter(|(_, row)| row.namespaced()) {
        let keys: Vec<Key> = state.list(kind, &part).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let target = Target { kind, key, subresource: None };
            // Nothing can refuse this: the object is there, under the same lock, and there are no preconditions.
            drop(super::delete::delete(state, &target, terms, &Preconditions::default()));
        }
    }
    close_if_empty(state, namespace, terms.moment.since_start);
}

/// Removes a namespace that is going and holds nothing any more.
pub(super) fn close_if_empty(state: &mut State, namespace: &str, at: Duration) {
    let going = state
        .get(NAMESPACES, &key(namespace))
        .is_some_and(|namespace| !namespace.metadata("deletionTimestamp").is_empty() && !is_held(namespace.value()));
    if going && !state.holds_any(namespace) {
        drop(state.remove(NAMESPACES, &key(namespace), at));
    }
}
