//! The part of a Gateway API object's status that one controller writes: read for comparison with the desired status,
//! and built by the code that writes it. Times are not included: they follow from changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::transitions::{ConditionList, Transitions, TransitionsBuilder};
use crate::object::Kind;
use crate::project::raw_object::RawObject;

/// Types of conditions on objects that Tidegate writes. Others are left unchanged.
pub const OWN_CONDITIONS: [&str; 8] = [
    "Accepted",
    "Enforced",
    "Programmed",
    "ResolvedRefs",
    "InsecureFrontendValidationMode",
    "SupportedVersion",
    RATE_LIMITED_CONDITION,
    AUTHORISED_CONDITION,
];
/// Types of conditions on listeners that Tidegate writes. Others are left unchanged.
pub const OWN_LISTENER_CONDITIONS: [&str; 7] = [
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "OverlappingTLSConfig",
    RATE_LIMITED_CONDITION,
    AUTHORISED_CONDITION,
];

/// The type of the condition on Gateways, listeners and routes that RateLimitPolicies affect.
pub const RATE_LIMITED_CONDITION: &str = "kuadrant.io/RateLimitPolicyAffected";
/// The same for AuthPolicies.
pub const AUTHORISED_CONDITION: &str = "kuadrant.io/AuthPolicyAffected";

/// The finalizer of a GatewayClass while Gateways use it, so that it is not deleted before them.
pub const CLASS_FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// A text, usually a constant.
pub type Text = Cow<'static, str>;

/// A condition (Kubernetes API conventions), without the time of its last transition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// The reason, in CamelCase.
    pub reason: Text,
    /// The message.
    pub message: Text,
    /// The generation of the object that the condition describes.
    pub observed_generation: i64,
}

/// A feature of the implementation, in the status of a GatewayClass.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Feature {
    /// Its name.
    pub name: Text,
}

/// An address of a Gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StatusAddress {
    /// `IPAddress` or `Hostname`.
    #[serde(rename = "type", default = "ip_address")]
    pub kind: Text,
    /// The address.
    pub value: Arc<str>,
}

const fn ip_address() -> Text {
    Cow::Borrowed("IPAddress")
}

/// A group and a kind of routes that a listener supports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RouteKind {
    /// The API group.
    #[serde(default)]
    pub group: Text,
    /// The kind.
    pub kind: Text,
}

/// The status of one listener.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The kinds of routes that it supports.
    pub supported_kinds: Vec<RouteKind>,
    /// The number of attached routes.
    pub attached_routes: u64,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// A reference to a parent or an ancestor, as written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenRef {
    /// The API group.
    #[serde(default = "gateway_api")]
    pub group: Text,
    /// The kind.
    #[serde(default = "gateway_kind")]
    pub kind: Text,
    /// The namespace, if the reference has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Arc<str>>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

const fn gateway_api() -> Text {
    Cow::Borrowed(Kind::Gateway.group())
}

const fn gateway_kind() -> Text {
    Cow::Borrowed(Kind::Gateway.as_str())
}

/// The status of an object for one of its parents, or of a policy for one of its ancestors.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct ParentStatus {
    /// The parent.
    pub parent: WrittenRef,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// The status that one controller writes, and for a GatewayClass its finalizer; parts that the kind does not have are
/// empty.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize)]
pub struct OwnStatus {
    /// Conditions of the object as a whole, in the order of their types.
    pub conditions: Vec<Condition>,
    /// The generation that a policy's status describes.
    pub observed_generation: Option<i64>,
    /// Features, in the order of their names.
    pub features: Vec<Feature>,
    /// Its addresses.
    pub addresses: Vec<StatusAddress>,
    /// Its listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
    /// The number of attached ListenerSets.
    pub attached_sets: Option<u64>,
    /// Its parents or ancestors, in order.
    pub parents: Vec<ParentStatus>,
    /// Whether a GatewayClass has [`CLASS_FINALIZER`].
    pub in_use: Option<bool>,
}

impl OwnStatus {
    /// A digest that is equal for equal statuses, in every process.
    #[must_use]
    pub fn digest(&self) -> u64 {
        foldhash::quality::FixedState::with_seed(0).hash_one(self)
    }
}

/// The digests of the controllers' parts of an object's status, to compare with [`OwnStatus::digest`]. Parts that
/// belong to no single controller have an empty name.
pub type StatusDigests = BTreeMap<Arc<str>, u64>;

/// A status as it was read: what the desired one is compared with, and what a new one keeps of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusReading {
    /// The controllers' parts. A status that cannot be read has none, and so will be written again.
    pub digests: StatusDigests,
    /// The times of its conditions; `None` if there may be more in its lists than our controllers' conditions.
    pub transitions: Option<Transitions>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusJson<'a> {
    #[serde(borrow, default)]
    conditions: Vec<ConditionJson<'a>>,
    #[serde(default)]
    supported_features: Vec<Feature>,
    #[serde(default)]
    addresses: Vec<StatusAddress>,
    #[serde(borrow, default)]
    listeners: Vec<ListenerJson<'a>>,
    attached_listener_sets: Option<u64>,
    observed_generation: Option<i64>,
    #[serde(borrow, default)]
    parents: Vec<ParentJson<'a>>,
    #[serde(borrow, default)]
    ancestors: Vec<ParentJson<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionJson<'a> {
    #[serde(rename = "type")]
    kind: Text,
    status: Text,
    reason: Text,
    #[serde(default)]
    message: Text,
    #[serde(default)]
    observed_generation: i64,
    #[serde(borrow, default)]
    last_transition_time: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListenerJson<'a> {
    name: Arc<str>,
    #[serde(default)]
    supported_kinds: Vec<RouteKind>,
    #[serde(default)]
    attached_routes: u64,
    #[serde(borrow, default)]
    conditions: Vec<ConditionJson<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ParentJson<'a> {
    #[serde(alias = "ancestorRef")]
    parent_ref: WrittenRef,
    controller_name: Arc<str>,
    #[serde(borrow, default)]
    conditions: Vec<ConditionJson<'a>>,
}

impl From<ConditionJson<'_>> for Condition {
    fn from(read: ConditionJson<'_>) -> Self {
        let ConditionJson { kind, status, reason, message, observed_generation, .. } = read;
        Self { kind, status, reason, message, observed_generation }
    }
}

/// Reads a status.
pub(in crate::project) fn read_status(kind: Kind, source: &RawObject<'_>) -> StatusReading {
    let in_use = (kind == Kind::GatewayClass).then(|| source.has_finalizer(CLASS_FINALIZER));
    reading_of(kind, source.status, in_use)
}

fn reading_of(kind: Kind, status: Option<&RawValue>, in_use: Option<bool>) -> StatusReading {
    if !kind.has_conditions() {
        return StatusReading::default();
    }
    let Some(status) = status.map(RawValue::get).filter(|text| !matches!(*text, "null" | "{}")) else {
        return StatusReading { transitions: Some(Transitions::default()), ..StatusReading::default() };
    };
    let Ok(status) = serde_json::from_str::<StatusJson<'_>>(status) else { return StatusReading::default() };
    let transitions = transitions(kind, &status);
    let digests = if kind.has_parents() { by_controller(status) } else { of_all(kind, status, in_use) };
    StatusReading { digests, transitions }
}

fn by_controller(status: StatusJson<'_>) -> StatusDigests {
    let mut by_controller: BTreeMap<Arc<str>, Vec<ParentStatus>> = BTreeMap::new();
    for ParentJson { parent_ref, controller_name, conditions } in status.parents.into_iter().chain(status.ancestors) {
        let mut conditions: Vec<Condition> = conditions.into_iter().map(Condition::from).collect();
        conditions.sort_unstable();
        by_controller.entry(controller_name).or_default().push(ParentStatus { parent: parent_ref, conditions });
    }
    let digest = |mut parents: Vec<ParentStatus>| {
        parents.sort_unstable();
        OwnStatus { parents, ..OwnStatus::default() }.digest()
    };
    by_controller.into_iter().map(|(controller, parents)| (controller, digest(parents))).collect()
}

fn of_all(kind: Kind, status: StatusJson<'_>, in_use: Option<bool>) -> StatusDigests {
    let listener = |read: ListenerJson<'_>| {
        let ListenerJson { name, supported_kinds, attached_routes, conditions } = read;
        let conditions = own(conditions, &OWN_LISTENER_CONDITIONS);
        ListenerStatus { name, supported_kinds, attached_routes, conditions }
    };
    let own = OwnStatus {
        conditions: own(status.conditions, &OWN_CONDITIONS),
        observed_generation: status.observed_generation.filter(|_| kind.is_inherited_policy()),
        features: status.supported_features,
        addresses: status.addresses,
        listeners: status.listeners.into_iter().map(listener).collect(),
        attached_sets: status.attached_listener_sets,
        parents: Vec::new(),
        in_use,
    };
    [(Arc::default(), own.digest())].into()
}

fn own(conditions: Vec<ConditionJson<'_>>, types: &[&str]) -> Vec<Condition> {
    let own = conditions.into_iter().filter(|condition| types.contains(&&*condition.kind));
    let mut own: Vec<Condition> = own.map(Condition::from).collect();
    own.sort_unstable();
    own
}

/// The times of the conditions; `None` if one of them is not ours, or there are parents of several controllers.
fn transitions(kind: Kind, status: &StatusJson<'_>) -> Option<Transitions> {
    let mut times = TransitionsBuilder::default();
    let parents = || status.parents.iter().chain(&status.ancestors);
    let first = parents().next().map(|parent| &parent.controller_name);
    if parents().any(|parent| Some(&parent.controller_name) != first) {
        return None;
    }
    let of_parents = parents().map(|it| (ConditionList::Parent(&it.parent_ref), &it.conditions, &[][..]));
    let listeners = status.listeners.iter();
    let of_listeners =
        listeners.map(|it| (ConditionList::Listener(&it.name), &it.conditions, &OWN_LISTENER_CONDITIONS[..]));
    let of_object = [(ConditionList::Object, &status.conditions, &OWN_CONDITIONS[..])];
    for (list, conditions, types) in of_parents.chain(of_listeners).chain(of_object) {
        for condition in conditions {
            if !kind.has_parents() && !types.contains(&&*condition.kind) {
                return None;
            }
            if let Some(time) = &condition.last_transition_time {
                times.add(list, [&condition.kind, &condition.status], time);
            }
        }
    }
    Some(times.finish(!status.addresses.is_empty(), !status.listeners.is_empty()))
}

#[derive(Deserialize, Default)]
struct AddressesJson {
    #[serde(default)]
    addresses: Vec<StatusAddress>,
}

/// The IP addresses in the status of a Gateway.
pub(super) fn assigned(status: Option<&RawValue>) -> Box<[IpAddr]> {
    let read = status.and_then(|raw| serde_json::from_str::<AddressesJson>(raw.get()).ok()).unwrap_or_default();
    read.addresses.iter().filter_map(|address| address.value.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &'static str, status: &'static str) -> Condition {
        Condition {
            kind: kind.into(),
            status: status.into(),
            reason: kind.into(),
            message: "".into(),
            observed_generation: 3,
        }
    }

    #[track_caller]
    fn check(kind: Kind, status: &str, want: &[(&str, &OwnStatus)]) {
        let raw = RawValue::from_string(status.to_owned()).unwrap();
        let want: StatusDigests = want.iter().map(|(name, own)| ((*name).into(), own.digest())).collect();
        assert_eq!(reading_of(kind, Some(&raw), None).digests, want, "{status}");
    }

    #[test]
    fn status_entries_are_ours_by_controller_name_only() {
        let parent: WrittenRef = serde_json::from_str(r#"{"name":"edge","namespace":"infra"}"#).unwrap();
        let conditions = vec![condition("Accepted", "True"), condition("ResolvedRefs", "True")];
        let own = OwnStatus {
            parents: vec![ParentStatus { parent, conditions: conditions.clone() }],
            ..OwnStatus::default()
        };
        let reference = r#"{"group":"gateway.networking.k8s.io","kind":"Gateway","namespace":"infra","name":"edge"}"#;
        let at = |kind: &str, time: &str| {
            format!(
                r#"{{"type":"{kind}","status":"True","reason":"{kind}","message":"","observedGeneration":3,
                    "lastTransitionTime":"{time}"}}"#
            )
        };
        let ours = format!(
            r#"{{"parentRef":{reference},"controllerName":"a/b","conditions":[{},{}]}}"#,
            at("ResolvedRefs", "2026-01-01T00:00:00Z"),
            at("Accepted", "2026-01-02T00:00:00Z")
        );
        let other = format!(r#"{{"parentRef":{reference},"controllerName":"c/d","conditions":[]}}"#);
        let parent = own.parents[0].parent.clone();
        let empty = OwnStatus { parents: vec![ParentStatus { parent, conditions: vec![] }], ..OwnStatus::default() };
        check(Kind::HttpRoute, &format!(r#"{{"parents":[{other},{ours}]}}"#), &[("a/b", &own), ("c/d", &empty)]);
        check(Kind::HttpRoute, &format!(r#"{{"parents":[{ours}]}}"#), &[("a/b", &own)]);
        check(Kind::HttpRoute, r#"{"parents":7}"#, &[]);
        check(Kind::Service, r#"{"conditions":[]}"#, &[]);

        let gateway = OwnStatus { conditions, ..OwnStatus::default() };
        let text = |more: &str| {
            let [one, two] = ["Accepted", "ResolvedRefs"].map(|kind| at(kind, "2026-01-01T00:00:00Z"));
            format!(r#"{{"conditions":[{one}{more},{two}]}}"#)
        };
        check(Kind::Gateway, &text(""), &[("", &gateway)]);
        check(Kind::Gateway, &text(&format!(",{}", at("Foreign", "2026-01-01T00:00:00Z"))), &[("", &gateway)]);
        let more = format!(",{}", at("Programmed", "2026-01-01T00:00:00Z"));
        let raw = RawValue::from_string(text(&more)).unwrap();
        assert_ne!(reading_of(Kind::Gateway, Some(&raw), None).digests.get(""), Some(&gateway.digest()));
    }
}
