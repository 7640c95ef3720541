//! IngressClass (`networking.k8s.io/v1`): the controller of its Ingresses.

use std::sync::Arc;

use serde::Deserialize;

use super::field::{FindingList, InvalidValue, read, read_or_default};
use super::raw_object::{RawObject, annotation_field};
use super::{Projection, Sharing};
use crate::object::ObjectName;

/// Marks the default class of Ingresses; only the value `true` does.
const IS_DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// The parts of an IngressClass that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngressClass {
    /// Its name; the namespace is empty.
    pub name: ObjectName,
    /// `spec.controller`.
    pub controller: Arc<str>,
    /// The annotation `ingressclass.kubernetes.io/is-default-class`.
    pub is_default: bool,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct SpecJson {
    controller: Option<Arc<str>>,
}

impl Sharing for IngressClass {}

impl Projection for IngressClass {
    fn project(source: &RawObject<'_>, _findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson = read_or_default(source.spec, "spec")?;
        let mark = source.annotations()?.remove(IS_DEFAULT_CLASS);
        let mark: Option<String> = mark.map(|raw| read(raw, &annotation_field(IS_DEFAULT_CLASS))).transpose()?;
        Ok(Self {
            name: source.name().clone(),
            controller: spec.controller.unwrap_or_default(),
            is_default: mark.as_deref() == Some("true"),
        })
    }
}
