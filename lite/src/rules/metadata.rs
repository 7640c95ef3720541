//! Names, labels and annotations: the same rules for every kind.

use serde_json::Value;

use super::names;
use crate::failure::Causes;
use crate::kind::Kind;

/// The maximum size of all annotations of an object together, keys and values, in bytes.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(crate) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Kinds whose names are one DNS label, because they become part of host names.
const NAMED_BY_LABEL: &[&str] = &["Namespace", "Service"];

/// Returns `true` if this is one DNS label of at most 63 bytes.
pub(crate) fn is_label(name: &str) -> bool {
    let ends = |one: Option<u8>| one.is_some_and(|one| one != b'-');
    name.len() <= 63
        && name.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
        && ends(name.bytes().next())
        && ends(name.bytes().last())
}

/// Returns `true` if this is a DNS name in lower case of at most 253 bytes.
pub(crate) fn is_subdomain(name: &str) -> bool {
    // Labels of a subdomain have no limit of their own in Kubernetes; 253 for the whole is.
    let ends = |one: Option<u8>| one.is_some_and(|one| one != b'-');
    name.len() <= 253
        && name.split('.').all(|label| {
            label.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
                && ends(label.bytes().next())
                && ends(label.bytes().last())
        })
}

/// Reports a name that is not a DNS name in lower case.
pub(super) fn check_subdomain(field: &str, name: &str, causes: &mut Causes) {
    causes.all(field, &name.into(), names::subdomain(name));
}

/// Reports a name that is not one DNS label.
pub(super) fn check_label(field: &str, name: &str, causes: &mut Causes) {
    causes.all(field, &name.into(), names::label(name));
}

pub(super) fn validate(kind: &Kind, object: &Value, causes: &mut Causes) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else if kind.built_in().is_some_and(|name| NAMED_BY_LABEL.contains(&name)) {
        check_label("metadata.name", name, causes);
    } else {
        check_subdomain("metadata.name", name, causes);
    }
    check_labels("metadata.labels", &metadata["labels"], causes);
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().unwrap_or_default().len();
        causes.all("metadata.annotations", &key.as_str().into(), names::qualified(&key.to_lowercase()));
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        let why = format!("may not be more than {ANNOTATIONS_MAX_BYTES} bytes");
        causes.0.push(crate::failure::Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".into(),
            message: format!("Too long: {why}"),
        });
    }
}

/// Reports invalid metadata of an object within another, which needs no name.
pub(crate) fn check_embedded(field: &str, metadata: &Value, causes: &mut Causes) {
    check_labels(&format!("{field}.labels"), &metadata["labels"], causes);
}

pub(crate) const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Reports invalid label keys and values.
pub(super) fn check_labels(field: &str, labels: &Value, causes: &mut Causes) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        causes.all(field, &key.as_str().into(), names::qualified(key));
        causes.all(field, value, names::label_value(value.as_str().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn names_are_dns() {
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            ("a.b", false, true),
            ("A", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name}");
        }
        assert!(!is_label(&"a".repeat(64)));
        assert!(!is_subdomain(&"a".repeat(254)));
    }

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
