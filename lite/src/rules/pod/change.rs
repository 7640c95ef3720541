//! Changes of Pods: few fields can change once a Pod exists.

use std::collections::HashSet;

use serde_json::Value;

use super::super::{list, text};
use crate::causes::Causes;

/// Reports changes of fields that cannot change.
pub(super) fn check(new: &Value, old: &Value, causes: &mut Causes) {
    for containers in ["containers", "initContainers"] {
        let field = format!("spec.{containers}");
        let (new, old) = (list(new, containers), list(old, containers));
        if new.len() != old.len() {
            causes.forbidden(field, "pod updates may not add or remove containers");
            return;
        }
        for (nth, container) in new.iter().enumerate() {
            let image = text(container, "image");
            if image.is_empty() {
                causes.required(format!("{field}[{nth}].image"), "");
            }
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                causes.invalid(format!("{field}[{nth}].image"), &container["image"], why);
            }
        }
    }
    let (field, seconds, before) =
        ("spec.activeDeadlineSeconds", &new["activeDeadlineSeconds"], &old["activeDeadlineSeconds"]);
    match (seconds.as_i64(), before.as_i64()) {
        (Some(seconds), Some(before)) if seconds > before => {
            causes.invalid(field, &seconds.into(), "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => causes.invalid(field, seconds, "must not update from a positive integer to nil value"),
        _ => {}
    }
    check_lists(new, old, causes);
    if fixed(new, old) != *old {
        // The real server goes on with the difference, in its own form of a Pod.
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.forbidden("spec", why);
    }
}

/// Reports tolerations that were changed, and gates that were added.
fn check_lists(new: &Value, old: &Value, causes: &mut Causes) {
    let timeless = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().and_then(|toleration| toleration.remove("tolerationSeconds"));
        toleration
    };
    let tolerations: HashSet<Value> = list(new, "tolerations").iter().map(timeless).collect();
    if !list(old, "tolerations").iter().all(|toleration| tolerations.contains(&timeless(toleration))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.forbidden("spec.tolerations", why);
    }
    let gates: HashSet<&Value> = list(old, "schedulingGates").iter().collect();
    for (nth, gate) in list(new, "schedulingGates").iter().enumerate().filter(|(_, gate)| !gates.contains(gate)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
        causes.forbidden(format!("spec.schedulingGates[{nth}].name"), &why);
    }
}

/// The new spec with the old values of all fields that can change.
fn fixed(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for containers in ["containers", "initContainers"] {
        let new = spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in new.zip(list(old, containers)) {
            container["image"] = before["image"].clone();
        }
    }
    let mut changing = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if !list(old, "schedulingGates").is_empty() {
        // While a Pod waits for its gates, these may become stricter.
        changing.extend(["nodeSelector", "affinity"]);
    }
    if let Some(spec) = spec.as_object_mut() {
        for field in changing {
            match old.get(field) {
                Some(before) => drop(spec.insert(field.to_owned(), before.clone())),
                None => drop(spec.remove(field)),
            }
        }
    }
    spec
}
