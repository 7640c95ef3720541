//! The effects of CustomResourceDefinitions on other writes: an established one adds a kind, and the deletion of one
//! deletes its objects. The real server has controllers for this; here it is done before the response to the write.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Preconditions, Target, WriteOptions, is_held};
use crate::clock::Moment;
use crate::definition::{self, CLEANUP, Defined, Names, Used};
use crate::failure::Failure;
use crate::kind::{Kind, KindId, Kinds, StoreIndex};
use crate::store::{Key, Object, Part, State};

/// The maximum number of definitions.
const DEFINITIONS_MAX: usize = 500;
/// The annotation with the link to the approval of a kind of a protected group.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Returns `true` if this is the kind of the definitions themselves.
pub(super) fn is_kind(kind: &Kind) -> bool {
    kind.built_in() == Some("CustomResourceDefinition")
}

/// Refuses definitions beyond the limit, and new objects of a kind that is being deleted.
pub(super) fn check_room(state: &State, target: &Target) -> Result<(), Failure> {
    if !state.serves(&target.kind) {
        return Err(Failure::no_resource());
    }
    if is_kind(target.description()) && state.list(&target.kind, &Part::default()).count() >= DEFINITIONS_MAX {
        let why = format!("this server keeps no more than {DEFINITIONS_MAX} CustomResourceDefinitions");
        return Err(Failure::forbidden(target.description(), "", &why));
    }
    let Some((_, definition)) = target.description().custom().and_then(|_| find(state, target.description())) else {
        return Ok(());
    };
    if definition["metadata"]["deletionTimestamp"].is_string() {
        return Err(Failure::terminating_definition(target.description()));
    }
    Ok(())
}

pub(super) fn definitions() -> Option<KindId> {
    KindId::built_in("CustomResourceDefinition")
}

fn key(name: &str) -> Key {
    Key { namespace: String::new(), name: name.to_owned() }
}

/// The definition of a kind.
fn find(state: &State, kind: &Kind) -> Option<(Key, Value)> {
    let key = key(&kind.qualified());
    let object = state.get(&definitions()?, &key)?;
    Some((key, object.value().clone()))
}

/// Decides the names of all definitions, writes them to their statuses, and serves the kinds of those that are
/// established.
pub(super) fn settle(state: &mut State, moment: &Moment) {
    let Some(kind) = definitions() else { return };
    // A name that one definition gives up may be requested by another.
    for _ in 0..DEFINITIONS_MAX {
        if !judge_all(state, &kind, moment) {
            break;
        }
    }
    serve(state, &kind);
}

/// Returns `true` if anything changed.
fn judge_all(state: &mut State, kind: &KindId, moment: &Moment) -> bool {
    let part = Part::default();
    let all: Vec<(Key, Arc<Object>)> =
        state.list(kind, &part).map(|(key, object)| (key.clone(), object.clone())).collect();
    let mut any = false;
    for (key, definition) in all.iter().filter(|(_, object)| !is_settled(object.value())) {
        let mut used = Used::default();
        for (other, _) in all.iter().filter(|(other, _)| other != key) {
            // Names accepted earlier in this round count.
            if let Some(other) = state.get(kind, other).map(|object| object.value())
                && other["spec"]["group"] == definition.value()["spec"]["group"]
            {
                used.add(&Names::read(&other["status"]["acceptedNames"]));
            }
        }
        let mut judged = definition.value().clone();
        judge(&mut judged, &used, moment);
        if judged != *definition.value() {
            state.put(kind, key.clone(), judged, moment.since_start);
            any = true;
        }
    }
    any
}

/// Returns `true` if a definition has the names that it requests, and serves.
fn is_settled(definition: &Value) -> bool {
    let names = |names: &Value| Names::read(names);
    is_established(definition) && names(&definition["spec"]["names"]) == names(&definition["status"]["acceptedNames"])
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Established" && one["status"] == "True")
}

fn judge(definition: &mut Value, used: &Used, moment: &Moment) {
    let now = moment.timestamp();
    let wanted = Names::read(&definition["spec"]["names"]);
    let had = Names::read(&definition["status"]["acceptedNames"]);
    let approval = definition["metadata"]["annotations"][APPROVAL].as_str().map(str::to_owned);
    let (names, accepted) = definition::judge(&wanted, &had, used);
    let are_accepted = accepted["status"] == "True";
    let status = &mut definition["status"];
    status["acceptedNames"] = names.write();
    if let Some(link) = approval.filter(|link| link.starts_with("http")) {
        let message = format!("approved in {link}");
        let approved =
            definition::condition("KubernetesAPIApprovalPolicyConformant", true, "ApprovedAnnotation", &message);
        definition::set_condition(status, approved, &now);
    }
    definition::set_condition(status, accepted, &now);
    if !is_established(definition) {
        let status = &mut definition["status"];
        let condition = if are_accepted {
            definition::condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted")
        } else {
            definition::condition("Established", false, "NotAccepted", "not all names are accepted")
        };
        definition::set_condition(status, condition, &now);
    }
}

/// Serves the kinds of all established definitions. An unchanged one is not read again.
fn serve(state: &mut State, kind: &KindId) {
    let part = Part::default();
    let all: Vec<Arc<Object>> = state.list(kind, &part).map(|(_, object)| object.clone()).collect();
    let mut before = std::mem::take(&mut state.defined);
    let mut read_anew = Vec::new();
    for definition in all.iter().map(|object| object.value()).filter(|one| is_established(one)) {
        let metadata = &definition["metadata"];
        let (name, uid) = (text(&metadata["name"]), text(&metadata["uid"]));
        let generation = metadata["generation"].as_u64().unwrap_or_default();
        let known = before.remove(&name).filter(|known| known.uid == uid);
        let defined = match known {
            Some(known) if known.generation == generation && has_names(&known, definition) => known,
            known => {
                let place: StoreIndex = known.map_or_else(|| state.new_place(), |known| known.place);
                read_anew.push(place);
                Defined { kinds: definition::kinds(definition, place), uid, generation, place }
            }
        };
        state.defined.insert(name, defined);
    }
    let custom = state.defined.values().flat_map(|defined| defined.kinds.iter().cloned()).collect();
    let kinds = Kinds::with_custom(custom);
    state.serve(kinds.clone());
    // The objects of these were read by an earlier schema.
    for kind in kinds.iter().filter(|kind| read_anew.contains(&kind.place()) && kind.shows_stored()) {
        state.reread(kind, |object| kind.read(object));
    }
}

fn has_names(known: &Defined, definition: &Value) -> bool {
    let names = Names::read(&definition["status"]["acceptedNames"]);
    known.kinds.iter().all(|kind| {
        let description = kind.description();
        (&description.plural, &description.singular, &description.kind, &description.short)
            == (&names.plural, &names.singular, &names.kind, &names.short)
            && (&description.list_kind, &description.categories) == (&names.list_kind, &names.categories)
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The definition when it is marked for deletion: held until its objects are gone, with a condition for that.
pub(super) fn terminate(marked: &mut Value, moment: &Moment) {
    if !marked["metadata"]["finalizers"].is_array() {
        marked["metadata"]["finalizers"] = json!([]);
    }
    if let Some(finalizers) = marked["metadata"]["finalizers"].as_array_mut()
        && !finalizers.iter().any(|one| one == CLEANUP)
    {
        finalizers.push(CLEANUP.into());
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let condition = definition::condition("Terminating", true, "InstanceDeletionPending", message);
    definition::set_condition(&mut marked["status"], condition, &moment.timestamp());
}

/// Deletes every object of a definition that is being deleted, and the definition if nothing holds it.
pub(super) fn empty(state: &mut State, name: &str, options: &WriteOptions) {
    if let Some(kind) = state.defined.get(name).and_then(|defined| defined.kinds.first().cloned()) {
        let part = Part::default();
        let keys: Vec<Key> = state.list(&kind, &part).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let target = Target { kind: kind.clone(), key, subresource: None };
            // This cannot be refused: the object exists, under the same lock, and there are no preconditions.
            drop(super::delete::delete(state, &target, options, &Preconditions::default()));
        }
    }
    close_if_empty(state, name, &options.moment);
}

/// Removes a definition that is being deleted, if it has no more objects and only its own finalizer holds it.
pub(super) fn close_if_empty(state: &mut State, name: &str, moment: &Moment) {
    let Some(kind) = definitions() else { return };
    let Some(object) = state.get(&kind, &key(name)).cloned() else { return };
    if object.metadata("deletionTimestamp").is_empty() {
        return;
    }
    let part = Part::default();
    let place = state.defined.get(name).and_then(|defined| defined.kinds.first().cloned());
    if place.is_some_and(|kind| state.list(&kind, &part).next().is_some()) {
        return;
    }
    let mut last = object.value().clone();
    if let Some(finalizers) = last["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != CLEANUP);
    }
    if is_held(&last) {
        if last != *object.value() {
            state.put(&kind, key(name), last, moment.since_start);
        }
        return;
    }
    drop(state.remove(&kind, &key(name), moment.since_start));
    settle(state, moment);
}
