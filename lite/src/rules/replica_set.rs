//! ReplicaSets: replicas of one template of a Deployment.

use serde_json::Value;

use super::deployment::check_selector;
use super::{check_immutable, child, default, pod};
use crate::failure::Causes;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "replicas", 1);
    pod::fill_in(child(child(spec, "template"), "spec"));
    default(child(new, "status"), "replicas", 0);
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    if spec["replicas"].as_i64().is_none_or(|replicas| replicas < 0) {
        causes.invalid("spec.replicas", &spec["replicas"], "must be greater than or equal to 0");
    }
    check_selector(spec, causes);
    pod::check("spec.template.spec", &spec["template"]["spec"], &["Always"], causes);
    if let Some(old) = old {
        check_immutable("spec.selector", &spec["selector"], &old["spec"]["selector"], causes);
    }
}
