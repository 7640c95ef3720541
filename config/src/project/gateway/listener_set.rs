//! ListenerSet (`gateway.networking.k8s.io/v1`): more listeners for a Gateway.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::listener::{Listener, listeners};
use super::reference::{Form, ObjectReference, Unreadable, reference};
use crate::object::{Age, Kind};
use crate::project::field::{FindingList, InvalidValue, read_or_default};
use crate::project::raw_object::{RawObject, created_s};
use crate::project::{Projection, Sharing};

/// The parts of a ListenerSet that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerSet {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRef`: the Gateway, or another object. Without a readable one the set is not attached.
    pub parent: Result<ObjectReference, Unreadable>,
    /// `spec.listeners`.
    pub listeners: Box<[Listener]>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    #[serde(borrow)]
    parent_ref: Option<&'a RawValue>,
    #[serde(borrow)]
    listeners: Option<Vec<&'a RawValue>>,
}

impl Sharing for ListenerSet {}

impl Projection for ListenerSet {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        const PARENT: &str = "spec.parentRef";
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        let age = Age { created_s: created_s(source.created, findings), name: own.clone() };
        let parent = match spec.parent_ref {
            Some(raw) => {
                reference(raw, PARENT, own, Form::of(Kind::Gateway)).map_err(|invalid| findings.invalid(&invalid))
            }
            None => {
                findings.dropped(PARENT, "", "is required but missing");
                Err(Unreadable)
            }
        };
        Ok(Self { age, parent, listeners: listeners(spec.listeners, own, findings) })
    }
}
