//! Changes of an object that exists, whole or by patch, of the object or of a part of it.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::admit::Unfit;
use super::owners;
use super::{
    Checked, Config, Target, Warnings, WriteOptions, Written, admit, definition, finalizers, garbage, is_held,
    namespace, ports,
};
use crate::causes::Causes;
use crate::clock::Moment;
use crate::failure::Failure;
use crate::kind::{Kind, Subresource};
use crate::patch::Patch;
use crate::rules;
use crate::scale;
use crate::store::{Object, State};

/// The edit in a request.
pub(crate) enum Edit {
    /// PUT: the new object.
    Replace(Value),
    /// PATCH.
    Patch(Patch),
    /// PATCH by server-side apply.
    Apply(Config),
}

/// The maximum size of an object as JSON.
const OBJECT_MAX_BYTES: usize = 3 * 1024 * 1024;

/// Fields of the metadata that only the server sets.
const SYSTEM_FIELDS: &[&str] =
    &["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"];

/// Checks a change of an object. A change that leaves it equal stores nothing and notifies no watch.
pub(crate) fn edit(state: &State, target: &Target, edit: &Edit, options: &WriteOptions) -> Result<Checked, Failure> {
    let kind = target.description();
    let old = state.get(&target.kind, &target.key).ok_or_else(|| Failure::not_found(kind, &target.key.name))?;
    let old = target.kind.shown(old);
    let mut new = edited(target, edit, old.value(), options)?;
    // A body has its limit, but many patches can make one large object.
    if new.to_string().len() > OBJECT_MAX_BYTES {
        return Err(Failure::too_large(OBJECT_MAX_BYTES));
    }
    // Existing fields cannot be told from those of a patch, so the result is checked as a whole.
    let mut warnings = match edit {
        Edit::Patch(patch) => patched(kind, patch, &mut new, options)?,
        Edit::Replace(_) | Edit::Apply(_) => admit::fit(kind, &mut new, options)?,
    };
    admit::check_place(target, &mut new)?;
    check_preconditions(kind, &target.key.name, edit, &new, old.value())?;
    keep_system_fields(&mut new, old.value());
    let entries = new["metadata"]["managedFields"].take();
    new = match target.subresource {
        Some(Subresource::Status) => with_part(old.value().clone(), "status", &new),
        Some(Subresource::Finalize) => with_part(old.value().clone(), "spec", &new),
        Some(Subresource::Scale | Subresource::Log) => new,
        None if kind.has(Subresource::Finalize) => {
            with_part(with_part(new, "status", old.value()), "spec", old.value())
        }
        None if kind.has(Subresource::Status) => with_part(new, "status", old.value()),
        None => new,
    };
    check_finalizers(kind, &target.key.name, &new, old.value())?;
    let sent = owners::sent(kind, &new);
    rules::fill_in(kind, &mut new, Some(old.value()), state.serial());
    ports::give_out(state, target, Some(old.value()), &mut new, sent.as_ref());
    rules::check(kind, &new, Some(old.value()))?;
    if target.subresource.is_none() {
        warnings.extend(rules::warnings::of(kind, &new, Some(old.value())));
    }
    ports::check(state, target, Some(old.value()), &new, sent.as_ref())?;
    new["metadata"]["managedFields"] = entries;
    match edit {
        Edit::Apply(_) => {}
        Edit::Replace(_) | Edit::Patch(_) => owners::track(target, Some(old.value()), &mut new, sent.as_ref(), options),
    }
    owners::keep_times(&mut new, old.value());
    if new == *old.value() {
        return Ok(Checked::Done(Written { object: old, warnings }));
    }
    if kind.generation && outline_differs(kind, &new, old.value()) {
        let generation = old.value()["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        new["metadata"]["generation"] = generation.into();
    }
    if options.dry_run {
        return Ok(Checked::Done(Written { object: Arc::new(Object::unstored(new)), warnings }));
    }
    Ok(Checked::Update(target.clone(), new, warnings))
}

/// Checks the shape of a patched object. One that cannot be read is the patch's fault.
fn patched(kind: &Kind, patch: &Patch, new: &mut Value, options: &WriteOptions) -> Result<Warnings, Failure> {
    let text = patch.shown(new);
    admit::fit_text(kind, new, options).map_err(|why| match why {
        Unfit::Refused(failure) => failure,
        Unfit::Unreadable(why) => Failure::invalid_patch(&text, &why),
    })
}

fn edited(target: &Target, edit: &Edit, old: &Value, options: &WriteOptions) -> Result<Value, Failure> {
    if let Edit::Apply(config) = edit {
        return config.applied(target, Some(old), options);
    }
    if target.subresource == Some(Subresource::Scale) {
        let old_scale = scale::of(target.description(), old);
        let new_scale = match edit {
            Edit::Replace(new) => new.clone(),
            Edit::Patch(patch) => patch.apply(Some("Scale"), &old_scale)?,
            Edit::Apply(config) => config.value().clone(),
        };
        return scale::applied(target.description(), old, &new_scale);
    }
    match edit {
        Edit::Replace(new) => Ok(new.clone()),
        Edit::Patch(patch) => patch.apply(target.description().built_in(), old),
        Edit::Apply(config) => config.applied(target, Some(old), options),
    }
}

/// The removal of the last finalizer from an object that is being deleted removes the object.
pub(super) fn store(state: &mut State, target: &Target, new: Value, moment: &Moment) -> Arc<Object> {
    let at = moment.since_start;
    if definition::is_kind(target.description()) {
        let object = state.put(&target.kind, target.key.clone(), new, at);
        definition::settle(state, moment);
        definition::close_if_empty(state, &target.key.name, moment);
        return object;
    }
    let new = target.kind.stored(new);
    if namespace::is_kind(target.description()) {
        let object = state.put(&target.kind, target.key.clone(), new, at);
        namespace::close_if_empty(state, &target.key.name, at);
        namespace::tell_what_is_left(state, &target.key.name, moment);
        return object;
    }
    let ends = new["metadata"]["deletionTimestamp"].is_string() && !is_held(&new);
    if !ends {
        let object = target.kind.shown(&state.put(&target.kind, target.key.clone(), new, at));
        garbage::collect(state, target, moment);
        return object;
    }
    let last = garbage::remove(state, &target.kind, &target.key, moment);
    namespace::tell_what_is_left(state, &target.key.namespace, moment);
    // The answer is the object as the request leaves it, whereas watches get its last stored state.
    let last = last.map_or(0, |last| last.version());
    target.kind.shown(&Arc::new(Object::new(new, last)))
}

/// A whole object with a version or a uid applies to that one alone. A patch cannot mean another uid: it would change
/// it.
fn check_preconditions(kind: &Kind, name: &str, edit: &Edit, new: &Value, old: &Value) -> Result<(), Failure> {
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let version = text(new, "resourceVersion");
    if version.is_empty() && kind.custom().is_some() && matches!(edit, Edit::Replace(_)) {
        let mut causes = Causes::default();
        causes.invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        return Err(Failure::invalid(kind, name, &causes.0));
    }
    if !version.is_empty() && version != "0" && version != text(old, "resourceVersion") {
        return Err(Failure::modified(kind, name));
    }
    let (uid, old_uid) = (text(new, "uid"), text(old, "uid"));
    if !uid.is_empty() && uid != old_uid {
        if let Edit::Patch(_) | Edit::Apply(_) = edit {
            let mut causes = Causes::default();
            causes.immutable("metadata.uid", &uid.into());
            return Err(Failure::invalid(kind, name, &causes.0));
        }
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
        return Err(Failure::conflict(kind, name, &why));
    }
    Ok(())
}

fn keep_system_fields(new: &mut Value, old: &Value) {
    for field in SYSTEM_FIELDS {
        let kept = with_part(new["metadata"].take(), field, &old["metadata"]);
        new["metadata"] = kept;
    }
}

/// `object` with the part that `from` has under `key`.
fn with_part(mut object: Value, key: &str, from: &Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        match from.get(key) {
            None | Some(Value::Null) => drop(fields.remove(key)),
            Some(part) => drop(fields.insert(key.to_owned(), part.clone())),
        }
    }
    object
}

/// No finalizer may be added to an object that is being deleted.
fn check_finalizers(kind: &Kind, name: &str, new: &Value, old: &Value) -> Result<(), Failure> {
    if !old["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let had: HashSet<&Value> = finalizers(old).collect();
    if finalizers(new).all(|one| had.contains(one)) {
        return Ok(());
    }
    let mut causes = Causes::default();
    causes.forbidden("metadata.finalizers", "no new finalizers can be added if the object is being deleted");
    Err(Failure::invalid(kind, name, &causes.0))
}

/// Returns `true` if anything except metadata and status differs, which a generation counts. For a custom kind without
/// the status subresource, the status counts too.
fn outline_differs(kind: &Kind, new: &Value, old: &Value) -> bool {
    let counted = |key: &str| match key {
        "metadata" => false,
        "status" => kind.custom().is_some() && !kind.has(Subresource::Status),
        _ => true,
    };
    let differs = |one: &Value, other: &Value| {
        let fields = one.as_object().into_iter().flatten();
        fields.filter(|(key, _)| counted(key)).any(|(key, value)| other[key.as_str()] != *value)
    };
    differs(new, old) || differs(old, new)
}
