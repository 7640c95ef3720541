//! Namespaces: a phase, and a label with their own name.

use serde_json::{Value, json};

use super::{child, default, list, metadata};
use crate::causes::Causes;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let name = new["metadata"]["name"].clone();
    child(child(new, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
    // After the creation, only the path `finalize` changes them.
    default(child(new, "spec"), "finalizers", json!(["kubernetes"]));
    let deleted = new["metadata"]["deletionTimestamp"].is_string();
    let status = child(new, "status");
    if deleted {
        status["phase"] = json!("Terminating");
    } else {
        default(status, "phase", "Active");
    }
}

pub(super) fn validate(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    for finalizer in list(&new["spec"], "finalizers") {
        metadata::check_namespace_finalizer(finalizer, causes);
    }
}
