//! GatewayClass (`gateway.networking.k8s.io/v1`): the controller of its Gateways.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reference::{Form, ObjectReference, Unreadable, reference};
use crate::object::ObjectName;
use crate::project::field::{FindingList, InvalidValue, read_or_default};
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The parts of a GatewayClass that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayClass {
    /// Its name; the namespace is empty.
    pub name: ObjectName,
    /// `spec.controllerName`; an empty one matches no controller.
    pub controller: Arc<str>,
    /// `spec.parametersRef`. A reference that cannot be read counts as one to a missing object: the class is not
    /// accepted.
    pub parameters: Option<Result<ObjectReference, Unreadable>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SpecJson<'a> {
    controller_name: Option<Arc<str>>,
    #[serde(borrow)]
    parameters_ref: Option<&'a RawValue>,
}

impl Sharing for GatewayClass {}

impl Projection for GatewayClass {
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let name = source.name();
        let parameters = spec.parameters_ref.map(|raw| {
            reference(raw, "spec.parametersRef", name, Form::ANY).map_err(|invalid| findings.invalid(&invalid))
        });
        Ok(Self { name: name.clone(), controller: spec.controller_name.unwrap_or_default(), parameters })
    }
}
