//! PersistentVolumes and their claims, which nothing binds.

use serde_json::Value;

use super::{check_immutable, child, default, list};
use crate::causes::Causes;

pub(super) fn volume_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    if let Some(path) = spec.get_mut("hostPath").filter(|path| path.is_object()) {
        default(path, "type", "");
    }
    let made = new["metadata"]["creationTimestamp"].clone();
    let status = child(new, "status");
    default(status, "phase", "Pending");
    default(status, "lastPhaseTransitionTime", made);
}

pub(super) fn volume(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    check_modes(new, causes);
    if new["spec"]["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        causes.required("spec.capacity", "");
    }
}

pub(super) fn claim_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    default(child(new, "spec"), "volumeMode", "Filesystem");
    default(child(new, "status"), "phase", "Pending");
}

pub(super) fn claim(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_modes(new, causes);
    if new["spec"]["resources"]["requests"]["storage"].is_null() {
        causes.required("spec.resources[storage]", "");
    }
    if let Some(old) = old {
        let modes = |claim: &Value| claim["spec"]["accessModes"].clone();
        check_immutable("spec.accessModes", &modes(new), &modes(old), causes);
    }
}

fn check_modes(new: &Value, causes: &mut Causes) {
    if list(&new["spec"], "accessModes").is_empty() {
        causes.required("spec.accessModes", "at least 1 access mode is required");
    }
}
