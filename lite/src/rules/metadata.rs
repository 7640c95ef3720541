//! Names, labels and annotations: the same rules for every kind.

use serde_json::Value;

use crate::causes::Causes;
use crate::kind::Kind;
use crate::names;

/// The maximum size of all annotations of an object together, keys and values, in bytes.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Kinds whose names are one DNS label, because they become part of host names.
const NAMED_BY_LABEL: &[&str] = &["Namespace", "Service"];

/// Kinds whose names are any segment of a path, such as `system:node`.
const NAMED_FREELY: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Reports a name that is not a DNS name in lower case.
pub(super) fn check_subdomain(field: &str, name: &str, causes: &mut Causes) {
    causes.all(field, &name.into(), names::subdomain(name));
}

/// Reports a name that is not one DNS label.
pub(super) fn check_label(field: &str, name: &str, causes: &mut Causes) {
    causes.all(field, &name.into(), names::label(name));
}

pub(super) fn validate(kind: &Kind, object: &Value, old: Option<&Value>, causes: &mut Causes) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else {
        check_name(kind, "metadata.name", name, causes);
    }
    // A base of a name may end with anything that may be within one.
    let base = super::text(metadata, "generateName");
    if !base.is_empty() && old.is_none() {
        let before = causes.0.len();
        check_name(kind, "metadata.generateName", &format!("{}a", base.trim_end_matches('-')), causes);
        for cause in &mut causes.0[before..] {
            cause.message = cause.message.replacen(&format!("{}a", base.trim_end_matches('-')), base, 1);
        }
    }
    names::check_labels("metadata.labels", &metadata["labels"], causes);
    check_annotations("metadata.annotations", &metadata["annotations"], causes);
    check_owners(super::list(metadata, "ownerReferences"), &metadata["ownerReferences"], causes);
    check_finalizers(kind, metadata, old.is_none(), causes);
}

/// Reports annotations that are no names, or too long.
pub(super) fn check_annotations(field: &str, annotations: &Value, causes: &mut Causes) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().unwrap_or_default().len();
        causes.all(field, &key.as_str().into(), names::qualified(&key.to_lowercase()));
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        causes.too_long(field, &format!("may not be more than {ANNOTATIONS_MAX_BYTES} bytes"));
    }
}

fn check_name(kind: &Kind, field: &str, name: &str, causes: &mut Causes) {
    if kind.built_in().is_some_and(|name| NAMED_BY_LABEL.contains(&name)) {
        check_label(field, name, causes);
    } else if kind.built_in().is_some_and(|name| NAMED_FREELY.contains(&name)) {
        causes.all(field, &name.into(), names::path_segment(name));
    } else {
        check_subdomain(field, name, causes);
    }
}

/// Reports finalizers that are not names. Those of built-in kinds have a domain, or are Kubernetes' own.
fn check_finalizers(kind: &Kind, metadata: &Value, is_new: bool, causes: &mut Causes) {
    const FIELD: &str = "metadata.finalizers";
    let finalizers = super::list(metadata, "finalizers");
    for finalizer in finalizers.iter().filter(|_| is_new) {
        check_qualified(FIELD, finalizer, causes);
    }
    let has = |name: &str| finalizers.iter().any(|one| one == name);
    if is_new && has("orphan") && has("foregroundDeletion") {
        causes.invalid(FIELD, &metadata["finalizers"], "finalizer orphan and foregroundDeletion cannot be both set");
    }
    for (nth, finalizer) in finalizers.iter().enumerate().filter(|_| kind.built_in().is_some()) {
        check_domain(&format!("{FIELD}[{nth}]"), finalizer, causes);
    }
}

/// Reports the finalizer of a namespace that is no name, or has no domain and is not Kubernetes' own.
pub(super) fn check_namespace_finalizer(finalizer: &Value, causes: &mut Causes) {
    const FIELD: &str = "spec.finalizers";
    check_qualified(FIELD, finalizer, causes);
    check_domain(FIELD, finalizer, causes);
}

fn check_qualified(field: &str, finalizer: &Value, causes: &mut Causes) {
    causes.all(field, finalizer, names::qualified(finalizer.as_str().unwrap_or_default()));
}

fn check_domain(field: &str, finalizer: &Value, causes: &mut Causes) {
    let name = finalizer.as_str().unwrap_or_default();
    if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        causes.invalid(field, finalizer, why);
    }
}

/// Reports owners that are not named, and more than one controller.
fn check_owners(owners: &[Value], all: &Value, causes: &mut Causes) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<&Value> = None;
    for owner in owners {
        let version = super::text(owner, "apiVersion");
        let (group, name) = version.rsplit_once('/').unwrap_or(("", version));
        if name.is_empty() || group.contains('/') {
            causes.invalid(format!("{FIELD}.apiVersion"), &version.into(), "version must not be empty");
        }
        for field in ["kind", "name", "uid"].into_iter().filter(|field| super::text(owner, field).is_empty()) {
            causes.invalid(format!("{FIELD}.{field}"), &"".into(), "must not be empty");
        }
        if version == "v1" && owner["kind"] == "Event" {
            causes.invalid(FIELD, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            match controller {
                None => controller = Some(owner),
                Some(first) => {
                    let named = |one: &Value| format!("{}/{}", super::text(one, "kind"), super::text(one, "name"));
                    let (first, second) = (named(first), named(owner));
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
                    );
                    causes.invalid(FIELD, all, &why);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::{LABEL_VALUE, QUALIFIED, SUBDOMAIN};
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn metadata_is_checked() {
        check_refused(
            "ConfigMap",
            json!({"metadata": {"name": "a_b"}}),
            None,
            &format!("metadata.name: Invalid value: \"a_b\": {SUBDOMAIN}"),
        );
        check_refused(
            "ConfigMap",
            json!({"metadata": {"labels": {"a": "b c"}}}),
            None,
            &format!("metadata.labels: Invalid value: \"b c\": {LABEL_VALUE}"),
        );
        check_refused(
            "ConfigMap",
            json!({"metadata": {"annotations": {"a b": ""}}}),
            None,
            &format!("metadata.annotations: Invalid value: \"a b\": {QUALIFIED}"),
        );
        let long = "a".repeat(ANNOTATIONS_MAX_BYTES);
        check_refused(
            "ConfigMap",
            json!({"metadata": {"annotations": {"a": long}}}),
            None,
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        );
        assert!(
            outcome("ConfigMap", json!({"metadata": {"annotations": {"Example.com/A": "anything at all"}}}), None)
                .is_ok()
        );
    }
}
