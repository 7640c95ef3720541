//! Restores the state from disk: definitions first, because they define the other kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::definition;
use crate::clock::Moment;
use crate::disk::{Batch, DataDirError, Name};
use crate::kind::{KindId, StoreIndex};
use crate::store::{Key, Object, State};

/// Puts everything in its place under its versions. Objects of a custom kind are read by its schema, as after a change
/// of the definition.
///
/// # Errors
/// When a value is not an object.
pub(crate) fn restore(state: &mut State, found: &Batch, moment: &Moment) -> Result<(), DataDirError> {
    let definitions = definition::definitions().map(|kind| kind.description().qualified()).unwrap_or_default();
    let is_definition = |name: &Name| *name.kind == *definitions;
    let places = places(state);
    for (name, json) in found.objects.iter().filter(|(name, _)| is_definition(name)) {
        put(state, &places, name, json.as_deref().unwrap_or_default())?;
    }
    definition::settle(state, moment);
    let places = self::places(state);
    for (name, json) in found.objects.iter().filter(|(name, _)| !is_definition(name)) {
        put(state, &places, name, json.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

/// The place of the objects of each kind, and the schema that reads them, by the name of the kind on disk.
fn places(state: &State) -> BTreeMap<String, (StoreIndex, Option<KindId>)> {
    let defined = state.defined.iter().map(|(name, defined)| {
        let kind = defined.kinds.iter().find(|kind| kind.shows_stored()).cloned();
        (name.clone(), (defined.place, kind))
    });
    let built_in = state.kinds().iter().filter(|kind| kind.description().custom().is_none());
    built_in.map(|kind| (kind.description().qualified(), (kind.place(), None))).chain(defined).collect()
}

fn put(
    state: &mut State,
    places: &BTreeMap<String, (StoreIndex, Option<KindId>)>,
    name: &Name,
    json: &[u8],
) -> Result<(), DataDirError> {
    let Name { kind, namespace, name } = name;
    let damaged = || DataDirError::Damaged(format!("{kind} {namespace}/{name} is not an object"));
    let mut value: Value = serde_json::from_slice(json).map_err(|_| damaged())?;
    let version = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let version = version.ok_or_else(damaged)?;
    let key = Key { namespace: namespace.clone(), name: name.clone() };
    let Some((place, reader)) = places.get(&**kind) else {
        tracing::warn!(%kind, namespace, name, "an object on disk is of a kind that nothing defines; it is left there");
        return Ok(());
    };
    if let Some(reader) = reader {
        value = reader.read(&value);
    }
    state.restore(*place, key, Arc::new(Object::new(value, version)));
    Ok(())
}
