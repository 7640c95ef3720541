//! Deletion, at once or when the last finalizer is gone.

use std::sync::Arc;

use serde_json::Value;

use super::garbage::{self, Policy};
use super::{Target, WriteOptions, definition, is_held, namespace};
use crate::clock::Moment;
use crate::failure::Failure;
use crate::kind::KindId;
use crate::selector::Selection;
use crate::store::{Key, Object, Part, State};

/// The preconditions of a deletion, and the policy for dependents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) policy: Policy,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

impl Preconditions {
    /// Reads DeleteOptions; `policy` is the one of the query.
    pub(crate) fn read(options: &Value, policy: &str) -> Result<Self, Failure> {
        let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
        let policy = Policy::read(options, policy)?;
        Ok(Self { policy, uid: text("uid"), version: text("resourceVersion") })
    }

    fn check(&self, target: &Target, object: &Object) -> Result<(), Failure> {
        let fails = |what: &str, wanted: &str, found: &str| {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            Err(Failure::conflict(target.description(), &target.key.name, &why))
        };
        match (&self.uid, &self.version) {
            (Some(uid), _) if uid != object.metadata("uid") => fails("UID", uid, object.metadata("uid")),
            (_, Some(version)) if version != object.metadata("resourceVersion") => {
                fails("ResourceVersion", version, object.metadata("resourceVersion"))
            }
            _ => Ok(()),
        }
    }
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Object>),
    /// It is held by finalizers or by its contents.
    Terminating(Arc<Object>),
}

/// Deletes an object, or marks it if something holds it.
pub(crate) fn delete(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    preconditions: &Preconditions,
) -> Result<Deleted, Failure> {
    let deleted = delete_one(state, target, options, preconditions)?;
    namespace::tell_what_is_left(state, &target.key.namespace, &options.moment);
    Ok(deleted)
}

/// The same without a word about what is left in its namespace, which the caller has after the last of many.
pub(super) fn delete_one(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    preconditions: &Preconditions,
) -> Result<Deleted, Failure> {
    let kind = target.description();
    let object =
        state.get(&target.kind, &target.key).cloned().ok_or_else(|| Failure::not_found(kind, &target.key.name))?;
    preconditions.check(target, &object)?;
    namespace::check_deletable(target)?;
    let is_namespace = namespace::is_kind(kind);
    let is_definition = definition::is_kind(kind);
    let held = is_held(object.value()) || is_definition;
    if options.dry_run {
        return Ok(if held || is_namespace { Deleted::Terminating(object) } else { Deleted::Gone(object) });
    }
    if is_definition {
        let marked = mark(state, target, object, &options.moment, None);
        definition::empty(state, &target.key.name, options);
        return Ok(Deleted::Terminating(marked));
    }
    if is_namespace {
        let marked = mark(state, target, object, &options.moment, None);
        namespace::empty(state, &target.key.name, options);
        return Ok(Deleted::Terminating(marked));
    }
    match preconditions.policy {
        Policy::Background => {}
        Policy::Orphan => garbage::orphan(state, target, object.metadata("uid"), &options.moment),
        Policy::Foreground => {
            garbage::foreground(state, target, &options.moment);
            return Ok(Deleted::Terminating(state.get(&target.kind, &target.key).cloned().unwrap_or(object)));
        }
    }
    if held {
        return Ok(Deleted::Terminating(mark(state, target, object, &options.moment, None)));
    }
    Ok(match garbage::remove(state, &target.kind, &target.key, &options.moment) {
        Some(last) => Deleted::Gone(last),
        None => Deleted::Gone(object),
    })
}

/// Marks an object as being deleted, and adds a finalizer that it waits for.
pub(super) fn mark(
    state: &mut State,
    target: &Target,
    object: Arc<Object>,
    moment: &Moment,
    finalizer: Option<&str>,
) -> Arc<Object> {
    let going = !object.metadata("deletionTimestamp").is_empty();
    if going && finalizer.is_none() {
        return object;
    }
    let mut marked = object.value().clone();
    if !going {
        marked["metadata"]["deletionTimestamp"] = moment.timestamp().into();
        marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        if target.description().generation {
            let generation = marked["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            marked["metadata"]["generation"] = generation.into();
        }
    }
    if let Some(finalizer) = finalizer {
        let mut finalizers = marked["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(finalizer.into());
        marked["metadata"]["finalizers"] = finalizers.into();
    }
    if definition::is_kind(target.description()) {
        definition::terminate(&mut marked, moment);
    }
    crate::rules::fill_in(target.description(), &mut marked, Some(object.value()), state.serial());
    state.put(&target.kind, target.key.clone(), marked, moment.since_start)
}

/// Removes one object, and its namespace or its definition with it if that was waiting for this.
pub(super) fn take(state: &mut State, kind: &KindId, key: &Key, moment: &Moment) -> Option<Arc<Object>> {
    let at = moment.since_start;
    let last = state.remove(kind, key, at)?;
    if kind.description().namespaced() {
        namespace::close_if_empty(state, &key.namespace, at);
    }
    if kind.description().custom().is_some() {
        definition::close_if_empty(state, &kind.description().qualified(), moment);
    }
    Some(last)
}

/// Deletes every object of a part that the selection matches, and returns them as they were.
pub(crate) fn delete_matching(
    state: &mut State,
    kind: &KindId,
    part: &Part,
    selection: &Selection,
    options: &WriteOptions,
    policy: Policy,
) -> Result<Vec<Arc<Object>>, Failure> {
    let preconditions = Preconditions { policy, ..Preconditions::default() };
    let found = state.list(kind, part).filter(|(_, object)| selection.matches(object.value()));
    let found: Vec<(Key, Arc<Object>)> = found.map(|(key, object)| (key.clone(), object.clone())).collect();
    for (key, _) in &found {
        let target = Target { kind: kind.clone(), key: key.clone(), subresource: None };
        // Dependents of another one have gone with it.
        if state.get(kind, key).is_some() {
            delete_one(state, &target, options, &preconditions)?;
        }
    }
    if let Some(namespace) = &part.namespace {
        namespace::tell_what_is_left(state, namespace, &options.moment);
    }
    Ok(found.into_iter().map(|(_, object)| object).collect())
}
