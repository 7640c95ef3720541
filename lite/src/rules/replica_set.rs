//! ReplicaSets: replicas of one template of a Deployment.

use serde_json::Value;

use super::deployment::check_selected_template;
use super::{check_count, check_immutable, child, default, pod};
use crate::causes::Causes;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "replicas", 1);
    pod::fill_in(child(child(spec, "template"), "spec"));
    default(child(new, "status"), "replicas", 0);
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    check_count("spec.replicas", &spec["replicas"], causes);
    check_count("spec.minReadySeconds", &spec["minReadySeconds"], causes);
    check_selected_template(spec, causes);
    if let Some(old) = old {
        check_immutable("spec.selector", &spec["selector"], &old["spec"]["selector"], causes);
    }
}
