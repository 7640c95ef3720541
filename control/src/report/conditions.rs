//! Updates the conditions of an object of the Gateway API. Other controllers write to the same lists: if they have, the
//! object is read first, and only our entries are changed. Pure: time is an argument.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Map, Value, json};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{
    Condition, ConditionList, ListenerStatus, OWN_CONDITIONS, OWN_LISTENER_CONDITIONS, OwnStatus, ParentStatus,
};

use super::contest;
use super::send::Prepared;
use crate::cluster::informer::Resource;
use crate::reconcile::KnownStatus;

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

    /// An object that was observed, and whose status is to become `own`: of its status, the entries of ours that stay
    /// with their times. Entries without a time stand for those that do not.
    pub(super) fn known(
        object: &ObjectRef,
        known: &KnownStatus,
        (controller, generation): (&str, i64),
        own: &OwnStatus,
    ) -> Self {
        let KnownStatus { resource_version, transitions } = known;
        let conditions = |list: ConditionList<'_>, own: &[Condition]| {
            let one = |condition: &Condition| {
                let since = transitions.since(list, &condition.kind, &condition.status)?;
                Some(json!({"type": condition.kind, "status": condition.status, "lastTransitionTime": since}))
            };
            let former = json!({"type": OWN_CONDITIONS[0]});
            std::iter::once(former).chain(own.iter().filter_map(one)).collect::<Vec<Value>>()
        };
        let parents = |reference: &str| {
            let former = json!({"controllerName": controller});
            let one = |parent: &ParentStatus| {
                let conditions = conditions(ConditionList::Parent(&parent.parent), &parent.conditions);
                json!({reference: parent.parent, "controllerName": controller, "conditions": conditions})
            };
            std::iter::once(former).chain(own.parents.iter().map(one)).collect::<Vec<Value>>()
        };
        let listener = |listener: &ListenerStatus| {
            let conditions = conditions(ConditionList::Listener(&listener.name), &listener.conditions);
            json!({"name": listener.name, "conditions": conditions})
        };
        let former = |is_there: bool| is_there.then_some(Value::Null).into_iter();
        let status = if object.kind.has_parents() {
            let (field, reference, _) = parents_of(object.kind);
            json!({field: parents(reference)})
        } else {
            let listeners = former(transitions.has_listeners).chain(own.listeners.iter().map(listener));
            json!({
                "conditions": conditions(ConditionList::Object, &own.conditions),
                "addresses": former(transitions.has_addresses).collect::<Vec<Value>>(),
                "listeners": listeners.collect::<Vec<Value>>(),
            })
        };
        Self { resource_version: resource_version.to_string(), is_ours: true, generation, status }
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
            let (field, reference, most) = parents_of(object.kind);
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

/// The list of parents or ancestors, the name of a reference in it, and its greatest length.
const fn parents_of(kind: Kind) -> (&'static str, &'static str, usize) {
    match kind.is_route() {
        true => ("parents", "parentRef", PARENTS_MAX),
        false => ("ancestors", "ancestorRef", ANCESTORS_MAX),
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
    use std::sync::Arc;

    use tidegate_config::object::ObjectName;
    use tidegate_config::project::gateway::WrittenRef;
    use tidegate_config::project::project;

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

    /// Compares the written status; `want` is null if nothing is written. Returns whether all is known without reading
    /// the object; then the same is written.
    #[track_caller]
    fn check(kind: Kind, status: Value, own: &OwnStatus, want: Value) -> bool {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "7", "generation": 2}, "status": status});
        let read = project(kind, object.to_string().as_bytes()).unwrap().status;
        let is_ours = |name: &Arc<str>| !kind.has_parents() || &**name == "us/a";
        let transitions = read.transitions.filter(|_| read.digests.keys().all(is_ours)).map(Arc::new);
        let current = Current::of(object).unwrap();
        let object = ObjectRef::new(kind, ObjectName::new("shop", "a"));
        let now = (NOW.parse::<Timestamp>().unwrap()) + k8s_openapi::jiff::SignedDuration::from_millis(7);
        let merged = |generation| current.merged(&object, ("us/a", generation), own, now);
        assert_eq!(merged(2).unwrap_or(Value::Null), want);
        assert_eq!(merged(1), None, "an older view writes nothing");
        let known = transitions.map(|transitions| KnownStatus { resource_version: "7".into(), transitions });
        let known = known.map(|known| Current::known(&object, &known, ("us/a", 2), own));
        if let Some(known) = &known {
            // Fields that do not differ are written as well.
            let written = known.merged(&object, ("us/a", 2), own, now).unwrap();
            for (field, value) in want.as_object().into_iter().flatten() {
                assert_eq!(&written[field], value, "{field}");
            }
            assert_eq!(known.resource_version, "7");
        }
        known.is_some()
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let own = OwnStatus {
            conditions: vec![condition("Accepted", "True"), condition("Programmed", "False")],
            ..OwnStatus::default()
        };
        let before = [written("Accepted", "True", BEFORE), written("Programmed", "True", BEFORE)];
        let after = [written("Accepted", "True", BEFORE), written("Programmed", "False", NOW)];
        assert!(check(Kind::Gateway, json!({"conditions": before}), &own, json!({"conditions": after})));
        assert!(check(Kind::Gateway, json!({"conditions": after}), &own, Value::Null));
        let foreign = written("Theirs", "True", BEFORE);
        let with = json!({"conditions": [before[0], foreign, before[1]]});
        assert!(!check(Kind::Gateway, with, &own, json!({"conditions": [foreign, after[0], after[1]]})));
        let both = [written("Accepted", "True", NOW), written("Programmed", "False", NOW)];
        assert!(check(Kind::Gateway, Value::Null, &own, json!({"conditions": both})));
        let none = OwnStatus::default();
        assert!(check(Kind::Gateway, json!({"conditions": before}), &none, json!({"conditions": []})));
    }

    #[test]
    fn the_times_of_listeners_are_those_of_their_own_conditions() {
        let listener = |name: &str, times: [&str; 2]| {
            let conditions = [written("Accepted", "True", times[0]), written("Programmed", "True", times[1])];
            json!({"name": name, "attachedRoutes": 1, "supportedKinds": [], "conditions": conditions})
        };
        let own = |name: &str| ListenerStatus {
            name: name.into(),
            supported_kinds: Vec::new(),
            attached_routes: 1,
            conditions: vec![condition("Accepted", "True"), condition("Programmed", "True")],
        };
        let own = OwnStatus { listeners: vec![own("a"), own("b"), own("c")], ..OwnStatus::default() };
        let mut other = listener("b", [NOW, BEFORE]);
        other["conditions"][0]["status"] = "False".into();
        let before =
            json!({"conditions": [], "listeners": [listener("a", [BEFORE; 2]), other, listener("d", [NOW; 2])]});
        let after = [listener("a", [BEFORE; 2]), listener("b", [NOW, BEFORE]), listener("c", [NOW; 2])];
        assert!(check(Kind::Gateway, before.clone(), &own, json!({"listeners": after})));
        let mut foreign = before;
        foreign["listeners"][0]["conditions"][0]["type"] = "Theirs".into();
        let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "status": foreign});
        assert_eq!(project(Kind::Gateway, object.to_string().as_bytes()).unwrap().status.transitions, None);
    }

    #[test]
    fn addresses_and_listeners_that_a_gateway_has_lost_are_removed() {
        let before = json!({"conditions": [], "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}], "listeners": [
            {"name": "http", "attachedRoutes": 1, "supportedKinds": [], "conditions": []},
        ]});
        let want = json!({"addresses": [], "listeners": []});
        assert!(check(Kind::Gateway, before, &OwnStatus::default(), want.clone()));
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
        assert!(!check(Kind::HttpRoute, after, &own(&["x", "y"]), Value::Null));
        check(Kind::HttpRoute, before, &own(&[]), json!({"parents": [theirs]}));
        let ours = json!({"parents": [entry("us/a", "gone", BEFORE), entry("us/a", "x", BEFORE)]});
        let now = json!({"parents": [entry("us/a", "x", BEFORE), entry("us/a", "y", NOW)]});
        assert!(check(Kind::HttpRoute, ours.clone(), &own(&["x", "y"]), now));
        assert!(check(Kind::HttpRoute, ours, &own(&[]), json!({"parents": []})));
        assert!(!check(Kind::HttpRoute, json!({"parents": [theirs]}), &own(&[]), Value::Null));
        let full: Vec<Value> = (0..32).map(|n| entry("them/b", &format!("g{n}"), BEFORE)).collect();
        check(Kind::HttpRoute, json!({"parents": full}), &own(&["x"]), Value::Null);
    }
}
