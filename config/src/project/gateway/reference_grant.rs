//! ReferenceGrant (`gateway.networking.k8s.io/v1beta1` and `v1`): permitted references to objects of its namespace.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reference::{GroupKind, ObjectReference, checked, group_kind, label, name};
use crate::object::ObjectName;
use crate::project::field::{FindingList, InvalidValue, read, read_or_default};
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The maximum number of entries of `from`, and of `to`.
const ENTRIES_MAX: usize = 16;

/// The parts of a ReferenceGrant that routing reads. An entry that cannot be read grants nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceGrant {
    /// Its name. The permitted references are to objects in its namespace.
    pub name: ObjectName,
    /// `spec.from`: the referring objects.
    pub from: Box<[GrantFrom]>,
    /// `spec.to`: the objects that they may refer to.
    pub to: Box<[GrantTo]>,
}

/// One of `spec.from`: the objects of a kind in a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantFrom {
    /// Their group and kind.
    pub kind: GroupKind,
    /// Their namespace.
    pub namespace: Arc<str>,
}

/// One of `spec.to`: the objects of a kind, or one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantTo {
    /// Their group and kind.
    pub kind: GroupKind,
    /// The name; `None` for all of the kind.
    pub name: Option<Arc<str>>,
}

impl ReferenceGrant {
    /// Returns `true` if objects of a kind in a namespace may refer to an object.
    #[must_use]
    pub fn permits(&self, from: &GroupKind, namespace: &str, to: &ObjectReference) -> bool {
        let named = |entry: &GrantTo| entry.name.as_ref().is_none_or(|name| *name == to.name.name);
        self.name.namespace == to.name.namespace
            && self.from.iter().any(|entry| entry.kind == *from && *entry.namespace == *namespace)
            && self.to.iter().any(|entry| entry.kind == to.kind && named(entry))
    }
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct SpecJson<'a> {
    #[serde(borrow)]
    from: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    to: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct FromJson {
    namespace: Option<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ToJson {
    name: Option<Arc<str>>,
}

impl Sharing for ReferenceGrant {}

impl Projection for ReferenceGrant {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let from = findings.entries(spec.from, ENTRIES_MAX, "spec.from");
        let from =
            from.filter_map(|(field, raw)| grant_from(raw, &field).map_err(|invalid| findings.invalid(&invalid)).ok());
        let from = from.collect();
        let to = findings.entries(spec.to, ENTRIES_MAX, "spec.to");
        let to = to.filter_map(|(field, raw)| grant_to(raw, &field).map_err(|invalid| findings.invalid(&invalid)).ok());
        Ok(Self { name: source.name().clone(), from, to: to.collect() })
    }
}

fn grant_from(raw: &RawValue, field: &str) -> Result<GrantFrom, InvalidValue> {
    let kind = group_kind(raw, field, None)?;
    let json: FromJson = read(raw, field)?;
    Ok(GrantFrom { kind, namespace: checked(json.namespace, field, "namespace", label)? })
}

/// An empty name matches no object; only an absent field stands for all.
fn grant_to(raw: &RawValue, field: &str) -> Result<GrantTo, InvalidValue> {
    let kind = group_kind(raw, field, None)?;
    let json: ToJson = read(raw, field)?;
    let name = json.name.map(|text| checked(Some(text), field, "name", name)).transpose()?;
    Ok(GrantTo { kind, name })
}
