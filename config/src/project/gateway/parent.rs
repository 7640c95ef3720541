//! The parents of a route, and its hostnames.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::hostname::hostname;
use super::reference::{Form, ObjectReference, checked, port, reference, section};
use crate::model::HostPattern;
use crate::object::{Kind, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of parents of one route.
const PARENTS_MAX: usize = 32;

/// One of `spec.parentRefs`: a requested attachment of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentRef {
    /// The Gateway, or another object.
    pub parent: ObjectReference,
    /// Whether the reference has a namespace. The status repeats the reference as written.
    pub namespace_written: bool,
    /// The name of a listener; `None` for all.
    pub section: Option<Arc<str>>,
    /// The port of listeners; `None` for all.
    pub port: Option<u16>,
}

/// The hostnames of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hostnames {
    /// The route has none: those of the listener apply.
    Any,
    /// These, each once and as written. Empty if all of the route's are invalid.
    These(Box<[HostPattern]>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ParentJson {
    namespace: Option<serde::de::IgnoredAny>,
    section_name: Option<Arc<str>>,
    port: Option<i64>,
}

/// The parents of a route, each once. One whose section or port cannot be read is dropped: without it, the route would
/// attach to more listeners.
pub(super) fn parents(list: Option<Vec<&RawValue>>, own: &ObjectName, findings: &mut FindingList) -> Arc<[ParentRef]> {
    let mut parents: Vec<ParentRef> = Vec::new();
    for (field, raw) in findings.entries(list, PARENTS_MAX, "spec.parentRefs") {
        match parent(raw, &field, own) {
            Ok(parent) if parents.contains(&parent) => {
                findings.dropped(&field, &parent.parent.to_string(), "is an earlier entry");
            }
            Ok(parent) => parents.push(parent),
            Err(invalid) => {
                findings.invalid(&invalid);
            }
        }
    }
    parents.into()
}

fn parent(raw: &RawValue, field: &str, own: &ObjectName) -> Result<ParentRef, InvalidValue> {
    let parent = reference(raw, field, own, Form::of(Kind::Gateway))?;
    let json: ParentJson = read(raw, field)?;
    let section = json.section_name.filter(|text| !text.is_empty());
    let section = section.map(|text| checked(Some(text), field, "sectionName", section_name)).transpose()?;
    let port = json.port.map(|number| port(number, &format!("{field}.port"))).transpose()?;
    Ok(ParentRef { parent, namespace_written: json.namespace.is_some(), section, port })
}

fn section_name(text: &str) -> Result<(), &'static str> {
    section(text)
}

/// The hostnames of a route, up to a limit.
pub(super) fn hostnames(list: Option<Vec<&RawValue>>, limit: usize, findings: &mut FindingList) -> Hostnames {
    let list = list.unwrap_or_default();
    if list.is_empty() {
        return Hostnames::Any;
    }
    let (mut hosts, mut seen) = (Vec::new(), BTreeSet::new());
    for (field, raw) in findings.entries(Some(list), limit, "spec.hostnames") {
        let Some(text) = findings.entry::<String>(raw, &field) else { continue };
        match hostname(&text) {
            // A duplicate has no effect and needs no finding.
            Ok(host) if seen.contains(&host) => {}
            Ok(host) => {
                seen.insert(host.clone());
                hosts.push(host);
            }
            Err(why) => findings.dropped(&field, &text, why),
        }
    }
    Hostnames::These(hosts.into())
}
