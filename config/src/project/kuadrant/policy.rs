//! The common parts of the policies that are inherited along a path: the target, and the block with the entries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::finding::printable;
use crate::object::{Age, Kind, ObjectName, ObjectRef};
use crate::project::annotations::{PolicyEffects, of_policy};
use crate::project::field::{FindingList, InvalidValue, read};
use crate::project::gateway::reference::{Form, checked, reference, section};
use crate::project::gateway::{GroupKind, ObjectReference};
use crate::project::raw_object::{RawObject, created_s};

/// `spec.targetRef`: an object of the policy's namespace, or a section of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyTargetRef {
    /// A Gateway, an HTTPRoute or a GRPCRoute.
    pub object: ObjectRef,
    /// `sectionName`: a listener of the Gateway, or a rule of the route; `None` for all of them.
    pub section: Option<Arc<str>>,
}

/// Whether the entries of a policy give way to those of more specific policies, or replace them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// `spec.defaults`, or entries directly in `spec`: more specific policies win.
    Defaults,
    /// `spec.overrides`: the policy wins over more specific ones.
    Overrides,
}

/// `strategy`: how the entries of two policies are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeStrategy {
    /// All entries of one policy are taken.
    Atomic,
    /// The entries of both policies are taken, by name.
    Merge,
}

/// The entries of a policy by name, and how they are combined with those of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyBlock<V> {
    /// Whether they win over those of more specific policies.
    pub scope: PolicyScope,
    /// How they are combined with those of others.
    pub strategy: MergeStrategy,
    /// The entries: every name that the policy declares, so that the policy that wins a name depends on what is written
    /// and not on whether it can be used. An entry that cannot be used does nothing.
    pub entries: BTreeMap<Arc<str>, Arc<V>>,
}

impl fmt::Display for PolicyTargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.section {
            None => fmt::Display::fmt(&self.object, f),
            Some(section) => write!(f, "{section} of {}", self.object),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TargetJson {
    section_name: Option<Arc<str>>,
}

/// The parts that policies of all kinds have besides their specification: name and age, and the effects of annotations.
pub(super) fn head(source: &RawObject<'_>, findings: &mut FindingList) -> (Age, PolicyEffects) {
    let age = Age { created_s: created_s(source.created, findings), name: source.name().clone() };
    let annotations = source.annotations().unwrap_or_else(|invalid| {
        findings.ignored(&invalid.field, &invalid.value, &invalid.why);
        BTreeMap::new()
    });
    (age, of_policy(&annotations, findings))
}

/// Reads the target, whole or not at all: without its section a policy would apply to more than it names.
pub(super) fn target(raw: Option<&RawValue>, own: &ObjectName) -> Result<PolicyTargetRef, InvalidValue> {
    const FIELD: &str = "spec.targetRef";
    let raw = raw.ok_or_else(|| fault(FIELD, "", "is required but missing"))?;
    let ObjectReference { kind, name } = reference(raw, FIELD, own, Form::LOCAL)?;
    if kind.group() != Kind::Gateway.group() {
        let why = format!("is not {}", Kind::Gateway.group());
        return Err(fault(&format!("{FIELD}.group"), kind.group(), &why));
    }
    let GroupKind::Known(kind @ (Kind::Gateway | Kind::HttpRoute | Kind::GrpcRoute)) = kind else {
        return Err(fault(&format!("{FIELD}.kind"), kind.kind(), "is not Gateway, HTTPRoute or GRPCRoute"));
    };
    let json: TargetJson = read(raw, FIELD)?;
    let section = json.section_name.map(|text| checked(Some(text), FIELD, "sectionName", section)).transpose()?;
    Ok(PolicyTargetRef { object: ObjectRef::new(kind, name), section })
}

/// A value that cannot be used.
pub(super) fn fault(field: &str, value: &str, why: &str) -> InvalidValue {
    InvalidValue { field: field.to_owned(), value: printable(value), why: why.to_owned() }
}

/// A fault in one line, for the status of the policy.
pub(super) fn reason(InvalidValue { field, value, why }: &InvalidValue) -> String {
    let missing = value.is_empty() && why.starts_with("is required but ");
    if missing { format!("{field}: {why}") } else { format!("{field}: {value:?} {why}") }
}
