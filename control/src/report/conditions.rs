//! Updates the conditions of an object of the Gateway API. Other controllers write to the same lists, so the object is
//! read first, and only our entries are changed. Pure: time is an argument.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Map, Value, json};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::{
    Condition, ListenerStatus, OWN_CONDITIONS, OWN_LISTENER_CONDITIONS, OwnStatus, ParentStatus,
};

use super::contest;
use super::send::Prepared;
use crate::cluster::informer::Resource;

/// The API's limit of conditions in a list.
const CONDITIONS_MAX: usize = 8;
/// The API's limit of a condition's message, in characters; here in bytes, which are as many or more.
const MESSAGE_BYTES_MAX: usize = 32768;
/// The API's limit of addresses in a status.
const ADDRESSES_MAX: usize = 16;
/// The API's limit of parents in a status.
const PARENTS_MAX: usize = 32;
/// The API's limit of ancestors in a status.
const ANCESTORS_MAX: usize = 16;

/// The path of the object's collection.
pub(super) fn collection(object: &ObjectRef) -> String {
    let namespace = object.kind.namespaced().then_some(&*object.name.namespace);
    Resource::of(object.kind).path(namespace)
}

/// Reads the object.
pub(super) fn get(object: &ObjectRef) -> Prepared {
    Request::new(collection(object)).get(&object.name.name, &kube::api::GetParams::default())
}

/// Writes a status as this field manager, if the object has not changed since it was read. A merge patch replaces the
/// lists and leaves all other fields unchanged.
pub(super) fn patch(object: &ObjectRef, resource_version: &str, status: Value, manager: &str) -> Prepared {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let body = json!({"metadata": {"resourceVersion": resource_version}, "status": status});
    Request::new(collection(object)).patch_subresource("status", &object.name.name, &params, &Patch::Merge(body))
}

/// The parts of an object as it was read.
pub(super) struct Current {
    /// Its resourceVersion.
    pub(super) resource_version: String,
    /// Whether its status is ours.
    pub(super) is_ours: bool,
    /// Its generation.
    generation: i64,
    status: Value,
}

impl Current {
    /// Parses an object; `None` if it has no resourceVersion.
    pub(super) fn of(mut object: Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let resource_version = metadata.get("resourceVersion")?.as_str()?.to_owned();
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or_default();
        let managers = metadata.get("managedFields").and_then(Value::as_array);
        let is_ours = managers.is_some_and(|managers| managers.iter().any(contest::is_our_status));
        let status = object.get_mut("status").map_or(Value::Null, Value::take);
        Some(Self { resource_version, is_ours, generation, status })
    }

    /// An object without a status, of this resourceVersion and generation.
    pub(super) fn without_status(resource_version: &str, generation: i64) -> Self {
        Self { resource_version: resource_version.to_owned(), is_ours: false, generation, status: Value::Null }
    }

    /// The fields of the status to write; `None` if nothing differs, or if the object has a later generation than the
    /// status.
    pub(super) fn merged(
        &self,
        object: &ObjectRef,
        (controller, generation): (&str, i64),
        own: &OwnStatus,
        now: Timestamp,
    ) -> Option<Value> {
        if self.generation > generation {
            return None;
        }
        let clock = Clock(now);
        let list = |name: &str| self.status.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut next = Map::new();
        if object.kind.has_parents() {
            let (field, reference, most) = match object.kind.is_route() {
                true => ("parents", "parentRef", PARENTS_MAX),
                false => ("ancestors", "ancestorRef", ANCESTORS_MAX),
            };
            next.insert(field.to_owned(), parents(&list(field), &own.parents, (reference, controller, most), &clock));
        } else {
            let conditions = conditions(&list("conditions"), &own.conditions, &OWN_CONDITIONS, &clock);
            next.insert("conditions".to_owned(), conditions);
            if let Some(generation) = own.observed_generation {
                next.insert("observedGeneration".to_owned(), json!(generation));
            }
            if !own.features.is_empty() {
                next.insert("supportedFeatures".to_owned(), json!(own.features));
            }
            if !own.addresses.is_empty() || !list("addresses").is_empty() {
                let addresses = own.addresses.get(..ADDRESSES_MAX).unwrap_or(&own.addresses);
                next.insert("addresses".to_owned(), json!(addresses));
            }
            if !own.listeners.is_empty() || !list("listeners").is_empty() {
                next.insert("listeners".to_owned(), listeners(&list("listeners"), &own.listeners, &clock));
            }
            if let Some(sets) = own.attached_sets {
                next.insert("attachedListenerSets".to_owned(), json!(sets));
            }
        }
        next.retain(|field, value| self.status.get(field) != Some(value));
        (!next.is_empty()).then_some(Value::Object(next))
    }
}

/// The time of a write, to the second as the API has it.
struct Clock(Timestamp);

impl Clock {
    /// A condition with its `lastTransitionTime`: that of the previous one, unless the status has changed.
    fn stamp(&self, condition: &Condition, before: &[Value]) -> Value {
        let same = |it: &&Value| {
            let text = |field| it.get(field).and_then(Value::as_str);
            text("type") == Some(&condition.kind) && text("status") == Some(&condition.status)
        };
        let since = before.iter().find(same).and_then(|it| it.get("lastTransitionTime")).cloned();
        let now = || json!(Timestamp::from_second(self.0.as_second()).unwrap_or(self.0).to_string());
        let mut value = json!(condition);
        if let Some(fields) = value.as_object_mut() {
            if condition.message.len() > MESSAGE_BYTES_MAX {
                fields.insert("message".to_owned(), json!(shortened(&condition.message)));
            }
            fields.insert("lastTransitionTime".to_owned(), since.unwrap_or_else(now));
        }
        value
    }
}

/// The beginning of a message that is longer than the API allows.
fn shortened(message: &str) -> String {
    const END: &str = " …";
    let most = message.floor_char_boundary(MESSAGE_BYTES_MAX - END.len());
    format!("{}{END}", message.get(..most).unwrap_or_default())
}

/// The conditions that every reader looks for.
const WANTED: [&str; 3] = ["Accepted", "Programmed", "ResolvedRefs"];

/// Conditions of other types are kept, and come first. If they leave too little space, the rarer ones of ours are
/// omitted first: with one condition too many, the API server would reject all.
fn conditions(before: &[Value], own: &[Condition], types: &[&str], clock: &Clock) -> Value {
    let foreign = |it: &&Value| !it.get("type").and_then(Value::as_str).is_some_and(|kind| types.contains(&kind));
    let mut all: Vec<Value> = before.iter().filter(foreign).cloned().collect();
    let room = CONDITIONS_MAX.saturating_sub(all.len());
    let is_wanted = |condition: &&Condition| WANTED.iter().any(|kind| condition.kind == *kind);
    let wanted = own.iter().filter(is_wanted).count().min(room);
    let (mut wanted, mut rare) = (wanted, room - wanted);
    let fits = |condition: &&Condition| {
        let left = if is_wanted(condition) { &mut wanted } else { &mut rare };
        let fits = *left > 0;
        *left -= usize::from(fits);
        fits
    };
    all.extend(own.iter().filter(fits).map(|condition| clock.stamp(condition, before)));
    Value::Array(all)
}

fn listeners(before: &[Value], own: &[ListenerStatus], clock: &Clock) -> Value {
    let one = |listener: &ListenerStatus| {
        let before = before.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(&listener.name));
        let list = before.and_then(|it| it.get("conditions")).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut value = json!(listener);
        if let Some(fields) = value.as_object_mut() {
            let conditions = conditions(&list, &listener.conditions, &OWN_LISTENER_CONDITIONS, clock);
            fields.insert("conditions".to_owned(), conditions);
        }
        value
    };
    own.iter().map(one).collect()
}

/// Entries of other controllers are kept in place. If they leave no space, ours are omitted: with one entry too many,
/// the API server would reject all.
fn parents(
    before: &[Value],
    own: &[ParentStatus],
    (reference, controller, most): (&str, &str, usize),
    clock: &Clock,
) -> Value {
    let is_ours = |it: &&Value| it.get("controllerName").and_then(Value::as_str) == Some(controller);
    let mut all: Vec<Value> = before.iter().filter(|it| !is_ours(it)).cloned().collect();
    for parent in own.iter().take(most.saturating_sub(all.len())) {
        let written = json!(parent.parent);
        let entry = before.iter().filter(is_ours).find(|it| it.get(reference) == Some(&written));
        let list = entry.and_then(|it| it.get("conditions")).and_then(Value::as_array).cloned().unwrap_or_default();
        let conditions: Vec<Value> = parent.conditions.iter().map(|condition| clock.stamp(condition, &list)).collect();
        all.push(json!({reference: written, "controllerName": controller, "conditions": conditions}));
    }
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::{Kind, ObjectName};
    use tidegate_config::project::gateway::WrittenRef;

    use super::*;

    const BEFORE: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "2026-01-02T00:00:00Z";

    fn condition(kind: &'static str, status: &'static str) -> Condition {
        let (kind, status, reason) = (kind.into(), status.into(), "Why".into());
        Condition { kind, status, reason, message: "".into(), observed_generation: 2 }
    }

    fn written(kind: &str, status: &str, time: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "Why", "message": "", "observedGeneration": 2,
               "lastTransitionTime": time})
    }

    /// Compares the written status; `want` is null if nothing is written.
    #[track_caller]
    fn check(kind: Kind, status: Value, own: &OwnStatus, want: Value) {
        let object = json!({"metadata": {"resourceVersion": "7", "generation": 2}, "status": status});
        let current = Current::of(object).unwrap();
        let object = ObjectRef::new(kind, ObjectName::new("shop", "a"));
        let now = (NOW.parse::<Timestamp>().unwrap()) + k8s_openapi::jiff::SignedDuration::from_millis(7);
        let merged = |generation| current.merged(&object, ("us/a", generation), own, now);
        assert_eq!(merged(2).unwrap_or(Value::Null), want);
        assert_eq!(merged(1), None, "an older view writes nothing");
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let own = OwnStatus {
            conditions: vec![condition("Accepted", "True"), condition("Programmed", "False")],
            ..OwnStatus::default()
        };
        let before = [written("Accepted", "True", BEFORE), written("Programmed", "True", BEFORE)];
        let after = [written("Accepted", "True", BEFORE), written("Programmed", "False", NOW)];
        check(Kind::Gateway, json!({"conditions": before}), &own, json!({"conditions": after}));
        check(Kind::Gateway, json!({"conditions": after}), &own, Value::Null);
        let foreign = written("Theirs", "True", BEFORE);
        let with = json!({"conditions": [before[0], foreign, before[1]]});
        check(Kind::Gateway, with, &own, json!({"conditions": [foreign, after[0], after[1]]}));
        let both = [written("Accepted", "True", NOW), written("Programmed", "False", NOW)];
        check(Kind::Gateway, Value::Null, &own, json!({"conditions": both}));
    }

    #[test]
    fn addresses_and_listeners_that_a_gateway_has_lost_are_removed() {
        let before = json!({"conditions": [], "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}], "listeners": [
            {"name": "http", "attachedRoutes": 1, "supportedKinds": [], "conditions": []},
        ]});
        let want = json!({"addresses": [], "listeners": []});
        check(Kind::Gateway, before, &OwnStatus::default(), want.clone());
        let mut after = want;
        after["conditions"] = json!([]);
        check(Kind::Gateway, after, &OwnStatus::default(), Value::Null);
    }

    #[test]
    fn the_limits_of_the_api_leave_out_the_least_important_part() {
        let condition = |kind| condition(kind, "True");
        let own = ["Accepted", "InsecureFrontendValidationMode", "Programmed", "ResolvedRefs"].map(condition);
        let own = OwnStatus {
            conditions: own.to_vec(),
            addresses: (0..18)
                .map(|n| serde_json::from_value(json!({"type": "IPAddress", "value": format!("192.0.2.{n}")})).unwrap())
                .collect(),
            ..OwnStatus::default()
        };
        let theirs: Vec<Value> = (0..5).map(|n| written(&format!("Theirs{n}"), "True", BEFORE)).collect();
        let now = ["Accepted", "Programmed", "ResolvedRefs"].map(|kind| written(kind, "True", NOW));
        let all: Vec<Value> = theirs.iter().cloned().chain(now).collect();
        let addresses = json!(own.addresses.get(..16).unwrap());
        check(Kind::Gateway, json!({"conditions": theirs}), &own, json!({"conditions": all, "addresses": addresses}));
        let long = Condition { message: "é".repeat(20_000).into(), ..condition("Accepted") };
        let own = OwnStatus { conditions: vec![long], ..OwnStatus::default() };
        let mut want = written("Accepted", "True", NOW);
        want["message"] = json!(format!("{} …", "é".repeat(16_382)));
        check(Kind::Gateway, Value::Null, &own, json!({"conditions": [want]}));
    }

    #[test]
    fn entries_of_others_stay_and_ours_are_removed_with_their_parents() {
        let parent = |name: &str| -> WrittenRef { serde_json::from_value(json!({"name": name})).unwrap() };
        let own = |names: &[&str]| OwnStatus {
            parents: names
                .iter()
                .map(|name| ParentStatus { parent: parent(name), conditions: vec![condition("Accepted", "True")] })
                .collect(),
            ..OwnStatus::default()
        };
        let entry = |controller: &str, name: &str, time: &str| json!({"parentRef": parent(name), "controllerName": controller, "conditions": [written("Accepted", "True", time)]});
        let theirs = entry("them/b", "x", BEFORE);
        let before = json!({"parents": [entry("us/a", "gone", BEFORE), theirs, entry("us/a", "x", BEFORE)]});
        let after = json!({"parents": [theirs, entry("us/a", "x", BEFORE), entry("us/a", "y", NOW)]});
        check(Kind::HttpRoute, before.clone(), &own(&["x", "y"]), after.clone());
        check(Kind::HttpRoute, after, &own(&["x", "y"]), Value::Null);
        check(Kind::HttpRoute, before, &own(&[]), json!({"parents": [theirs]}));
        let full: Vec<Value> = (0..32).map(|n| entry("them/b", &format!("g{n}"), BEFORE)).collect();
        check(Kind::HttpRoute, json!({"parents": full}), &own(&["x"]), Value::Null);
    }
}
