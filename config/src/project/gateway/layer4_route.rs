//! TCPRoute and UDPRoute (`gateway.networking.k8s.io/v1`): routes of the connections or datagrams of a listener. Both
//! have the same schema.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::parent::{ParentRef, parents};
use super::stream_rule::{StreamRule, stream_rule};
use crate::object::Age;
use crate::project::Projection;
use crate::project::field::{FindingList, InvalidValue, read_or_default};
use crate::project::raw_object::{RawObject, created_s};

/// The parts of a TCPRoute or UDPRoute that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer4Route {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRefs`.
    pub parents: Arc<[ParentRef]>,
    /// The one rule of `spec.rules`, if it is valid.
    pub rule: Option<StreamRule>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    #[serde(borrow)]
    parent_refs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    rules: Option<Vec<&'a RawValue>>,
}

impl Projection for Layer4Route {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        Ok(Self {
            age: Age { created_s: created_s(source.created, findings), name: own.clone() },
            parents: parents(spec.parent_refs, own, findings),
            rule: stream_rule(spec.rules, own, findings),
        })
    }
}
