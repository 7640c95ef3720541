//! The class of an Ingress that is created without one: the cluster's default, if it has one. This is the rule of the
//! real server's admission plugin `DefaultIngressClass`; like it, this acts after owners are tracked, so that the
//! field has no owner.

use std::cmp::Reverse;

use serde_json::Value;

use crate::kind::{Kind, KindId};
use crate::store::{Part, State};

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation that named a class before the field did. One that is empty names one too.
const ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Writes the default class into a new Ingress that names none.
pub(super) fn fill_in(state: &State, kind: &Kind, new: &mut Value) {
    let is_set = |value: &Value| !value.is_null();
    if kind.built_in() != Some("Ingress")
        || is_set(&new["spec"]["ingressClassName"])
        || is_set(&new["metadata"]["annotations"][ANNOTATION])
    {
        return;
    }
    if let (Some(name), Some(spec)) = (default_class(state), new["spec"].as_object_mut()) {
        spec.insert("ingressClassName".to_owned(), name.into());
    }
}

/// The newest default class; of those of one second, the first by name.
fn default_class(state: &State) -> Option<String> {
    let classes = KindId::built_in("IngressClass")?;
    let everywhere = Part::default();
    state
        .list(&classes, &everywhere)
        .filter(|(_, class)| class.value()["metadata"]["annotations"][IS_DEFAULT] == "true")
        .min_by_key(|(key, class)| (Reverse(class.metadata("creationTimestamp").to_owned()), key.name.clone()))
        .map(|(key, _)| key.name.clone())
}
