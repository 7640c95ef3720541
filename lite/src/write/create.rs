//! Creation: a name, the system's fields, and a place that exists.

use std::sync::Arc;

use serde_json::Value;

use super::owners::{self, Tracking};
use super::{Checked, Target, Warnings, WriteOptions, Written, admit, class, definition, garbage, ports};
use crate::clock::Moment;
use crate::failure::Failure;
use crate::kind::{Kind, Subresource};
use crate::rules;
use crate::store::{Key, Object, State};

/// Letters of a generated suffix: no vowels, and no characters that resemble another.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// A generated name is at most this long before its suffix.
const GENERATED_BASE_MAX_BYTES: usize = 63 - SUFFIX_LENGTH;

/// Checks the creation of an object. The target's name is empty; the object brings its own.
pub(crate) fn create(
    state: &State,
    target: &Target,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Checked, Failure> {
    let kind = target.description();
    definition::check_room(state, target)?;
    let warnings = admit::fit(kind, &mut object, options)?;
    admit::check_place(target, &mut object)?;
    insert(state, target, object, options, &Tracking::Update, warnings)
}

/// Sets the system fields of a new object, and checks it.
pub(super) fn insert(
    state: &State,
    target: &Target,
    mut object: Value,
    options: &WriteOptions,
    tracking: &Tracking,
    mut warnings: Warnings,
) -> Result<Checked, Failure> {
    let kind = target.description();
    stamp(kind, &mut object, &options.moment)?;
    // A client cannot set the status, but it may have defaults.
    if let Some(custom) = kind.custom() {
        custom.fill(&mut object);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = Key { namespace: target.key.namespace.clone(), name };
    if kind.namespaced() {
        super::namespace::check_open(state, kind, &key)?;
    }
    let sent = owners::sent(kind, &object);
    rules::fill_in(kind, &mut object, None, state.serial());
    ports::give_out(state, target, None, &mut object, sent.as_ref());
    rules::check(kind, &object, None)?;
    warnings.extend(rules::warnings::of(kind, &object, None));
    ports::check(state, target, None, &object, sent.as_ref())?;
    if let Tracking::Update = tracking {
        owners::track(target, None, &mut object, sent.as_ref(), options);
    }
    class::fill_in(state, kind, &mut object);
    match state.get(&target.kind, &key) {
        Some(old) if old.metadata("deletionTimestamp").is_empty() => {
            return Err(Failure::already_exists(kind, &key.name));
        }
        Some(_) => return Err(Failure::being_deleted(kind, &key.name)),
        None => {}
    }
    if options.dry_run {
        return Ok(Checked::Done(Written { object: Arc::new(Object::unstored(object)), warnings }));
    }
    Ok(Checked::Insert(Target { key, ..target.clone() }, target.kind.stored(object), warnings))
}

/// Stores an object that has been checked.
pub(super) fn store(state: &mut State, target: &Target, object: Value, moment: &Moment) -> Arc<Object> {
    let stored = state.put(&target.kind, target.key.clone(), object, moment.since_start);
    garbage::collect(state, target, moment);
    if definition::is_kind(target.description()) {
        definition::settle(state, moment);
    }
    target.kind.shown(&stored)
}

/// Sets the fields that only the server sets, and clears those that the client may not set.
fn stamp(kind: &Kind, object: &mut Value, moment: &Moment) -> Result<(), Failure> {
    if kind.has(Subresource::Status) {
        object.as_object_mut().and_then(|object| object.remove("status"));
    }
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(Failure::bad_request("metadata must be an object"));
    };
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let generated =
        (text("name").is_empty() && !text("generateName").is_empty()).then(|| generate(text("generateName"), moment));
    for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(field);
    }
    if let Some(name) = generated {
        metadata.insert("name".into(), name.into());
    }
    metadata.insert("uid".into(), moment.uid().into());
    metadata.insert("creationTimestamp".into(), moment.timestamp().into());
    if kind.generation {
        metadata.insert("generation".into(), 1.into());
    }
    Ok(())
}

fn generate(base: &str, moment: &Moment) -> String {
    let mut name: String = base
        .chars()
        .scan(0, |bytes, letter| {
            *bytes += letter.len_utf8();
            (*bytes <= GENERATED_BASE_MAX_BYTES).then_some(letter)
        })
        .collect();
    let mut draw = moment.draw;
    for _ in 0..SUFFIX_LENGTH {
        let nth = draw % SUFFIX_LETTERS.len() as u128;
        name.push(char::from(SUFFIX_LETTERS[usize::try_from(nth).unwrap_or_default()]));
        draw /= SUFFIX_LETTERS.len() as u128;
    }
    name
}
